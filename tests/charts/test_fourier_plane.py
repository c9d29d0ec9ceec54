"""Numbers in the planes of their frequencies as a chart: the right steps, the right order round, both looks."""

from __future__ import annotations

from dataclasses import replace

import altair as alt
import numpy as np
import pytest

from seedbed.charts.chart_kinds import CHART_KINDS
from seedbed.charts.render import to_png, to_svg
from seedbed.charts.terminal_preview import preview_chart
from seedbed.charts.theme import DARK_THEME, LIGHT_THEME
from seedbed.charts.vega_lite import to_vega_lite
from seedbed.interp.analysis import Analysis, FrequencyPlane
from seedbed.specs import FigureSpec

from .factories import made_run, pixels

P = 7
KIND, FIGURE = CHART_KINDS["fourier"], FigureSpec(kind="fourier")


def ring(k, size=2.0):
    turn = 2 * np.pi * k * np.arange(P) / P
    return FrequencyPlane(k, 0.4, size * np.stack([np.cos(turn), np.sin(turn)], axis=1))


TWO = (ring(3), ring(1))


def made(steps=(5, 10, 55, 100), planes=TWO):
    analyses = tuple(Analysis("r", step, "", "val", 9, {}, planes=planes) for step in steps)
    return replace(made_run({}, 4, {"val/loss": [1.0]}), analyses=analyses)


def test_the_first_the_middle_and_the_last_look_are_shown_with_a_column_a_frequency():
    gathered = KIND.gather(FIGURE, [made_run({}, 0, {}), made()])
    assert gathered.n_columns == 2
    assert [one.title.partition(":")[0] for one in gathered.panels] == [
        f"step {step}, k = {k}" for step in (5, 55, 100) for k in (3, 1)
    ]


def test_distances_are_told_in_their_mean_and_a_circle_has_no_spread():
    (one, *_) = KIND.gather(FIGURE, [made()]).panels
    np.testing.assert_allclose(np.linalg.norm(one.coordinates, axis=1), 1)
    assert one.radius_spread == pytest.approx(0, abs=1e-12)


def test_the_line_goes_round_in_the_order_of_the_angles():
    spec = to_vega_lite(KIND.draw(KIND.gather(FIGURE, [made((9,), (ring(3),))])))
    (block,) = spec["datasets"].values()
    rows = [list(map(float, line.split(","))) for line in block.splitlines()[1:]]
    assert [int(row[1]) for row in rows] == [0, 5, 3, 1, 6, 4, 2, 0]
    steps = np.diff(np.unwrap([np.arctan2(row[4], row[3]) for row in rows]))
    np.testing.assert_allclose(steps, 2 * np.pi / P, atol=1e-4)
    alt.Chart.from_dict(spec)


@pytest.mark.parametrize("look", [LIGHT_THEME, DARK_THEME])
def test_it_is_drawn_in_both_looks(look):
    picture = pixels(to_png(to_svg(to_vega_lite(KIND.draw(KIND.gather(FIGURE, [made()])), look))))[..., :3]
    assert (picture != picture[0, 0]).any(-1).mean() > 0.01


def test_a_terminal_shows_every_number_where_it_stands():
    shown = preview_chart(KIND.gather(FIGURE, [made((9,), (ring(1),))]))
    field = shown.splitlines()[3:-1]  # between the titles and the note
    assert all(sum(str(number) in line for line in field) == 1 for number in range(P))


def test_without_a_look_nothing_is_drawn_and_it_is_said():
    gathered = KIND.gather(FIGURE, [made_run({}, 0, {"val/loss": [1.0]})])
    assert gathered.is_empty
    assert "looks into runs" in gathered.notes[0]
