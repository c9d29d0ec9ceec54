"""What the verb `sample` says: texts while they come, and everything as JSON at the end.

Several texts are drawn together and told one after the other: the first as it comes, the others as soon as it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from seedbed.data.datasets import load_text_dataset
from seedbed.data.suffix_array import MIN_COPIED_CHARACTERS
from seedbed.sampling.batched import group_by_shape, sample_runs, stream_runs
from seedbed.sampling.copy_detection import StreamingCopyDetector, TextSegment, training_text_index
from seedbed.sampling.equation_tokenizer import EquationTokenizer
from seedbed.sampling.loaded_run import LoadedRun
from seedbed.sampling.results import Sample, Samples
from seedbed.settings import TextSettings

SLOW_INDEX_TOKENS = 1_000_000  # tokens of training text from which sorting it takes seconds


class SamplePrinter:
    """Runs about to write on from a prompt; `dials` are those of `Loaded.stream` after the prompt."""

    def __init__(
        self, runs: Sequence[LoadedRun], prompt: str, *args: Any, n_samples: int = 1, copied: bool = True, **kwargs: Any
    ) -> None:
        self.runs, self.prompt, self._n_samples = runs, prompt, n_samples
        self._args, self._kwargs = args, kwargs | {"n": n_samples}
        self._indexed_tasks = [
            run.run.settings.task for run in runs if copied and isinstance(run.run.settings.task, TextSettings)
        ]
        self._n_characters = self._n_copied = 0

    @property
    def notices(self) -> list[str]:
        """What a person should know before reading on, each once."""
        return list(dict.fromkeys([*self._prompt_notices(), *self._index_notices()]))

    def _prompt_notices(self) -> Iterator[str]:
        for run in self.runs:
            n = len(run.encode(self.prompt))
            if n > run.context and not isinstance(run.tokenizer, EquationTokenizer):
                yield f"the prompt has {n:,} tokens; the model reads the last {run.context:,} of them, its context"

    def _index_notices(self) -> Iterator[str]:
        for task in self._indexed_tasks:
            n = int(load_text_dataset(task).splits["train"].spans.lengths.sum())
            if n > SLOW_INDEX_TOKENS:
                yield f"first sorting {n:,} tokens of training text, to mark what is copied; --no-copied skips it"

    def text_segments(self) -> Iterator[TextSegment]:
        """Text by text, in parts that are copied from the training text or not."""
        for numbers in group_by_shape(self.runs):
            yield from self._group_segments([self.runs[number] for number in numbers])

    def _group_segments(self, group: Sequence[LoadedRun]) -> Iterator[TextSegment]:
        """The texts of runs of one shape."""
        others: dict[tuple[int, int], list[str]] = {}

        def of_the_first() -> Iterator[str]:
            for piece in stream_runs(group, self.prompt, *self._args, **self._kwargs):
                if (piece.run, piece.sample) == (0, 0):
                    yield piece.text
                else:
                    others.setdefault((piece.run, piece.sample), []).append(piece.text)

        yield from self._sample_segments(group[0], 0, of_the_first())
        for (run, number), texts in sorted(others.items()):
            yield from self._sample_segments(group[run], number, texts)

    def _sample_segments(self, run: LoadedRun, number: int, chunks: Iterable[str]) -> Iterator[TextSegment]:
        """One text under its heading, if there are several; an equation with what else could have been its answer."""
        if len(self.runs) * self._n_samples > 1:
            gap = "" if run is self.runs[0] and number == 0 else "\n"
            yield TextSegment(f"{gap}── run {run.run.id}, text {number + 1} of {self._n_samples} ──\n", False)
        yield TextSegment(self.prompt, False)
        yield from self._mark_copied(run, chunks)
        yield TextSegment("\n", False)
        if isinstance(run.tokenizer, EquationTokenizer):
            yield TextSegment(f"likeliest next: {run.top_next_tokens(self.prompt)!r}\n", False)

    def _mark_copied(self, run: LoadedRun, chunks: Iterable[str]) -> Iterator[TextSegment]:
        task = run.run.settings.task
        if task not in self._indexed_tasks or not isinstance(task, TextSettings):
            yield from (TextSegment(text, False) for text in chunks)
            return
        marks = StreamingCopyDetector(training_text_index(task))
        for text in chunks:
            yield from marks.feed(text)
        yield from marks.flush()
        self._n_characters += marks.n_characters
        self._n_copied += marks.n_copied

    @property
    def legend(self) -> str | None:
        """What the marks mean, once all is told."""
        if not self._n_characters:
            return None
        return (
            f"{self._n_copied:,} of {self._n_characters:,} characters lie in stretches of {MIN_COPIED_CHARACTERS} or more that stand "
            "verbatim in the training text"
        )

    def as_json(self) -> Any:
        """A document for the run, or a list of them for several."""
        texts = sample_runs(self.runs, self.prompt, *self._args, **self._kwargs)
        documents = [self._run_as_json(run, samples) for run, samples in zip(self.runs, texts, strict=True)]
        return documents[0] if len(documents) == 1 else documents

    def _run_as_json(self, run: LoadedRun, samples: Samples) -> dict[str, Any]:
        looks = run.run.settings.task in self._indexed_tasks
        return {
            "run": run.run.id,
            "step": run.step,
            "prompt": self.prompt,
            "prompt_tokens": run.encode_prompt(self.prompt).tolist(),
            "alternatives": [vars(choice) for choice in run.top_next_tokens(self.prompt)],
            "copied_from": MIN_COPIED_CHARACTERS if looks else None,  # characters
            "samples": [
                _sample_as_json(replace(one, copied_spans=run.find_training_copies(one.text)) if looks else one)
                for one in samples
            ],
        }


def _sample_as_json(sample: Sample) -> dict[str, Any]:
    copied = None if sample.copied_spans is None else [[span.start, span.end] for span in sample.copied_spans]
    return {
        "text": sample.text,
        "tokens": sample.tokens,
        "log_probabilities": sample.log_probabilities,
        "copied": copied,
    }
