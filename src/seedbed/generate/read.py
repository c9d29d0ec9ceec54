"""What the verb `read` says of a text: the whole in one line, its most surprising words, or everything as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log
from typing import Any

from seedbed.generate.load import Loaded
from seedbed.generate.results import Choice, Choices
from seedbed.generate.surprisal import Span, Surprisal


def surprisal_as_json(loaded: Loaded, read: Surprisal, n_spans: int) -> dict[str, Any]:
    """Every number of a text that was read."""
    texts = loaded.tokens.texts
    places = zip(read.ids, read.pieces, read.losses, read.alternatives, read.probabilities, strict=True)
    return {
        "run": loaded.run.id,
        "step": loaded.step,
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
    yield str(read)
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
    return at, f"{own}; likelier: " + repr(
        Choices([Choice(loaded.tokens.texts[i], i, share) for i, share in pairs][:3])
    )
