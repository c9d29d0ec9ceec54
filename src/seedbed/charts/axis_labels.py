"""Metrics, settings and values as text for axes and legends; what metrics mean is in `stats.metric_registry`.

>>> metric_label("val/accuracy[order=2]")
'validation accuracy, order=2'
>>> label_with_unit("learning rate", "")
'learning rate'
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Final

from seedbed.settings import Value, all_settings, setting_traits, traits_of
from seedbed.stats.metric_registry import QUANTITIES, MetricName

SPLIT_LABELS: Final = {
    "train": "training",
    "val": "validation",
    "test": "test",
    "gap": "train–validation gap of",
    "": "",
}
AXIS_LABELS: Final = {  # of what can stand on an axis besides settings
    "step": "training step",
    "epoch": "epochs",
    "tokens": "tokens seen in training",
    "time": "compute time (s)",
    "parameters": "parameters without token and position tables",
    "alpha": "α, fraction of the T steps",
    "seed": "seed",
    "budget": "budget C = P·B·T",
}
_RIGHT_TO_LEFT_CLASSES: Final = frozenset({"R", "AL"})
_RIGHT_TO_LEFT_ISOLATE, _POP_ISOLATE = "\u2067", "\u2069"  # renderers honour only these for a whole label


def metric_label(name: str) -> str:
    """`training loss`, `test perplexity (obama), length=64`; an unknown quantity keeps its name."""
    metric = MetricName.parse(name)
    split, _, inner = metric.split.partition("[")
    if name.startswith("gap/"):
        split, metric = "gap", MetricName.parse(name.removeprefix("gap/"))
    quantity = "L2 norm of the weights" if metric.quantity == "norm" else metric.quantity.replace("_", " ")
    label = SPLIT_LABELS[split]
    if quantity.startswith("running "):
        label, quantity = f"running {label}", quantity.removeprefix("running ")
    label = f"{label} {quantity}".strip() + (f" ({inner.rstrip(']')})" if inner else "")
    return isolate_direction(f"{label}, {metric.group.strip('[]')}" if metric.group else label)


def metric_quantity(name: str) -> str:
    """The quantity behind a metric's name, also of a gap."""
    return MetricName.parse(name.removeprefix("gap/")).quantity


def metric_unit(name: str) -> str:
    """The unit of a metric; empty if it has none or is unknown."""
    entry = QUANTITIES.get(metric_quantity(name))
    return "" if entry is None or entry.unit in ("1", "tokens") else entry.unit


def label_with_unit(label: str, unit: str) -> str:
    return f"{label} ({unit})" if unit else label


def setting_label(name: str) -> str:
    """The label of a setting, or of anything else that an axis can show, with its unit."""
    if name not in all_settings():
        return isolate_direction(AXIS_LABELS.get(name, name.rpartition(".")[2].replace("_", " ")))
    traits = setting_traits(name)
    return label_with_unit(traits.label or name.rpartition(".")[2].replace("_", " "), traits.unit)


@cache
def _value_labels() -> dict[str, str]:
    """How charts write the values of settings that have a spelling of their own."""
    traits = [traits_of(field) for fields in all_settings().values() for field in fields]
    return {value: label for one in traits for value, label in one.value_labels.items()}


def value_label(value: Value) -> str:
    """A setting's value as text for a legend: `GPT`, `0.3`, `[2,3]`, `true`."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(value_label, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    return (
        isolate_direction(_value_labels().get(value, value))
        if isinstance(value, str)
        else "unset"
        if value is None
        else str(value)
    )


def capitalize_first(text: str) -> str:
    """The text with a capital letter, unless it begins with a symbol such as t_f.

    >>> capitalize_first("best loss"), capitalize_first("t_f of loss")
    ('Best loss', 't_f of loss')
    """
    return text[:1].upper() + text[1:] if text[1:2] != "_" else text


def isolate_direction(text: str) -> str:
    """The text in a right-to-left isolate if it has right-to-left letters, else unchanged.

    >>> isolate_direction("abc"), isolate_direction("מילים — words") == "\\u2067מילים — words\\u2069"
    ('abc', True)
    """
    right_to_left = any(unicodedata.bidirectional(char) in _RIGHT_TO_LEFT_CLASSES for char in text)
    return (
        f"{_RIGHT_TO_LEFT_ISOLATE}{text}{_POP_ISOLATE}"
        if right_to_left and not text.startswith(_RIGHT_TO_LEFT_ISOLATE)
        else text
    )
