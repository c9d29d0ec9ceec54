"""Fixtures for the real corpora in SEEDBED_DATA (tests are skipped without it) and for an isolated environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.corpora import require_corpora


@pytest.fixture(scope="session")
def real_data() -> Path:
    return require_corpora()


@pytest.fixture
def empty_cache(tmp_path, monkeypatch) -> Path:
    """Unsets SEEDBED_DATA and SEEDBED_OFFLINE, and returns the folder of an empty cache."""
    monkeypatch.delenv("SEEDBED_DATA", raising=False)
    monkeypatch.delenv("SEEDBED_OFFLINE", raising=False)
    monkeypatch.setattr("seedbed.data.catalogue.cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"
