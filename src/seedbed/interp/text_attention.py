"""Attention of one text as arrays: a map for each layer and head, with a label for each token; no torch.

    attention.select([0]).group_by_word().weights    # (1, H, W, W), rows sum to 1

Computing it is left to `attention_extraction.py`, drawing it to `charts`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.errors import UsageError

Floats = NDArray[np.float64]
ROW_SUM_TOLERANCE = 1e-4  # float32 rounding over a thousand tokens
_WHITESPACE_SYMBOLS = str.maketrans({" ": "·", "\n": "¶", "\t": "→", "\r": "¤"})  # characters that every font has
_RTL_BIDI_CLASSES = frozenset({"R", "AL", "NSM"})  # NSM: vowel points, which follow their letter


@dataclass(frozen=True)
class TextAttention:
    """Attention maps of one text; row t holds the weights of query t. `layers` and `heads` are 0-based indices."""

    run: str
    step: int
    text: str
    kind: str  # "attention" or "input gradient"
    pieces: tuple[str, ...]  # the text of each token in context
    padding: tuple[bool, ...]
    weights: Floats  # (L, H, T, S)
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    granularity: str = "token"  # what a row stands for: "token" or "word"

    def __post_init__(self) -> None:
        error = np.abs(self.weights.sum(-1) - 1).max() if self.weights.size else 0.0
        if not error <= ROW_SUM_TOLERANCE:  # NaN fails too
            raise UsageError(
                f"run {self.run} at step {self.step:,}: a row of its {self.kind} misses a sum of 1 by {error:.2g}; "
                "its weights are not finite, or not those of this model"
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """Axis labels: white space as visible characters, padding as "pad", an incomplete character as "…"."""
        return tuple(
            "pad" if pad else _display_piece(piece) for piece, pad in zip(self.pieces, self.padding, strict=True)
        )

    @property
    def unique_labels(self) -> tuple[str, ...]:
        """Labels without padding, with a number appended to repeated ones.

        >>> pieces, weights = ("a", "b", "a"), np.eye(3)[None, None]
        >>> TextAttention("", 0, "", "", pieces, (False,) * 3, weights, (0,), (0,)).unique_labels
        ('a', 'b', 'a (2)')
        """
        unique: list[str] = []
        for position, label in enumerate(self.labels):
            occurrence = self.labels[:position].count(label) + 1
            unique += [] if self.padding[position] else [label if occurrence == 1 else f"{label} ({occurrence})"]
        return tuple(unique)

    @property
    def right_to_left(self) -> bool:
        """Is the first strong character right-to-left? This decides the direction of a paragraph (UAX 9, P2)."""
        characters = (character for piece in self.pieces for character in piece)
        strong = (character for character in characters if unicodedata.bidirectional(character) in ("L", "R", "AL"))
        return is_right_to_left(next(strong, "a"))

    def select(self, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None) -> TextAttention:
        """The maps of some layers and heads, given by 0-based model index; None selects all."""
        rows = _resolve_indices("layer", layers, self.layers)
        columns = _resolve_indices("head", heads, self.heads)
        return replace(
            self,
            weights=self.weights[np.ix_(rows, columns)],
            layers=tuple(self.layers[i] for i in rows),
            heads=tuple(self.heads[i] for i in columns),
        )

    def select_available(self, layers: Sequence[int], heads: Sequence[int]) -> TextAttention:
        """The maps of those of these layers and heads (1-based) that the model has; of all if it has none of them."""
        available_layers = [layer - 1 for layer in layers if layer - 1 in self.layers] or None
        available_heads = [head - 1 for head in heads if head - 1 in self.heads] or None
        return self.select(available_layers, available_heads)

    def group_by_word(self) -> TextAttention:
        """Attention between words: averaged over the tokens of a query word, summed over the tokens of a key word."""
        starts = np.array(word_starts(self.pieces, self.padding))
        sizes = np.diff(np.append(starts, len(self.pieces)))
        summed = np.add.reduceat(self.weights, starts, axis=-1)
        weights = np.add.reduceat(summed, starts, axis=-2) / sizes[:, None]
        words = tuple("".join(self.pieces[start : start + n]) for start, n in zip(starts, sizes, strict=True))
        stripped = tuple(word.strip() or word for word in words)
        padding = tuple(self.padding[start] for start in starts)
        return replace(self, pieces=stripped, padding=padding, weights=weights, granularity="word")

    @property
    def mean_received(self) -> Floats:
        """Mean weight that each token receives from the other non-padding tokens that attend to it, (L, H, S)."""
        is_other_query = ~np.eye(len(self.pieces), dtype=bool) & ~np.array(self.padding)[:, None]
        counted = is_other_query & (self.weights > 0)  # masked positions have a weight of exactly 0
        n = counted.sum(-2)
        total = np.where(counted, self.weights, 0).sum(-2)
        return np.divide(total, n, out=np.zeros_like(total), where=n > 0)  # type: ignore[no-any-return]

    def as_json(self) -> dict[str, Any]:
        return {
            "run": self.run, "step": self.step, "text": self.text, "kind": self.kind, "tokens": list(self.pieces),
            "padding": list(self.padding), "right_to_left": self.right_to_left,
            "layers": [layer + 1 for layer in self.layers], "heads": [head + 1 for head in self.heads],
            "granularity": self.granularity, "weights": np.round(self.weights, 6).tolist(),
        }  # fmt: skip

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> TextAttention:
        """Inverse of `as_json`; row sums are checked again."""
        return cls(
            **{name: document[name] for name in ("run", "step", "text", "kind", "granularity")},
            pieces=tuple(document["tokens"]),
            padding=tuple(document["padding"]),
            weights=np.array(document["weights"]),
            layers=tuple(layer - 1 for layer in document["layers"]),
            heads=tuple(head - 1 for head in document["heads"]),
        )


def is_right_to_left(character: str) -> bool:
    return unicodedata.bidirectional(character) in _RTL_BIDI_CLASSES


def word_starts(pieces: Sequence[str], padding: Sequence[bool]) -> list[int]:
    """Indices where words start; white space belongs to the word before it, padding forms one word.

    >>> word_starts(["t", "o", " ", "b", "e"], [False] * 5)
    [0, 3]
    """
    starts = [0]
    for i in range(1, len(pieces)):
        has_leading_space = pieces[i][:1].isspace() and bool(pieces[i].strip())
        after_space = pieces[i - 1][-1:].isspace() and not pieces[i][:1].isspace()
        if padding[i] != padding[i - 1] or (not padding[i] and (has_leading_space or after_space)):
            starts.append(i)
    return starts


def _display_piece(piece: str) -> str:
    # A piece without text is the start of a multi-byte character that a later token completes.
    return piece.strip() or piece.translate(_WHITESPACE_SYMBOLS) or "…"


def _resolve_indices(option: str, requested: Sequence[int] | None, available: tuple[int, ...]) -> list[int]:
    """Array indices of the requested layers or heads; all if None."""
    for index in requested or ():
        if index not in available:
            raise UsageError(f"--{option} {index + 1}: this model has {option}s 1 to {len(available)}")
    return list(range(len(available))) if requested is None else [available.index(index) for index in requested]
