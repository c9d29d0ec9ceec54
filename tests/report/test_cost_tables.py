"""The cost of a study as tables and JSON, from known numbers."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seedbed.cli import app
from seedbed.format import format_duration
from seedbed.report.cost_tables import cost_tables
from seedbed.report.study_runs import load_run_curves
from seedbed.stats.run_statistics import compute_statistic, predict_memory_mib
from seedbed.store import open_store, upgrade_store

from .factories import fill


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """One pack of four runs: 99 updates in 4 s, 3 evaluations in 1 s, 8 MiB between updates, 12 at the peak."""
    fill(tmp_path)
    return tmp_path


def show(home: Path, *arguments: str) -> str:
    done = CliRunner().invoke(app, ["show", *arguments, "--home", str(home)])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_run_has_its_share_of_its_pack(home: Path) -> None:
    with open_store(home, read_only=True) as store:
        configs, packs = cost_tables(store, "toy", load_run_curves(store, "toy"))
    cells = dict(zip(configs.columns, configs.rows[0], strict=True))
    assert cells["ms per update"] == f"{1000 * 4 / 99 / 4:.3g}"
    assert (cells["n"], cells["compute"], cells["evaluate"], cells["steady"], cells["peak"]) == (
        "2",
        "1",
        "0.25",
        "2",
        "3",
    )
    cells = dict(zip(packs.columns, packs.rows[0], strict=True))
    assert (cells["runs"], cells["compute"], cells["steady"], cells["peak"]) == ("4", "4", "8", "12")
    assert cells["placement"] == "cpu plain, 1 thread"


def test_json_has_time_by_category_and_three_kinds_of_memory(home: Path) -> None:
    costs = json.loads(show(home, "toy", "--timing", "--json"))
    [pack] = costs["packs"]
    assert pack["seconds"] == {"compute": 4.0, "evaluate": 1.0}
    assert pack["memory"] == {"predicted": 1, "steady": 8 * 2**20, "peak": 12 * 2**20}
    assert [run["seconds"]["compute"] for run in costs["runs"]] == [1.0] * 4
    run_cost = json.loads(show(home, costs["runs"][0]["id"], "--timing", "--json"))
    assert run_cost["seconds_per_update"] == pytest.approx(1 / 99)


def test_a_run_is_shown_with_its_cost(home: Path) -> None:
    output = show(home, "toy0.10")
    assert "memory steady, MiB" in output
    assert "pack" in output
    assert "settings" in output


def test_memory_in_figures_and_questions_is_the_measured_one(home: Path) -> None:
    with open_store(home, read_only=True) as store:
        runs = load_run_curves(store, "toy")
    assert {compute_statistic(run, "val/loss", "memory") for run in runs} == {2.0}


def test_an_older_store_has_its_seconds_and_predicted_memory(home: Path) -> None:
    with sqlite3.connect(home / "store.db") as connection:
        connection.execute("DROP TABLE costs")
        for column in ("dataset", "fingerprint"):
            connection.execute(f"ALTER TABLE runs DROP COLUMN {column}")
        connection.execute("DELETE FROM meta WHERE key != 'schema'")
        connection.execute("UPDATE meta SET value = '2'")
    connection.close()
    upgrade_store(home)
    with open_store(home, read_only=True) as store:
        runs = load_run_curves(store, "toy")
        configs, _ = cost_tables(store, "toy", runs)
    cells = dict(zip(configs.columns, configs.rows[0], strict=True))
    assert (cells["compute"], cells["steady"], cells["predicted"]) == ("1", "–", "–")
    assert compute_statistic(runs[0], "val/loss", "memory") == predict_memory_mib(runs[0].run.settings)


def test_show_says_when_nothing_was_timed(tmp_path: Path) -> None:
    fill(tmp_path, steps=())
    done = CliRunner().invoke(app, ["show", "toy", "--timing", "--home", str(tmp_path)])
    assert done.exit_code == 0
    assert "no timings yet" in done.output


def test_durations_have_the_units_that_fit() -> None:
    durations = (0.42, 7.3, 59.7, 95, 3599, 4000, 200_000)
    assert [format_duration(seconds) for seconds in durations] == [
        "0.4 s", "7 s", "60 s", "1 min 35 s", "59 min 59 s", "1 h 06 min", "2 d 07 h"
    ]  # fmt: skip
