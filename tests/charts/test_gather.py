"""The data of charts: means by hand, nothing averaged silently, extremes indices."""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import isnan, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.charts.bars import gather_bars
from seedbed.charts.budget import gather_budget
from seedbed.charts.chart_kinds import CHART_KINDS
from seedbed.charts.learning_curves import gather_learning_curves
from seedbed.charts.panel_layout import clock_units_per_step, downsample_indices
from seedbed.charts.parallel_coordinates import gather_parallel_coordinates
from seedbed.charts.sweep import gather_sweep
from seedbed.charts.vega_lite import to_vega_lite
from seedbed.errors import UsageError
from seedbed.records import ParameterCounts, StoredRun
from seedbed.settings import Settings
from seedbed.specs import FigureSpec
from seedbed.stats.summary import RunCurves

from .factories import make_grid, make_run

GPT = {"model.kind": "gpt"}


# ---- curves ----


def test_a_line_is_the_mean_over_seeds_with_a_band_of_the_population_std() -> None:
    runs = [make_run(GPT, 0, {"val/loss": [4.0, 2.0]}), make_run(GPT, 1, {"val/loss": [2.0, 1.0]})]
    (line,) = gather_learning_curves(FigureSpec(metrics=("val/loss",)), runs).lines
    assert (line.n, line.n_runs) == (2, 2)
    np.testing.assert_array_equal(line.x, [0, 10])
    np.testing.assert_allclose(line.y, [3.0, 1.5])
    np.testing.assert_allclose(line.low, [2.0, 1.0])
    np.testing.assert_allclose(line.high, [4.0, 2.0])


def test_seeds_with_different_steps_are_drawn_one_by_one() -> None:
    runs = [make_run(GPT, 0, {"val/loss": [4.0, 2.0, 1.0]}), make_run(GPT, 1, {"val/loss": [2.0]}, status="running")]
    chart = gather_learning_curves(FigureSpec(metrics=("val/loss",)), runs)
    assert [(line.n, len(line.y)) for line in chart.lines] == [(1, 3), (1, 1)]
    assert any("no mean" in note for note in chart.notes)
    assert "1 of 2 runs are still running." in chart.notes


def test_a_nan_of_one_seed_is_a_gap_of_the_mean() -> None:
    runs = [make_run(GPT, 0, {"val/loss": [4.0, nan, 1.0]}), make_run(GPT, 1, {"val/loss": [2.0, 2.0, 2.0]})]
    (line,) = gather_learning_curves(FigureSpec(metrics=("val/loss",)), runs).lines
    assert [isnan(value) for value in line.y] == [False, True, False]


def test_a_diverged_run_is_in_no_mean_and_has_its_own_line_to_its_end() -> None:
    runs = [make_run(GPT, seed, {"val/loss": [4.0, 2.0]}) for seed in (0, 1)]
    runs.append(make_run(GPT, 2, {"val/loss": [100.0]}, status="diverged"))
    mean, ended = gather_learning_curves(FigureSpec(metrics=("val/loss",)), runs).lines
    assert (mean.n, mean.n_runs, list(mean.y)) == (2, 3, [4.0, 2.0])
    assert (ended.diverged, list(ended.y)) == (True, [100.0])


def test_splits_share_a_panel_unless_a_setting_is_coloured() -> None:
    metrics = ("train/loss", "val/loss", "val/accuracy")
    one_config = [run for run in make_grid() if set(run.config.values()) == {"gpt", 8}]
    shared = gather_learning_curves(FigureSpec(metrics=metrics), one_config)
    assert [panel.metric for panel in shared.panels] == ["loss", "val/accuracy"]
    coloured = gather_learning_curves(FigureSpec(metrics=metrics, colour="train.batch_size"), make_grid())
    assert [panel.metric for panel in coloured.panels] == list(metrics)
    assert {line.colour for line in coloured.lines} == {8, 16, 64}


