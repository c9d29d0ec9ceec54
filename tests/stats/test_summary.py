"""Configs summarised over seeds, worked out by hand for two or three runs of a few evaluations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import inf, isnan, log, nan

import numpy as np
import pytest

from seedbed.errors import StoreError
from seedbed.records import Curve, ParameterCounts, RunStatus, StoredRun, to_jsonable
from seedbed.settings import Settings, Value
from seedbed.stats.summary import RunCurves, summaries_to_json, summarise

GPT, LSTM = {"model.kind": "gpt"}, {"model.kind": "lstm"}


def run_curves(
    seed: int,
    metrics: Mapping[str, Sequence[float]],
    config: Mapping[str, Value] = GPT,
    status: RunStatus = "finished",
    steps: Sequence[int] = (0, 10, 20, 21),
) -> RunCurves:
    """A run evaluated at steps 0, 10, the last step 20, and once more as 21 (the final evaluation)."""
    curves = {name: Curve(np.array(steps[: len(row)]), np.array(row, dtype=float)) for name, row in metrics.items()}
    run = StoredRun(f"{config}-{seed}", seed, Settings.from_flat(config), ParameterCounts(7, 5), status, 20)
    return RunCurves(run, config, curves)


def test_extrema_are_taken_per_run_and_then_averaged() -> None:
    first = run_curves(0, {"val/loss": [4, 1, 3, 3]})
    second = run_curves(42, {"val/loss": [4, 3, 2, 2]})
    loss = summarise([first, second])[0].metrics["val/loss"]
    assert (loss.reduction, loss.value.mean, loss.value.std) == ("min", 1.5, 0.5)  # the mean curve's minimum would be 2
    assert loss.t_f is not None
    assert (loss.t_f.mean, loss.t_f.std, loss.t_f.values) == (15.0, 5.0, {0: 10.0, 42: 20.0})


def test_delta_t_is_val_minus_train_of_the_same_run() -> None:
    first = run_curves(0, {"train/accuracy": [0, 1, 1, 1], "val/accuracy": [0, 0, 1, 1]})
    second = run_curves(1, {"train/accuracy": [0, 0, 1, 1], "val/accuracy": [1, 0, 0, 0]})
    delta = summarise([first, second])[0].delta_t
    assert set(delta) == {"accuracy"}
    assert (delta["accuracy"].values, delta["accuracy"].mean, delta["accuracy"].std) == ({0: 10, 1: -20}, -5, 15)


def test_the_training_perplexity_is_taken_where_validation_is_best() -> None:
    """Report C's table: per run the epoch of the lowest validation perplexity, and the training perplexity there."""
    first = run_curves(0, {"train/perplexity": [9, 5, 2, 1], "val/perplexity": [9, 6, 4, 7]})
    second = run_curves(1, {"train/perplexity": [9, 6, 3, 2], "val/perplexity": [9, 3, 5, 8]})
    summary = summarise([first, second])[0]
    assert summary.at_best["perplexity"].values == {0: 2.0, 1: 6.0}  # not 1 and 2, which are the lowest
    assert summaries_to_json([summary])["configs"][0]["at_best"]["perplexity"]["mean"] == 4.0
    assert summarise([first], t_max=10)[0].at_best["perplexity"].values == {0: 5.0}
    assert summarise([run_curves(0, {"val/loss": [1, 2, 3, 4]})])[0].at_best == {}


def test_t_max_replays_the_study_as_if_stopped_there() -> None:
    runs = [run_curves(0, {"val/loss": [4, 3, 2, 1], "norm": [9, 8, 7, 6]})]
    summary = summarise(runs, t_max=10)[0]
    assert summary.metrics["val/loss"].value.mean == 3
    assert summary.metrics["norm"].value.mean == 8


def test_configs_come_in_order_of_first_appearance_whatever_the_order_of_seeds() -> None:
    runs = [
        run_curves(1, {"val/loss": [1]}, LSTM),
        run_curves(0, {"val/loss": [2]}, GPT),
        run_curves(0, {"val/loss": [3]}, LSTM),
    ]
    assert [(summary.config, summary.seeds) for summary in summarise(runs)] == [(LSTM, (0, 1)), (GPT, (0,))]


def test_runs_with_different_settings_never_share_a_mean() -> None:
    same_config_other_lr = RunCurves(
        StoredRun("b", 1, Settings.from_flat({"train.lr": 0.5}), ParameterCounts(7, 5), "finished", 20), GPT, {}
    )
    assert len(summarise([run_curves(0, {"val/loss": [1]}), same_config_other_lr])) == 2


def test_a_list_and_a_tuple_are_the_same_config() -> None:
    first = run_curves(0, {"val/loss": [1]}, {"task.orders": [2, 3]})
    second = run_curves(1, {"val/loss": [1]}, {"task.orders": (2, 3)})
    assert [summary.n_included for summary in summarise([first, second])] == [2]


@pytest.mark.parametrize("status", ["diverged", "failed"])
def test_diverged_and_failed_runs_are_excluded_from_the_means_and_counted(status: RunStatus) -> None:
    runs = [run_curves(0, {"val/loss": [4, 2, 2, 2]}), run_curves(1, {"val/loss": [4, 0.5]}, status=status)]
    summary = summarise(runs)[0]
    assert (summary.n_included, summary.n_runs, summary.seeds) == (1, 2, (0,))
    assert summary.status_counts == {status: 1, "finished": 1}
    assert summary.metrics["val/loss"].value.values == {0: 2.0}


