"""What a run's samples copy from its training text, as curves over training; made when looked at, from kept samples.

Beside each curve stands the same number of held-out text, under `[held-out]`; a task without a held-out part has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np

from seedbed.data.datasets import TextSplit, load_text_dataset
from seedbed.data.suffix_array import SuffixArray
from seedbed.errors import MissingData
from seedbed.records import Curve, StoredRun, StoredSample
from seedbed.sampling.copy_detection import training_text_index
from seedbed.settings import TextSettings
from seedbed.stats.copying import CopyStatistics, compare_copying, copy_statistics
from seedbed.store.store import Store

COPYING_METRICS: dict[str, Callable[[CopyStatistics], float]] = {
    "copied": lambda one: one.mean_ngram_overlap,
    "new_words": lambda one: one.novel_word_share,
}


def copying_curves(store: Store, run: StoredRun) -> dict[str, Curve]:
    """The curves of a run that wrote samples; none where it wrote none, or its corpus is not at hand any more."""
    task = run.settings.task
    if not isinstance(task, TextSettings) or not run.settings.train.sample_every:
        return {}
    by_step: dict[int, list[StoredSample]] = {}
    for sample in store.samples(run.id):
        by_step.setdefault(sample.step, []).append(sample)
    try:
        return _copying_curves_by_step(task, by_step) if by_step else {}
    except MissingData:
        return {}


def _copying_curves_by_step(
    task: TextSettings, samples_by_step: Mapping[int, Sequence[StoredSample]]
) -> dict[str, Curve]:
    index, held_out = _train_index_and_held_out(task)
    found: dict[str, list[CopyStatistics]] = {"": []}
    for samples in samples_by_step.values():
        texts = [sample.text for sample in samples]
        if held_out:
            both = compare_copying(index, texts, held_out)
            found[""].append(both.samples)
            found.setdefault("[held-out]", []).append(both.held_out)
        else:
            found[""].append(copy_statistics(index, texts))
    steps = np.array(list(samples_by_step), dtype=np.int64)
    return {
        f"{name}{suffix}": Curve(steps, np.array([read(one) for one in several]))
        for suffix, several in found.items()
        for name, read in COPYING_METRICS.items()
    }


@cache
def _train_index_and_held_out(task: TextSettings) -> tuple[SuffixArray, str]:
    """The training text, indexed, and the held-out text."""
    prepared = load_text_dataset(task)

    def text_of(part: TextSplit) -> str:
        return "\n".join(prepared.tokenizer.decode(piece) for piece in part.span_ids())

    held_out = next((text_of(part) for name, part in prepared.splits.items() if name != "train"), "")
    return training_text_index(task), held_out
