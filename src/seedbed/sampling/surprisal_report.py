"""Output of `seedbed read`: a summary line and the most surprising words, or all scores as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, isnan, log
from typing import Any

from seedbed.sampling.loaded_run import LoadedRun
from seedbed.sampling.results import TokenProbabilities, TokenProbability
from seedbed.sampling.surprisal import Surprisal, WordSurprisal


def surprisal_as_json(loaded: LoadedRun, surprisal: Surprisal, n_words: int) -> dict[str, Any]:
    """All scores of a text as a JSON document."""
    texts = loaded.token_texts
    rows = zip(
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
        "spans": [vars(word) for word in surprisal.most_surprising_words(n_words)],
        "tokens": [
            {
                "token": token,
                "text": piece,
                "loss": None if first else loss,
                "alternatives": [] if first else [[texts[i], p] for i, p in zip(top_ids, probabilities, strict=True)],
            }
            for first, (token, piece, loss, top_ids, probabilities) in zip(
                [True] + [False] * (len(surprisal.ids) - 1), rows, strict=True
            )
        ],
    }


def format_surprisal_lines(loaded: LoadedRun, surprisal: Surprisal, n_words: int) -> Iterator[str]:
    """A summary line, then the most surprising words with what the model expected instead."""
    yield str(surprisal)
    for word in surprisal.most_surprising_words(n_words):
        expected = _format_expected(loaded, surprisal, word)
        yield f"{word.bits:7.1f} bits  {word.text!r} (token {word.start + 1}); {expected}"


def _format_expected(loaded: LoadedRun, surprisal: Surprisal, word: WordSurprisal) -> str:
    """The most surprising token of a word with its probability, and the tokens that were more likely."""
    losses = surprisal.losses
    # The first token's loss is NaN: it counts as the least surprising.
    position = max(range(word.start, word.end), key=lambda i: -1.0 if isnan(losses[i]) else losses[i])
    # A token that ends inside a character has no text in context; one that completes it has that character.
    piece, token = surprisal.pieces[position], loaded.token_texts[surprisal.ids[position]]
    token = token if piece.strip() in ("", token.strip()) else piece
    if position == 0:
        return f"nothing came before {token!r}"
    probability = exp(-losses[position])
    pairs = zip(surprisal.alternatives[position].tolist(), surprisal.probabilities[position].tolist(), strict=True)
    likelier = [
        TokenProbability(loaded.token_texts[i], i, p)
        for i, p in pairs
        if i != surprisal.ids[position] and p > probability
    ]
    expected = f"more likely: {TokenProbabilities(likelier[:3])!r}" if likelier else "no token was more likely"
    return f"{token!r} had {probability:.2%} ({losses[position] / log(2):.1f} bits); {expected}"
