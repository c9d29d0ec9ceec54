"""A fixture that writes a study file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

WriteStudy = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> WriteStudy:
    def write(text: str) -> Path:
        path = tmp_path / "study.toml"
        path.write_text(dedent(text), encoding="utf-8")
        return path

    return write
