"""Attention maps as charts: cells by value, labels on both axes, one scale, right-to-left text mirrored."""

from __future__ import annotations

import json
from dataclasses import replace

import altair as alt
import numpy as np
import pytest
import vl_convert

from seedbed.charts.attention_maps import (
    MAX_CELLS,
    draw_attention,
    gather_attention,
    isolate_mixed_direction,
    preview_attention,
)
from seedbed.charts.chart_kinds import CHART_KINDS
from seedbed.charts.render import to_pdf, to_svg
from seedbed.charts.terminal_preview import preview_chart
from seedbed.charts.theme import DARK_THEME, LIGHT_THEME
from seedbed.charts.vega_lite import to_vega_lite
from seedbed.errors import UsageError
from seedbed.interp.analysis import Analysis
from seedbed.interp.text_attention import TextAttention
from seedbed.specs import FigureSpec

from .factories import make_run, pixels


def make_maps(tokens, layers=2, heads=3, **changed):
    n = len(tokens)
    random = np.random.default_rng(0).random((layers, heads, n, n)) * np.tri(n)
    weights = random / random.sum(-1, keepdims=True)
    maps = TextAttention(
        "3f2a", 40, "".join(tokens), "attention", tuple(tokens), (False,) * n, weights, tuple(range(layers)),
        tuple(range(heads)),
    )  # fmt: skip
    return replace(maps, **changed)


EQUATION = make_maps(["BOS ", "6 ", "+ ", "6 ", "= "])
HEBREW = make_maps(list("ביאליק"), 1, 2)


def panels(spec):
    return [panel for grid in spec["vconcat"] for panel in grid["concat"]]


def test_there_is_a_panel_for_each_layer_and_head_and_a_row_of_heads_for_each_layer():
    chart = gather_attention([EQUATION])
    assert [panel.title for panel in chart.panels][3:] == [f"layer 2, head {head}" for head in (1, 2, 3)]
    assert chart.grids[0].n_columns == 3
    assert (chart.panels[4].weights == EQUATION.weights[1, 1]).all()


def test_both_axes_label_every_token_and_repeated_tokens_keep_their_cells():
    spec = to_vega_lite(draw_attention(gather_attention([EQUATION])))
    for panel in panels(spec):
        for axis in ("x", "y"):
            channel = panel["encoding"][axis]
            assert json.loads(channel["axis"]["labelExpr"].removesuffix("[datum.value]")) == ["BOS", "6", "+", "6", "="]
            assert channel["scale"]["domain"] == [0, 1, 2, 3, 4]
        assert panel["encoding"]["color"]["scale"]["domain"] == [0, 1]


def test_every_visible_cell_is_in_the_chart_with_its_weight():
    rows = [
        line.split(",")
        for line in to_vega_lite(draw_attention(gather_attention([EQUATION])))["datasets"]["rows"].split()
    ]
    cells = {tuple(map(int, row[:3])): float(row[3]) for row in rows[1:]}
    assert len(cells) == 6 * 15
    assert cells[4, 3, 2] == pytest.approx(EQUATION.weights[1, 1, 3, 2], rel=1e-5)


def test_right_to_left_text_has_its_first_token_and_its_row_labels_on_the_right():
    spec = to_vega_lite(draw_attention(gather_attention([HEBREW])))
    for panel in panels(spec):
        assert panel["encoding"]["x"]["scale"]["domain"] == [5, 4, 3, 2, 1, 0]
        assert panel["encoding"]["y"]["axis"]["orient"] == "right"
    assert (
        panels(to_vega_lite(draw_attention(gather_attention([EQUATION]))))[0]["encoding"]["y"]["axis"]["orient"]
        == "left"
    )


