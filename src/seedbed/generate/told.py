"""What the verb `sample` says: texts while they come, and everything as JSON at the end.

Several texts are drawn together and told one after the other: the first as it comes, the others as soon as it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from seedbed.data.prepared import prepare_text
from seedbed.data.verbatim import COPIED
from seedbed.generate.copied import Marks, Part, training_index
from seedbed.generate.equations import Equations
from seedbed.generate.load import Loaded
from seedbed.generate.results import Sample, Samples
from seedbed.generate.together import alike, sample_together, stream_together
from seedbed.settings import Text

MANY = 1_000_000  # tokens of training text from which sorting it takes seconds


class Told:
    """Runs about to write on from a prompt; `dials` are those of `Loaded.stream` after the prompt."""

    def __init__(
        self, runs: Sequence[Loaded], prompt: str, *dials: Any, n: int = 1, copied: bool = True, **named: Any
    ) -> None:
        self.runs, self.prompt, self._n = runs, prompt, n
        self._dials, self._named = dials, named | {"n": n}
        self._indexed = [run.run.settings.task for run in runs if copied and isinstance(run.run.settings.task, Text)]
        self._n_characters = self._n_copied = 0

    @property
    def notices(self) -> list[str]:
        """What a person should know before reading on, each once."""
        return list(dict.fromkeys([*self._too_long(), *self._long_to_sort()]))

    def _too_long(self) -> Iterator[str]:
        for run in self.runs:
            n = len(run.encode(self.prompt))
            if n > run.context and not isinstance(run.tokens, Equations):
                yield f"the prompt has {n:,} tokens; the model reads the last {run.context:,} of them, its context"

    def _long_to_sort(self) -> Iterator[str]:
        for task in self._indexed:
            n = int(prepare_text(task).parts["train"].spans.lengths.sum())
            if n > MANY:
                yield f"first sorting {n:,} tokens of training text, to mark what is copied; --no-copied skips it"

    def as_text(self) -> Iterator[Part]:
        """Text by text, in parts that are copied from the training text or not."""
        for numbers in alike(self.runs):
            yield from self._texts([self.runs[number] for number in numbers])

    def _texts(self, group: Sequence[Loaded]) -> Iterator[Part]:
        """The texts of runs of one shape."""
        others: dict[tuple[int, int], list[str]] = {}

        def of_the_first() -> Iterator[str]:
            for piece in stream_together(group, self.prompt, *self._dials, **self._named):
                if (piece.run, piece.sample) == (0, 0):
                    yield piece.text
                else:
                    others.setdefault((piece.run, piece.sample), []).append(piece.text)

        yield from self._text(group[0], 0, of_the_first())
        for (run, number), texts in sorted(others.items()):
            yield from self._text(group[run], number, texts)

    def _text(self, run: Loaded, number: int, texts: Iterable[str]) -> Iterator[Part]:
        """One text under its heading, if there are several; an equation with what else could have been its answer."""
        if len(self.runs) * self._n > 1:
            gap = "" if run is self.runs[0] and number == 0 else "\n"
            yield Part(f"{gap}── run {run.run.id}, text {number + 1} of {self._n} ──\n", False)
        yield Part(self.prompt, False)
        yield from self._marked(run, texts)
        yield Part("\n", False)
        if isinstance(run.tokens, Equations):
            yield Part(f"likeliest next: {run.choices(self.prompt)!r}\n", False)

    def _marked(self, run: Loaded, texts: Iterable[str]) -> Iterator[Part]:
        task = run.run.settings.task
        if task not in self._indexed or not isinstance(task, Text):
            yield from (Part(text, False) for text in texts)
            return
        marks = Marks(training_index(task))
        for text in texts:
            yield from marks.feed(text)
        yield from marks.end()
        self._n_characters += marks.n_characters
        self._n_copied += marks.n_copied

    @property
    def legend(self) -> str | None:
        """What the marks mean, once all is told."""
        if not self._n_characters:
            return None
        return (
            f"{self._n_copied:,} of {self._n_characters:,} characters lie in stretches of {COPIED} or more that stand "
            "verbatim in the training text"
        )

    def as_json(self) -> Any:
        """A document for the run, or a list of them for several."""
        texts = sample_together(self.runs, self.prompt, *self._dials, **self._named)
        documents = [self._document(run, samples) for run, samples in zip(self.runs, texts, strict=True)]
        return documents[0] if len(documents) == 1 else documents

    def _document(self, run: Loaded, samples: Samples) -> dict[str, Any]:
        looks = run.run.settings.task in self._indexed
        return {
            "run": run.run.id,
            "step": run.step,
            "prompt": self.prompt,
            "prompt_tokens": run.prompt(self.prompt).tolist(),
            "alternatives": [vars(choice) for choice in run.choices(self.prompt)],
            "copied_from": COPIED if looks else None,  # characters
            "samples": [_as_json(replace(one, copied=run.copied(one.text)) if looks else one) for one in samples],
        }


def _as_json(sample: Sample) -> dict[str, Any]:
    copied = None if sample.copied is None else [[span.start, span.end] for span in sample.copied]
    return {
        "text": sample.text,
        "tokens": sample.tokens,
        "log_probabilities": sample.log_probabilities,
        "copied": copied,
    }
