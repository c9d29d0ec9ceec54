"""Where jobs run: `ENGINES` by name, the contract in base.py; besides, this machine's resources and what packs cost."""

from __future__ import annotations

from seedbed.engines.base import Engine
from seedbed.engines.local import LocalEngine

__all__ = ["ENGINES", "Engine", "LocalEngine"]

ENGINES: dict[str, type[Engine]] = {"local": LocalEngine}
