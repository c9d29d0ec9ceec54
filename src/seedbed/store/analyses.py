"""Analyses of runs as JSON files beside their weights, one per checkpoint, written atomically.

An analysis can be recomputed from the weights, so it is a file rather than a row, and is deleted with the weights. The
content of the document is defined in interp/.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seedbed.store.durable_files import write_atomic
from seedbed.store.store import Store

ANALYSIS_SUFFIX = ".analysis.json"


def save_analysis(store: Store, run_id: str, step: int, document: Mapping[str, Any]) -> None:
    """Write the analysis of a run at one step, replacing any earlier one."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    write_atomic(_run_folder(store, run_id) / f"{step:09d}{ANALYSIS_SUFFIX}", text.encode(), "all weights and metrics")


def load_analyses(store: Store, run_id: str) -> list[Any]:
    """The analyses of a run by step; an unreadable one counts as missing, since it can be recomputed."""
    analyses = []
    for path in sorted(_run_folder(store, run_id).glob(f"*{ANALYSIS_SUFFIX}")):
        try:
            analyses.append(json.loads(path.read_bytes()))
        except (OSError, ValueError):
            continue
    return analyses


def _run_folder(store: Store, run_id: str) -> Path:
    return store.home / "checkpoints" / run_id
