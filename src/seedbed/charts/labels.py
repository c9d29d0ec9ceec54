"""Metrics, dials and values in a reader's words, ready for axes and legends; what they mean is the catalogue's.

>>> metric_in_words("val/accuracy[order=2]")
'validation accuracy, order=2'
>>> with_unit("learning rate", "")
'learning rate'
"""

from __future__ import annotations

import unicodedata
from typing import Final

from seedbed.settings import Value
from seedbed.stats.metric_registry import QUANTITIES, MetricName

SPLIT_LABELS: Final = {
    "train": "training",
    "val": "validation",
    "test": "test",
    "gap": "train–validation gap of",
    "": "",
}
SETTING_LABELS: Final = {
    "model.kind": "model",
    "model.layers": "layers L",
    "model.dim": "width d",
    "model.heads": "attention heads",
    "task.train_fraction": "share of equations in training, r_train",
    "task.orders": "operands per equation",
    "task.p": "modulus p",
    "train.batch_size": "batch size B (samples)",
    "train.lr": "learning rate",
    "train.weight_decay": "weight decay",
    "train.steps": "steps T",
    "step": "training step",
    "epoch": "epochs",
    "tokens": "tokens seen in training",
    "time": "compute time (s)",
    "parameters": "parameters without token and position tables",
    "alpha": "α, share of the T steps",
    "seed": "seed",
    "budget": "budget C = P·B·T",
}
VALUE_LABELS: Final = {"gpt": "GPT", "lstm": "LSTM", "sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}
_RIGHT_TO_LEFT_CLASSES: Final = frozenset({"R", "AL"})
_RIGHT_TO_LEFT_ISOLATE, _POP_ISOLATE = "\u2067", "\u2069"  # the only marks that turn a whole label (interface.md 6.2)


def metric_label(name: str) -> str:
    """`training loss`, `test perplexity (obama), length=64`; a name of another form stays as it is."""
    metric = MetricName.parse(name)
    split, _, inner = metric.split.partition("[")
    if name.startswith("gap/"):
        split, metric = "gap", MetricName.parse(name.removeprefix("gap/"))
    quantity = "L2 norm of the weights" if metric.quantity == "norm" else metric.quantity.replace("_", " ")
    words = f"{SPLIT_LABELS[split]} {quantity}".strip() + (f" ({inner.rstrip(']')})" if inner else "")
    return isolate_direction(f"{words}, {metric.group.strip('[]')}" if metric.group else words)


def metric_quantity(name: str) -> str:
    """The quantity behind a metric's name, also of a gap."""
    return MetricName.parse(name.removeprefix("gap/")).quantity


def metric_unit(name: str) -> str:
    """The unit of a metric; empty where it has none or none is known."""
    entry = QUANTITIES.get(metric_quantity(name))
    return "" if entry is None or entry.unit in ("1", "tokens") else entry.unit


def label_with_unit(label: str, unit: str) -> str:
    return f"{label} ({unit})" if unit else label


def setting_label(name: str) -> str:
    """A dial as an axis names it: its known words, or the last part of its name."""
    return isolate_direction(SETTING_LABELS.get(name, name.rpartition(".")[2].replace("_", " ")))


def value_label(value: Value) -> str:
    """A dial's value as a legend shows it: `GPT`, `0.3`, `[2,3]`, `true`."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(value_label, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    return (
        isolate_direction(VALUE_LABELS.get(value, value))
        if isinstance(value, str)
        else "unset"
        if value is None
        else str(value)
    )


def capitalize_first(text: str) -> str:
    """The words with a capital, unless they begin with a sign such as t_f.

    >>> sentence("best loss"), sentence("t_f of loss")
    ('Best loss', 't_f of loss')
    """
    return text[:1].upper() + text[1:] if text[1:2] != "_" else text


def isolate_direction(text: str) -> str:
    """The text with its own direction where it holds right-to-left letters; others are left alone.

    >>> isolated("abc"), isolated("מילים — words") == "\\u2067מילים — words\\u2069"
    ('abc', True)
    """
    turned = any(unicodedata.bidirectional(sign) in _RIGHT_TO_LEFT_CLASSES for sign in text)
    return (
        f"{_RIGHT_TO_LEFT_ISOLATE}{text}{_POP_ISOLATE}"
        if turned and not text.startswith(_RIGHT_TO_LEFT_ISOLATE)
        else text
    )
