"""Name, symbol, unit, meaning, direction and label of every metric; computes nothing.

A metric's name is `{train,val,test[NAME]}/QUANTITY[GROUP]` or a bare quantity such as `norm`. A quantity that is not
registered is still a metric: it has no direction and is labelled by its own name.

>>> metric_symbol("val/accuracy[order=2]"), metric_label("val/accuracy[order=2]")
('A_val[order=2]', 'validation accuracy (order=2)')
>>> MetricName.parse("test[obama]/perplexity")
MetricName(split='test[obama]', quantity='perplexity', group='')
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Literal, TypeAlias

from seedbed.specs import METRIC_PATTERN
from seedbed.stats.attention_stats import HEAD_STATISTICS

Direction: TypeAlias = Literal["min", "max"]


@dataclass(frozen=True)
class MetricInfo:
    """A metric; `direction` is None if neither low nor high is better in itself."""

    name: str
    symbol: str
    unit: str
    meaning: str
    direction: Direction | None
    label: str = ""  # in sentences and on axes; empty: the name, with spaces
    formula: str = ""  # in the reference; log is natural, p the probability of the right token, θ the parameters


# In table order. The norm has no direction: a small norm is not an achievement, zero weights have the smallest.
QUANTITIES: dict[str, MetricInfo] = {
    entry.name: entry
    for entry in (
        MetricInfo(
            "loss",
            "L",
            "nats",
            "mean negative log-likelihood per scored token",
            "min",
            formula="equations, labels: mean over samples of the mean of −log p over a sample's scored tokens; "
            "text: Σ −log p ÷ number of tokens",
        ),
        MetricInfo(
            "accuracy",
            "A",
            "share",
            "share of samples with all scored tokens correct; for text, share of tokens",
            "max",
            formula="samples (text: tokens) whose argmax is right everywhere that is scored ÷ all",
        ),
        MetricInfo(
            "token_accuracy",
            "A_token",
            "share",
            "share of scored tokens that are correct",
            "max",
            formula="scored tokens whose argmax is right ÷ all",
        ),
        MetricInfo(
            "perplexity",
            "PPL",
            "tokens",
            "exponential of the loss: effective number of choices per token",
            "min",
            formula="exp(loss)",
        ),
        MetricInfo(
            "running_loss",
            "L_running",
            "nats",
            "mean training loss of the updates since the last evaluation",
            "min",
            formula="mean of the training loss of the updates since the last evaluation",
        ),
        MetricInfo(
            "running_perplexity",
            "PPL_running",
            "tokens",
            "exponential of the running loss",
            "min",
            formula="exp(running_loss)",
        ),
        MetricInfo(
            "bits_per_character",
            "bpc",
            "bits",
            "negative log₂-likelihood per character of the text",
            "min",
            formula="Σ −log₂ p ÷ characters of the text",
        ),
        MetricInfo(
            "bits_per_byte",
            "bpB",
            "bits",
            "negative log₂-likelihood per byte of the text in UTF-8",
            "min",
            formula="Σ −log₂ p ÷ bytes of the text in UTF-8",
        ),
        MetricInfo(
            "perplexity_sliding",
            "PPLs",
            "tokens",
            "perplexity over windows with a stride of half their length",
            "min",
            formula="exp(loss), where each token is scored once, in a window that begins half a length earlier",
        ),
        MetricInfo(
            "perplexity_padded",
            "PPLp",
            "tokens",
            "perplexity with a short last batch counted as a full one",
            "min",
            formula="exp(mean over batches of loss × tokens ÷ tokens of a full batch)",
        ),
        MetricInfo(
            "copied",
            "copied",
            "share",
            "share of n-grams, n = 4 … 40, that occur in the training text",
            None,
            "share of n-grams copied from the training text",
            formula="mean over n = 4 … 40 of (n-grams of the samples that occur in the training text ÷ all)",
        ),
        MetricInfo(
            "new_words",
            "new words",
            "share",
            "share of words in samples that do not occur in the training text",
            None,
            "share of words new in samples",
            formula="words of the samples that do not occur in the training text ÷ all",
        ),
        MetricInfo(
            "norm",
            "‖θ‖₂",
            "1",
            "L2 norm of all parameters, embeddings included",
            None,
            "L2 norm of the weights",
            formula="√ Σ θ²",
        ),
        MetricInfo(
            "circle_share",
            "circle share",
            "share",
            "power of the number embeddings in their key frequencies",
            None,
            formula="power of the number embeddings in the key frequencies ÷ in all, by a discrete Fourier transform "
            "over the numbers",
        ),
        MetricInfo(
            "circle_frequencies",
            "circles",
            "frequencies",
            "effective number of frequencies",
            None,
            formula="(Σ power)² ÷ Σ power², over frequencies",
        ),
        MetricInfo(
            "circle_restricted_loss",
            "L restricted",
            "nats",
            "validation loss of logits restricted to the key frequencies",
            None,
            formula="loss on validation equations of the logits with key frequencies only",
        ),
        MetricInfo(
            "circle_excluded_loss",
            "L excluded",
            "nats",
            "training loss of logits without the key frequencies",
            None,
            formula="loss on training equations of the logits without the key frequencies",
        ),
        MetricInfo(
            "circle_units",
            "units on circles",
            "share",
            "variance of a hidden unit explained by its best frequency",
            None,
            formula="mean over hidden units of the variance explained by the unit's best frequency",
        ),
        MetricInfo(
            "circle_tuned_units",
            "tuned units",
            "share",
            "hidden units with 0.85 of the variance explained by one frequency",
            None,
            formula="units with at least 0.85 of their variance explained by one frequency ÷ all",
        ),
        *(
            MetricInfo(f"attention_{name}", name, one.unit, one.description, None, one.label)
            for name, one in HEAD_STATISTICS.items()
        ),
    )
}

# Quantities that are a fixed increasing function of the loss of the same split, and so are best at the same step.
LOSS_TRANSFORMS = ("perplexity", "bits_per_character", "bits_per_byte")
# Quantities whose unit does not depend on the tokens that a model predicts.
TOKEN_FREE_QUANTITIES = ("bits_per_character", "bits_per_byte")
_SPLITS = ("train", "val", "test", "")
_SPLIT_LABELS = {"train": "training", "val": "validation", "test": "test", "gap": "train–validation gap of", "": ""}


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


def find_metric(name: str) -> MetricInfo | None:
    """What is registered of the quantity behind a metric's name."""
    return QUANTITIES.get(MetricName.parse(name).quantity)


