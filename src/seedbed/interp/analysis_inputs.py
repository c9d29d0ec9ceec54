"""A deterministic sample of held-out inputs of a run, with the kind of each token: operand, space, sentence end.

    inputs = sample_inputs(loaded, 64)     # evenly spaced over the validation split

Without a validation split, inputs come from the test split, or else the training split; `split` names it.
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
from seedbed.kind_settings import ArithmeticSettings, LabelsSettings, TextSettings
from seedbed.sampling.loaded_run import LoadedRun

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
SENTENCE_END_CHARACTERS = frozenset(".!?")
HELD_OUT_SPLITS = ("val", "test")


@dataclass(frozen=True)
class AnalysisInputs:
    """B inputs of T tokens; targets are the next tokens, or one label per input."""

    split: str
    tokens: Ints  # (B, T)
    targets: Ints  # (B, T) or (B, 1)
    scored: Bools  # same shape as targets: which count in the loss
    non_padding: Bools  # (B, T)
    token_kinds: Mapping[str, Bools]  # name → (B, T) mask
    word_indices: Ints | None = None  # (B, T) index of each token's word in its row; None if every token is a word

    @property
    def n_inputs(self) -> int:
        return len(self.tokens)


def sample_inputs(loaded: LoadedRun, n: int) -> AnalysisInputs:
    """Up to n inputs that the run was not trained on."""
    task = loaded.run.settings.task
    if isinstance(task, ArithmeticSettings):
        return _arithmetic_inputs(task, loaded.run.seed, n)
    return _text_inputs(task, n) if isinstance(task, TextSettings) else _label_inputs(task, n)


def _evenly_spaced_indices(total: int, n: int) -> Ints:
    return np.unique(np.linspace(0, total - 1, min(n, total)).round().astype(np.int64))


def _arithmetic_inputs(task: ArithmeticSettings, seed: int, n: int) -> AnalysisInputs:
    table, (_, held_out) = build_equation_table(task), split_equations(task, seed)
    rows = np.sort(held_out)[_evenly_spaced_indices(len(held_out), n)]
    tokens, targets = table.tokens[rows, :-1], table.tokens[rows, 1:]
    scored = np.zeros(targets.shape, dtype=bool)
    np.put_along_axis(scored, table.scored_positions[rows], True, axis=1)
    non_padding = tokens != vocabulary_size(task) - 1  # PAD is the last token
    return AnalysisInputs("val", tokens, targets, scored, non_padding, _equation_token_kinds(task, tokens, non_padding))


def _equation_token_kinds(task: ArithmeticSettings, tokens: Ints, non_padding: Bools) -> dict[str, Bools]:
    operator, equals, bos = range(task.p, task.p + 3)
    after_equals = np.cumsum(tokens == equals, axis=1) > 0
    is_number = tokens < task.p
    kinds = {
        "BOS": tokens == bos, "operands": is_number & ~after_equals, "operator": tokens == operator,
        "=": tokens == equals, "result": is_number & after_equals, "padding": ~non_padding,
    }  # fmt: skip
    return {name: mask for name, mask in kinds.items() if mask.any()}


def _text_inputs(task: TextSettings, n: int) -> AnalysisInputs:
    dataset = load_text_dataset(task)
    # A split may be named after a part of its corpus: "test[part]".
    name = next((name for name in dataset.splits if name.partition("[")[0] in HELD_OUT_SPLITS), "train")
    split = dataset.splits[name]
    windows = consecutive_windows(split.spans, task.length)
    rows, scored = gather_windows(split.ids, windows, _evenly_spaced_indices(windows.n_windows, n))
    non_padding = np.arange(task.length) < np.maximum(scored.sum(1, keepdims=True), 1)
    tokens, texts = rows[:, :-1], dataset.tokenizer.texts
    words = None if task.tokenizer == "words" else word_index_per_token(texts, tokens)
    kinds = _text_token_kinds(texts, tokens, non_padding) | _sentence_boundary_words(texts, tokens, non_padding, words)
    return AnalysisInputs(name, tokens, rows[:, 1:], scored, non_padding, kinds, words)


def _label_inputs(task: LabelsSettings, n: int) -> AnalysisInputs:
    dataset = load_labelled_dataset(task)
    name = next((name for name in HELD_OUT_SPLITS if name in dataset.splits), "train")
    split = dataset.splits[name]
    indices = _evenly_spaced_indices(len(split.labels), n)
    rows, non_padding = split.rows[indices], np.arange(task.length) < split.lengths[indices][:, None]
    targets = split.labels[indices][:, None]
    kinds = _text_token_kinds(dataset.tokenizer.texts, rows, non_padding)
    # Every labelled text starts with a sentence; a window of running text need not.
    kinds["sentence starts"] = kinds.get("sentence starts", np.zeros_like(non_padding)) | (np.arange(task.length) == 0)
    return AnalysisInputs(name, rows, targets, np.ones_like(targets, dtype=bool), non_padding, kinds)


def _text_token_kinds(texts: tuple[str, ...], tokens: Ints, non_padding: Bools) -> dict[str, Bools]:
    """Masks of spaces, sentence starts and ends, and padding; only kinds that occur."""
    is_space = np.array([bool(text) and text.isspace() for text in texts])[tokens] & non_padding
    ends_sentence = [text.strip()[-1:] in SENTENCE_END_CHARACTERS and i != PAD_ID for i, text in enumerate(texts)]
    is_end = np.array(ends_sentence)[tokens] & non_padding
    kinds = {
        "spaces": is_space,
        "sentence starts": _first_tokens_after(is_end, is_space) & non_padding,
        "sentence ends": is_end,
        "padding": ~non_padding,
    }
    return {name: mask for name, mask in kinds.items() if mask.any()}


def word_index_per_token(texts: tuple[str, ...], tokens: Ints) -> Ints:
    """Index of each token's word in its row; white space belongs to the word before it."""
    has_leading_space = np.array([bool(text) and text[0].isspace() and bool(text.strip()) for text in texts])[tokens]
    ends_with_space = np.array([text[-1:].isspace() for text in texts])[tokens]
    starts_with_space = np.array([text[:1].isspace() for text in texts])[tokens]
    starts = has_leading_space.copy()
    starts[:, 1:] |= ends_with_space[:, :-1] & ~starts_with_space[:, 1:]
    return starts.cumsum(1)


def _sentence_boundary_words(
    texts: tuple[str, ...], tokens: Ints, non_padding: Bools, words: Ints | None
) -> dict[str, Bools]:
    """Masks of all tokens of the first and last words of sentences; none if every token is a word."""
    if words is None:
        return {}
    kinds = _text_token_kinds(texts, tokens, non_padding)
    pairs = {"first words": "sentence starts", "last words": "sentence ends"}
    return {name: _expand_to_words(kinds[kind], words) & non_padding for name, kind in pairs.items() if kind in kinds}


def _expand_to_words(marked: Bools, words: Ints) -> Bools:
    """All tokens of the words that contain a marked token."""
    return ((words[:, :, None] == words[:, None, :]) & marked[:, None, :]).any(-1)  # type: ignore[no-any-return]


def _first_tokens_after(ends: Bools, spaces: Bools) -> Bools:
    """Mask of the first token after each sentence end that is neither a space nor an end itself."""
    firsts, is_pending = np.zeros_like(ends), np.zeros(len(ends), dtype=bool)
    for position in range(ends.shape[1]):
        firsts[:, position] = is_pending & ~spaces[:, position] & ~ends[:, position]
        is_pending = (is_pending | ends[:, position]) & ~firsts[:, position]
    return firsts