def test_right_to_left_pictures_are_mirrored():
    """The first row attends only to the first token, which is at the right end of a panel."""
    picture = pixels(
        vl_convert.svg_to_png(to_svg(to_vega_lite(draw_attention(gather_attention([HEBREW])), LIGHT_THEME)), scale=1)
    )
    dark = (np.abs(picture[..., :3].astype(int) - (21, 101, 176)).sum(-1) < 6).nonzero()
    blue = (picture[..., 2].astype(int) - picture[..., 0] > 20).nonzero()
    first_panel = dark[1] < picture.shape[1] // 2
    assert dark[1][first_panel].max() >= blue[1][blue[1] < picture.shape[1] // 3].max()


def test_only_labels_of_mixed_direction_are_isolated():
    assert isolate_mixed_direction("ביאליק") == "ביאליק"
    assert isolate_mixed_direction("שָׁלוֹם") == "שָׁלוֹם"
    assert isolate_mixed_direction("ביאליק 12") == "\u2067ביאליק 12\u2069"
    assert isolate_mixed_direction("12 + 8") == "12 + 8"


def test_samples_and_checkpoints_are_stacked_under_their_titles():
    later = replace(EQUATION, step=1_200)
    chart = gather_attention([EQUATION, later])
    assert [grid.title for grid in chart.grids] == ["BOS 6 + 6 =, step 40", "BOS 6 + 6 =, step 1,200"]
    other = replace(EQUATION, text="7 + 7 =")
    assert [grid.title for grid in gather_attention([EQUATION, other]).grids][1] == "7 + 7 =, step 40"
    assert gather_attention([EQUATION, replace(EQUATION, run="81cc")]).grids[1].title.endswith("step 40, run 81cc")
    assert len(to_vega_lite(draw_attention(chart))["vconcat"]) == 2


@pytest.mark.parametrize("theme", [LIGHT_THEME, DARK_THEME])
def test_the_chart_is_valid_and_the_same_picture_every_time(theme):
    chart = draw_attention(gather_attention([EQUATION, HEBREW]))
    alt.VConcatChart.from_dict(chart.to_dict())
    svg = to_svg(to_vega_lite(chart, theme))
    assert svg == to_svg(to_vega_lite(draw_attention(gather_attention([EQUATION, HEBREW])), theme))
    assert "layer 2, head 3" in svg
    assert "attention weight" in svg
    assert to_pdf(svg)[:4] == b"%PDF"


def test_too_many_cells_are_refused_with_a_suggestion():
    n = int((MAX_CELLS / 6) ** 0.5) + 1
    with pytest.raises(UsageError, match="choose with --layer and --head"):
        draw_attention(gather_attention([make_maps(["a"] * n)]))


def test_the_terminal_shows_hundredths_by_token():
    weights = np.array([[[[1, 0], [0.25, 0.75]]]])
    maps = make_maps(["to ", "be"], 1, 1, weights=weights)
    lines = preview_attention(gather_attention([maps])).splitlines()
    assert "     to  be" in lines
    assert "be   25  75" in lines
    assert "to  100" in lines


def test_the_terminal_shades_long_texts_and_puts_right_to_left_labels_last():
    long = preview_attention(gather_attention([make_maps(list("to be or not to be that is"), 1, 1)]))
    assert "█" in long
    assert "shades:" in long
    first = preview_attention(gather_attention([HEBREW])).splitlines()[4]
    assert first.endswith("ב")
    assert "100" in first


# ---- as a figure of a study ----


def with_analysis(config, seed, *maps, errors=None):
    analysis = Analysis("3f2a", 40, "", "val", 9, {}, tuple(maps), attention_errors=errors or {})
    return replace(make_run(config, seed, {"val/loss": [1.0]}), analyses=(analysis,))


def test_a_figure_shows_one_seed_per_config_and_the_layers_and_heads_that_exist():
    figure = FigureSpec(kind="attention", text=EQUATION.text, layers=(2, 9), heads=(1, 3))
    runs = [with_analysis({"model.dim": dim}, seed, EQUATION) for dim in (8, 16) for seed in (0, 1)]
    chart = CHART_KINDS["attention"].gather(figure, runs)
    assert [panel.title for panel in chart.panels] == ["layer 2, head 1", "layer 2, head 3"] * 2
    assert ["width 8" in grid.title for grid in chart.grids] == [True, False]
    assert "One seed per config" in chart.notes[0]
    np.testing.assert_array_equal(chart.panels[1].weights, EQUATION.weights[1, 2])
    assert "layer 2, head 3" in preview_chart(chart, preview_attention)


def test_a_config_that_cannot_read_the_text_is_named_beside_the_maps_of_the_others():
    figure = FigureSpec(kind="attention", text=EQUATION.text)
    runs = [
        with_analysis({"task.p": 7}, 0, EQUATION),
        with_analysis({"task.p": 5}, 0, errors={EQUATION.text: "'6' is no token"}),
    ]
    assert "Not shown for modulus 5: '6' is no token." in CHART_KINDS["attention"].gather(figure, runs).notes


def test_a_figure_without_maps_says_why():
    figure = FigureSpec(kind="attention", text="too long")
    chart = CHART_KINDS["attention"].gather(figure, [with_analysis({}, 0, errors={"too long": "it has 99 tokens"})])
    assert chart.is_empty
    assert chart.notes == ("Not shown: it has 99 tokens.",)
    not_analysed = CHART_KINDS["attention"].gather(figure, [make_run({}, 0, {"val/loss": [1.0]})])
    assert "seedbed analyze" in not_analysed.notes[0]
