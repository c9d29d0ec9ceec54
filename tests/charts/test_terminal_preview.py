"""Charts in a terminal: every kind has a text preview."""

from __future__ import annotations

import pytest

from seedbed.charts.chart_kinds import CHART_KINDS
from seedbed.charts.terminal_preview import preview_chart, preview_lines
from seedbed.specs import FigureSpec

from .factories import EQUATION, make_grid, make_run


@pytest.mark.parametrize("kind", CHART_KINDS)
def test_every_kind_has_a_preview(kind: str) -> None:
    x = "train.batch_size" if kind != "curves" else "step"
    figure = FigureSpec.model_validate({"kind": kind, "metrics": ("val/loss",), "x": x, "text": EQUATION})
    text = preview_chart(CHART_KINDS[kind].gather(figure, make_grid()), CHART_KINDS[kind].preview)
    assert len(text.splitlines()) > 4
    assert max(map(len, text.splitlines())) < 200


def test_a_falling_line_starts_at_the_top_left_and_ends_at_the_bottom_right() -> None:
    run = make_run({}, 0, {"val/loss": [3.0, 2.0, 1.0]})
    chart = CHART_KINDS["curves"].gather(FigureSpec(metrics=("val/loss",)), [run])
    text = preview_chart(chart, preview_lines)
    rows = [line.partition("┤")[2] for line in text.splitlines() if "┤" in line]
    blank = "\u2800"
    assert rows[0][0] != blank
    assert rows[-1][0] == blank
    assert rows[-1].rstrip()[-1] != blank
    assert text.splitlines()[3].strip().startswith("3")


def test_an_empty_chart_says_so() -> None:
    run = make_run({}, 0, {}, status="planned")
    assert "nothing is recorded" in preview_chart(CHART_KINDS["curves"].gather(FigureSpec(), [run]), preview_lines)
