"""A sample of the inputs that a run did not train on, with what each token is: operand, space, end of a sentence.

    inputs = sample_inputs(loaded, 64)     # evenly spread over the held-out part, the same every time

Where a task holds nothing out, its test texts are taken, or else its training texts: `part` says which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seedbed.data.arithmetic import build_equation_table, split_equations, vocabulary_size
from seedbed.data.datasets import load_labelled_dataset, load_text_dataset
from seedbed.data.tokenizers import PAD_ID
from seedbed.data.windows import consecutive_windows, gather_windows
from seedbed.sampling.loaded_run import LoadedRun
from seedbed.settings import ArithmeticSettings, LabelsSettings, TextSettings

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
SENTENCE_END_CHARACTERS = frozenset(".!?")
HELD_OUT_SPLITS = ("val", "test")


@dataclass(frozen=True)
class AnalysisInputs:
    """B inputs of T tokens; targets are the tokens after them, or one label each."""

    split: str
    tokens: Ints  # (B, T)
    targets: Ints  # (B, T) or (B, 1)
    scored: Bools  # as targets: which count in the loss
    non_padding: Bools  # (B, T) tokens that are no padding
    token_kinds: Mapping[str, Bools]  # (B, T) each
    word_indices: Ints | None = None  # (B, T) which word a token is a part of; None where a token is a word

    @property
    def n_inputs(self) -> int:
        return len(self.tokens)


def sample_inputs(loaded: LoadedRun, n: int) -> AnalysisInputs:
    """At most n inputs of the run's held-out part."""
    task = loaded.run.settings.task
    if isinstance(task, ArithmeticSettings):
        return _arithmetic_inputs(task, loaded.run.seed, n)
    return _text_inputs(task, n) if isinstance(task, TextSettings) else _label_inputs(task, n)


def _evenly_spaced_indices(total: int, n: int) -> Ints:
    return np.unique(np.linspace(0, total - 1, min(n, total)).round().astype(np.int64))


def _arithmetic_inputs(task: ArithmeticSettings, seed: int, n: int) -> AnalysisInputs:
    whole, (_, held_out) = build_equation_table(task), split_equations(task, seed)
    rows = np.sort(held_out)[_evenly_spaced_indices(len(held_out), n)]
    tokens, targets = whole.tokens[rows, :-1], whole.tokens[rows, 1:]
    scored = np.zeros(targets.shape, dtype=bool)
    np.put_along_axis(scored, whole.scored_positions[rows], True, axis=1)
    seen = tokens != vocabulary_size(task) - 1
    return AnalysisInputs("val", tokens, targets, scored, seen, _equation_token_kinds(task, tokens, seen))


def _equation_token_kinds(task: ArithmeticSettings, tokens: Ints, non_padding: Bools) -> dict[str, Bools]:
    operator, equals, begin = range(task.p, task.p + 3)
    answered = np.cumsum(tokens == equals, axis=1) > 0
    number = tokens < task.p
    kinds = {
        "BOS": tokens == begin, "operands": number & ~answered, "operator": tokens == operator, "=": tokens == equals,
        "result": number & answered, "padding": ~non_padding,
    }  # fmt: skip
    return {name: where for name, where in kinds.items() if where.any()}


def _text_inputs(task: TextSettings, n: int) -> AnalysisInputs:
    text = load_text_dataset(task)
    name = next((name for name in text.splits if name.partition("[")[0] in HELD_OUT_SPLITS), "train")
    part = text.splits[name]
    windows = consecutive_windows(part.spans, task.length)
    rows, scored = gather_windows(part.ids, windows, _evenly_spaced_indices(windows.n_windows, n))
    seen = np.arange(task.length) < np.maximum(scored.sum(1, keepdims=True), 1)
    tokens, texts = rows[:, :-1], text.tokenizer.texts
    words = None if task.tokenizer == "words" else word_index_per_token(texts, tokens)
    kinds = _text_token_kinds(texts, tokens, seen) | _sentence_boundary_words(texts, tokens, seen, words)
    return AnalysisInputs(name, tokens, rows[:, 1:], scored, seen, kinds, words)


def _label_inputs(task: LabelsSettings, n: int) -> AnalysisInputs:
    labelled = load_labelled_dataset(task)
    name = next((name for name in HELD_OUT_SPLITS if name in labelled.splits), "train")
    part = labelled.splits[name]
    which = _evenly_spaced_indices(len(part.labels), n)
    rows, seen = part.rows[which], np.arange(task.length) < part.lengths[which][:, None]
    targets = part.labels[which][:, None]
    kinds = _text_token_kinds(labelled.tokenizer.texts, rows, seen)
    kinds["sentence starts"] = kinds.get("sentence starts", np.zeros_like(seen)) | (np.arange(task.length) == 0)
    return AnalysisInputs(name, rows, targets, np.ones_like(targets, dtype=bool), seen, kinds)


def _text_token_kinds(texts: tuple[str, ...], tokens: Ints, non_padding: Bools) -> dict[str, Bools]:
    """Spaces, the signs that end sentences and the tokens that begin the next, and padding; only those that occur."""
    is_space = np.array([bool(text) and text.isspace() for text in texts])[tokens] & non_padding
    is_end = (
        np.array([text.strip()[-1:] in SENTENCE_END_CHARACTERS and i != PAD_ID for i, text in enumerate(texts)])[tokens]
        & non_padding
    )
    kinds = {
        "spaces": is_space, "sentence starts": _first_tokens_after(is_end, is_space) & non_padding, "sentence ends": is_end,
        "padding": ~non_padding,
    }  # fmt: skip
    return {name: where for name, where in kinds.items() if where.any()}


def word_index_per_token(texts: tuple[str, ...], tokens: Ints) -> Ints:
    """Which word of its row a token is a part of; white space goes with the word before it."""
    begins = np.array([bool(text) and text[0].isspace() and bool(text.strip()) for text in texts])[tokens]
    is_left = np.array([text[-1:].isspace() for text in texts])[tokens]
    is_space = np.array([text[:1].isspace() for text in texts])[tokens]
    starts = begins.copy()
    starts[:, 1:] |= is_left[:, :-1] & ~is_space[:, 1:]
    return starts.cumsum(1)


def _sentence_boundary_words(
    texts: tuple[str, ...], tokens: Ints, non_padding: Bools, words: Ints | None
) -> dict[str, Bools]:
    """The whole first and last words of sentences, where tokens are parts of words."""
    if words is None:
        return {}
    kinds = _text_token_kinds(texts, tokens, non_padding)
    pairs = {"first words": "sentence starts", "last words": "sentence ends"}
    return {name: _expand_to_words(kinds[at], words) & non_padding for name, at in pairs.items() if at in kinds}


def _expand_to_words(marked: Bools, words: Ints) -> Bools:
    """All tokens of the words in which something is marked."""
    return ((words[:, :, None] == words[:, None, :]) & marked[:, None, :]).any(-1)  # type: ignore[no-any-return]


def _first_tokens_after(ends: Bools, spaces: Bools) -> Bools:
    """The first token after each end that is neither a space nor an end itself."""
    found, waiting = np.zeros_like(ends), np.zeros(len(ends), dtype=bool)
    for place in range(ends.shape[1]):
        found[:, place] = waiting & ~spaces[:, place] & ~ends[:, place]
        waiting = (waiting | ends[:, place]) & ~found[:, place]
    return found