def test_a_figure_without_a_colour_is_coloured_by_what_varies() -> None:
    figure = FigureSpec(metrics=("val/loss",))
    chart = gather_learning_curves(figure, make_grid())
    assert chart.colour
    assert (chart.colour.title, chart.dash_title) == ("batch size B (samples)", "model")
    assert len({(line.colour, line.dash) for line in chart.lines}) == len(chart.lines) == 6
    columns = gather_learning_curves(figure.model_copy(update={"column": "model.kind"}), make_grid())
    assert {line.colour for line in columns.lines} == {8, 16, 64}
    assert columns.dash_title is None
    splits = gather_learning_curves(figure.model_copy(update={"colour": "none"}), make_grid())
    assert {line.colour for line in splits.lines} == {"validation"}


def test_more_settings_than_colour_and_dash_are_joined_or_named_in_a_note() -> None:
    def runs(*batches: int) -> list[RunCurves]:
        settings = itertools.product(("gpt", "lstm"), batches, (0.1, 0.2))
        names = ("model.kind", "train.batch_size", "train.lr")
        return [make_run(dict(zip(names, one, strict=True)), 0, {"val/loss": [2.0, 1.0]}) for one in settings]

    figure = FigureSpec(metrics=("val/loss",))
    few = gather_learning_curves(figure, runs(8, 16))
    assert {line.colour for line in few.lines} >= {"GPT, 8, 0.1", "LSTM, 16, 0.2"}
    many = gather_learning_curves(figure, runs(8, 16, 32, 64, 128))
    assert "Lines that look alike differ in model." in many.notes


def test_each_seed_is_a_line_if_the_seed_is_coloured() -> None:
    runs = [make_run(GPT, seed, {"val/loss": [2.0 + seed, 1.0 + seed]}) for seed in range(3)]
    curves = gather_learning_curves(FigureSpec(metrics=("val/loss",), colour="seed"), runs)
    assert [(line.colour, line.n, line.n_runs, list(line.y)) for line in curves.lines] == [
        (seed, 1, 1, [2.0 + seed, 1.0 + seed]) for seed in range(3)
    ]
    assert curves.palette == "category"
    assert not any("no mean" in note for note in curves.notes)
    sweep = gather_sweep(FigureSpec(kind="sweep", metrics=("val/loss",), x="train.lr", colour="seed"), runs)
    assert [(line.colour, line.y[0]) for line in sweep.lines] == [(0, 1.0), (1, 2.0), (2, 3.0)]


def test_memorising_that_is_over_early_is_drawn_over_log_steps() -> None:
    steps = [0, 10, 30, 100, 200, 300, 1000, 3000, 6000, 10_000]
    early = {"train/accuracy": [0.0, 0.1, 0.3, 0.6, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0]}
    late = {"train/accuracy": [0.0, 0.0, 0.0, 0.0, 0.01, 0.02, 0.1, 0.4, 0.9, 1.0]}
    figure = FigureSpec(metrics=("train/accuracy",))
    scales = [gather_learning_curves(figure, [make_run(GPT, 0, one, steps)]).x.scale for one in (early, late)]
    assert scales == ["log", "linear"]
    linear = figure.model_copy(update={"x_scale": "linear"})
    assert gather_learning_curves(linear, [make_run(GPT, 0, early, steps)]).x.scale == "linear"


def test_the_closing_evaluation_replaces_the_one_a_step_before() -> None:
    run = make_run(GPT, 0, {"val/loss": [4.0, 3.0, 2.0, 9.0]}, steps=[0, 100, 200, 201])
    (line,) = gather_learning_curves(FigureSpec(metrics=("val/loss",)), [run]).lines
    assert (line.x, list(line.y)) == ((0.0, 100.0, 201.0), [4.0, 3.0, 9.0])


def test_a_closing_evaluation_is_drawn_at_the_last_step_trained() -> None:
    """With 201 steps, the evaluation after the last update is recorded as step 202."""
    run = make_run(GPT, 0, {"val/loss": [4.0, 3.0, 2.0, 9.0, 9.0]}, steps=[0, 100, 200, 201, 202])
    run = replace(run, run=replace(run.run, step=201))
    [line] = gather_learning_curves(FigureSpec(metrics=("val/loss",)), [run]).lines
    assert (line.x, list(line.y)) == ((0.0, 100.0, 201.0), [4.0, 3.0, 9.0])


def test_a_closing_evaluation_after_the_last_two_regular_ones_is_no_vertical_tick() -> None:
    run = make_run(GPT, 0, {"val/loss": [4.0, 3.0, 2.5, 2.4, 2.3]}, [0, 50, 100, 101, 102])
    [line] = gather_learning_curves(FigureSpec(metrics=("val/loss",)), [run]).lines
    assert line.x == (0.0, 50.0, 102.0)


