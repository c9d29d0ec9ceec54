"""How surprising a text is to a model: the loss of each token, the likeliest alternatives, the most surprising words.

    read = surprisal(model, tokens, ids, context)
    read.bits_per_character, read.spans(10)

A text longer than the context is read in windows that overlap by half, so that past the first window each token is told
from at least half a context; it counts once. The first token is told from nothing and has no loss (NaN).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from seedbed.data.tokenizers import Counts, StreamDecoder, TokenIds
from seedbed.data.windows import Spans, gather_windows, sliding_windows
from seedbed.errors import UsageError
from seedbed.sampling.kv_cache import eval_mode
from seedbed.sampling.notebook_html import FULL_COLOR_BITS, colored_text_html, legend_html

Floats = NDArray[np.float64]
MAX_LOGITS_PER_CHUNK = 1 << 24  # numbers that are held at once


class TokenizerLike(Protocol):
    """What is asked of tokens here."""

    @property
    def size(self) -> int: ...

    @property
    def character_counts(self) -> Counts: ...

    @property
    def byte_counts(self) -> Counts: ...

    def decoder(self) -> StreamDecoder: ...


@dataclass(frozen=True)
class WordSurprisal:
    """A stretch of tokens between white space, and what it costs."""

    text: str
    start: int  # of its tokens
    end: int
    bits: float


@dataclass(frozen=True, repr=False)
class Surprisal:
    """Losses are natural logarithms, one a token."""

    ids: NDArray[np.int64]  # (T,)
    pieces: tuple[str, ...]  # (T,) the text of each token where it stands
    losses: Floats  # (T,)
    alternatives: NDArray[np.int64]  # (T, K) the likeliest tokens at each place, best first
    probabilities: Floats  # (T, K) of the alternatives
    n_characters: int  # of the tokens that have a loss
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
        """All stretches between white space, in order."""
        bits = np.nan_to_num(self.losses) / log(2)
        return tuple(
            WordSurprisal("".join(self.pieces[start:end]).strip(), start, end, float(bits[start:end].sum()))
            for start, end in _word_ranges(self.pieces)
        )

    def most_surprising_words(self, n: int = 10) -> list[WordSurprisal]:
        """The n most surprising ones."""
        return sorted(self.words, key=lambda span: -span.bits)[:n]

    def __str__(self) -> str:
        return (
            f"{len(self.ids):,} tokens, loss {self.mean_loss:.4f}, perplexity {self.perplexity:.3f}, "
            f"{self.bits_per_character:.4f} bits per character, {self.bits_per_byte:.4f} per byte"
        )

    def __repr__(self) -> str:
        return f"<surprisal of {self}>"

    def _repr_html_(self) -> str:
        bits = np.nan_to_num(self.losses) / log(2)
        notes = ("the first token: no loss", *(f"{one:.1f} bits" for one in bits[1:]))
        shown = colored_text_html(zip(self.pieces, bits.tolist(), notes, strict=True))
        return shown + legend_html(f"{self}. Coloured by surprise, strongest from {FULL_COLOR_BITS:g} bits.")


def compute_surprisal(
    model: nn.Module, tokenizer: TokenizerLike, ids: TokenIds | NDArray[np.int64], context: int, n_alternatives: int = 5
) -> Surprisal:
    """What the only run of this model makes of these tokens."""
    if len(ids) < 2:
        raise UsageError(f"the text has {len(ids)} token(s); a loss needs a token and one before it, so at least 2")
    k = min(n_alternatives, tokenizer.size)
    losses, likely = np.full(len(ids), np.nan), np.zeros((len(ids), k), dtype=np.int64)
    shares = np.full((len(ids), k), np.nan)
    windows = sliding_windows(Spans.single(len(ids)), context, max(1, context // 2))
    size = max(1, MAX_LOGITS_PER_CHUNK // (context * tokenizer.size))
    for first in range(0, windows.n_windows, size):
        which = slice(first, first + size)
        rows, counted = gather_windows(ids, windows, which)
        at = (windows.starts[which][:, None] + np.arange(1, context + 1))[counted]
        losses[at], likely[at], shares[at] = _score_windows(model, rows, counted, k)
    scored = np.asarray(ids[1:])
    n_characters, n_bytes = (
        int(counts[scored].sum()) for counts in (tokenizer.character_counts, tokenizer.byte_counts)
    )
    pieces = _decode_pieces(tokenizer, ids)
    return Surprisal(np.asarray(ids, dtype=np.int64), pieces, losses, likely, shares, n_characters, n_bytes)


def _score_windows(
    model: nn.Module, windows: NDArray[np.int64], scored: NDArray[np.bool_], k: int
) -> tuple[Floats, NDArray[np.int64], Floats]:
    """Loss, likeliest tokens and their probabilities at the targets that count."""
    with eval_mode(model):
        logits = model(torch.from_numpy(windows[:, :-1])[None])[0][torch.from_numpy(scored)]
        logs = logits.double().log_softmax(-1)
        targets = torch.from_numpy(windows[:, 1:][scored])
        best = logs.topk(k, dim=-1)
        return -logs.gather(1, targets[:, None])[:, 0].numpy(), best.indices.numpy(), best.values.exp().numpy()


def _decode_pieces(tokenizer: TokenizerLike, ids: TokenIds | NDArray[np.int64]) -> tuple[str, ...]:
    """Each token's text; what is not a whole character yet is counted with the token that ends it."""
    decoder = tokenizer.decoder()
    pieces = [decoder.feed([int(one)]) for one in ids]
    pieces[-1] += decoder.flush()
    return tuple(pieces)


def _word_ranges(pieces: Sequence[str]) -> list[tuple[int, int]]:
    """First and last + 1 token of each word; a word may begin with a space of its own, or end with one."""
    found, start = [], 0
    for i, piece in enumerate(pieces):
        begins, ends = piece[:1].isspace(), piece[-1:].isspace()
        if begins and i > start:
            found.append((start, i))
            start = i
        if ends:
            found.append((start, i + 1))
            start = i + 1
    found.append((start, len(pieces)))
    return [(a, b) for a, b in found if "".join(pieces[a:b]).strip()]
