"""What every metric and measure is called, its unit, its meaning and which way is better; computes nothing.

A metric is a reading's name, `{train,val,test[NAME]}/QUANTITY[GROUP]` or a bare quantity such as `norm`. A quantity
that is not in the catalogue is still a metric: it has no direction and is labelled by its own name.

>>> label("val/accuracy[order=2]")
'A_val[order=2]'
>>> Metric.parse("test[obama]/perplexity")
Metric(split='test[obama]', quantity='perplexity', group='')
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from seedbed.specs import METRIC_PATTERN
from seedbed.stats.attention_stats import HEAD_STATISTICS

Direction: TypeAlias = Literal["min", "max"]


@dataclass(frozen=True)
class MetricInfo:
    """One named number; `direction` is None where neither small nor large is better in itself."""

    name: str
    symbol: str
    unit: str
    meaning: str
    direction: Direction | None


# In the order of a table. A small norm is a property of a run, not an achievement: zero weights have the smallest.
QUANTITIES: dict[str, MetricInfo] = {
    entry.name: entry
    for entry in (
        MetricInfo("loss", "L", "nats", "mean negative log-likelihood per scored token", "min"),
        MetricInfo(
            "accuracy", "A", "share", "share of samples with all scored tokens right; of text: of tokens", "max"
        ),
        MetricInfo("perplexity", "PPL", "tokens", "exponential of the loss: equally likely choices per token", "min"),
        MetricInfo("bits_per_character", "bpc", "bits", "negative log₂-likelihood per character of the text", "min"),
        MetricInfo("bits_per_byte", "bpB", "bits", "negative log₂-likelihood per byte of the text in UTF-8", "min"),
        MetricInfo("perplexity_sliding", "PPLs", "tokens", "perplexity of windows that slide by half", "min"),
        MetricInfo("perplexity_padded", "PPLp", "tokens", "perplexity if a short last batch were a full one", "min"),
        MetricInfo("copied", "copied", "share", "share of n-grams, n = 4 … 40, that stand in the training text", None),
        MetricInfo(
            "new_words", "new words", "share", "share of words in samples that the training text does not have", None
        ),
        MetricInfo("norm", "‖θ‖₂", "1", "length of the vector of all parameters, tables included", None),
        MetricInfo("circle_share", "circle share", "share", "power of the number table in its key frequencies", None),
        MetricInfo("circle_frequencies", "circles", "frequencies", "frequencies alike that would be as even", None),
        MetricInfo(
            "circle_restricted_loss", "L restricted", "nats", "validation loss of the logits' key circles alone", None
        ),
        MetricInfo("circle_excluded_loss", "L excluded", "nats", "training loss without the logits' key circles", None),
        MetricInfo(
            "circle_units", "units on circles", "share", "variance of a hidden unit that one frequency explains", None
        ),
        MetricInfo(
            "circle_tuned_units", "tuned units", "share", "hidden units of which one frequency explains 0.85", None
        ),
        *(
            MetricInfo(f"attention_{name}", name, one.unit, one.description, None)
            for name, one in HEAD_STATISTICS.items()
        ),
    )
}

# An early t_f is not better when the value attained is worse, so steps have no direction either.
STATISTICS: dict[str, MetricInfo] = {
    entry.name: entry
    for entry in (
        MetricInfo("best", "best", "as the metric", "lowest or highest recorded value, whichever is better", None),
        MetricInfo("last", "last", "as the metric", "value at the last recorded step", None),
        MetricInfo("t_f", "t_f", "steps", "first recorded step that attains the best value", None),
        MetricInfo("delta_t", "Δt", "steps", "t_f(val) − t_f(train) of the same run", None),
        MetricInfo("t_reach", "t(M ≥ m)", "steps", "first recorded step at which the metric passes a threshold", None),
        MetricInfo("t_near", "t_ε", "steps", "first recorded step within ε of the best value", None),
        MetricInfo(
            "at_best", "at best", "as the metric", "value at the step where another metric is first at its best", None
        ),
        MetricInfo(
            "gap", "gap", "as the metric", "how much worse val is than train at the step where val is best", "min"
        ),
        MetricInfo(
            "area", "mean height", "as the metric", "area under the curve over its steps, divided by their span", None
        ),
        MetricInfo("compute", "C", "parameters × samples", "P·B·T: parameters without tables × batch × steps", "min"),
        MetricInfo("flops", "FLOPs", "operations", "6 × parameters without tables × tokens trained on", "min"),
        MetricInfo(
            "seconds", "time", "s", "compute time of the run: its share of its pack's, evaluation left out", "min"
        ),
        MetricInfo("memory", "memory", "MiB", "memory between updates, as measured; predicted where it was not", "min"),
    )
}

_SPLITS = ("train", "val", "test", "")


@dataclass(frozen=True)
class MetricName:
    """The parts of a metric's name; a part that is not there is empty."""

    split: str
    quantity: str
    group: str

    @classmethod
    def parse(cls, name: str) -> MetricName:
        """The parts of this name; a name of another form is one bare quantity."""
        found = METRIC_PATTERN.fullmatch(name)
        return cls(**found.groupdict(default="")) if found else cls("", name, "")


def metric_label(name: str) -> str:
    """The short sign of a metric for headings: `L_train`, `A_val[order=2]`; unknown ones keep their name."""
    metric = MetricName.parse(name)
    if metric.quantity not in QUANTITIES:
        return name
    symbol = QUANTITIES[metric.quantity].symbol
    return (f"{symbol}_{metric.split}" if metric.split else symbol) + metric.group


def metric_sort_key(name: str) -> tuple[str, int, int, str]:
    """Sorts metrics as tables show them: groups last, then loss before accuracy, then train before val before test."""
    metric = MetricName.parse(name)
    quantities = [*QUANTITIES, metric.quantity]
    return metric.group, quantities.index(metric.quantity), _SPLITS.index(metric.split.partition("[")[0]), name
