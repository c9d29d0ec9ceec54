"""Surprisal of a text under a model: the loss of each token, the most likely alternatives, the most surprising words.

    surprisal = compute_surprisal(model, tokenizer, ids, context)
    surprisal.bits_per_character, surprisal.most_surprising_words(10)

A text longer than the context is scored in windows that overlap by half: past the first window every token is
predicted from at least half a context, and is scored once. The first token has no context and no loss (NaN).
`seedbed read` prints the lines or the JSON at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, isnan, log
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from seedbed.data.tokenizers import TokenIds, Tokenizer
from seedbed.data.windows import Spans, gather_windows, sliding_windows
from seedbed.errors import UsageError
from seedbed.models.sequence_model import eval_mode
from seedbed.sampling.notebook_html import FULL_COLOR_BITS, colored_text_html, legend_html
from seedbed.sampling.results import TokenProbabilities, TokenProbability

if TYPE_CHECKING:
    from seedbed.sampling.loaded_run import LoadedRun

Floats = NDArray[np.float64]
MAX_LOGITS_PER_CHUNK = 1 << 24  # bounds the memory of one forward pass


@dataclass(frozen=True)
class WordSurprisal:
    """A word (tokens between white space) and the sum of its tokens' surprisals."""

    text: str
    start: int  # first token
    end: int  # last token + 1
    bits: float


@dataclass(frozen=True, repr=False)
class Surprisal:
    """Scores of T tokens; losses are in nats."""

    ids: NDArray[np.int64]  # (T,)
    pieces: tuple[str, ...]  # (T,) the text of each token in context
    losses: Floats  # (T,)
    alternatives: NDArray[np.int64]  # (T, K) the most likely tokens at each position, best first
    probabilities: Floats  # (T, K) of the alternatives
    n_characters: int  # of the scored tokens
    n_bytes: int

    @property
    def total_bits(self) -> float:
        return float(np.nansum(self.losses)) / log(2)

    @property
    def mean_loss(self) -> float:
        return float(np.nanmean(self.losses))

    @property
    def perplexity(self) -> float:
        return float(np.exp(self.mean_loss))

    @property
    def bits_per_character(self) -> float:
        return self.total_bits / self.n_characters if self.n_characters else float("nan")

    @property
    def bits_per_byte(self) -> float:
        return self.total_bits / self.n_bytes if self.n_bytes else float("nan")

    @cached_property
    def words(self) -> tuple[WordSurprisal, ...]:
        """All words, in order."""
        bits = np.nan_to_num(self.losses) / log(2)
        return tuple(
            WordSurprisal("".join(self.pieces[start:end]).strip(), start, end, float(bits[start:end].sum()))
            for start, end in _word_ranges(self.pieces)
        )

    def most_surprising_words(self, n: int = 10) -> list[WordSurprisal]:
        """The n words with the highest surprisal."""
        return sorted(self.words, key=lambda word: -word.bits)[:n]

    def __str__(self) -> str:
        return (
            f"{len(self.ids):,} tokens, loss {self.mean_loss:.4f} nats per token, perplexity {self.perplexity:.3f}, "
            f"{self.bits_per_character:.4f} bits per character, {self.bits_per_byte:.4f} per byte"
        )

    def __repr__(self) -> str:
        return f"<surprisal of {self}>"

    def _repr_html_(self) -> str:
        bits = np.nan_to_num(self.losses) / log(2)
        tooltips = ("the first token: no loss", *(f"{one:.1f} bits" for one in bits[1:]))
        text = colored_text_html(zip(self.pieces, bits.tolist(), tooltips, strict=True))
        return text + legend_html(f"{self}. Coloured by surprisal, strongest from {FULL_COLOR_BITS:g} bits.")


def compute_surprisal(
    model: nn.Module, tokenizer: Tokenizer, ids: TokenIds | NDArray[np.int64], context: int, n_alternatives: int = 5
) -> Surprisal:
    """Scores token ids with a model of a single run."""
    if len(ids) < 2:
        raise UsageError(f"the text has {len(ids)} token(s); a loss needs a token and one before it, so at least 2")
    k = min(n_alternatives, tokenizer.size)
    losses, top_ids = np.full(len(ids), np.nan), np.zeros((len(ids), k), dtype=np.int64)
    top_probabilities = np.full((len(ids), k), np.nan)
    windows = sliding_windows(Spans.single(len(ids)), context, max(1, context // 2))
    chunk_size = max(1, MAX_LOGITS_PER_CHUNK // (context * tokenizer.size))
    for first in range(0, windows.n_windows, chunk_size):
        chunk = slice(first, first + chunk_size)
        rows, scored = gather_windows(ids, windows, chunk)
        positions = (windows.starts[chunk][:, None] + np.arange(1, context + 1))[scored]
        losses[positions], top_ids[positions], top_probabilities[positions] = _score_windows(model, rows, scored, k)
    scored_ids = np.asarray(ids[1:])
    return Surprisal(
        ids=np.asarray(ids, dtype=np.int64),
        pieces=_decode_pieces(tokenizer, ids),
        losses=losses,
        alternatives=top_ids,
        probabilities=top_probabilities,
        n_characters=int(tokenizer.character_counts[scored_ids].sum()),
        n_bytes=int(tokenizer.byte_counts[scored_ids].sum()),
    )


def _score_windows(
    model: nn.Module, windows: NDArray[np.int64], scored: NDArray[np.bool_], k: int
) -> tuple[Floats, NDArray[np.int64], Floats]:
    """Loss, top-k tokens and their probabilities at the scored targets of some windows."""
    with eval_mode(model):
        logits = model(torch.from_numpy(windows[:, :-1])[None])[0][torch.from_numpy(scored)]
        log_probabilities = logits.double().log_softmax(-1)
        targets = torch.from_numpy(windows[:, 1:][scored])
        losses = -log_probabilities.gather(1, targets[:, None])[:, 0]
        top = log_probabilities.topk(k, dim=-1)
        return losses.numpy(), top.indices.numpy(), top.values.exp().numpy()


def _decode_pieces(tokenizer: Tokenizer, ids: TokenIds | NDArray[np.int64]) -> tuple[str, ...]:
    """Text of each token; a character split over several tokens belongs to the one that completes it."""
    decoder = tokenizer.decoder()
    pieces = [decoder.feed([int(token)]) for token in ids]
    pieces[-1] += decoder.flush()
    return tuple(pieces)


def _word_ranges(pieces: Sequence[str]) -> list[tuple[int, int]]:
    """First and last + 1 token of each word; leading or trailing white space belongs to the word."""
    ranges, start = [], 0
    for i, piece in enumerate(pieces):
        starts_with_space, ends_with_space = piece[:1].isspace(), piece[-1:].isspace()
        if starts_with_space and i > start:
            ranges.append((start, i))
            start = i
        if ends_with_space:
            ranges.append((start, i + 1))
            start = i + 1
    ranges.append((start, len(pieces)))
    return [(a, b) for a, b in ranges if "".join(pieces[a:b]).strip()]


# ---- as text and as JSON ----


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
