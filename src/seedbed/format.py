"""Numbers, settings, configs and lists as text: the same in a sentence, a table, a chart and on the page.

Names of metrics are in their registry, `stats.metric_registry`.

>>> format_number(0.02314), format_number(12345.6), format_number(1.5e-4), format_count(10001.0)
('0.0231', '12,346', '1.5e-4', '10,001')
>>> join_words(["a", "b", "c"])
'a, b and c'
>>> format_config({"model.kind": "gpt", "train.lr": 0.0003, "model.layers": 2})
'GPT, learning rate 3e-4, 2 layers'
>>> setting_label("task.p")
'modulus'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from math import isfinite, isnan
from typing import Final

from seedbed.settings import PositiveInt, Value, all_settings, setting_traits, traits_of

PSEUDO_SETTINGS: Final = {"parameters": "non-embedding parameters", "alpha": "α", "seed": "seed", "config": "config"}
MAX_DIGITS: Final = 6
_ABBREVIATIONS: Final = {
    "mlp": "MLP", "qkv": "QKV", "lr": "learning rate", "val": "validation", "eval": "evaluation", "max": "maximum",
    "eps": "epsilon",
}  # fmt: skip
_SINGULAR: Final = ("modulus", "bias")  # labels that end in s and are no plurals
_UNCOUNTABLE: Final = ("dropout", "decay", "smoothing", "clipping", "averaging", "momentum", "α")
_SYMBOL: Final = re.compile(r",? (?:\w|\w_\w+)$")  # the symbol at the end of a label: `layers L`
# What a terminal obeys rather than shows: C0 and C1 controls, line separators, and changes of the direction of text.
_CONTROLS: Final = (*range(0x20), *range(0x7F, 0xA0), 0x61C, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_ESCAPES: Final = {code: f"\\u{code:04x}" for code in _CONTROLS if chr(code) not in "\n\t"}


# ---- numbers ----


def format_number(value: float, digits: int = 3) -> str:
    """Significant digits, thousands separators, `1.5e-4` below 0.001 and from 10⁹; no negative zero."""
    if not isfinite(value):
        return "unknown" if isnan(value) else "∞" if value > 0 else "−∞"
    size = abs(value)
    if 1000 <= size < 1e9:
        text = f"{value:,.{max(0, digits - 4)}f}"
    elif size < 1e-3 or size >= 1e9:
        text = _short_exponent(f"{value:.{digits - 1}e}") if value else "0"
    else:
        text = f"{value:.{digits}g}"
        text = f"{value:,.0f}" if "e" in text else text  # 999.9 has four digits once it is rounded to three
    return text.replace("-", "−", 1) if text.startswith("-") else text


def _short_exponent(text: str) -> str:
    """`1.50e-04` → `1.5e-4`."""
    mantissa, _, exponent = text.partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa}e{int(exponent)}"


def format_share(value: float) -> str:
    """An accuracy or another share with three decimals: `0.070`; a smaller one by its significant digits."""
    return format_number(value) if not isfinite(value) or 0 < abs(value) < 5e-4 else f"{value:.3f}".replace("-", "−")


def format_distinct(values: Sequence[float]) -> list[str]:
    """The numbers with as many digits as tell different ones apart: `1.234` and `1.231`; equal but for rounding: 3."""
    n_distinct = count_distinct(values)
    for digits in range(3, MAX_DIGITS + 1):
        texts = [format_number(value, digits) for value in values]
        if len(set(texts)) == n_distinct:
            return texts
    return [format_number(value) for value in values]


def count_distinct(values: Sequence[float]) -> int:
    """How many of the numbers differ by more than rounding."""
    return len({f"{value:.9g}" for value in values})


def format_count(value: float) -> str:
    """A count such as a step; a mean of counts has one decimal below 100.

    >>> format_count(40000.7), format_count(63.5), format_count(-7733.7), format_count(-0.01)
    ('40,001', '63.5', '−7,734', '0')
    """
    value = round(value, 1) + 0.0  # no negative zero
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}".removesuffix(".0")
    return text.replace("-", "−")


def format_signed(value: float) -> str:
    """The number with an explicit sign: `+0.75`, `−3`."""
    return ("+" if value > 0 else "") + format_number(value)


def format_interval(low: float, high: float) -> str:
    """`[0.01, 0.03]`, in tables; sentences have `0.01 to 0.03`."""
    return f"[{format_number(low)}, {format_number(high)}]"


def format_p_value(p: float) -> str:
    """`p = 0.06`, or `p < 0.001`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def format_percent(fraction: float, digits: int = 0) -> str:
    return f"{100 * fraction:.{digits}f} %"


