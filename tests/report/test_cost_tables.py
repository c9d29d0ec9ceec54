"""What a study cost, as tables and JSON, from numbers that are known beforehand."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seedbed.cli import app
from seedbed.report.cost_tables import cost_tables
from seedbed.report.overview import format_duration
from seedbed.report.study_runs import load_run_curves
from seedbed.stats.run_statistics import compute_statistic
from seedbed.stats.training_cost import predict_memory_mib
from seedbed.store.store import Store

from .factories import fill


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """One pack of four runs: 99 updates in 4 s, 3 records in 1 s, 8 MiB between updates, 12 at most."""
    fill(tmp_path)
    return tmp_path


def shown(home: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["show", *words, "--home", str(home)])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_run_has_its_share_of_its_pack(home: Path) -> None:
    with Store.open_read_only(home) as store:
        points, packs = cost_tables(store, "toy", load_run_curves(store, "toy"))
    heads = dict(zip(points.columns, points.rows[0], strict=True))
    assert heads["ms an update"] == f"{1000 * 4 / 99 / 4:.3g}"
    assert (heads["n"], heads["compute"], heads["evaluate"], heads["steady"], heads["peak"]) == (
        "2",
        "1",
        "0.25",
        "2",
        "3",
    )
    heads = dict(zip(packs.columns, packs.rows[0], strict=True))
    assert (heads["runs"], heads["compute"], heads["steady"], heads["peak"]) == ("4", "4", "8", "12")
    assert heads["where"] == "cpu plain, 1 thread"


def test_json_has_time_apart_and_three_kinds_of_memory(home: Path) -> None:
    told = json.loads(shown(home, "toy", "--timing", "--json"))
    [pack] = told["packs"]
    assert pack["seconds"] == {"compute": 4.0, "evaluate": 1.0}
    assert pack["memory"] == {"predicted": 1, "steady": 8 * 2**20, "peak": 12 * 2**20}
    assert [run["seconds"]["compute"] for run in told["runs"]] == [1.0] * 4
    one = json.loads(shown(home, told["runs"][0]["id"], "--timing", "--json"))
    assert one["seconds_per_update"] == pytest.approx(1 / 99)


def test_a_run_is_shown_with_its_cost(home: Path) -> None:
    words = shown(home, "toy0.10")
    assert "memory steady, MiB" in words
    assert "pack" in words
    assert "settings" in words


def test_memory_in_figures_and_questions_is_the_measured_one(home: Path) -> None:
    with Store.open_read_only(home) as store:
        runs = load_run_curves(store, "toy")
    assert {compute_statistic(run, "val/loss", "memory") for run in runs} == {2.0}


def test_a_store_of_before_has_its_seconds_and_predicted_memory(home: Path) -> None:
    with sqlite3.connect(home / "store.db") as connection:
        connection.execute("DROP TABLE costs")
        connection.execute("UPDATE meta SET value = '2' WHERE key = 'schema'")
    connection.close()
    with Store.open_read_only(home) as store:
        runs = load_run_curves(store, "toy")
        points, _ = cost_tables(store, "toy", runs)
    heads = dict(zip(points.columns, points.rows[0], strict=True))
    assert (heads["compute"], heads["steady"], heads["predicted"]) == ("1", "–", "–")
    assert compute_statistic(runs[0], "val/loss", "memory") == predict_memory_mib(runs[0].run.settings)


def test_nothing_timed_is_said(tmp_path: Path) -> None:
    fill(tmp_path, steps=())
    done = CliRunner().invoke(app, ["show", "toy", "--timing", "--home", str(tmp_path)])
    assert done.exit_code == 0
    assert "nothing was timed yet" in done.output


def test_spans_are_said_in_the_units_that_fit() -> None:
    spans = (0.42, 7.3, 59.7, 95, 3599, 4000, 200_000)
    assert [format_duration(span) for span in spans] == [
        "0.4 s", "7 s", "60 s", "1 min 35 s", "59 min 59 s", "1 h 06 min", "2 d 07 h"
    ]  # fmt: skip
