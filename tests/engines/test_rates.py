"""The rates file: rates are stored and replaced, and an unusable file is no obstacle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seedbed.engines.rates import MeasuredRate, add_rates, rates_path, read_rates

RATE = MeasuredRate(
    "abacus × 2", "cpu", "plain", 1, 2, "arithmetic/gpt/fp32", "ab12", 4, 0.1, 0.2, {"compute": 0.5}, 100, None
)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEEDBED_RATES", str(tmp_path / "cache" / "rates.json"))
    return rates_path()


def test_newer_rates_replace_older_ones_with_the_same_key(file: Path) -> None:
    assert read_rates() == []
    other = replace(RATE, n_runs=1)
    add_rates([RATE, other])
    add_rates([newer := replace(RATE, seconds={"compute": 0.25})])
    assert read_rates() == [other, newer]


@pytest.mark.parametrize(
    "text", ["", "{}", "[1, 2]", '{"version": 0, "rates": []}', '{"version": 1, "rates": [{"x": 1}]}']
)
def test_an_invalid_file_counts_as_empty_and_is_replaced(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    assert read_rates() == []
    add_rates([RATE])
    assert read_rates() == [RATE]


def test_a_path_that_cannot_be_written_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SEEDBED_RATES", str(tmp_path / "file" / "rates.json"))
    add_rates([RATE])
    assert read_rates() == []
