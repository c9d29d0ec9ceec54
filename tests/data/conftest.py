"""Real corpora come from the folder in SEEDBED_DATA; tests that need them say so and are skipped without it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real() -> Path:
    folder = os.environ.get("SEEDBED_DATA")
    if not folder:
        pytest.skip("needs the real corpora: set SEEDBED_DATA to their folder")
    return Path(folder)


@pytest.fixture
def alone(tmp_path, monkeypatch) -> Path:
    """No corpora but those of the test: an empty SEEDBED_DATA and an empty cache, whose folder this is."""
    monkeypatch.delenv("SEEDBED_DATA", raising=False)
    monkeypatch.delenv("SEEDBED_OFFLINE", raising=False)
    monkeypatch.setattr("seedbed.data.corpora.cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"