def metric_direction(name: str) -> Direction | None:
    """Is a low (min) or a high (max) value of this metric better? None if neither (norm, unknown metrics)."""
    info = find_metric(name)
    return info.direction if info else None


def training_metric(metric: str, recorded: Container[str]) -> str:
    """The training metric to compare one with: the running one of a run that does not evaluate its training set.

    >>> training_metric("val/loss", ["train/loss", "val/loss"]), training_metric("val/loss", ["train/running_loss"])
    ('train/loss', 'train/running_loss')
    """
    parts = MetricName.parse(metric)
    whole, running = f"train/{parts.quantity}{parts.group}", f"train/running_{parts.quantity}{parts.group}"
    return running if whole not in recorded and running in recorded else whole


def metric_symbol(name: str) -> str:
    """A metric in the heading of a table: `L_train`, `A_val[order=2]`; unknown metrics keep their name."""
    metric, info = MetricName.parse(name), find_metric(name)
    if info is None:
        return name
    return (f"{info.symbol}_{metric.split}" if metric.split else info.symbol) + metric.group


def metric_label(name: str) -> str:
    """A metric in words: `training loss`, `test perplexity (obama) (length=64)`, `train–validation gap of loss`."""
    parts = METRIC_PATTERN.fullmatch(name.removeprefix("gap/"))
    if parts is None:
        return name
    split, _, inner = (parts["split"] or "").partition("[")
    entry = QUANTITIES.get(parts["quantity"])
    quantity = entry.label if entry and entry.label else parts["quantity"].replace("_", " ")
    label = _SPLIT_LABELS["gap" if name.startswith("gap/") else split]
    if quantity.startswith("running "):
        label, quantity = f"running {label}", quantity.removeprefix("running ")
    label = f"{label} {quantity}".strip() + (f" ({inner.rstrip(']')})" if inner else "")
    return f"{label} ({parts['group'].strip('[]')})" if parts["group"] else label


def metric_sort_key(name: str) -> tuple[str, int, int, str]:
    """Sort key for tables: groups last, then loss before accuracy, then train before val before test."""
    metric = MetricName.parse(name)
    quantities = [*QUANTITIES, metric.quantity]
    return metric.group, quantities.index(metric.quantity), _SPLITS.index(metric.split.partition("[")[0]), name
