"""What was seen inside runs, beside their weights: a JSON document for each kept step, whole or absent.

A look is made from weights and can be made again, so it is a file and no row; it goes with its run's weights. What is
in the document is left to others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seedbed.store.durable_files import write_atomic
from seedbed.store.store import Store

ANALYSIS_SUFFIX = ".look.json"


def save_analysis(store: Store, run_id: str, step: int, document: Mapping[str, Any]) -> None:
    """Put a look in its place; the one that was there goes."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    write_atomic(_run_folder(store, run_id) / f"{step:09d}{ANALYSIS_SUFFIX}", text.encode(), "all weights and readings")


def load_analyses(store: Store, run_id: str) -> list[Any]:
    """The looks of a run by step; one that cannot be read counts as absent, since it can be made again."""
    found = []
    for path in sorted(_run_folder(store, run_id).glob(f"*{ANALYSIS_SUFFIX}")):
        try:
            found.append(json.loads(path.read_bytes()))
        except (OSError, ValueError):
            continue
    return found


def _run_folder(store: Store, run_id: str) -> Path:
    return store.home / "checkpoints" / run_id
