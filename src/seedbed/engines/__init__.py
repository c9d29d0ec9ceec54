"""Where jobs run: `ENGINES` by name, the contract in base.py; besides, this machine's resources and what packs cost."""

from __future__ import annotations

import os

from seedbed.engines.base import Engine
from seedbed.engines.local import LocalEngine
from seedbed.errors import UsageError

__all__ = ["ENGINES", "Engine", "LocalEngine", "find_engine", "register_engine"]

ENGINES: dict[str, type[Engine]] = {"local": LocalEngine}


def find_engine() -> type[Engine]:
    """The engine that SEEDBED_ENGINE names; the local one if it is not set."""
    name = os.environ.get("SEEDBED_ENGINE") or "local"
    if name not in ENGINES:
        raise UsageError(f"SEEDBED_ENGINE={name} is not an engine; expected {' or '.join(ENGINES)}")
    return ENGINES[name]


def register_engine(name: str, engine: type[Engine]) -> type[Engine]:
    """Makes SEEDBED_ENGINE accept another engine; returns it."""
    if ENGINES.get(name, engine) is not engine:
        raise ValueError(f"there is an engine named {name!r} already")
    ENGINES[name] = engine
    return engine