def test_a_metric_that_no_run_has_leaves_no_hole() -> None:
    run = make_run(GPT, 0, {"val/loss": [4.0, 3.0]})
    chart = gather_learning_curves(FigureSpec(metrics=("val/loss", "circle_share")), [run])
    assert [panel.metric for panel in chart.panels] == ["loss"] or [panel.metric for panel in chart.panels] == [
        "val/loss"
    ]
    assert "No run has circle share." in chart.notes


def test_chance_is_a_line_where_all_runs_share_it() -> None:
    def chances(*ps: int) -> list[float | None]:
        runs = [make_run({"task.p": p}, 0, {"val/accuracy": [0.1, 0.2], "norm": [1.0, 2.0]}) for p in ps]
        figure = FigureSpec(metrics=("val/accuracy", "norm"), colour="none")
        return [panel.chance for panel in gather_learning_curves(figure, runs).panels]

    assert chances(7) == [pytest.approx(1 / 7), None]
    assert chances(7, 11) == [None, None]


def test_rows_and_columns_are_panels_of_the_runs_with_that_setting() -> None:
    chart = gather_learning_curves(
        FigureSpec(metrics=("val/loss", "norm"), colour="train.batch_size", column="model.kind"), make_grid()
    )
    assert (len(chart.panels), chart.n_columns) == (4, 2)
    assert [panel.title for panel in chart.panels[:2]] == ["GPT", "LSTM"]
    lstm = [line for line in chart.lines if line.panel == 1]
    assert len(lstm) == 3
    assert min(line.y[0] for line in lstm) > 4


def test_groups_of_samples_have_dashes_and_splits_have_colours() -> None:
    values = {f"{split}/loss[order={order}]": [1.0, 0.5] for split in ("train", "val") for order in (2, 3)}
    chart = gather_learning_curves(FigureSpec(metrics=tuple(values)), [make_run(GPT, 0, values)])
    assert len(chart.panels) == 1
    assert {(line.colour, line.dash) for line in chart.lines} == {
        (split, f"order={order}") for split in ("training", "validation") for order in (2, 3)
    }


def test_a_metric_over_all_samples_has_a_dash_of_its_own() -> None:
    values = {"val/loss": [1.0, 0.5], "val/loss[order=2]": [2.0, 1.0]}
    chart = gather_learning_curves(FigureSpec(metrics=tuple(values)), [make_run(GPT, 0, values)])
    assert [line.dash for line in chart.lines] == ["all", "order=2"]


def test_the_gap_is_how_far_validation_lags_behind_training() -> None:
    run = make_run(GPT, 0, {"train/accuracy": [0.5, 1.0], "val/accuracy": [0.4, 0.25]})
    (line,) = gather_learning_curves(FigureSpec(metrics=("val/accuracy",), value="gap"), [run]).lines
    np.testing.assert_allclose(line.y, [0.1, 0.75])


def test_clocks_turn_steps_into_epochs_tokens_and_seconds() -> None:
    # 60 equations, of each of which the model reads 6 tokens: two updates an epoch
    settings = Settings.from_flat({"task.p": 11, "train.batch_size": 32})
    stored = StoredRun("a", 0, settings, ParameterCounts(7, 5), "finished", 20)
    assert clock_units_per_step("epoch", stored) == 0.5
    assert clock_units_per_step("tokens", stored) == 32 * 6
    run = make_run({"train.lr": 0.1}, 3, {"val/loss": [1.0, 1.0, 1.0]})  # 5 + 3 seconds for 20 steps
    (line,) = gather_learning_curves(FigureSpec(metrics=("val/loss",), x="time"), [run]).lines
    np.testing.assert_allclose(line.x, [0.0, 4.0, 8.0])


def test_only_selects_the_runs_of_a_figure() -> None:
    figure = FigureSpec(metrics=("val/loss",), only={"model.kind": "lstm", "train.batch_size": (8, 64)})
    assert len(gather_learning_curves(figure, make_grid()).lines) == 2