def format_duration(seconds: float) -> str:
    """A duration with two digits or two units.

    >>> [format_duration(seconds) for seconds in (0.42, 7.3, 95, 4000, 200_000)]
    ['0.4 s', '7 s', '1 min 35 s', '1 h 06 min', '2 d 07 h']
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 1 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours < 48 else f"{hours // 24} d {hours % 24:02} h"


def format_range(numbers: Iterable[int]) -> str:
    """`3` if all are equal, else `1 to 3`.

    >>> format_range([3, 1, 3]), format_range([2, 2])
    ('1 to 3', '2')
    """
    distinct = sorted(set(numbers))
    return f"{distinct[0]}" if len(distinct) == 1 else f"{distinct[0]} to {distinct[-1]}"


def format_part(n: int, total: int) -> str:
    """`3` if that is all, else `2/3`.

    >>> format_part(3, 3), format_part(2, 3)
    ('3', '2/3')
    """
    return str(n) if n == total else f"{n}/{total}"


# ---- words ----


def pluralise(n: int, noun: str, plural: str | None = None) -> str:
    """A number of things.

    >>> pluralise(1, "run"), pluralise(2000, "run"), pluralise(2, "study", "studies")
    ('1 run', '2,000 runs', '2 studies')
    """
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def join_words(words: Sequence[str], conjunction: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f" {conjunction} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def shorten(text: str, max_characters: int) -> str:
    """The text on one line, its end replaced by `…` if it is longer.

    >>> shorten("a  short\\ntext", 9), shorten("short", 9)
    ('a short …', 'short')
    """
    flat = " ".join(text.split())
    return flat if len(flat) <= max_characters else f"{flat[: max_characters - 1]}…"


def capitalise(text: str) -> str:
    """The text with a capital letter, unless it begins with a symbol such as t_f or p.

    >>> capitalise("best loss"), capitalise("t_f of loss")
    ('Best loss', 't_f of loss')
    """
    return text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() and text[1:2].isalpha() else text


def escape_controls(text: str) -> str:
    """The text as a terminal may show it, whoever wrote it: its control characters are spelled out.

    >>> escape_controls("a\\x1b[2J \\u202eb\\n")
    'a\\\\u001b[2J \\\\u202eb\\n'
    """
    return text.translate(_ESCAPES)


# ---- settings ----


def short_setting_name(name: str) -> str:
    """The name of a setting without its group: `task.train_fraction` → `train_fraction`."""
    return name.rpartition(".")[2]


def setting_label(name: str) -> str:
    """A setting in words, without symbol and unit: `learning rate`, `layers`."""
    if name not in all_settings():
        return PSEUDO_SETTINGS.get(name, _in_words(name))
    return _SYMBOL.sub("", setting_traits(name).label or _in_words(name))


def _in_words(name: str) -> str:
    """The name of a setting that has no label: `val_fraction` → `validation fraction`."""
    return " ".join(_ABBREVIATIONS.get(word, word) for word in short_setting_name(name).split("_"))


def setting_noun(name: str) -> str:
    """A setting in a sentence: `learning rate`, `number of layers`."""
    label = setting_label(name)
    return f"number of {label}" if _is_counted(name, label) or name == "parameters" else label


def setting_with_article(name: str) -> str:
    """A setting that something changes with: `the learning rate`, `the number of layers`, `dropout`."""
    noun = setting_noun(name)
    return noun if noun.endswith(_UNCOUNTABLE) else f"the {noun}"


def _is_counted(name: str, label: str) -> bool:
    """Is the setting a number of things, such as layers?"""
    is_whole = name in all_settings() and any(field.annotation in (int, PositiveInt) for field in all_settings()[name])
    return is_whole and label.endswith("s") and label not in _SINGULAR


@cache
def _value_labels() -> dict[str, str]:
    """The values of settings that have a spelling of their own: `gpt` → `GPT`."""
    traits = [traits_of(field) for fields in all_settings().values() for field in fields]
    return {value: label for one in traits for value, label in one.value_labels.items()}


def format_value(value: Value) -> str:
    """A setting's value: `GPT`, `3e-4`, `20,000`, `[2, 3]`, `true`, `unset`."""
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(format_value, value)) + "]"
    if value is None or isinstance(value, bool):
        return "unset" if value is None else str(value).lower()
    if isinstance(value, str):
        return _value_labels().get(value, value)
    if isinstance(value, int) or not isfinite(value):
        return f"{value:,}" if value >= 10_000 else str(value)
    return f"{value:.6g}" if value == 0 or 1e-3 <= abs(value) < 1e5 else _short_exponent(f"{value:.5e}")


