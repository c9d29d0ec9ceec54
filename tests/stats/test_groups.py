from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import nan

import numpy as np

from seedbed.models.model_size import count_parameters
from seedbed.records import Curve, RunStatus, StoredRun
from seedbed.settings import Settings, Value
from seedbed.stats.groups import (
    balance_groups,
    describe_excluded_runs,
    filter_runs,
    group_by_description,
    group_by_level,
    group_by_setting,
    largest_complete_table,
    varying_settings,
)
from seedbed.stats.run_statistics import compute_statistic, replay_at_alpha
from seedbed.stats.summary import RunCurves


def run(config: Mapping[str, Value], seed: int, value: float = 1.0, status: RunStatus = "finished") -> RunCurves:
    settings = Settings.from_flat({"train.steps": 10, **config})
    stored = StoredRun(f"{config}{seed}", seed, settings, count_parameters(settings), status, 10)
    curves = {"val/loss": Curve(np.array([0, 10]), np.array([9.0, value]))}
    return RunCurves(stored, config, curves, planned_steps=3_001)


def loss(one: RunCurves) -> float:
    return compute_statistic(one, "val/loss", "last")


GPT, LSTM = {"model.kind": "gpt"}, {"model.kind": "lstm"}


def test_filters_accept_one_value_one_of_several_and_lists_as_values() -> None:
    runs = [run({"task.orders": orders}, 0) for orders in ((2,), (3,), (2, 3))]
    assert [one.config["task.orders"] for one in filter_runs(runs, {"task.orders": (2, 3)})] == [(2, 3)]
    assert [one.config["task.orders"] for one in filter_runs(runs, {"task.orders": ((2,), (3,))})] == [(2,), (3,)]
    assert [one.config["task.orders"] for one in filter_runs(runs, {"task.orders": 2})] == [(2,)]
    assert len(filter_runs([run(GPT, 0), run(LSTM, 0)], {"model.kind": ("gpt", "lstm")})) == 2
    assert filter_runs([run(LSTM, 0)], {"model.heads": 4}) == []


def test_numbers_are_grouped_in_order_and_strings_by_first_appearance() -> None:
    runs = [run({"model.dim": dim}, 0) for dim in (128, 64, 256)]
    assert list(group_by_setting(runs, "model.dim")) == [64, 128, 256]
    assert list(group_by_setting([run(LSTM, 0), run(GPT, 0)], "model.kind")) == ["lstm", "gpt"]
    assert list(group_by_setting([run(LSTM, 0), run(GPT, 0)], "model.heads")) == [4]
    assert list(group_by_level([run(GPT, 0)], "alpha")) == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    sizes = [one.run.parameters.non_embedding for one in runs]
    assert list(group_by_setting(runs, "parameters")) == sorted(sizes)


def test_varying_settings_are_the_fewest_that_distinguish_configs() -> None:
    by_kind = [[run({**GPT, "model.dim": dim}, 0) for dim in (64, 128)], [run({**LSTM, "model.dim": 64}, 0)]]
    assert varying_settings(by_kind) == ["model.dim"]
    assert varying_settings([[run(GPT, 0), run(LSTM, 0)]]) == ["model.kind"]
    zipped = [run({"model.dim": dim, "model.heads": heads}, 0) for dim, heads in ((64, 2), (128, 4))]
    assert varying_settings([zipped]) == ["model.dim"]
    assert list(group_by_description([run(GPT, 0), run(GPT, 1)], [])) == [""]
    assert list(group_by_description([run({**GPT, "train.lr": 0.1}, 0)], ["model.kind", "train.lr"])) == [
        "GPT, learning rate 0.1"
    ]


def test_a_seeds_value_is_its_mean_over_combinations_that_all_groups_have() -> None:
    runs = [
        run({"model.kind": kind, "train.lr": lr}, seed, base + seed + lr)
        for kind, base in (("gpt", 0.0), ("lstm", 10.0))
        for lr in (1.0, 2.0)
        for seed in (0, 1)
    ]
    balanced = balance_groups(group_by_setting(runs, "model.kind"), loss)
    assert balanced.mean_by_seed("gpt") == {0: 1.5, 1: 2.5}
    assert balanced.mean_by_seed("lstm") == {0: 11.5, 1: 12.5}
    assert (balanced.n_runs, len(balanced.combinations), balanced.notes()) == (8, 2, [])


