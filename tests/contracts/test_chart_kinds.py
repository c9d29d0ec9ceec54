"""Every chart kind keeps the contract; a user's own kind works in a study file, in `plot` and in a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import seedbed
from seedbed.charts.attention_maps import AttentionMaps
from seedbed.charts.bars import Bars
from seedbed.charts.budget import BudgetChart
from seedbed.charts.chart_kinds import CHART_KINDS, ChartKind, register_chart
from seedbed.charts.fourier_plane import FourierPlanes
from seedbed.charts.panel_layout import LineChart
from seedbed.charts.parallel_coordinates import ParallelCoordinates
from seedbed.cli import app
from seedbed.errors import StudyError
from seedbed.format import join_words
from seedbed.records import Curve
from seedbed.specs import FIGURE_KINDS, STATISTIC_NAMES, FigureSpec
from seedbed.stats.groups import filter_runs
from seedbed.stats.run_statistics import STATISTICS, compute_statistic
from seedbed.stats.summary import RunCurves
from seedbed.study.declarations import parse_declarations
from tests.charts.factories import EQUATION
from tests.contracts.chart_kind import ChartKindContract
from tests.report.factories import fill

if TYPE_CHECKING:
    import altair as alt

ONE_BATCH = {"train.batch_size": 8}


def rounded(values: Any) -> tuple[float, ...]:
    return tuple(round(float(value), 6) for value in values)


class TestCurves(ChartKindContract):
    figure = FigureSpec(metrics=("val/loss",), only=ONE_BATCH, colour="model.kind", stopping="val/loss")
    expected = (3.55, 2.05, 1.55, 1.3, 1.15, 1.05), (4.55, 3.05, 2.55, 2.3, 2.15, 2.05)

    def numbers(self, chart: LineChart) -> object:
        return tuple(rounded(line.y) for line in chart.lines)


class TestSweep(ChartKindContract):
    figure = FigureSpec(kind="sweep", metrics=("val/accuracy",), x="train.batch_size", colour="model.kind")
    expected = ((8, 16, 64), (0.79, 0.718571, 0.520769)), ((8, 16, 64), (0.59, 0.518571, 0.320769))

    def numbers(self, chart: LineChart) -> object:
        return tuple((line.x, rounded(line.y)) for line in chart.lines)


class TestBars(ChartKindContract):
    figure = FigureSpec(kind="bars", value="seconds", x="model.kind", only=ONE_BATCH)
    expected = ("GPT", 5.5), ("LSTM", 5.5)

    def numbers(self, chart: Bars) -> object:
        return tuple((bar.x, bar.mean) for bar in chart.bars)


class TestBudget(ChartKindContract):
    """The largest budget that two configs can spend: T = C / (P·B) with P = 1000."""

    figure = FigureSpec(kind="budget", metrics=("val/loss",), only={"model.kind": "gpt"})
    expected = 1.4e6, [(16, 1400 / 16, 1.407143), (64, 1400 / 64, 2.95)]

    def numbers(self, chart: BudgetChart) -> object:
        largest = chart.curves[-1]
        return largest.budget, [(point.x, point.steps, round(point.mean, 6)) for point in largest.points]


class TestParallel(ChartKindContract):
    figure = FigureSpec(kind="parallel", metrics=("val/loss",), value="last")
    expected = 1.05, 1.407143, 2.396154, 2.05, 2.407143, 3.396154

    def numbers(self, chart: ParallelCoordinates) -> object:
        return rounded(line.value for line in chart.lines)


class TestAttention(ChartKindContract):
    """Uniform attention in two layers of a GPT and an LSTM: the third of five tokens attends to three."""

    figure = FigureSpec(kind="attention", text=EQUATION, heads=(1,), only=ONE_BATCH)
    expected = ((0.333333, 0.333333, 0.333333, 0.0, 0.0),) * 4

    def numbers(self, chart: AttentionMaps) -> object:
        return tuple(rounded(panel.weights[2]) for panel in chart.panels)


class TestFourier(ChartKindContract):
    figure = FigureSpec(kind="fourier")
    expected = (3, 0.0), (3, 0.0)

    def numbers(self, chart: FourierPlanes) -> object:
        return tuple((panel.frequency, round(panel.radius_spread, 6)) for panel in chart.panels)


def test_every_chart_kind_has_a_test_class_and_a_name_that_specs_know() -> None:
    figures = [vars(cls)["figure"] for cls in ChartKindContract.__subclasses__()]
    assert {one.kind for one in figures if isinstance(one, FigureSpec)} == set(CHART_KINDS) == set(FIGURE_KINDS)


# ---- a chart kind and a statistic from outside the package ----


@dataclass(frozen=True)
class Dots:
    """One dot per run."""

    title: str
    values: tuple[float, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.values


def gather_dots(figure: FigureSpec, runs: Sequence[RunCurves]) -> Dots:
    selected = [run for run in filter_runs(runs, figure.only) if run.is_included]
    values = tuple(compute_statistic(run, figure.metrics[0], figure.value) for run in selected)
    return Dots(figure.title or f"{figure.value} of {figure.metrics[0]}", values, (f"n = {len(values)} runs.",))


def draw_dots(dots: Dots) -> alt.Chart:
    import altair as alt

    data = alt.InlineData(values=[{"value": value} for value in dots.values])
    chart: alt.Chart = alt.Chart(data, title=dots.title).mark_point().encode(x="value:Q")
    return chart


def highest(curve: Curve) -> float:
    """The highest recorded value."""
    return float(curve.values.max())


@pytest.fixture
def plugin() -> Iterator[None]:
    """What a plugin's file does when it is loaded; undone after the test."""
    seedbed.register(ChartKind(gather_dots, draw_dots), "dots")
    seedbed.register(highest, "highest")
    yield
    del CHART_KINDS["dots"], FIGURE_KINDS["dots"], STATISTICS["highest"], STATISTIC_NAMES["highest"]


