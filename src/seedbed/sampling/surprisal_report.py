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
    texts = loaded.tokenizer.texts
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
        position, expected = _format_expected(loaded, surprisal, word)
        piece = surprisal.pieces[position]
        yield f"{word.bits:7.1f} bits  {word.text!r} (token {word.start + 1}); for {piece!r}: {expected}"


def _format_expected(loaded: LoadedRun, surprisal: Surprisal, word: WordSurprisal) -> tuple[int, str]:
    """Position of the most surprising token of a word, and its probability beside the likelier tokens."""
    losses = surprisal.losses
    # The first token's loss is NaN: it counts as the least surprising.
    position = max(range(word.start, word.end), key=lambda i: -1.0 if isnan(losses[i]) else losses[i])
    if position == 0:
        return position, "nothing came before it"
    pairs = zip(surprisal.alternatives[position].tolist(), surprisal.probabilities[position].tolist(), strict=True)
    likelier = TokenProbabilities([TokenProbability(loaded.tokenizer.texts[i], i, p) for i, p in pairs][:3])
    own = f"{exp(-losses[position]):.2%} (−log₂ = {losses[position] / log(2):.1f})"
    return position, f"{own}; more likely: {likelier!r}"
