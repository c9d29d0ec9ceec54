"""What the verb `read` says of a text: the whole in one line, its most surprising words, or everything as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log
from typing import Any

from seedbed.sampling.loaded_run import LoadedRun
from seedbed.sampling.results import TokenProbabilities, TokenProbability
from seedbed.sampling.surprisal import Surprisal, WordSurprisal


def surprisal_as_json(loaded: LoadedRun, surprisal: Surprisal, n_words: int) -> dict[str, Any]:
    """Every number of a text that was read."""
    texts = loaded.tokenizer.texts
    places = zip(
        surprisal.ids, surprisal.pieces, surprisal.losses, surprisal.alternatives, surprisal.probabilities, strict=True
    )
    return {
        "run": loaded.run.id,
        "step": loaded.step,
        "n_tokens": len(surprisal.ids),
        "loss": surprisal.mean_loss,
        "perplexity": surprisal.perplexity,
        "bits_per_character": surprisal.bits_per_character,
        "bits_per_byte": surprisal.bits_per_byte,
        "spans": [vars(span) for span in surprisal.most_surprising_words(n_words)],
        "tokens": [
            {
                "token": token,
                "text": piece,
                "loss": None if first else loss,
                "alternatives": [] if first else [[texts[i], share] for i, share in zip(likely, shares, strict=True)],
            }
            for first, (token, piece, loss, likely, shares) in zip(
                [True] + [False] * (len(surprisal.ids) - 1), places, strict=True
            )
        ],
    }


def format_surprisal_lines(loaded: LoadedRun, surprisal: Surprisal, n_words: int) -> Iterator[str]:
    """The whole in one line, then the most surprising words with what the model expected instead."""
    yield str(surprisal)
    for span in surprisal.most_surprising_words(n_words):
        at, expected = _format_expected(loaded, surprisal, span)
        yield f"{span.bits:7.1f} bits  {span.text!r} (token {span.start + 1}); for {surprisal.pieces[at]!r}: {expected}"


def _format_expected(loaded: LoadedRun, surprisal: Surprisal, word: WordSurprisal) -> tuple[int, str]:
    """The most surprising token of a span, and what was likelier there."""
    at = max(
        range(word.start, word.end),
        key=lambda i: surprisal.losses[i] if surprisal.losses[i] == surprisal.losses[i] else -1.0,
    )
    if at == 0:
        return at, "nothing came before it"
    pairs = zip(surprisal.alternatives[at].tolist(), surprisal.probabilities[at].tolist(), strict=True)
    own = f"{exp(-surprisal.losses[at]):.2%} (−log₂ = {surprisal.losses[at] / log(2):.1f})"
    return at, f"{own}; likelier: " + repr(
        TokenProbabilities([TokenProbability(loaded.tokenizer.texts[i], i, share) for i, share in pairs][:3])
    )