@pytest.mark.usefixtures("plugin")
class TestDots(ChartKindContract):
    expected = (3.5, 3.6)

    @property
    def figure(self) -> FigureSpec:  # type: ignore[override]
        only = {"model.kind": "gpt", "train.batch_size": 8}
        return FigureSpec(kind="dots", metrics=("val/loss",), value="highest", only=only)

    def numbers(self, chart: Dots) -> object:
        return chart.values


DECLARATIONS = """
[[figures]]
kind = "dots"
value = "highest"
metrics = ["val/loss"]

[[figures]]
kind = "bars"
value = "highest"
metrics = ["val/loss"]
x = "train.weight_decay"

[[questions]]
ask = "which is better"
metric = "val/loss"
value = "highest"
between = "train.weight_decay"
"""


@pytest.mark.usefixtures("plugin")
def test_a_study_file_a_question_and_a_report_accept_a_plugins_kinds(tmp_path: Path) -> None:
    fill(tmp_path, shown=DECLARATIONS)
    home, runner = ["--home", str(tmp_path)], CliRunner()
    answered = runner.invoke(app, ["answer", "toy", *home])
    assert answered.exit_code == 0, answered.output
    assert "Which weight decay has the lowest highest of validation loss?" in answered.stdout
    assert "difference 0.9" in answered.stdout
    reported = runner.invoke(app, ["report", "toy", *home])
    assert reported.exit_code == 0, reported.output
    page = Path(reported.stdout.strip()).read_text(encoding="utf-8")
    assert "highest of val/loss" in page
    assert "Highest of loss by weight decay" in page
    assert "n = 4 runs." in page


@pytest.mark.usefixtures("plugin")
def test_plot_draws_a_plugins_chart_and_statistic(tmp_path: Path) -> None:
    fill(tmp_path)
    arguments = ["plot", "toy", "--metrics", "val/loss", "--value", "highest", "--home", str(tmp_path)]
    out = tmp_path / "dots.svg"
    assert CliRunner().invoke(app, [*arguments, "--kind", "dots", "--out", str(out)]).exit_code == 0
    assert "highest of val/loss" in out.read_text(encoding="utf-8")
    preview = CliRunner().invoke(app, [*arguments, "--kind", "dots"]).stdout
    assert "There is no preview of this kind of chart; `--out FILE.svg` draws it." in preview
    bars = CliRunner().invoke(app, [*arguments, "--kind", "bars"]).stdout
    assert bars.startswith("Highest of loss for each config")
    sweep = CliRunner().invoke(app, [*arguments, "--kind", "sweep", "--x", "train.weight_decay"]).stdout
    assert "highest: the highest recorded value." in sweep


def test_without_the_plugin_its_names_are_refused_with_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(StudyError) as error:
        parse_declarations(DECLARATIONS.replace("dots", "curve"))
    assert 'kind = "curve": expected one of "curves", "sweep", ' in str(error.value)
    assert "(did you mean curves?)" in str(error.value)
    assert 'value = "highest": expected one of "best", "t_f", ' in str(error.value)
    assert str(error.value).count("; if a plugin defines it, give --plugin FILE") == 4
    fill(tmp_path)
    refused = CliRunner().invoke(app, ["plot", "toy", "--value", "bets", "--home", str(tmp_path)])
    assert refused.exit_code == 2
    names = join_words([repr(name) for name in STATISTICS], "or")
    assert f"--value bets: expected {names}" in refused.stderr
    assert "(did you mean best?)" in refused.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bars", "there is a chart kind named 'bars'"),
        ("level", "was the name of the chart kind 'budget'"),
        ("", "cannot"),
    ],
)
def test_a_chart_kinds_name_is_taken_once(name: str, message: str) -> None:
    before = dict(CHART_KINDS)
    with pytest.raises(ValueError, match=message):
        register_chart(name, ChartKind(gather_dots, draw_dots))
    assert before == CHART_KINDS


def test_options_that_a_plugins_chart_needs_are_asked_for() -> None:
    register_chart("reader", ChartKind(gather_dots, draw_dots, required_options=("text", "colour")))
    try:
        with pytest.raises(StudyError, match='kind = "reader" needs colour as well'):
            parse_declarations('[[figures]]\nkind = "reader"\ntext = "a b"\n')
    finally:
        del CHART_KINDS["reader"], FIGURE_KINDS["reader"]


def test_an_attention_figure_needs_its_text() -> None:
    with pytest.raises(StudyError, match='kind = "attention" needs text as well'):
        parse_declarations('[[figures]]\nkind = "attention"\n')
