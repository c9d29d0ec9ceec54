"""Attention of one text as arrays: a map for each layer and head, with a label for each token.

    maps.layer(0).by_word().weights        # (1, H, W, W), rows sum to 1

How they are computed is left to `attention.py`, how they look to `charts`; this file knows no torch.
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
ROW_SUM_TOLERANCE = 1e-4  # by which a row may miss 1: single precision over a thousand tokens
_WHITESPACE_SYMBOLS = str.maketrans({" ": "·", "\n": "¶", "\t": "→", "\r": "¤"})  # signs that every font has
_RTL_BIDI_CLASSES = frozenset({"R", "AL", "NSM"})  # NSM: vowel points, which go with their letter


@dataclass(frozen=True)
class TextAttention:
    """Row t of a map is what token t looks at; `layers` and `heads` are the places of the maps in the model, from 0."""

    run: str
    step: int
    text: str
    kind: str  # what a map shows: "attention" or "input gradient"
    pieces: tuple[str, ...]  # the text of each token where it stands
    padding: tuple[bool, ...]
    weights: Floats  # (L, H, T, S)
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    granularity: str = "token"  # what a row is: a token, or a word of several

    def __post_init__(self) -> None:
        missed = np.abs(self.weights.sum(-1) - 1).max() if self.weights.size else 0.0
        if not missed <= ROW_SUM_TOLERANCE:
            raise UsageError(
                f"run {self.run} at step {self.step:,}: a row of its {self.kind} misses a sum of 1 by {missed:.2g}; "
                "its weights are not finite, or not those of this model"
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """What an axis shows: white space as signs, padding and what has no text of its own by name."""
        return tuple(
            "pad" if pad else _display_piece(piece) for piece, pad in zip(self.pieces, self.padding, strict=True)
        )

    @property
    def unique_labels(self) -> tuple[str, ...]:
        """What tells the pieces apart: their labels, the second of equal ones with its number; padding has none.

        >>> Maps("", 0, "", "", ("a", "b", "a"), (False,) * 3, np.eye(3)[None, None], (0,), (0,)).names
        ('a', 'b', 'a (2)')
        """
        found: list[str] = []
        for place, label in enumerate(self.labels):
            number = self.labels[:place].count(label) + 1
            found += [] if self.padding[place] else [label if number == 1 else f"{label} ({number})"]
        return tuple(found)

    @property
    def right_to_left(self) -> bool:
        """Whether the text's first letter with a direction reads so, as paragraphs are turned (UAX 9, P2)."""
        signs = (sign for piece in self.pieces for sign in piece)
        directed = (sign for sign in signs if unicodedata.bidirectional(sign) in ("L", "R", "AL"))
        return is_right_to_left(next(directed, "a"))

    def select(self, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None) -> TextAttention:
        """The maps of some layers and heads, counted from 0."""
        rows = _resolve_indices("layer", layers, self.layers)
        columns = _resolve_indices("head", heads, self.heads)
        chosen = self.weights[np.ix_(rows, columns)]
        return replace(
            self,
            weights=chosen,
            layers=tuple(self.layers[i] for i in rows),
            heads=tuple(self.heads[i] for i in columns),
        )

    def select_available(self, layers: Sequence[int], heads: Sequence[int]) -> TextAttention:
        """The maps of these layers and heads, from 1, as far as the model has them; of all where it has none."""
        chosen = ([one - 1 for one in asked if one - 1 in there] or None
                  for asked, there in ((layers, self.layers), (heads, self.heads)))  # fmt: skip
        return self.select(*chosen)

    def group_by_word(self) -> TextAttention:
        """Tokens gathered into words: a word looks as its tokens do on average, and gets what they get together."""
        starts = np.array(word_starts(self.pieces, self.padding))
        sizes = np.diff(np.append(starts, len(self.pieces)))
        summed = np.add.reduceat(self.weights, starts, axis=-1)
        weights = np.add.reduceat(summed, starts, axis=-2) / sizes[:, None]
        words = tuple("".join(self.pieces[at : at + n]) for at, n in zip(starts, sizes, strict=True))
        stripped = tuple(word.strip() or word for word in words)
        padding = tuple(self.padding[at] for at in starts)
        return replace(self, pieces=stripped, padding=padding, weights=weights, granularity="word")

    @property
    def mean_received(self) -> Floats:
        """What each piece gets from another that is no padding and may look at it, on average: (L, H, S)."""
        asking = ~np.eye(len(self.pieces), dtype=bool) & ~np.array(self.padding)[:, None]
        may = asking & (self.weights > 0)
        n = may.sum(-2)
        total = np.where(may, self.weights, 0).sum(-2)
        return np.divide(total, n, out=np.zeros_like(total), where=n > 0)  # type: ignore[no-any-return]

    def as_json(self) -> dict[str, Any]:
        return {
            "run": self.run, "step": self.step, "text": self.text, "kind": self.kind, "tokens": list(self.pieces),
            "padding": list(self.padding), "right_to_left": self.right_to_left,
            "layers": [layer + 1 for layer in self.layers], "heads": [head + 1 for head in self.heads], 
            "granularity": self.granularity,
            "weights": np.round(self.weights, 6).tolist(),
        }  # fmt: skip

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> TextAttention:
        """The maps of `as_json`, each row checked again."""
        kept = {name: document[name] for name in ("run", "step", "text", "kind", "granularity")}
        return cls(
            **kept,
            pieces=tuple(document["tokens"]),
            padding=tuple(document["padding"]),
            weights=np.array(document["weights"]),
            layers=tuple(layer - 1 for layer in document["layers"]),
            heads=tuple(head - 1 for head in document["heads"]),
        )


def is_right_to_left(character: str) -> bool:
    return unicodedata.bidirectional(character) in _RTL_BIDI_CLASSES


def word_starts(pieces: Sequence[str], padding: Sequence[bool]) -> list[int]:
    """Where words begin; white space goes with the word before it, padding is one word.

    >>> word_starts(["t", "o", " ", "b", "e"], [False] * 5)
    [0, 3]
    """
    found = [0]
    for i in range(1, len(pieces)):
        begins = pieces[i][:1].isspace() and bool(pieces[i].strip())
        after_space = pieces[i - 1][-1:].isspace() and not pieces[i][:1].isspace()
        if padding[i] != padding[i - 1] or (not padding[i] and (begins or after_space)):
            found.append(i)
    return found


def _display_piece(piece: str) -> str:
    bare = piece.strip()
    return bare or piece.translate(_WHITESPACE_SYMBOLS) or "…"  # the beginning of a character that later bytes end


def _resolve_indices(word: str, wanted: Sequence[int] | None, there: tuple[int, ...]) -> list[int]:
    for one in wanted or ():
        if one not in there:
            raise UsageError(f"--{word} {one + 1}: this model has {word}s 1 to {len(there)}")
    return list(range(len(there))) if wanted is None else [there.index(one) for one in wanted]
