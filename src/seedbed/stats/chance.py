"""What a model achieves that ignores its inputs, and which runs predict the same tokens.

    chance_level(run).accuracy                    # 1 / p for sums modulo p
    is_above_chance(run, "val/accuracy", 0.08)    # or is that luck?

A run that never exceeded chance has learned nothing, so the step at which it was best says nothing either. Text has no
chance level: guessing the most frequent token already takes learning which one that is.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import sqrt

from seedbed.records import StoredRun
from seedbed.tasks.base import stored_dataset_info

# A best accuracy within this many standard errors of chance may be luck: it is the largest of many evaluations.
MAX_CHANCE_ERRORS = 4.0


@dataclass(frozen=True)
class ChanceLevel:
    """Accuracy of always giving the most frequent answer, and loss of guessing uniformly; None if not meaningful."""

    accuracy: float
    loss: float | None


def chance_level(run: StoredRun) -> ChanceLevel | None:
    """The chance level of a run's task; None if it has none, or if its data is missing."""
    info = stored_dataset_info(run)
    if info is None or info.chance is None:
        return None
    return ChanceLevel(info.chance, run.settings.task.chance_loss(info))


def is_above_chance(run: StoredRun, metric: str, best_accuracy: float) -> bool:
    """Does this accuracy exceed chance by more than luck explains? True for tasks without a chance level."""
    info = stored_dataset_info(run)
    if info is None or info.chance is None:
        return True
    n_all = run.settings.task.n_eval_samples(run.settings.train, info)
    n = info.n_train if metric.startswith("train/") else max(1, n_all - info.n_train)
    return best_accuracy > info.chance + MAX_CHANCE_ERRORS * sqrt(info.chance * (1 - info.chance) / n)


def token_unit(run: StoredRun) -> Hashable:
    """What a run predicts; losses and perplexities per token are comparable only between runs that predict the same."""
    info = stored_dataset_info(run)
    size = (info.vocab_size, info.n_classes) if info else run.settings.get("task.vocabulary")
    return run.settings.task.kind, run.settings.get("task.tokenizer"), size
