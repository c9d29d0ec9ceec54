"""A sample of the inputs that a run did not train on, with what each token is: operand, space, end of a sentence.

    inputs = sample_inputs(loaded, 64)     # evenly spread over the held-out part, the same every time

Where a task holds nothing out, its test texts are taken, or else its training texts: `part` says which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seedbed.data.arithmetic import split, table, vocabulary_size
from seedbed.data.prepared import prepare_labels, prepare_text
from seedbed.data.text import PAD
from seedbed.data.windows import consecutive, take
from seedbed.generate.load import Loaded
from seedbed.settings import Arithmetic, Labels, Text

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
ENDS = frozenset(".!?")
HELD_OUT = ("val", "test")


@dataclass(frozen=True)
class Inputs:
    """B inputs of T tokens; targets are the tokens after them, or one label each."""

    part: str
    tokens: Ints  # (B, T)
    targets: Ints  # (B, T) or (B, 1)
    scored: Bools  # as targets: which count in the loss
    seen: Bools  # (B, T) tokens that are no padding
    kinds: Mapping[str, Bools]  # (B, T) each
    words: Ints | None = None  # (B, T) which word a token is a part of; None where a token is a word

    @property
    def n(self) -> int:
        return len(self.tokens)


def sample_inputs(loaded: Loaded, n: int) -> Inputs:
    """At most n inputs of the run's held-out part."""
    task = loaded.run.settings.task
    if isinstance(task, Arithmetic):
        return _equations(task, loaded.run.seed, n)
    return _windows(task, n) if isinstance(task, Text) else _labelled(task, n)


def _evenly(total: int, n: int) -> Ints:
    return np.unique(np.linspace(0, total - 1, min(n, total)).round().astype(np.int64))


def _equations(task: Arithmetic, seed: int, n: int) -> Inputs:
    whole, (_, held_out) = table(task), split(task, seed)
    rows = np.sort(held_out)[_evenly(len(held_out), n)]
    tokens, targets = whole.tokens[rows, :-1], whole.tokens[rows, 1:]
    scored = np.zeros(targets.shape, dtype=bool)
    np.put_along_axis(scored, whole.scored[rows], True, axis=1)
    seen = tokens != vocabulary_size(task) - 1
    return Inputs("val", tokens, targets, scored, seen, _equation_kinds(task, tokens, seen))


def _equation_kinds(task: Arithmetic, tokens: Ints, seen: Bools) -> dict[str, Bools]:
    operator, equals, begin = range(task.p, task.p + 3)
    answered = np.cumsum(tokens == equals, axis=1) > 0
    number = tokens < task.p
    kinds = {
        "BOS": tokens == begin, "operands": number & ~answered, "operator": tokens == operator, "=": tokens == equals,
        "result": number & answered, "padding": ~seen,
    }  # fmt: skip
    return {name: where for name, where in kinds.items() if where.any()}


def _windows(task: Text, n: int) -> Inputs:
    text = prepare_text(task)
    name = next((name for name in text.parts if name.partition("[")[0] in HELD_OUT), "train")
    part = text.parts[name]
    windows = consecutive(part.spans, task.length)
    rows, scored = take(part.ids, windows, _evenly(windows.n, n))
    seen = np.arange(task.length) < np.maximum(scored.sum(1, keepdims=True), 1)
    tokens, texts = rows[:, :-1], text.tokens.texts
    words = None if task.tokens == "words" else words_of(texts, tokens)
    kinds = _text_kinds(texts, tokens, seen) | _word_kinds(texts, tokens, seen, words)
    return Inputs(name, tokens, rows[:, 1:], scored, seen, kinds, words)


def _labelled(task: Labels, n: int) -> Inputs:
    labelled = prepare_labels(task)
    name = next((name for name in HELD_OUT if name in labelled.parts), "train")
    part = labelled.parts[name]
    which = _evenly(len(part.labels), n)
    rows, seen = part.rows[which], np.arange(task.length) < part.lengths[which][:, None]
    targets = part.labels[which][:, None]
    kinds = _text_kinds(labelled.tokens.texts, rows, seen)
    kinds["sentence starts"] = kinds.get("sentence starts", np.zeros_like(seen)) | (np.arange(task.length) == 0)
    return Inputs(name, rows, targets, np.ones_like(targets, dtype=bool), seen, kinds)


def _text_kinds(texts: tuple[str, ...], tokens: Ints, seen: Bools) -> dict[str, Bools]:
    """Spaces, the signs that end sentences and the tokens that begin the next, and padding; only those that occur."""
    is_space = np.array([bool(text) and text.isspace() for text in texts])[tokens] & seen
    is_end = np.array([text.strip()[-1:] in ENDS and i != PAD for i, text in enumerate(texts)])[tokens] & seen
    kinds = {
        "spaces": is_space, "sentence starts": _after(is_end, is_space) & seen, "sentence ends": is_end,
        "padding": ~seen,
    }  # fmt: skip
    return {name: where for name, where in kinds.items() if where.any()}


def words_of(texts: tuple[str, ...], tokens: Ints) -> Ints:
    """Which word of its row a token is a part of; white space goes with the word before it."""
    begins = np.array([bool(text) and text[0].isspace() and bool(text.strip()) for text in texts])[tokens]
    is_left = np.array([text[-1:].isspace() for text in texts])[tokens]
    is_space = np.array([text[:1].isspace() for text in texts])[tokens]
    starts = begins.copy()
    starts[:, 1:] |= is_left[:, :-1] & ~is_space[:, 1:]
    return starts.cumsum(1)


def _word_kinds(texts: tuple[str, ...], tokens: Ints, seen: Bools, words: Ints | None) -> dict[str, Bools]:
    """The whole first and last words of sentences, where tokens are parts of words."""
    if words is None:
        return {}
    kinds = _text_kinds(texts, tokens, seen)
    pairs = {"first words": "sentence starts", "last words": "sentence ends"}
    return {name: _whole(kinds[at], words) & seen for name, at in pairs.items() if at in kinds}


def _whole(marked: Bools, words: Ints) -> Bools:
    """All tokens of the words in which something is marked."""
    return ((words[:, :, None] == words[:, None, :]) & marked[:, None, :]).any(-1)  # type: ignore[no-any-return]


def _after(ends: Bools, spaces: Bools) -> Bools:
    """The first token after each end that is neither a space nor an end itself."""
    found, waiting = np.zeros_like(ends), np.zeros(len(ends), dtype=bool)
    for place in range(ends.shape[1]):
        found[:, place] = waiting & ~spaces[:, place] & ~ends[:, place]
        waiting = (waiting | ends[:, place]) & ~found[:, place]
    return found