def test_a_setting_that_no_run_has_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"train.batchsize is not a setting .*did you mean train.batch_size"):
        gather_learning_curves(FigureSpec(colour="train.batchsize"), make_grid())


def test_a_chart_without_evaluations_is_empty() -> None:
    runs = [make_run(GPT, 0, {}, status="planned")]
    assert gather_learning_curves(FigureSpec(), runs).is_empty
    assert gather_sweep(FigureSpec(kind="sweep", x="train.lr"), runs).is_empty
    assert gather_bars(FigureSpec(kind="bars", x="train.lr"), runs).is_empty
    assert gather_budget(FigureSpec(kind="budget"), runs).is_empty
    assert gather_parallel_coordinates(FigureSpec(kind="parallel"), runs).is_empty


# ---- downsampling ----


@given(st.lists(st.floats(-1e6, 1e6) | st.just(nan), min_size=1, max_size=300), st.integers(8, 60))
def test_downsampling_keeps_ends_extremes_and_at_least_one_gap(values: list[float], max_points: int) -> None:
    numbers = np.array(values)
    indices = downsample_indices(numbers, max_points)
    assert len(indices) <= max_points
    assert (np.diff(indices) > 0).all()
    assert indices[0] == 0
    assert indices[-1] == len(values) - 1
    if not np.isnan(numbers).all():
        assert np.nanmin(numbers[indices]) == np.nanmin(numbers)
        assert np.nanmax(numbers[indices]) == np.nanmax(numbers)
    assert np.isnan(numbers[indices]).any() == np.isnan(numbers).any()


def test_a_long_series_is_drawn_with_at_most_500_points() -> None:
    noise = np.random.default_rng(0).normal(size=20_000)
    noise[777] = 50.0
    (line,) = gather_learning_curves(
        FigureSpec(metrics=("val/loss",)), [make_run(GPT, 0, {"val/loss": noise.tolist()})]
    ).lines
    assert len(line.y) <= 500
    assert line.y.max() == 50.0


# ---- sweeps ----


def test_best_values_are_sorted_by_the_setting() -> None:
    chart = gather_sweep(
        FigureSpec(kind="sweep", metrics=("val/loss",), x="train.batch_size", colour="model.kind"), make_grid()
    )
    gpt = next(line for line in chart.lines if line.colour == "gpt")
    assert gpt.x == (8, 16, 64)
    best = [3.0 / (1 + 5 * 8 / batch) + 0.5 for batch in (8, 16, 64)]  # of seed 0; seed 1 is 0.1 above
    np.testing.assert_allclose(gpt.y, [value + 0.05 for value in best])
    np.testing.assert_allclose(gpt.high - gpt.y, 0.05)


def test_configs_that_differ_in_another_setting_never_share_a_line() -> None:
    chart = gather_sweep(FigureSpec(kind="sweep", metrics=("val/loss",), x="train.batch_size"), make_grid())
    assert len(chart.lines) == 2


def test_settings_that_follow_x_are_one_line_and_named() -> None:
    pairs = ((0.1, 0.2), (0.2, 0.4), (0.3, 0.6))
    runs = [make_run({"train.lr": lr, "train.weight_decay": decay}, 0, {"val/loss": [lr]}) for lr, decay in pairs]
    figure = FigureSpec(kind="sweep", metrics=("val/loss",), x="train.lr")
    chart = gather_sweep(figure, runs)
    assert [line.x for line in chart.lines] == [(0.1, 0.2, 0.3)]
    assert "Along with learning rate, the runs change in weight decay." in chart.notes
    confounded = [*runs, make_run({"train.lr": 0.1, "train.weight_decay": 0.9}, 0, {"val/loss": [1.0]})]
    assert all(len(line.x) == 1 for line in gather_sweep(figure, confounded).lines)


def test_t_f_and_delta_t_are_steps() -> None:
    run = make_run(GPT, 0, {"train/loss": [3.0, 1.0, 1.0], "val/loss": [3.0, 2.0, 1.0]})
    t_f = gather_sweep(FigureSpec(kind="sweep", metrics=("val/loss",), x="train.lr", value="t_f"), [run])
    delta = gather_sweep(FigureSpec(kind="sweep", metrics=("val/loss",), x="train.lr", value="delta_t"), [run])
    assert (t_f.lines[0].y[0], delta.lines[0].y[0]) == (20.0, 10.0)
    assert t_f.panels[0].y_title.endswith("(steps)")


