"""`seedbed results`: the curves of a study as numbers."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from seedbed.cli import app
from tests.report.factories import fill


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("lab")
    fill(home)
    return home


def results(home: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["results", "toy", *words, "--home", str(home)])


def test_csv_has_a_row_for_every_evaluation_with_numbers_as_numbers(home: Path) -> None:
    rows = list(csv.DictReader(StringIO(results(home, "--metric", "val/loss").stdout)))
    assert list(rows[0]) == ["run", "train.weight_decay", "seed", "metric", "step", "value"]
    assert len(rows) == 2 * 2 * 3  # configs × seeds × evaluations
    for row in rows:
        expected = 3.5 - int(row["step"]) / 50 + float(row["train.weight_decay"]) + int(row["seed"]) / 10
        assert float(row["value"]) == pytest.approx(expected)


def test_filters_select_runs_and_json_lines_keep_types(home: Path) -> None:
    lines = results(home, "--only", "weight_decay=1.0 seed=1", "--format", "jsonl").stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    assert {(row["train.weight_decay"], row["seed"]) for row in rows} == {(1.0, 1)}
    assert {type(row["step"]) for row in rows} == {int}
    assert {row["metric"] for row in rows} == {"train/loss", "val/loss", "train/accuracy", "val/accuracy"}


def test_the_suffix_of_the_file_chooses_the_format(home: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    file = tmp_path / "curves.parquet"
    done = results(home, "--out", str(file))
    assert done.exit_code == 0
    assert "wrote 48 rows" in done.stderr
    assert len(pandas.read_parquet(file)) == 48
    assert [path.name for path in tmp_path.iterdir()] == ["curves.parquet"]


@pytest.mark.parametrize(
    ("words", "message", "exit_code"),
    [
        (["--format", "xls"], "format xls: expected csv, jsonl or parquet", 2),
        (["--format", "parquet"], "--format parquet needs a file: --out results.parquet", 2),
        (["--out", "curves.xls"], "curves.xls: expected a file that ends in .csv, .jsonl or .parquet", 2),
        (["--out", "none/curves.csv"], "none/curves.csv cannot be written (No such file or directory)", 2),
        (["--metric", "val/acc"], "no run has the metric val/acc (did you mean val/accuracy?)", 2),
        (["--only", "seed=7"], "no run of toy has seed=7; seed has 0 and 1 here", 4),
    ],
)
def test_what_cannot_be_exported_is_one_sentence(home: Path, words: list[str], message: str, exit_code: int) -> None:
    done = results(home, *words)
    assert (done.exit_code, done.stdout) == (exit_code, "")
    assert message in done.stderr
