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

from seedbed.measures.attention import NUMBERS
from seedbed.shown import METRIC

Direction: TypeAlias = Literal["min", "max"]


@dataclass(frozen=True)
class Entry:
    """One named number; `direction` is None where neither small nor large is better in itself."""

    name: str
    symbol: str
    unit: str
    meaning: str
    direction: Direction | None


# In the order of a table. A small norm is a property of a run, not an achievement: zero weights have the smallest.
QUANTITIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry("loss", "L", "nats", "mean negative log-likelihood per scored token", "min"),
        Entry("accuracy", "A", "share", "share of samples with all scored tokens right; of text: of tokens", "max"),
        Entry("perplexity", "PPL", "tokens", "exponential of the loss: equally likely choices per token", "min"),
        Entry("bits_per_character", "bpc", "bits", "negative log₂-likelihood per character of the text", "min"),
        Entry("bits_per_byte", "bpB", "bits", "negative log₂-likelihood per byte of the text in UTF-8", "min"),
        Entry("perplexity_sliding", "PPLs", "tokens", "perplexity of windows that slide by half", "min"),
        Entry("perplexity_padded", "PPLp", "tokens", "perplexity if a short last batch were a full one", "min"),
        Entry("copied", "copied", "share", "share of n-grams, n = 4 … 40, that stand in the training text", None),
        Entry(
            "new_words", "new words", "share", "share of words in samples that the training text does not have", None
        ),
        Entry("norm", "‖θ‖₂", "1", "length of the vector of all parameters, tables included", None),
        Entry("circle_share", "circle share", "share", "power of the number table in its key frequencies", None),
        Entry("circle_frequencies", "circles", "frequencies", "frequencies alike that would be as even", None),
        Entry(
            "circle_restricted_loss", "L restricted", "nats", "validation loss of the logits' key circles alone", None
        ),
        Entry("circle_excluded_loss", "L excluded", "nats", "training loss without the logits' key circles", None),
        Entry(
            "circle_units", "units on circles", "share", "variance of a hidden unit that one frequency explains", None
        ),
        Entry("circle_tuned_units", "tuned units", "share", "hidden units of which one frequency explains 0.85", None),
        *(Entry(f"attention_{name}", name, one.unit, one.words, None) for name, one in NUMBERS.items()),
    )
}

# An early t_f is not better when the value attained is worse, so steps have no direction either.
MEASURES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry("best", "best", "as the metric", "lowest or highest recorded value, whichever is better", None),
        Entry("last", "last", "as the metric", "value at the last recorded step", None),
        Entry("t_f", "t_f", "steps", "first recorded step that attains the best value", None),
        Entry("delta_t", "Δt", "steps", "t_f(val) − t_f(train) of the same run", None),
        Entry("t_reach", "t(M ≥ m)", "steps", "first recorded step at which the metric passes a threshold", None),
        Entry("t_near", "t_ε", "steps", "first recorded step within ε of the best value", None),
        Entry(
            "at_best", "at best", "as the metric", "value at the step where another metric is first at its best", None
        ),
        Entry("gap", "gap", "as the metric", "how much worse val is than train at the step where val is best", "min"),
        Entry(
            "area", "mean height", "as the metric", "area under the curve over its steps, divided by their span", None
        ),
        Entry("compute", "C", "parameters × samples", "P·B·T: parameters without tables × batch × steps", "min"),
        Entry("flops", "FLOPs", "operations", "6 × parameters without tables × tokens trained on", "min"),
        Entry("seconds", "time", "s", "compute time of the run: its share of its pack's, evaluation left out", "min"),
        Entry("memory", "memory", "MiB", "memory between updates, as measured; predicted where it was not", "min"),
    )
}

_SPLITS = ("train", "val", "test", "")


@dataclass(frozen=True)
class Metric:
    """The parts of a metric's name; a part that is not there is empty."""

    split: str
    quantity: str
    group: str

    @classmethod
    def parse(cls, name: str) -> Metric:
        """The parts of this name; a name of another form is one bare quantity."""
        found = METRIC.fullmatch(name)
        return cls(**found.groupdict(default="")) if found else cls("", name, "")


def label(name: str) -> str:
    """The short sign of a metric for headings: `L_train`, `A_val[order=2]`; unknown ones keep their name."""
    metric = Metric.parse(name)
    if metric.quantity not in QUANTITIES:
        return name
    symbol = QUANTITIES[metric.quantity].symbol
    return (f"{symbol}_{metric.split}" if metric.split else symbol) + metric.group


def table_order(name: str) -> tuple[str, int, int, str]:
    """Sorts metrics as tables show them: groups last, then loss before accuracy, then train before val before test."""
    metric = Metric.parse(name)
    quantities = [*QUANTITIES, metric.quantity]
    return metric.group, quantities.index(metric.quantity), _SPLITS.index(metric.split.partition("[")[0]), name
