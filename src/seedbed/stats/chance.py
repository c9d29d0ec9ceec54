"""What a model achieves that ignores its inputs, and which runs predict the same tokens.

    chance_level(run).accuracy                    # 1 / p for sums modulo p
    is_above_chance(run, "val/accuracy", 0.08)    # or is that luck?
    metric_unit(run, "val/loss")                  # equal where losses can be compared

A run that never exceeded chance has learned nothing, so the step at which it was best says nothing either. Text has no
chance level: guessing the most frequent token already takes learning which one that is.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from math import exp, lgamma, log, log1p

from seedbed.errors import UsageError
from seedbed.records import StoredRun
from seedbed.settings import ALL_EVAL_SETS
from seedbed.stats.metric_registry import QUANTITIES, TOKEN_FREE_QUANTITIES, MetricName
from seedbed.tasks.base import stored_dataset_info

# An accuracy exceeds chance if guesses reach it less often than this: it is the largest of many evaluations.
MAX_LUCK = 3e-5


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
    whole = run.settings.train.model_copy(update={"eval_sets": ALL_EVAL_SETS})
    n_all = run.settings.task.n_eval_samples(whole, info)
    n = info.n_train if metric.startswith("train/") else max(1, n_all - info.n_train)
    return binomial_tail(round(best_accuracy * n), n, info.chance) < MAX_LUCK


def binomial_tail(k: int, n: int, p: float) -> float:
    """The probability of at least k successes in n trials; 1 if k is no more than the mean.

    >>> round(binomial_tail(9, 10, 0.5), 6)  # (10 + 1) / 1024
    0.010742
    """
    if k <= n * p:
        return 1.0
    term = exp(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(p) + (n - k) * log1p(-p))
    total = term
    while k < n and term > total * 1e-12:
        term *= (n - k) / (k + 1) * p / (1 - p)
        total += term
        k += 1
    return total


def token_unit(run: StoredRun) -> Hashable:
    """What a run predicts; losses and perplexities per token are comparable only between runs that predict the same."""
    info = stored_dataset_info(run)
    if info and info.n_classes:  # it predicts classes, whatever the tokens that it reads
        return run.settings.task.kind, info.n_classes
    size = info.vocab_size if info else run.settings.get("task.vocabulary")
    return run.settings.task.kind, run.settings.get("task.tokenizer"), size


def is_per_token(quantity: str, chance: ChanceLevel | None) -> bool:
    """Do values of this quantity depend on what a token is? Not if it is a share of answers or free of tokens."""
    entry = QUANTITIES.get(quantity)
    is_share_of_answers = quantity == "accuracy" and chance is not None
    has_direction = entry is not None and entry.direction is not None
    return has_direction and not is_share_of_answers and quantity not in TOKEN_FREE_QUANTITIES


def check_one_unit(runs: Iterable[StoredRun], metric: str) -> None:
    """UsageError if this metric is counted in other tokens in some of the runs, so that it cannot rank them."""
    if len({metric_unit(run, metric) for run in runs}) > 1:
        raise UsageError(
            f"{metric} cannot rank configs that predict different tokens; use val/bits_per_character, or one vocabulary"
        )


def metric_unit(run: StoredRun, metric: str) -> Hashable:
    """What a metric of this run is counted in: the tokens that it predicts, or None if these do not matter."""
    return token_unit(run) if is_per_token(MetricName.parse(metric).quantity, chance_level(run)) else None
