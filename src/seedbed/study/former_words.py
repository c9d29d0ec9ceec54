"""Names that study files and commands used in earlier versions.

A file or command that uses one is rejected with the new name. A study stored by an earlier version is translated
instead, since it cannot be edited: `translate_stored(document)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from seedbed.settings import Value, former_setting_names

FORMER_KEYS: Final = {"points": "configs"}  # of study files
FORMER_FIGURE_KINDS: Final = {"against": "sweep", "level": "budget", "circle": "fourier"}
FORMER_VERBS: Final = {"taps": "hooks"}
FORMER_OPTIONS: Final = {"--look": "--theme"}


def replacement_of(name: str) -> str | None:
    """The current name of a renamed setting or study-file key; None for any other name."""
    return former_setting_names().get(name) or FORMER_KEYS.get(name)


def translate_stored(document: Mapping[str, Value]) -> dict[str, Value]:
    """A parsed study of any earlier version with current names."""
    document = {FORMER_KEYS.get(key, key): value for key, value in document.items()}
    for key, value in document.items():
        if key in ("base", "grid") and isinstance(value, dict):
            document[key] = _rename_settings(value)
        elif key in ("zip", "configs") and isinstance(value, list):
            document[key] = [_rename_settings(table) for table in value]
        elif key == "scales" and isinstance(value, dict):
            document[key] = {name: _rename_settings(table) for name, table in value.items()}
        elif key in ("figures", "questions") and isinstance(value, list):
            document[key] = [_translate_declaration(table) for table in value]
    return document


def _rename_settings(table: Mapping[str, Value], group: str = "") -> dict[str, Value]:
    """The table with current setting names, nested or dotted as before."""
    renamed, names = {}, former_setting_names()
    for key, value in table.items():
        name = f"{group}.{key}" if group else key
        if isinstance(value, dict):
            renamed[key] = _rename_settings(value, name)
        else:
            renamed[names.get(name, name).removeprefix(f"{group}.") if group else names.get(name, name)] = value
    return renamed


def _translate_declaration(table: Mapping[str, Value]) -> dict[str, Value]:
    """The figure or question with the current names of its kind and settings."""
    names = former_setting_names()
    translated: dict[str, Value] = {}
    for option, value in table.items():
        if option == "only" and isinstance(value, dict):
            translated[option] = _rename_settings(value)
        elif option == "kind":
            translated[option] = FORMER_FIGURE_KINDS.get(value, value)
        else:
            translated[option] = names.get(value, value) if isinstance(value, str) else value
    return translated
