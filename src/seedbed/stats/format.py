"""Numbers, settings and lists as text for sentences.

>>> format_number(0.02314), format_number(12345.6), format_number(1.5e-4), format_count(10001.0)
('0.0231', '12,346', '0.00015', '10,001')
>>> join_words(["a", "b", "c"])
'a, b and c'
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, isnan

from seedbed.settings import Value


def format_number(value: float) -> str:
    """Three significant digits, thousands separators, no negative zero."""
    if not isfinite(value):
        return "unknown" if isnan(value) else "∞" if value > 0 else "−∞"
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace("-", "−") if abs(value) < 1e9 else f"{value:.3g}"
    text = f"{value + 0.0:.3g}"
    return "0" if text in ("0", "-0") else text.replace("-", "−", 1) if text.startswith("-") else text


def format_count(value: float) -> str:
    """A count such as a step; a mean of counts has one decimal."""
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def format_signed(value: float) -> str:
    """The number with an explicit sign: `+0.75`, `−3`."""
    return ("+" if value > 0 else "") + format_number(value)


def format_interval(low: float, high: float) -> str:
    """`[0.01, 0.03]`."""
    return f"[{format_number(low)}, {format_number(high)}]"


def format_p_value(p: float) -> str:
    """`p = 0.06`, or `p < 0.001`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def format_percent(fraction: float, digits: int = 0) -> str:
    return f"{100 * fraction:.{digits}f} %"


def pluralise(n: int, noun: str) -> str:
    return f"{n:,} {noun if n == 1 else noun + 's'}"


def join_words(words: Sequence[str], conjunction: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f" {conjunction} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def short_setting_name(name: str) -> str:
    """The name of a setting without its group: `task.train_fraction` → `train_fraction`."""
    return name.rpartition(".")[2]


def format_setting(name: str, value: Value) -> str:
    """One value of a setting, as the name of a group of runs: `GPT`, `weight_decay = 0.5`."""
    if name == "model.kind":
        return str(value).upper()
    return f"{short_setting_name(name)} = {format_value(value)}"


def format_value(value: Value) -> str:
    """A setting's value as written in a study file, with thousands separators from 10,000 on."""
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(format_value, value)) + "]"
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)
