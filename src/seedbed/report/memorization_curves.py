"""How much a run's samples copy from its training text, as curves over training, from its stored samples.

Each curve has a counterpart for held-out text under `[held-out]`, if the task has a held-out split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from seedbed.data.corpora import cache_until_edited
from seedbed.data.datasets import EncodedText
from seedbed.data.suffix_array import SuffixArray
from seedbed.errors import MissingData
from seedbed.records import Curve, StoredRun, StoredSample
from seedbed.sampling.copy_detection import training_text_index
from seedbed.stats.copying import CopyStatistics, compare_copying, copy_statistics
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
    n = f"{len(errors)} run{'s' * (len(errors) != 1)}"
    return [f"How much samples copy from the training text is unknown for {n}: {errors[0]}."]


def _copying_curves_by_step(task: Task, samples_by_step: Mapping[int, Sequence[StoredSample]]) -> dict[str, Curve]:
    index, held_out = _train_index_and_held_out(task)
    tokenizer = task.text_dataset().tokenizer
    statistics: dict[str, list[CopyStatistics]] = {"": []}
    for samples in samples_by_step.values():
        # Earlier versions joined words by single spaces, unlike the index.
        rejoin = tokenizer.kind == "words"
        texts = [tokenizer.decode(sample.tokens) if rejoin else sample.text for sample in samples]
        if held_out:
            comparison = compare_copying(index, texts, held_out)
            statistics[""].append(comparison.samples)
            statistics.setdefault("[held-out]", []).append(comparison.held_out)
        else:
            statistics[""].append(copy_statistics(index, texts))
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
