"""Name, symbol, unit, meaning and direction of every metric and statistic; computes nothing.

A metric's name is `{train,val,test[NAME]}/QUANTITY[GROUP]` or a bare quantity such as `norm`. A quantity that is not
registered is still a metric: it has no direction and is labelled by its own name.

>>> metric_label("val/accuracy[order=2]")
'A_val[order=2]'
>>> MetricName.parse("test[obama]/perplexity")
MetricName(split='test[obama]', quantity='perplexity', group='')
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from seedbed.specs import METRIC_PATTERN
from seedbed.stats.attention_stats import HEAD_STATISTICS

Direction: TypeAlias = Literal["min", "max"]


@dataclass(frozen=True)
class MetricInfo:
    """A metric or statistic; `direction` is None if neither low nor high is better in itself."""

    name: str
    symbol: str
    unit: str
    meaning: str
    direction: Direction | None


# In table order. The norm has no direction: a small norm is not an achievement, zero weights have the smallest.
QUANTITIES: dict[str, MetricInfo] = {
    entry.name: entry
    for entry in (
        MetricInfo("loss", "L", "nats", "mean negative log-likelihood per scored token", "min"),
        MetricInfo(
            "accuracy",
            "A",
            "share",
            "share of samples with all scored tokens correct; for text, share of tokens",
            "max",
        ),
        MetricInfo(
            "perplexity", "PPL", "tokens", "exponential of the loss: effective number of choices per token", "min"
        ),
        MetricInfo("bits_per_character", "bpc", "bits", "negative log₂-likelihood per character of the text", "min"),
        MetricInfo("bits_per_byte", "bpB", "bits", "negative log₂-likelihood per byte of the text in UTF-8", "min"),
        MetricInfo(
            "perplexity_sliding", "PPLs", "tokens", "perplexity over windows with a stride of half their length", "min"
        ),
        MetricInfo(
            "perplexity_padded", "PPLp", "tokens", "perplexity with a short last batch counted as a full one", "min"
        ),
        MetricInfo("copied", "copied", "share", "share of n-grams, n = 4 … 40, that occur in the training text", None),
        MetricInfo(
            "new_words", "new words", "share", "share of words in samples that do not occur in the training text", None
        ),
        MetricInfo("norm", "‖θ‖₂", "1", "L2 norm of all parameters, embeddings included", None),
        MetricInfo(
            "circle_share", "circle share", "share", "power of the number embeddings in their key frequencies", None
        ),
        MetricInfo("circle_frequencies", "circles", "frequencies", "effective number of frequencies", None),
        MetricInfo(
            "circle_restricted_loss",
            "L restricted",
            "nats",
            "validation loss of logits restricted to the key frequencies",
            None,
        ),
        MetricInfo(
            "circle_excluded_loss", "L excluded", "nats", "training loss of logits without the key frequencies", None
        ),
        MetricInfo(
            "circle_units",
            "units on circles",
            "share",
            "variance of a hidden unit explained by its best frequency",
            None,
        ),
        MetricInfo(
            "circle_tuned_units",
            "tuned units",
            "share",
            "hidden units with 0.85 of the variance explained by one frequency",
            None,
        ),
        *(
            MetricInfo(f"attention_{name}", name, one.unit, one.description, None)
            for name, one in HEAD_STATISTICS.items()
        ),
    )
}

# Steps have no direction: an early t_f is not better if the value attained is worse.
STATISTICS: dict[str, MetricInfo] = {
    entry.name: entry
    for entry in (
        MetricInfo("best", "best", "as the metric", "lowest or highest recorded value, whichever is better", None),
        MetricInfo("last", "last", "as the metric", "value at the last recorded step", None),
        MetricInfo("t_f", "t_f", "steps", "first recorded step with the best value", None),
        MetricInfo("delta_t", "Δt", "steps", "t_f(val) − t_f(train) of the same run", None),
        MetricInfo("t_reach", "t(M ≥ m)", "steps", "first recorded step at which the metric reaches a threshold", None),
        MetricInfo("t_near", "t_ε", "steps", "first recorded step within ε of the best value", None),
        MetricInfo(
            "at_best", "at best", "as the metric", "value at the step where another metric is first at its best", None
        ),
        MetricInfo("gap", "gap", "as the metric", "how much worse val is than train at the best val step", "min"),
        MetricInfo(
            "area", "mean height", "as the metric", "area under the curve divided by the span of its steps", None
        ),
        MetricInfo("compute", "C", "parameters × samples", "P·B·T: non-embedding parameters × batch × steps", "min"),
        MetricInfo("flops", "FLOPs", "operations", "6 × non-embedding parameters × training tokens", "min"),
        MetricInfo(
            "seconds", "time", "s", "compute time of the run: its share of its pack's, without evaluation", "min"
        ),
        MetricInfo("memory", "memory", "MiB", "memory between updates; predicted if not measured", "min"),
    )
}

_SPLITS = ("train", "val", "test", "")


@dataclass(frozen=True)
class MetricName:
    """The parts of a metric's name; missing parts are empty."""

    split: str
    quantity: str
    group: str

    @classmethod
    def parse(cls, name: str) -> MetricName:
        """The parts of this name; a name of another form is a bare quantity."""
        match = METRIC_PATTERN.fullmatch(name)
        return cls(**match.groupdict(default="")) if match else cls("", name, "")


def metric_label(name: str) -> str:
    """The short label of a metric for headings: `L_train`, `A_val[order=2]`; unknown metrics keep their name."""
    metric = MetricName.parse(name)
    if metric.quantity not in QUANTITIES:
        return name
    symbol = QUANTITIES[metric.quantity].symbol
    return (f"{symbol}_{metric.split}" if metric.split else symbol) + metric.group


def metric_sort_key(name: str) -> tuple[str, int, int, str]:
    """Sort key for tables: groups last, then loss before accuracy, then train before val before test."""
    metric = MetricName.parse(name)
    quantities = [*QUANTITIES, metric.quantity]
    return metric.group, quantities.index(metric.quantity), _SPLITS.index(metric.split.partition("[")[0]), name
