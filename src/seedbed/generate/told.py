"""What the verbs `sample` and `read` say: pieces as text while they come, and everything as JSON at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import exp, log
from typing import Any

from seedbed.generate.equations import Equations
from seedbed.generate.load import Choice, Loaded, Piece, gathered
from seedbed.generate.surprisal import Span, Surprisal


class Told:
    """A run about to write on from a prompt."""

    def __init__(self, loaded: Loaded, prompt: str) -> None:
        self.loaded, self.prompt = loaded, prompt
        self._n_given = len(loaded.encode(prompt))

    @property
    def notices(self) -> list[str]:
        """What a person should know before reading on."""
        context = self.loaded.context
        if self._n_given <= context or isinstance(self.loaded.tokens, Equations):
            return []
        return [f"the prompt has {self._n_given:,} tokens; the model reads the last {context:,} of them, its context"]

    def pieces(self, tokens: int, *dials: Any) -> Iterator[Piece]:
        return self.loaded.stream(self.prompt, tokens, *dials)

    def as_text(self, pieces: Iterable[Piece]) -> Iterator[str]:
        """The first sample as it comes, then the others; an equation with what else could have been its answer."""
        others: dict[int, list[str]] = {}
        yield self.prompt
        for piece in pieces:
            if piece.sample == 0:
                yield piece.text
            else:
                others.setdefault(piece.sample, []).append(piece.text)
        for texts in others.values():
            yield f"\n\n{self.prompt}" + "".join(texts)
        yield "\n"
        if isinstance(self.loaded.tokens, Equations):
            yield "likeliest next: " + _listed(self.loaded.choices(self.prompt)) + "\n"

    def as_json(self, pieces: Iterable[Piece]) -> dict[str, Any]:
        by_sample: dict[int, list[Piece]] = {}
        for piece in pieces:
            by_sample.setdefault(piece.sample, []).append(piece)
        samples = [gathered(self.prompt, by_sample[number]) for number in sorted(by_sample)]
        return _head(self.loaded) | {
            "prompt": self.prompt,
            "prompt_tokens": self.loaded.prompt(self.prompt).tolist(),
            "alternatives": [vars(choice) for choice in self.loaded.choices(self.prompt)],
            "samples": [
                {"text": one.text, "tokens": one.tokens, "log_probabilities": one.log_probabilities} for one in samples
            ],
        }


def surprisal_as_json(loaded: Loaded, read: Surprisal, n_spans: int) -> dict[str, Any]:
    """Every number of a text that was read."""
    texts = loaded.tokens.texts
    places = zip(read.ids, read.pieces, read.losses, read.alternatives, read.probabilities, strict=True)
    return _head(loaded) | {
        "n_tokens": len(read.ids),
        "loss": read.mean_loss,
        "perplexity": read.perplexity,
        "bits_per_character": read.bits_per_character,
        "bits_per_byte": read.bits_per_byte,
        "spans": [vars(span) for span in read.spans(n_spans)],
        "tokens": [
            {
                "token": token,
                "text": piece,
                "loss": None if first else loss,
                "alternatives": [] if first else [[texts[i], share] for i, share in zip(likely, shares, strict=True)],
            }
            for first, (token, piece, loss, likely, shares) in zip(
                [True] + [False] * (len(read.ids) - 1), places, strict=True
            )
        ],
    }


def surprisal_lines(loaded: Loaded, read: Surprisal, n_spans: int) -> Iterator[str]:
    """The whole in one line, then the most surprising words with what the model expected instead."""
    yield (
        f"{len(read.ids):,} tokens, loss {read.mean_loss:.4f}, perplexity {read.perplexity:.3f}, "
        f"{read.bits_per_character:.4f} bits per character, {read.bits_per_byte:.4f} per byte"
    )
    for span in read.spans(n_spans):
        at, expected = _expected(loaded, read, span)
        yield f"{span.bits:7.1f} bits  {span.text!r} (token {span.start + 1}); for {read.pieces[at]!r}: {expected}"


def _expected(loaded: Loaded, read: Surprisal, span: Span) -> tuple[int, str]:
    """The most surprising token of a span, and what was likelier there."""
    at = max(range(span.start, span.end), key=lambda i: read.losses[i] if read.losses[i] == read.losses[i] else -1.0)
    if at == 0:
        return at, "nothing came before it"
    pairs = zip(read.alternatives[at].tolist(), read.probabilities[at].tolist(), strict=True)
    own = f"{exp(-read.losses[at]):.2%} (−log₂ = {read.losses[at] / log(2):.1f})"
    return at, f"{own}; likelier: " + _listed([Choice(loaded.tokens.texts[i], i, share) for i, share in pairs][:3])


def _listed(choices: Iterable[Choice]) -> str:
    return ", ".join(f"{choice.text!r} {choice.probability:.1%}" for choice in choices)


def _head(loaded: Loaded) -> dict[str, Any]:
    return {"run": loaded.run.id, "step": loaded.step}