def test_running_runs_with_evaluations_are_included_and_planned_ones_are_not() -> None:
    runs = [run_curves(0, {"val/loss": [4]}, status="running"), run_curves(1, {}, status="planned")]
    summary = summarise(runs)[0]
    assert (summary.seeds, summary.status_counts) == ((0,), {"planned": 1, "running": 1})


def test_a_config_without_included_runs_keeps_its_metrics_without_a_mean() -> None:
    summary = summarise([run_curves(0, {"val/loss": [4, nan]}, status="diverged")])[0]
    assert summary.n_included == 0
    assert isnan(summary.metrics["val/loss"].value.mean)
    assert summary.metrics["val/loss"].value.n == 0


def test_a_metric_that_one_run_lacks_has_no_mean() -> None:
    runs = [run_curves(0, {"val/loss": [4], "val/accuracy": [1]}), run_curves(1, {"val/loss": [2]})]
    metrics = summarise(runs)[0].metrics
    assert metrics["val/loss"].value.mean == 3
    assert isnan(metrics["val/accuracy"].value.mean)


def test_the_same_seed_twice_is_refused() -> None:
    with pytest.raises(StoreError, match=r"same settings and seed \(3\)"):
        summarise([run_curves(3, {"val/loss": [4]}), run_curves(3, {"val/loss": [5]})])


def test_one_seed_at_one_step() -> None:
    metric = summarise([run_curves(5, {"train/accuracy": [0.25]})])[0].metrics["train/accuracy"]
    assert (metric.value.mean, metric.value.std, metric.value.values) == (0.25, 0.0, {5: 0.25})
    assert metric.t_f is not None
    assert metric.t_f.mean == 0


def test_json_is_exactly_the_stable_document() -> None:
    first = {
        "train/loss": [2, 1, 1, 1],
        "val/loss": [3, 3, 2, 2],
        "val/accuracy": [0, 0, 1, 1],
        "norm": [5, 6, 7, 8],
    }
    second: dict[str, list[float]] = {
        "train/loss": [2, 2, 0.5, 1],
        "val/loss": [3, 3, 1, 1],
        "val/accuracy": [0, 0.5, 0, 0],
        "norm": [5, 6, 7, 9],
    }
    document = summaries_to_json(summarise([run_curves(42, second), run_curves(0, first)]))
    assert document == {
        "configs": [
            {
                "config": {"model.kind": "gpt"},
                "n": 2,
                "metrics": {
                    "train/loss": {
                        "min": {"mean": 0.75, "std": 0.25, "values": {"0": 1.0, "42": 0.5}},
                        "t_f": {"mean": 15.0, "std": 5.0, "values": {"0": 10.0, "42": 20.0}},
                    },
                    "val/loss": {
                        "min": {"mean": 1.5, "std": 0.5, "values": {"0": 2.0, "42": 1.0}},
                        "t_f": {"mean": 20.0, "std": 0.0, "values": {"0": 20.0, "42": 20.0}},
                    },
                    "val/accuracy": {
                        "max": {"mean": 0.75, "std": 0.25, "values": {"0": 1.0, "42": 0.5}},
                        "t_f": {"mean": 15.0, "std": 5.0, "values": {"0": 20.0, "42": 10.0}},
                    },
                    "norm": {"last": {"mean": 8.5, "std": 0.5, "values": {"0": 8.0, "42": 9.0}}},
                },
                "delta_t": {"loss": {"mean": 5.0, "std": 5.0, "values": {"0": 10.0, "42": 0.0}}},
                "chance": {"accuracy": 1 / 31, "loss": log(31) / 2},
                "at_chance": {},
                "t_90": {
                    "val/accuracy": {"0": {"step": 20.0, "reached": True}, "42": {"step": 21.0, "reached": False}}
                },
                "status": {"finished": 2},
            }
        ]
    }


def test_json_of_equal_studies_is_equal_to_the_byte() -> None:
    runs = [run_curves(seed, {"val/loss": [0.3, 0.1 * seed], "train/loss": [0.2, 0.7]}) for seed in (0, 1, 2)]
    swapped = [RunCurves(run.run, run.config, dict(reversed(list(run.curves.items())))) for run in reversed(runs)]
    assert json.dumps(summaries_to_json(summarise(runs))) == json.dumps(summaries_to_json(summarise(swapped)))


def test_json_holds_non_finite_numbers_as_strings_at_every_depth() -> None:
    config = summaries_to_json(
        summarise([run_curves(0, {"val/loss": [nan, nan], "test[a]/loss": [inf], "norm": [-inf]})])
    )["configs"][0]
    assert config["metrics"]["val/loss"]["min"] == {"mean": "NaN", "std": "NaN", "values": {"0": "NaN"}}
    assert config["metrics"]["test[a]/loss"]["min"]["values"] == {"0": "Infinity"}
    assert config["metrics"]["norm"]["last"]["mean"] == "-Infinity"
    json.dumps(config, allow_nan=False)


def test_nothing_gives_an_empty_document() -> None:
    assert summaries_to_json(summarise([])) == {"configs": []}


def test_jsonable_leaves_plain_values_and_unpacks_arrays() -> None:
    value = {"a": (1, 2.5, None, True, "x"), "b": [np.float64(nan), np.int64(3)], "c": np.array([[inf, 1.0]])}
    assert to_jsonable(value) == {"a": [1, 2.5, None, True, "x"], "b": ["NaN", 3], "c": [["Infinity", 1.0]]}
