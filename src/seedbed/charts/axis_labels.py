"""Text of `format` as it stands on axes and in legends: with symbols and units, and right-to-left text isolated.

>>> setting_label("model.layers"), metric_label("val/accuracy[order=2]"), metric_unit("val/accuracy")
('layers L', 'validation accuracy (order=2)', 'fraction')
>>> label_with_unit("learning rate", "")
'learning rate'
"""

from __future__ import annotations

import unicodedata
from typing import Final

from seedbed import format as text_format
from seedbed.settings import Value, all_settings, setting_traits
from seedbed.stats import metric_registry
from seedbed.stats.metric_registry import MetricName

JOINT: Final = "+"  # `model.kind+train.lr` as a colour: one for each combination of values
AXIS_LABELS: Final = {  # of what can stand on an axis besides settings
    "step": "training step",
    "epoch": "epochs",
    "tokens": "tokens seen in training",
    "time": "compute time (s)",
    "alpha": "α, fraction of the T steps",
    "budget": "budget C = P·B·T",
}
_RIGHT_TO_LEFT_CLASSES: Final = frozenset({"R", "AL"})
_RIGHT_TO_LEFT_ISOLATE, _POP_ISOLATE = "\u2067", "\u2069"  # renderers honour only these for a whole label


def metric_label(name: str) -> str:
    """`training loss`, `test perplexity (obama) (length=64)`; an unknown quantity keeps its name."""
    return isolate_direction(metric_registry.metric_label(name))


def quantity_label(name: str) -> str:
    """What a metric measures, whatever the split: `bits per character`, `train–validation gap of accuracy`."""
    return metric_label(f"{'gap/' * name.startswith('gap/')}{metric_quantity(name)}")


def metric_quantity(name: str) -> str:
    """The quantity behind a metric's name, also of a gap."""
    return MetricName.parse(name.removeprefix("gap/")).quantity


def metric_unit(name: str) -> str:
    """The unit of a metric; empty if it has none or is unknown."""
    info = metric_registry.find_metric(name.removeprefix("gap/"))
    unit = "" if info is None or info.unit in ("1", "tokens") else info.unit
    return "fraction" if unit == "share" else unit


def label_with_unit(label: str, unit: str) -> str:
    return f"{label} ({unit})" if unit else label


def setting_label(name: str) -> str:
    """The label of a setting, of several joined by `+`, or of anything else on an axis, with symbol and unit."""
    if JOINT in name:
        return ", ".join(map(setting_label, name.split(JOINT)))
    if name in AXIS_LABELS or name not in all_settings():
        return isolate_direction(AXIS_LABELS.get(name) or text_format.setting_label(name))
    traits = setting_traits(name)
    return label_with_unit(traits.label or text_format.setting_label(name), traits.unit)


def setting_words(name: str) -> str:
    """The label of a setting in a title or sentence: `layers`, without symbol and unit."""
    words = [AXIS_LABELS.get(part) or text_format.setting_label(part) for part in name.split(JOINT)]
    return isolate_direction(text_format.join_words(words))


def value_label(value: Value) -> str:
    """A setting's value as text for a legend: `GPT`, `0.3`, `[2, 3]`, `on`."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return isolate_direction(text_format.format_value(value))


def isolate_direction(text: str) -> str:
    """The text in a right-to-left isolate if it has right-to-left letters, else unchanged.

    >>> isolate_direction("abc"), isolate_direction("מילים — words") == "\\u2067מילים — words\\u2069"
    ('abc', True)
    """
    if text.isascii():
        return text
    right_to_left = any(unicodedata.bidirectional(char) in _RIGHT_TO_LEFT_CLASSES for char in text)
    is_isolated = text.startswith(_RIGHT_TO_LEFT_ISOLATE)
    return f"{_RIGHT_TO_LEFT_ISOLATE}{text}{_POP_ISOLATE}" if right_to_left and not is_isolated else text
