"""Tables of best values: unfinished runs, chance, thresholds, and what may be ranked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from seedbed.records import Curve, ParameterCounts, RunStatus, StoredRun
from seedbed.report.summary_tables import config_tables
from seedbed.report.tables import Table
from seedbed.settings import Settings, Value
from seedbed.stats.summary import RunCurves, summaries_to_json, summarise

GPT, LSTM = {"model.kind": "gpt"}, {"model.kind": "lstm"}
STEPS = (0, 100, 200, 300)


def run_curves(
    seed: int,
    config: Mapping[str, Value],
    curves: Mapping[str, Sequence[float]],
    status: RunStatus = "finished",
    step: int = 300,
    planned: int | None = 300,
) -> RunCurves:
    n = STEPS.index(step) + 1
    named = {name: Curve(np.array(STEPS[:n]), np.array(values[:n], dtype=float)) for name, values in curves.items()}
    run = StoredRun(f"{config}{seed}", seed, Settings.from_flat(config), ParameterCounts(7, 5), status, step)
    return RunCurves(run, config, named, planned_steps=planned)


def loss_runs(config: Mapping[str, Value], status: RunStatus = "finished", step: int = 300) -> list[RunCurves]:
    return [run_curves(seed, config, {"val/loss": [3, 2, 1 + seed / 10, 0.5]}, status, step) for seed in range(3)]


def rows(table: Table) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in table.rows}


# ---- unfinished runs ----


def test_an_unfinished_run_is_left_out_of_a_mean_with_finished_ones() -> None:
    runs = loss_runs(GPT)
    runs[2] = loss_runs(GPT, "stopped", 100)[2]
    (table,) = config_tables(summarise(runs))
    assert table.columns == ("metric", "GPT (n = 2 of 3)")
    assert rows(table)["L_val"] == ("0.5000 ± 0.0000",)
    assert "1 of 3 runs is unfinished (stopped at step 100 of 300) and left out." in table.notes


def test_a_config_without_a_complete_run_is_shown_so_far_and_not_ranked() -> None:
    unfinished = [*loss_runs(LSTM, "running", 200)[:2], loss_runs(LSTM, "running", 300)[2]]
    (table,) = config_tables(summarise(loss_runs(GPT) + unfinished))
    assert table.columns == ("metric", "GPT", "LSTM (so far: step 200 of 300)")
    assert rows(table)["L_val"] == ("0.5000 ± 0.0000", "1.100 ± 0.082")  # seed 2 at step 200 as well
    assert table.best == frozenset()
    assert any(note.startswith("Configs without a complete run are shown") for note in table.notes)
    document = summaries_to_json(summarise(unfinished))["configs"][0]
    assert (document["so_far"], document["planned_steps"]) == (200, 300)


def test_many_configs_have_a_column_for_how_far_they_are() -> None:
    finished = [run for dim in (8, 16, 24, 32) for run in loss_runs({"model.dim": dim})]
    values, _ = config_tables(summarise(finished + loss_runs({"model.dim": 40}, "stopped", 100)))
    assert values.columns[:2] == ("width", "so far")
    assert [row[1] for row in values.rows] == ["–"] * 4 + ["step 100 of 300"]


def test_a_stopped_run_is_complete_up_to_t_max() -> None:
    runs = [replace(run, t_max=200) for run in loss_runs(GPT, "stopped", 200)]
    (table,) = config_tables(summarise(runs))
    assert table.columns == ("metric", "GPT")
    assert summarise(loss_runs(GPT, "stopped", 200), t_max=100)[0].so_far is None
    assert summarise(loss_runs(GPT, "stopped", 200), t_max=300)[0].so_far == 200


# ---- chance and thresholds ----


def accuracy_runs(values: Sequence[Sequence[float]], train: Sequence[float] = (0, 1, 1, 1)) -> list[RunCurves]:
    return [
        run_curves(seed, GPT, {"train/accuracy": train, "val/accuracy": by_step, "val/loss": [4, 3, 3, 5]})
        for seed, by_step in enumerate(values)
    ]


def test_times_of_what_never_left_chance_are_not_shown() -> None:
    (table,) = config_tables(summarise(accuracy_runs([[0.03, 0.06, 0.04, 0.02]] * 2)))
    shown = rows(table)
    assert shown["A at chance"] == ("0.032",)
    assert shown["t_f(A_train)"] == ("100 ± 0",)
    assert shown["t_f(A_val)"] == shown["t_f(L_val)"] == shown["Δt(A)"] == ("–",)
    assert "A_val never left chance in 2 of 2 runs: they have no t_f and no Δt (–)." in table.notes
    assert summaries_to_json(summarise(accuracy_runs([[0.03] * 4])))["configs"][0]["at_chance"] == {"val/accuracy": [0]}


def test_times_of_the_runs_that_left_chance_remain() -> None:
    (table,) = config_tables(summarise(accuracy_runs([[0.03, 0.06, 0.04, 0.02], [0, 0.1, 1, 1], [0, 0.1, 0.5, 1]])))
    assert rows(table)["t_f(A_val)"] == ("250 ± 50 (2/3)",)
    assert "A_val never left chance in 1 of 3 runs: they have no t_f and no Δt (–)." in table.notes


def test_the_threshold_is_a_median_that_counts_runs_which_never_get_there() -> None:
    (table,) = config_tables(summarise(accuracy_runs([[0, 0.1, 1, 1], [0, 0.95, 1, 1], [0, 0.1, 0.5, 0.8]])))
    assert rows(table)["t_90(A_val)"] == ("200 (2/3)",)
    (table,) = config_tables(summarise(accuracy_runs([[0, 0.1, 1, 1], [0, 0.1, 0.5, 0.8], [0, 0.1, 0.5, 0.8]])))
    assert rows(table)["t_90(A_val)"] == ("> 300 (1/3)",)
    (table,) = config_tables(summarise(accuracy_runs([[0, 0.1, 1, 1]] * 6)))
    assert rows(table)["t_90(A_val)"] == ("200 [200, 200]",)
    (table,) = config_tables(summarise(accuracy_runs([[0, 0.1, 0.5, 0.8]])))
    assert "t_90(A_val)" not in rows(table)


# ---- ranks and repetitions ----


@pytest.mark.parametrize(("second", "n_best"), [(23, 1), (29, 0)])
def test_losses_are_ranked_only_for_the_same_tokens_and_accuracies_always(second: int, n_best: int) -> None:
    runs = []
    for layers, p, loss in ((1, 23, 1.0), (2, second, 2.0)):
        config = {"task.p": p, "model.layers": layers}
        runs.append(run_curves(0, config, {"val/loss": [loss] * 4, "val/accuracy": [loss / 4] * 4}))
    (table,) = config_tables(summarise(runs))
    best = [table.rows[row][0] for row, _ in table.best]
    assert best.count("L_val") == n_best
    assert best.count("A_val") == 1
    assert any("only among configs that predict the same tokens" in note for note in table.notes) == (second == 29)


def test_perplexity_has_no_t_f_of_its_own_where_it_repeats_the_loss() -> None:
    curves = {"val/loss": [3, 1, 2, 4], "val/perplexity": [9, 2, 4, 16], "val/perplexity_sliding": [9, 3, 2, 16]}
    (table,) = config_tables(summarise([run_curves(0, GPT, curves)]))
    assert [row[0] for row in table.rows if row[0].startswith("t_f")] == ["t_f(L_val)", "t_f(PPLs_val)"]
    (table,) = config_tables(summarise([run_curves(0, GPT, {"val/perplexity": [9, 2, 4, 16]})]))
    assert "t_f(PPL_val)" in rows(table)