def test_alpha_truncates_each_run() -> None:
    run = make_run(GPT, 0, {"val/loss": [5.0, 4.0, 3.0, 2.0, 1.0, 0.5]})  # T = 100, records at 0, 10, … 50
    figure = FigureSpec(kind="sweep", metrics=("val/loss",), x="alpha", alphas=(0.1, 0.3, 1.0))
    (line,) = gather_sweep(figure, [run]).lines
    assert (line.x, list(line.y)) == ((0.1, 0.3, 1.0), [4.0, 2.0, 0.5])
    coloured = figure.model_copy(update={"x": "train.lr", "colour": "alpha"})
    assert [(line.colour, line.y[0]) for line in gather_sweep(coloured, [run]).lines] == [
        (0.1, 4.0), (0.3, 2.0), (1.0, 0.5)
    ]  # fmt: skip


def test_a_zero_makes_a_log_axis_linear_instead_of_vanishing() -> None:
    runs = [make_run({"train.weight_decay": value}, 0, {"val/loss": [1.0]}) for value in (0.0, 0.1)]
    chart = gather_sweep(FigureSpec(kind="sweep", metrics=("val/loss",), x="train.weight_decay", x_scale="log"), runs)
    assert chart.x.scale == "linear"
    assert chart.lines[0].x == (0.0, 0.1)


def test_a_share_is_never_put_on_a_log_axis() -> None:
    figure = FigureSpec(kind="sweep", metrics=("val/loss", "val/accuracy"), x="train.batch_size", y_scale="log")
    assert [panel.scale for panel in gather_sweep(figure, make_grid()).panels] == ["log", "linear"]


# ---- bars, budgets, parallel coordinates ----


def test_bars_have_the_t_interval_of_the_mean() -> None:
    runs = [make_run(GPT, seed, {"val/loss": [value]}) for seed, value in enumerate((1.0, 2.0, 3.0))]
    (bar,) = gather_bars(FigureSpec(kind="bars", metrics=("val/loss",), x="model.kind"), runs).bars
    assert (bar.x, bar.mean, bar.n_runs) == ("GPT", 2.0, 3)
    assert bar.high - bar.mean == pytest.approx(4.302653 / 3**0.5)  # t(0.975, 2) · s / √n with s = 1
    assert bar.values == ((0, 1.0), (1, 2.0), (2, 3.0))


def test_one_run_has_no_interval_and_a_failed_one_no_part_in_the_mean() -> None:
    runs = [make_run(GPT, 0, {"val/loss": [1.0]}), make_run(GPT, 1, {"val/loss": [9.0]}, status="failed")]
    (bar,) = gather_bars(FigureSpec(kind="bars", metrics=("val/loss",), x="model.kind"), runs).bars
    assert (bar.mean, len(bar.values), bar.n_runs) == (1.0, 1, 2)
    assert isnan(bar.low)


def test_bars_of_seconds_are_the_runs_own() -> None:
    runs = [make_run(GPT, seed, {"val/loss": [1.0]}) for seed in (0, 1)]
    (bar,) = gather_bars(FigureSpec(kind="bars", value="seconds", x="model.kind"), runs).bars
    assert bar.mean == 5.5


def test_every_point_of_an_iso_budget_curve_spends_its_budget() -> None:
    runs = [run for run in make_grid() if run.config["model.kind"] == "gpt"]
    chart = gather_budget(FigureSpec(kind="budget", metrics=("val/loss",), x="train.batch_size"), runs)
    assert len(chart.curves) >= 2
    for curve in chart.curves:
        for point in curve.points:  # P = 1000, and every batch is smaller than the training set
            assert 1000 * point.x * point.steps == pytest.approx(curve.budget)
        best = [point for point in curve.points if point.is_best]
        assert len(best) == 1
        assert best[0].mean == min(point.mean for point in curve.points)


def test_an_iso_budget_curve_uses_nothing_after_its_budget_is_spent() -> None:
    late = [make_run({"train.batch_size": batch}, 0, {"val/loss": [5.0] * 5 + [0.0]}) for batch in (8, 16)]
    chart = gather_budget(FigureSpec(kind="budget", metrics=("val/loss",), x="train.batch_size"), late)
    for curve in chart.curves:
        assert all(point.mean == (0.0 if point.steps >= 50 else 5.0) for point in curve.points)