def test_a_missing_run_removes_its_seed_or_combination_from_all_groups_with_a_note() -> None:
    runs = [
        run(
            {"model.kind": kind, "train.lr": lr},
            seed,
            lr,
            "diverged" if (kind, lr, seed) == ("gpt", 3.0, 2) else "finished",
        )
        for kind in ("gpt", "lstm")
        for lr in (1.0, 2.0, 3.0)
        for seed in (0, 1, 2)
    ]
    balanced = balance_groups(group_by_setting(runs, "model.kind"), loss)
    # 3 settings × 2 seeds and 2 × 3 are both 6: more settings win
    assert balanced.mean_by_seed("lstm") == {0: 2.0, 1: 2.0}
    fewer = balance_groups(
        group_by_setting([one for one in runs if one.run.seed < 2 or one.config["train.lr"] < 3], "model.kind"), loss
    )
    assert fewer.notes() == []
    alone = balance_groups(group_by_setting([*runs, run({**GPT, "train.lr": 9.0}, 0)], "model.kind"), loss)
    assert alone.notes() == [
        "1 of 4 combinations of settings left out: not available with the same seeds in every group"
    ]


def test_a_single_combination_keeps_every_seed_of_each_group() -> None:
    balanced = balance_groups({"a": [run(GPT, 0, 1.0), run(GPT, 1, 2.0)], "b": [run(LSTM, 5, 3.0)]}, loss)
    assert (balanced.mean_by_seed("a"), balanced.mean_by_seed("b")) == ({0: 1.0, 1: 2.0}, {5: 3.0})


def test_nan_is_left_out_and_counted() -> None:
    balanced = balance_groups(
        {"a": [run(GPT, 0, nan), run(GPT, 1, 2.0)], "b": [run(LSTM, 0, 1.0), run(LSTM, 1, 1.0)]}, loss
    )
    assert balanced.mean_by_seed("a") == {1: 2.0}
    assert balanced.notes() == ["1 run without a finite value"]


def test_the_largest_complete_table_wins() -> None:
    assert largest_complete_table({"a": {0, 1, 2}, "b": {0, 1}, "c": {0, 1, 2}}) == (["a", "b", "c"], {0, 1})
    assert largest_complete_table({"a": {0, 1, 2, 3, 4}, "b": {0}, "c": {0, 1, 2, 3, 4}}) == (
        ["a", "c"],
        {0, 1, 2, 3, 4},
    )
    assert largest_complete_table({"a": {0}, "b": set()}) == (["a"], {0})
    assert largest_complete_table({}) == ([], set())


def test_excluded_runs_are_counted_by_reason() -> None:
    statuses: list[RunStatus] = ["finished", "diverged", "failed", "planned", "running", "stopped"]
    runs = [run(GPT, seed, 1.0, status) for seed, status in enumerate(statuses)]
    assert describe_excluded_runs(runs) == [
        "left out: 1 of 6 runs diverged, 1 of 6 runs failed and 1 of 6 runs not started",
        "2 of 6 runs are unfinished (at step 10 of 3,001) and left out",
    ]
    assert describe_excluded_runs(runs[:1]) == []
    assert describe_excluded_runs([replace(runs[-1], t_max=10)]) == []
    assert describe_excluded_runs([replace(runs[-1], t_max=11)]) == [
        "1 of 1 run is unfinished (stopped at step 10 of 3,001) and left out"
    ]


def test_only_complete_runs_enter_a_comparison() -> None:
    runs = [run(GPT, 0, 1.0), run(GPT, 1, 5.0, "stopped"), run(GPT, 2, 5.0, "running"), run(GPT, 3, 5.0, "diverged")]
    groups = {"gpt": runs, "lstm": [run(LSTM, seed, 2.0) for seed in range(4)]}
    assert balance_groups(groups, loss).mean_by_seed("gpt") == {0: 1.0}
    # runs that were trained up to t_max are complete, and so is a replay of an unfinished run
    truncated = {name: [replace(one, t_max=10) for one in members] for name, members in groups.items()}
    assert balance_groups(truncated, loss).mean_by_seed("gpt") == {0: 1.0, 1: 5.0, 2: 5.0}
    assert replay_at_alpha(runs[1], 1.0).is_complete
    assert not replay_at_alpha(replace(runs[1], run=replace(runs[1].run, step=9)), 1.0).is_complete
