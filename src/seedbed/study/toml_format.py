"""Values and keys formatted as TOML, and spelling suggestions for unknown names.

>>> format_toml_value({"orders": (2, 3), "kind": "gpt"})
'{ orders = [2, 3], kind = "gpt" }'
>>> did_you_mean("model.head", ["model.heads", "train.lr"])
' (did you mean model.heads?)'
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from difflib import get_close_matches

from seedbed.settings import Value

MAX_PREVIEW_CHARACTERS = 60  # longest value quoted in a message
MAX_INT_BITS = 64


def format_toml_value(value: Value) -> str:
    """The value as TOML; unprintable characters are escaped."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "".join(_escape_unprintable(character) for character in json.dumps(value, ensure_ascii=False))
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(format_toml_value, value)) + "]"
    if isinstance(value, dict):
        inside = ", ".join(f"{format_toml_key(key)} = {format_toml_value(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, int) and value.bit_length() > MAX_INT_BITS:  # Python refuses to print thousands of digits
        return f"<integer of {value.bit_length()} bits>"
    return str(value)


def _escape_unprintable(character: str) -> str:
    if character.isprintable():
        return character
    return f"\\u{ord(character):04x}" if ord(character) <= 0xFFFF else f"\\U{ord(character):08x}"


def format_toml_key(name: str) -> str:
    """A dotted name as a TOML key, its parts quoted where needed."""
    return ".".join(
        part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else format_toml_value(part) for part in name.split(".")
    )


def preview_toml(value: Value) -> str:
    """The value as TOML, shortened for a message."""
    return truncate_text(format_toml_value(value))


def truncate_text(text: str) -> str:
    return text if len(text) <= MAX_PREVIEW_CHARACTERS else text[: MAX_PREVIEW_CHARACTERS - 1] + "…"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean X?)`, or an empty string if no known name is close."""
    guess = closest_match(name, known)
    return f" (did you mean {guess}?)" if guess else ""


def closest_match(name: str, known: Iterable[str]) -> str | None:
    """The most likely intended name: one with the same last part, else the closest spelling of it, in its group first.

    A common group such as `train.` says nothing about the rest of a name, so only the last parts are compared.

    >>> known = ["task.p", "train.lr_floor", "train.steps", "model.batch_norm", "train.batch_size"]
    >>> closest_match("train.step", known), closest_match("train.foo", known), closest_match("task.foo", known)
    ('train.steps', None, None)
    >>> closest_match("train.batch", known)
    'train.batch_size'
    """
    if len(name) > MAX_PREVIEW_CHARACTERS:
        return None
    known = list(known)
    name = name.lower()
    group, _, last = name.rpartition(".")
    if not group and (close := get_close_matches(name, known, n=1, cutoff=0.7)):
        return close[0]
    by_last = {choice.rpartition(".")[2]: choice for choice in reversed(known)}
    by_last |= {choice.rpartition(".")[2]: choice for choice in known if choice.rpartition(".")[0] == group}
    close = [last] if last in by_last else get_close_matches(last, by_last, n=1, cutoff=0.7)
    if not close and last:  # the beginning of a longer name
        longer = [choice for choice in by_last if choice.startswith(f"{last}_")]
        close = sorted(longer, key=lambda choice: not by_last[choice].startswith(f"{group}."))[:1]
    return by_last[close[0]] if close else None