def test_heights_are_between_0_and_1_in_the_order_of_the_values() -> None:
    chart = gather_parallel_coordinates(FigureSpec(kind="parallel", metrics=("val/loss",)), make_grid())
    assert [axis.title for axis in chart.axes] == ["model", "batch size B (samples)", "lowest validation loss (nats)"]
    assert len(chart.lines) == 6
    by_value = sorted(chart.lines, key=lambda line: line.value)
    heights = [line.heights[-1] for line in by_value]
    assert heights == sorted(heights)
    assert (heights[0], heights[-1]) == (0.0, 1.0)


def test_bars_of_a_threshold_are_medians_and_count_the_runs_that_never_get_there() -> None:
    arrivals = {0.1: (1, 2, 3, 4, 5, 9), 0.2: (9,) * 6}  # of ten evaluations; 9: never
    runs = [
        make_run({"train.lr": lr}, seed, {"val/accuracy": [0.2] * arrival + [0.95] * (9 - arrival) + [0.2]})
        for lr, by_seed in arrivals.items() for seed, arrival in enumerate(by_seed)
    ]  # fmt: skip
    figure = FigureSpec(kind="bars", metrics=("val/accuracy",), value="t_90", x="train.lr")
    first, second = gather_bars(figure, runs).bars
    assert (first.mean, first.low) == (35, 10)
    assert second.mean == float("inf")
    assert "7 of 12 runs never get there." in gather_bars(figure, runs).notes
    to_vega_lite(CHART_KINDS["bars"].draw(gather_bars(figure, runs)))
    sweep = gather_sweep(FigureSpec(kind="sweep", metrics=("val/accuracy",), value="t_90", x="train.lr"), runs)
    assert [value for line in sweep.lines for value in line.y][:1] == [35]
    assert not any("std" in note for note in sweep.notes)


@pytest.mark.parametrize("metric", ["val/loss", "val/accuracy"])
def test_an_unfinished_run_is_in_no_mean_with_complete_ones(metric: str) -> None:
    values = {metric: [9.0, 1.0, 0.5]}
    runs = [
        *(make_run({"train.lr": 0.1}, seed, values) for seed in (0, 1)),
        make_run({"train.lr": 0.1}, 2, {metric: [9.0, 8.0]}, status="stopped"),
        make_run({"train.lr": 0.2}, 0, {metric: [9.0, 3.0, 1.0]}, status="running"),
        make_run({"train.lr": 0.2}, 1, {metric: [9.0, 5.0]}, status="running"),
    ]  # fmt: skip
    best = {"val/loss": [0.5, 4.0], "val/accuracy": [9.0, 9.0]}[metric]  # lr = 0.2: so far, at step 10
    bars = gather_bars(FigureSpec(kind="bars", metrics=(metric,)), runs)
    assert [bar.mean for bar in bars.bars] == best
    assert [len(bar.values) for bar in bars.bars] == [2, 2]
    chart = gather_sweep(FigureSpec(kind="sweep", metrics=(metric,), x="train.lr"), runs)
    assert chart.lines[0].y.tolist() == best
    note = "Means are over complete runs; configs without any are shown as far as all of their runs have got."
    assert note in bars.notes
    assert note in chart.notes


@pytest.mark.parametrize("gather", [gather_bars, gather_sweep])
@pytest.mark.parametrize(("value", "n_panels"), [("delta_t", 1), ("gap", 1), ("seconds", 1), ("t_f", 2)])
def test_a_statistic_of_both_splits_has_one_panel(gather, value: str, n_panels: int) -> None:
    curves = {"train/loss": [3.0, 1.0, 2.0], "val/loss": [3.0, 2.0, 1.0]}
    figure = FigureSpec(kind="bars", metrics=("train/loss", "val/loss"), value=value, x="model.kind")
    data = gather(figure, [make_run(GPT, seed, curves) for seed in (0, 1)])
    shown = data.bars if gather is gather_bars else data.lines  # a sweep may draw both splits in one panel
    assert len(shown) == n_panels
