"""Fourier planes as a chart: the right steps, the right order of numbers, both themes."""

from __future__ import annotations

import json
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

from .factories import make_run, pixels

P = 7
KIND, FIGURE = CHART_KINDS["fourier"], FigureSpec(kind="fourier")


def make_plane(k, size=2.0):
    angle = 2 * np.pi * k * np.arange(P) / P
    return FrequencyPlane(k, 0.4, size * np.stack([np.cos(angle), np.sin(angle)], axis=1))


TWO_PLANES = (make_plane(3), make_plane(1))


def analysed_run(steps=(5, 10, 55, 100), planes=TWO_PLANES):
    analyses = tuple(Analysis("r", step, "", "val", 9, {}, planes=planes) for step in steps)
    return replace(make_run({}, 4, {"val/loss": [1.0]}), analyses=analyses)


def test_the_first_middle_and_last_analysis_are_shown_with_one_column_per_frequency():
    chart = KIND.gather(FIGURE, [make_run({}, 0, {}), analysed_run()])
    assert chart.n_columns == 2
    assert [panel.title.partition(":")[0] for panel in chart.panels] == [
        f"step {step}, k = {k}" for step in (5, 55, 100) for k in (3, 1)
    ]


def test_coordinates_are_in_mean_radii_and_a_circle_has_no_spread():
    (panel, *_) = KIND.gather(FIGURE, [analysed_run()]).panels
    np.testing.assert_allclose(np.linalg.norm(panel.coordinates, axis=1), 1)
    assert panel.radius_spread == pytest.approx(0, abs=1e-12)


def test_the_line_follows_the_order_of_the_angles():
    spec = to_vega_lite(KIND.draw(KIND.gather(FIGURE, [analysed_run((9,), (make_plane(3),))])))
    (block,) = spec["datasets"].values()
    rows = [list(map(float, line.split(","))) for line in block.splitlines()[1:]]
    assert [int(row[1]) for row in rows] == [0, 5, 3, 1, 6, 4, 2, 0]
    steps = np.diff(np.unwrap([np.arctan2(row[4], row[3]) for row in rows]))
    np.testing.assert_allclose(steps, 2 * np.pi / P, atol=1e-4)
    alt.Chart.from_dict(spec)


@pytest.mark.parametrize("theme", [LIGHT_THEME, DARK_THEME])
def test_it_is_drawn_in_both_themes(theme):
    picture = pixels(to_png(to_svg(to_vega_lite(KIND.draw(KIND.gather(FIGURE, [analysed_run()])), theme))))[..., :3]
    assert (picture != picture[0, 0]).any(-1).mean() > 0.01


def test_a_terminal_shows_every_number_once():
    text = preview_chart(KIND.gather(FIGURE, [analysed_run((9,), (make_plane(1),))]), KIND.preview)
    panel = text.splitlines()[3:-1]  # between the titles and the note
    assert all(sum(str(number) in line for line in panel) == 1 for number in range(P))


def test_without_an_analysis_the_chart_is_empty_and_says_so():
    chart = KIND.gather(FIGURE, [make_run({}, 0, {"val/loss": [1.0]})])
    assert chart.is_empty
    assert "analyses the runs" in chart.notes[0]


def test_products_are_joined_by_their_logarithm_and_labelled_by_their_number():
    powers = (1, 3, 2, 6, 4, 5)
    angle = 2 * np.pi * np.arange(6) / 6
    plane = FrequencyPlane(1, 0.4, np.stack([np.cos(angle), np.sin(angle)], axis=1), powers)
    chart = KIND.gather(FIGURE, [analysed_run((9,), (plane,))])
    (block,) = to_vega_lite(KIND.draw(chart))["datasets"].values()
    assert [int(line.split(",")[1]) for line in block.splitlines()[1:]] == [1, 3, 2, 6, 4, 5, 1]
    assert "discrete logarithm to base 3, which turns products into sums modulo 6" in chart.notes[-1]
    stored = Analysis.from_json(json.loads(json.dumps(analysed_run((9,), (plane,)).analyses[0].as_json())))
    assert stored.planes[0].numbers == powers


def test_a_task_without_a_cyclic_order_is_refused():
    run = make_run({"task.p": 12, "task.operator": "*"}, 0, {"val/loss": [1.0]})
    assert "multiplied or divided modulo a prime" in KIND.gather(FIGURE, [run]).notes[0]
    assert "`seedbed analyze` analyses the runs." in KIND.gather(FIGURE, [make_run({}, 0, {})]).notes[0]
