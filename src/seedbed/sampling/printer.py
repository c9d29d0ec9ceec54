"""Output of `seedbed sample`: text while it is generated, or everything as JSON at the end.

Several samples are generated in one batch but printed one after the other: the first is streamed, the others follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from seedbed.data.suffix_array import MIN_COPIED_CHARACTERS
from seedbed.errors import MissingData
from seedbed.sampling.batched import group_by_shape, sample_runs, stream_runs
from seedbed.sampling.copy_detection import StreamingCopyDetector, TextSegment, training_text_index
from seedbed.sampling.loaded_run import LoadedRun
from seedbed.sampling.results import Sample, Samples
from seedbed.study.run_data import require_training_data
from seedbed.tasks.base import Task

SLOW_INDEX_TOKENS = 1_000_000  # indexing a larger training text takes seconds


class SamplePrinter:
    """Samples from runs and formats the result; further arguments are those of `LoadedRun.stream` after the prompt."""

    def __init__(
        self, runs: Sequence[LoadedRun], prompt: str, *args: Any, n_samples: int = 1, copied: bool = True, **kwargs: Any
    ) -> None:
        for run in runs:
            run.require_next_token("generates no text")
        self.runs, self.prompt, self._n_samples = runs, prompt, n_samples
        self._args, self._kwargs = args, kwargs | {"n": n_samples}
        self._indexed_tasks: dict[str, Task] = {}  # by run, of the runs whose training text is there
        self._missing_texts: list[str] = []  # why copied text cannot be marked
        if copied:
            self._find_training_texts()
        self._n_characters = self._n_copied = 0

    def _find_training_texts(self) -> None:
        for run in self.runs:
            if run.run.settings.task.generates_text:
                try:
                    require_training_data(run.run)
                    self._indexed_tasks[run.run.id] = run.run.settings.task
                except MissingData as error:
                    self._missing_texts.append(f"copied text is not marked: {error}")

    @property
    def notices(self) -> list[str]:
        """Notices to print before the samples, without duplicates."""
        return list(dict.fromkeys([*self._prompt_notices(), *self._missing_texts, *self._index_notices()]))

    def _prompt_notices(self) -> Iterator[str]:
        for run in self.runs:
            n = len(run.encode(self.prompt))
            if n > run.context and not run.run.settings.task.completes_prompts:
                yield f"the prompt has {n:,} tokens; the model reads the last {run.context:,} of them, its context"

    def _index_notices(self) -> Iterator[str]:
        for task in self._indexed_tasks.values():
            n = int(task.text_dataset().splits["train"].spans.lengths.sum())
            if n > SLOW_INDEX_TOKENS:
                yield f"indexing {n:,} tokens of training text first, to mark copied text; --no-copied skips this"

    def text_segments(self) -> Iterator[TextSegment]:
        """Yields the samples one after the other, in segments that are copied from the training text or not."""
        for indices in group_by_shape(self.runs):
            yield from self._group_segments([self.runs[index] for index in indices])

    def _group_segments(self, group: Sequence[LoadedRun]) -> Iterator[TextSegment]:
        """Segments of all samples of runs of one shape; streams the first sample and buffers the others."""
        buffered: dict[tuple[int, int], list[str]] = {}

        def stream_first() -> Iterator[str]:
            for chunk in stream_runs(group, self.prompt, *self._args, **self._kwargs):
                if (chunk.run, chunk.sample) == (0, 0):
                    yield chunk.text
                else:
                    buffered.setdefault((chunk.run, chunk.sample), []).append(chunk.text)

        yield from self._sample_segments(group[0], 0, stream_first())
        for (run, sample), chunks in sorted(buffered.items()):
            yield from self._sample_segments(group[run], sample, chunks)

    def _sample_segments(self, run: LoadedRun, sample: int, chunks: Iterable[str]) -> Iterator[TextSegment]:
        """One sample, under a heading if there are several; an equation is followed by its most likely answers."""
        if len(self.runs) * self._n_samples > 1:
            gap = "" if run is self.runs[0] and sample == 0 else "\n"
            yield TextSegment(f"{gap}── run {run.run.id}, text {sample + 1} of {self._n_samples} ──\n", False)
        yield TextSegment(self.prompt, False)
        yield from self._mark_copied(run, chunks)
        yield TextSegment("\n", False)
        if run.run.settings.task.completes_prompts:
            yield TextSegment(f"most likely next: {run.top_next_tokens(self.prompt)!r}\n", False)

    def _mark_copied(self, run: LoadedRun, chunks: Iterable[str]) -> Iterator[TextSegment]:
        task = self._indexed_tasks.get(run.run.id)
        if task is None:
            yield from (TextSegment(text, False) for text in chunks)
            return
        detector = StreamingCopyDetector(training_text_index(task))
        for text in chunks:
            yield from detector.feed(text)
        yield from detector.flush()
        self._n_characters += detector.n_characters
        self._n_copied += detector.n_copied

    @property
    def legend(self) -> str | None:
        """How much of the text was copied, for printing after the samples; None if copies were not searched for."""
        if not self._n_characters:
            return None
        return (
            f"{self._n_copied:,} of {self._n_characters:,} characters are in spans of {MIN_COPIED_CHARACTERS} or more "
            "that occur verbatim in the training text"
        )

    def as_json(self) -> Any:
        """A JSON document for one run, or a list of documents for several."""
        by_run = sample_runs(self.runs, self.prompt, *self._args, **self._kwargs)
        documents = [self._run_as_json(run, samples) for run, samples in zip(self.runs, by_run, strict=True)]
        return documents[0] if len(documents) == 1 else documents

    def _run_as_json(self, run: LoadedRun, samples: Samples) -> dict[str, Any]:
        find_copies = run.run.id in self._indexed_tasks
        samples = run.mark_copies(samples) if find_copies else samples
        return {
            "run": run.run.id,
            "step": run.step,
            "prompt": self.prompt,
            "prompt_tokens": run.encode_prompt(self.prompt).tolist(),
            "alternatives": [vars(candidate) for candidate in run.top_next_tokens(self.prompt)],
            "copied_from": MIN_COPIED_CHARACTERS if find_copies else None,  # characters
            "samples": [_sample_as_json(sample) for sample in samples],
        }


def _sample_as_json(sample: Sample) -> dict[str, Any]:
    copied = None if sample.copied_spans is None else [[span.start, span.end] for span in sample.copied_spans]
    return {
        "text": sample.text,
        "tokens": sample.tokens,
        "log_probabilities": sample.log_probabilities,
        "copied": copied,
    }