def format_setting(name: str, value: Value) -> str:
    """One value of a setting, as the name of a group of runs: `GPT`, `weight decay 0.5`, `batch norm off`.

    >>> [format_setting("model.layers", n) for n in (1, 2)], format_setting("model.positions", "rotary")
    (['1 layer', '2 layers'], 'rotary position encoding')
    """
    label, text = setting_label(name), format_value(value)
    if isinstance(value, bool):
        return f"{label} {'on' if value else 'off'}"
    if isinstance(value, str) and value in _value_labels():
        return text
    if isinstance(value, str) and value.replace("-", "").isalpha():
        return f"{label} off" if value == "none" else f"{text} {label}"
    if isinstance(value, int) and _is_counted(name, label):
        return f"{text} {label if value != 1 else label[:-2] if label.endswith('ches') else label[:-1]}"
    return f"{label} {text}"


def format_config(config: Mapping[str, Value]) -> str:
    """All values of a config, the kind of model first: `GPT, 2 layers, learning rate 3e-4`."""
    names = sorted(config, key=lambda name: name != "model.kind")
    return ", ".join(format_setting(name, config[name]) for name in names)


def format_changes(before: Mapping[str, object], now: Mapping[str, object]) -> str:
    """What differs between two environments of a pack; one GPU is like another.

    >>> format_changes({"step": 0, "torch": "2.13.0", "device": "cuda:0"}, {"torch": "2.14.0", "device": "cuda:1"})
    'torch 2.14.0 instead of 2.13.0'
    """
    old, new = ({name: str(value).partition(":")[0] for name, value in one.items()} for one in (before, now))
    return ", ".join(
        f"{name} {new[name]} instead of {old[name]}"
        for name in new
        if name in old and name != "step" and new[name] != old[name]
    )


def format_seeds(seeds: Sequence[int]) -> str:
    """Seeds in ascending order, three or more consecutive ones as a range.

    >>> format_seeds([0, 1, 2, 3, 42])
    '0–3, 42'
    """
    texts: list[str] = []
    for _, group in groupby(enumerate(seeds), key=lambda item: item[1] - item[0]):
        consecutive = [seed for _, seed in group]
        texts += [f"{consecutive[0]}–{consecutive[-1]}"] if len(consecutive) > 2 else map(str, consecutive)
    return ", ".join(texts)


def list_some(items: Iterable[str], max_items: int = 8) -> str:
    """`a, b, c … z`: the first items and the last."""
    every = list(items)
    return ", ".join(every[:max_items]) + (f" … {every[-1]}" if len(every) > max_items else "")
