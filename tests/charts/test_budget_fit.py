"""The scaling law of a budget chart: the recommendations of `stats.compute_budget`, or why there are none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from seedbed.charts.budget import BudgetChart, draw_budget, gather_budget
from seedbed.charts.chart_kinds import CHART_KINDS
from seedbed.charts.vega_lite import to_vega_lite
from seedbed.records import Curve
from seedbed.specs import FigureSpec
from seedbed.stats.compute_budget import advise_budget, fit_law_to_runs
from seedbed.stats.summary import RunCurves

from .factories import make_run

T = 20_000
FIGURE = FigureSpec(kind="budget", metrics=("val/loss",), x="train.batch_size", x_scale="log2", y_scale="log")


def make_runs(batches: tuple[int, ...] = (32, 64, 128, 256), seeds: int = 3, slope: float = 0.5) -> list[RunCurves]:
    """Losses of 0.1 + 3·B^−slope + 50·T^−0.6, with a little noise per seed."""
    rng, steps = np.random.default_rng(3), np.arange(0, T + 1, 500)
    runs = []
    for batch in batches:
        for seed in range(seeds):
            losses = (0.1 + 3 * batch**-slope + 50 * np.maximum(steps, 1.0) ** -0.6) * np.exp(rng.normal(0, 0.02))
            run = make_run({"train.batch_size": batch}, seed, {"val/loss": losses.tolist()}, steps=steps.tolist())
            train = run.run.settings.train.model_copy(update={"steps": T})
            settings = run.run.settings.model_copy(update={"train": train})
            runs.append(replace(run, run=replace(run.run, settings=settings)))
    return runs


def law_rows(chart: BudgetChart, recommended: int) -> list[list[str]]:
    rows = [line.split(",") for line in to_vega_lite(draw_budget(chart))["datasets"]["law"].splitlines()]
    column = rows[0].index("recommended")
    return [row for row in rows[1:] if row[column] == str(recommended)]


def test_the_recommended_points_are_those_of_the_law() -> None:
    runs = make_runs()
    (fit,) = gather_budget(FIGURE, runs).fits
    law = fit_law_to_runs(runs, "val/loss", ("batch", "steps"))
    assert len(fit.recommended) == 6
    for point in fit.recommended:
        advice = advise_budget(law, point.budget, {"parameters": 1000})
        assert (point.x, point.steps, point.loss) == (
            advice.allocation["batch"],
            advice.allocation["steps"],
            advice.loss,
        )
        assert point.x.value * point.steps.value * 1000 == pytest.approx(point.budget)
        assert point.x.low < point.x.value < point.x.high


def test_the_dashed_line_spends_its_budget_within_the_trained_steps() -> None:
    (fit,) = gather_budget(FIGURE, make_runs()).fits
    assert {point.budget for point in fit.predictions} == {point.budget for point in fit.recommended}
    for point in fit.predictions:
        assert point.x * point.steps * 1000 == pytest.approx(point.budget)
        assert T / 10 / 1.06 <= point.steps <= T * 1.06


def test_the_notes_state_the_law_its_recommendation_and_its_warnings() -> None:
    notes = gather_budget(FIGURE, make_runs()).notes
    assert any(note.startswith("val/loss = ") and "·batch^−" in note for note in notes)
    advised = next(note for note in notes if "the law advises batch = " in note)
    assert "lies outside the range that was tried" in advised  # the largest budget asks for more than 256


def test_recommendations_beyond_the_axes_are_not_drawn() -> None:
    chart = gather_budget(FIGURE, make_runs((16, 32, 64)))
    recommended = [point.x.value for point in chart.fits[0].recommended]
    drawn = [float(row[4]) for row in law_rows(chart, 1)]
    assert max(recommended) > 65
    assert 0 < len(drawn) < len(recommended)
    assert max(drawn) <= 64.1
    assert len(law_rows(chart, 0)) > 20


def test_with_too_few_runs_a_note_says_why_there_is_no_law() -> None:
    chart = gather_budget(FIGURE, make_runs((32,)))
    assert any("No law is fitted: batch has the same value at all data points" in note for note in chart.notes)
    assert law_rows(chart, 0) == law_rows(chart, 1) == []


def test_a_law_that_fits_badly_is_not_drawn_and_a_note_says_so() -> None:
    runs = make_runs()
    noise = np.random.default_rng(1)
    noisy = [
        replace(run, curves={"val/loss": Curve(curve.steps, noise.uniform(0.5, 3.0) * np.ones(len(curve.values)))})
        for run in runs for curve in run.curves.values()
    ]  # fmt: skip
    chart = gather_budget(FIGURE, noisy)
    assert law_rows(chart, 0) == law_rows(chart, 1) == []
    assert any("The scaling law is not drawn: it does not fit these runs (R² = " in note for note in chart.notes)


def test_unequal_models_do_not_share_a_law() -> None:
    small = make_runs()
    large = [
        replace(run, run=replace(run.run, parameters=replace(run.run.parameters, non_embedding=7)))
        for run in make_runs((512,))
    ]
    notes = gather_budget(FIGURE, small + large).notes
    assert any("holds the number of parameters fixed, which varies here (7 to " in note for note in notes)


def test_a_figure_without_x_is_drawn_along_what_varies() -> None:
    widths = [
        replace(
            run, run=replace(run.run, id=f"{run.run.id}{n}", parameters=replace(run.run.parameters, non_embedding=n))
        )
        for n in (100, 200, 400)
        for run in make_runs((512,))
    ]
    assert "parameters" in gather_budget(FigureSpec(kind="budget"), widths).x_title
    assert "batch" in gather_budget(FigureSpec(kind="budget"), make_runs()).x_title
    assert "no run has a partner that spends the same budget" in CHART_KINDS["budget"].empty_reason(FIGURE)


def test_accuracy_alone_has_no_law() -> None:
    assert gather_budget(FIGURE.model_copy(update={"metrics": ("val/accuracy",)}), make_runs()).fits == ()
