"""The real corpora in SEEDBED_DATA; tests that need them are skipped without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.corpora import require_corpora


@pytest.fixture(scope="session")
def real_data() -> Path:
    return require_corpora()
