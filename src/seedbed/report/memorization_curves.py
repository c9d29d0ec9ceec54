"""A run's stored samples: their text with copied and new words marked, and how much they copy as curves over training.

Each curve has a counterpart for held-out text under `[held-out]`, if the task has a held-out split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Literal, TypeAlias

import numpy as np

from seedbed.data.corpora import cache_until_edited
from seedbed.data.datasets import EncodedText
from seedbed.data.suffix_array import MIN_COPIED_CHARACTERS, WORD_PATTERN, SuffixArray, find_copied_spans
from seedbed.errors import MissingData, UsageError
from seedbed.format import format_config, pluralise
from seedbed.records import Curve, StoredRun, StoredSample
from seedbed.sampling.copy_detection import span_mask, training_text_index
from seedbed.stats.copying import CopyStatistics, copy_statistics, held_out_pieces
from seedbed.stats.summary import RunCurves
from seedbed.store import Store
from seedbed.study.run_data import require_training_data
from seedbed.tasks.base import Task

COPYING_METRICS: dict[str, Callable[[CopyStatistics], float]] = {
    "copied": lambda statistics: statistics.mean_ngram_overlap,
    "new_words": lambda statistics: statistics.novel_word_share,
}


def copying_curves(store: Store, run: StoredRun) -> dict[str, Curve]:
    """The copying curves of a run; empty if it wrote no samples, or its corpus is missing or has changed."""
    task = run.settings.task
    if not task.generates_text or not run.settings.train.sample_every:
        return {}
    by_step: dict[int, list[StoredSample]] = {}
    for sample in store.samples(run.id):
        by_step.setdefault(sample.step, []).append(sample)
    if not by_step:
        return {}
    try:
        require_training_data(run)
        return _copying_curves_by_step(task, by_step)
    except MissingData:
        return {}


def describe_missing_copying(runs: Iterable[RunCurves]) -> list[str]:
    """Why it is unknown how much samples copy from the training text, if that text is missing or has changed."""
    errors = []
    for run in runs:
        settings = run.run.settings
        if settings.task.generates_text and settings.train.sample_every and "copied" not in run.curves:
            try:
                require_training_data(run.run)
            except MissingData as error:
                errors.append(str(error))
    if not errors:
        return []
    n_runs = pluralise(len(errors), "run")
    return [f"How much samples copy from the training text is unknown for {n_runs}: {errors[0]}."]


def _copying_curves_by_step(task: Task, samples_by_step: Mapping[int, Sequence[StoredSample]]) -> dict[str, Curve]:
    index, held_out = _train_index_and_held_out(task)
    tokenizer = task.text_dataset().tokenizer
    statistics: dict[str, list[CopyStatistics]] = {"": []}
    for samples in samples_by_step.values():
        # Earlier versions joined words by single spaces, unlike the index.
        rejoin = tokenizer.kind == "words"
        texts = [tokenizer.decode(sample.tokens) if rejoin else sample.text for sample in samples]
        statistics[""].append(copy_statistics(index, texts))
        if held_out:
            pieces = held_out_pieces(held_out, texts)
            statistics.setdefault("[held-out]", []).append(copy_statistics(index, pieces))
    steps = np.array(list(samples_by_step), dtype=np.int64)
    return {
        f"{name}{suffix}": Curve(steps, np.array([read(one) for one in by_step]))
        for suffix, by_step in statistics.items()
        for name, read in COPYING_METRICS.items()
    }


@cache_until_edited
def _train_index_and_held_out(task: Task) -> tuple[SuffixArray, str]:
    """The suffix array of the training text, and the held-out text."""
    dataset = task.text_dataset()

    def decode(split: EncodedText) -> str:
        return "\n".join(dataset.tokenizer.decode(ids) for ids in split.span_ids())

    held_out = next((decode(split) for name, split in dataset.splits.items() if name != "train"), "")
    return training_text_index(task), held_out


# ---- the samples themselves ----

MAX_REPORTED_CONFIGS: Final = 6
MAX_REPORTED_CHARACTERS: Final = 600
Mark: TypeAlias = Literal["", "copied", "new"]


@dataclass(frozen=True)
class MarkedSample:
    """The last sample of a config's first seed, in pieces that are copied, new words, or neither."""

    heading: str  # `GPT, 2 layers · seed 0 · step 200`
    prompt: str
    pieces: tuple[tuple[str, Mark], ...]


def marked_samples(store: Store, runs: Sequence[RunCurves]) -> tuple[list[MarkedSample], list[str]]:
    """The last sample of the first seed of each config, and notes: what the marks mean, and what is missing."""
    first = {run.run.settings: run for run in sorted(runs, key=lambda run: -run.run.seed)}
    texts = [run for run in runs if first[run.run.settings] is run and run.run.settings.task.generates_text]
    texts = [run for run in texts if run.run.settings.task.has_corpus]
    if not texts:
        return [], []
    found = {run.run.id: samples[-1] for run in texts if (samples := store.samples(run.run.id))}
    if not found:
        return [], ["No run wrote samples while it trained (train.sample_every); `seedbed sample RUN` writes some."]
    shown = [run for run in texts if run.run.id in found][:MAX_REPORTED_CONFIGS]
    copied = f"Marked: {MIN_COPIED_CHARACTERS} or more characters that occur verbatim in the training text (underlined)"
    notes = [f"{copied}, and words that do not occur in it (dotted)."]
    if n_more := len(found) - len(shown):
        notes.append(f"{n_more} more configs have samples, which the page of each run shows.")
    marked = []
    for run in shown:
        sample = found[run.run.id]
        text = sample.text[:MAX_REPORTED_CHARACTERS] + "…" * (len(sample.text) > MAX_REPORTED_CHARACTERS)
        try:
            require_training_data(run.run)
            pieces = tuple(mark_pieces(training_text_index(run.run.settings.task), text))
        except (MissingData, UsageError) as error:
            pieces = ((text, ""),)
            notes = [*notes[1:], f"Copied text cannot be marked: {error}."] if len(shown) == 1 else notes
        heading = " · ".join(filter(None, (format_config(run.config), f"seed {run.run.seed}", f"step {sample.step:,}")))
        marked.append(MarkedSample(heading, sample.prompt, pieces))
    return marked, notes


def mark_pieces(index: SuffixArray, text: str) -> Iterator[tuple[str, Mark]]:
    """The text in pieces of one mark each; a copied span wins over a new word."""
    marks: list[Mark] = [""] * len(text)
    for word in WORD_PATTERN.finditer(text):
        if word.end() < len(text) and word.group().casefold() not in index.casefolded_words:
            marks[word.start() : word.end()] = ["new"] * (word.end() - word.start())
    [spans] = find_copied_spans(index, [text])
    marks = ["copied" if copied else mark for copied, mark in zip(span_mask(spans, len(text)), marks, strict=True)]
    for mark, group in groupby(range(len(text)), key=lambda position: marks[position]):
        positions = list(group)
        yield text[positions[0] : positions[-1] + 1], mark
