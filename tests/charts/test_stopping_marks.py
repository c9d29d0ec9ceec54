"""Marks where training could have stopped: on the mean over seeds, at the advised steps, on every clock."""

from __future__ import annotations

import pytest

from seedbed.charts.learning_curves import gather_learning_curves
from seedbed.charts.vega_lite import to_vega_lite
from seedbed.report.figures import figures_with_stopping, plot_command
from seedbed.specs import FigureSpec, QuestionSpec
from seedbed.stats.summary import RunCurves
from seedbed.study.declarations import Declarations

from .factories import make_run

LOSSES = ([3.0, 2.0, 1.12, 1.0, 1.3], [3.0, 2.0, 1.14, 1.2, 1.4])  # mean best 1.1 at 30, ± 0.1, so 20 is as good
FIGURE = FigureSpec(metrics=("train/loss", "val/loss"), stopping="val/loss")


def make_runs(**more: list[float]) -> list[RunCurves]:
    metrics = [{"val/loss": loss, "train/loss": [1.0] * 5, **more} for loss in LOSSES]
    return [make_run({"model.kind": "gpt"}, seed, values) for seed, values in enumerate(metrics)]


def test_best_and_earliest_are_on_the_mean_over_seeds() -> None:
    chart = gather_learning_curves(FIGURE, make_runs())
    marks = {mark.rule: (mark.panel, mark.x, mark.y) for mark in chart.stopping_marks}
    assert marks == {
        "best": (0, 30.0, pytest.approx(1.1)),
        "first within one std. error": (0, 20.0, pytest.approx(1.13)),
    }
    assert "GPT, validation loss: best, step 30" in [mark.name for mark in chart.stopping_marks]
    assert any(note.startswith("Marks on the validation loss") for note in chart.notes)


def test_copying_is_marked_where_samples_were_measured() -> None:
    copied = {"copied": [0.1, 0.2, 0.4, 0.6, 0.9], "copied[held-out]": [0.5] * 5}
    marks = {mark.rule: mark.x for mark in gather_learning_curves(FIGURE, make_runs(**copied)).stopping_marks}
    assert marks["samples begin to copy"] == 30.0


def test_marks_follow_the_clock_and_the_panel_of_their_metric() -> None:
    chart = gather_learning_curves(FIGURE.model_copy(update={"x": "time", "colour": "model.kind"}), make_runs())
    assert {mark.panel for mark in chart.stopping_marks} == {1}
    best = next(mark for mark in chart.stopping_marks if mark.rule == "best")
    assert best.x == pytest.approx(30 * (5.0 + 6.0) / 2 / 40)  # seconds of both seeds over their 40 steps


def test_a_figure_without_the_metric_or_without_stopping_has_no_marks() -> None:
    assert (
        gather_learning_curves(FigureSpec(metrics=("train/loss",), stopping="val/loss"), make_runs()).stopping_marks
        == ()
    )
    assert gather_learning_curves(FigureSpec(metrics=("val/loss",)), make_runs()).stopping_marks == ()


def test_marks_have_one_legend_and_tooltips() -> None:
    from seedbed.charts.line_chart import draw_lines

    text = str(to_vega_lite(draw_lines(gather_learning_curves(FIGURE, make_runs()))))
    assert text.count("training could stop") == 1
    assert "first within one std. error, step 20" in text


def test_a_stopping_question_marks_only_curves_of_its_metric() -> None:
    question = QuestionSpec(ask="stopping", metric="val/loss")
    figures = (FigureSpec(), FigureSpec(metrics=("train/loss",)), FigureSpec(kind="sweep"), FigureSpec(value="gap"))
    marked = figures_with_stopping(Declarations(figures, (question,)))
    assert [figure.stopping for figure in marked] == ["val/loss", None, None, None]
    assert figures_with_stopping(Declarations(figures, ())) == figures
    assert plot_command(marked[0], "toy") == "seedbed plot toy --stopping val/loss"
