"""Where jobs run: `ENGINES` by name, the contract in base.py; besides, this machine's resources and what packs cost."""

from __future__ import annotations

import os

from seedbed.engines.base import Engine
from seedbed.engines.local import LocalEngine
from seedbed.engines.ray import RayEngine
from seedbed.errors import UsageError

__all__ = ["ENGINES", "Engine", "LocalEngine", "RayEngine", "find_engine", "register_engine"]

ENGINES: dict[str, type[Engine]] = {"local": LocalEngine, "ray": RayEngine}


def find_engine(name: str | None = None) -> type[Engine]:
    """The engine of this name, or else that of SEEDBED_ENGINE; the local one if that is not set."""
    name = name or os.environ.get("SEEDBED_ENGINE") or "local"
    if name in ("plain", "graph", "compiled"):
        raise UsageError(f"{name} is a mode, not an engine: --mode {name}")  # the option of modes was once called so
    if name not in ENGINES:
        raise UsageError(f"{name} is not an engine (--engine, SEEDBED_ENGINE); expected {' or '.join(ENGINES)}")
    return ENGINES[name]


def register_engine(name: str, engine: type[Engine]) -> type[Engine]:
    """Makes SEEDBED_ENGINE accept another engine; returns it."""
    if ENGINES.get(name, engine) is not engine:
        raise ValueError(f"there is an engine named {name!r} already")
    ENGINES[name] = engine
    return engine
