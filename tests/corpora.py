"""The real corpora: a folder named by SEEDBED_DATA. What needs them is skipped with its reason where it is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REASON = "needs the real corpora: set SEEDBED_DATA to their folder"


def require_corpora(*files: str) -> Path:
    """The folder of the corpora; skips the test where it, or one of these files in it, is missing."""
    folder = os.environ.get("SEEDBED_DATA")  # make exports nothing where there is none, a shell may export an empty one
    if not folder or not Path(folder).is_dir():
        pytest.skip(REASON)
    if missing := [file for file in files if not (Path(folder) / file).exists()]:
        pytest.skip(f"{REASON} ({missing[0]} is not in it)")
    return Path(folder)
