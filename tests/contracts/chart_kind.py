"""What every chart kind must do; `test_chart_kinds.py` has one subclass for each."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from seedbed.charts.chart_kinds import CHART_KINDS, ChartKind
from seedbed.charts.render import to_svg
from seedbed.charts.terminal_preview import preview_chart
from seedbed.charts.theme import LIGHT_THEME
from seedbed.charts.vega_lite import to_vega_lite, without_interaction
from seedbed.report.figures import render_figure
from seedbed.specs import FIGURE_KINDS, FigureSpec
from tests.charts.factories import make_grid, make_run


class ChartKindContract:
    """Tests of one chart kind; `figure` draws something from the runs of `make_grid`."""

    figure: ClassVar[FigureSpec]
    expected: ClassVar[object]  # what `numbers` returns, worked out by hand

    @property
    def kind(self) -> ChartKind:
        return CHART_KINDS[self.figure.kind]

    def numbers(self, chart: Any) -> object:
        """Some numbers of the gathered data."""
        raise NotImplementedError

    def test_the_gathered_numbers_are_known(self) -> None:
        assert self.numbers(self.kind.gather(self.figure, make_grid())) == self.expected

    def test_gathered_data_has_a_title_and_notes(self) -> None:
        chart = self.kind.gather(self.figure, make_grid())
        assert not chart.is_empty
        assert chart.title
        assert all(isinstance(note, str) and note for note in chart.notes)
        titled = self.figure.model_copy(update={"title": "A title of its own"})
        assert self.kind.gather(titled, make_grid()).title == "A title of its own"

    def test_gathering_changes_no_run_and_is_repeatable(self) -> None:
        runs = make_grid()
        first, second = (self.kind.gather(self.figure, runs) for _ in range(2))
        assert self.numbers(first) == self.numbers(second) == self.expected
        assert [run.run for run in runs] == [run.run for run in make_grid()]

    def test_it_is_drawn_as_svg_with_its_title(self) -> None:
        titled = self.figure.model_copy(update={"title": "Titled"})
        spec = to_vega_lite(self.kind.draw(self.kind.gather(titled, make_grid())), LIGHT_THEME)
        svg = to_svg(without_interaction(spec))
        assert svg.startswith("<svg")
        assert "Titled" in svg

    @pytest.mark.parametrize("n_runs", [0, 1])
    def test_without_runs_or_values_it_is_empty_and_says_why(self, n_runs: int) -> None:
        runs = [make_run({"train.batch_size": 8}, 0, {}, status="planned")][:n_runs]
        chart = self.kind.gather(self.figure, runs)
        assert chart.is_empty
        rendered = render_figure(self.figure, runs, "toy")
        assert rendered.spec is None
        assert rendered.notes[0] == f"{self.kind.empty_reason(self.figure)}."
        assert rendered.notes[0].startswith("Nothing to draw: no run has ")

    def test_runs_that_a_filter_leaves_out_are_not_drawn(self) -> None:
        nothing = self.figure.model_copy(update={"only": {"model.kind": "gru"}})
        assert self.kind.gather(nothing, make_grid()).is_empty

    def test_it_has_a_preview_in_the_terminal(self) -> None:
        chart = self.kind.gather(self.figure, make_grid())
        lines = preview_chart(chart, self.kind.preview).splitlines()
        assert len(lines) > 3
        assert max(len(line) for line in lines if line not in chart.notes) < 120

    def test_a_command_reproduces_it(self) -> None:
        assert render_figure(self.figure, make_grid(), "toy").command.startswith("seedbed ")

    def test_the_options_it_needs_are_known_to_study_files(self) -> None:
        assert FIGURE_KINDS[self.figure.kind] == self.kind.required_options
        assert set(self.kind.required_options) <= FigureSpec.model_fields.keys()

    def test_a_stopping_mark_is_offered_only_on_drawn_metrics(self) -> None:
        assert set(self.kind.stoppable_metrics(self.figure)) <= set(self.figure.metrics)

    def test_an_unknown_setting_is_refused_in_one_sentence_or_ignored(self) -> None:
        wrong = self.figure.model_copy(update={"column": "train.bach_size"})
        rendered = render_figure(wrong, make_grid(), "toy")
        assert rendered.spec or "train.bach_size is not a setting" in rendered.notes[0]
