"""Every chart kind as a picture: not blank, in both themes; right-to-left text in order; equal bytes every time."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pytest
import vl_convert

from seedbed.charts.chart_kinds import CHART_KINDS
from seedbed.charts.render import namespace_svg_ids, render, to_pdf, to_png, to_svg
from seedbed.charts.theme import DARK_THEME, LIGHT_THEME, Theme
from seedbed.charts.vega_lite import as_altair, fit_width, paper_spec, readable_ticks, to_vega_lite, without_interaction
from seedbed.specs import FigureSpec
from seedbed.stats.summary import RunCurves

from .factories import EQUATION, make_grid, make_run, pixels

FOUR = ("train/loss", "val/loss", "train/accuracy", "val/accuracy")
FIGURES = {
    "curves": FigureSpec(metrics=FOUR),
    "curves, colour bar": FigureSpec(
        metrics=FOUR[:2], colour="train.batch_size", colour_scale="log2", column="model.kind"
    ),
    "curves, dash": FigureSpec(metrics=("val/loss",), colour="train.batch_size", dash="model.kind", x="epoch"),
    "curves, log": FigureSpec(metrics=("norm", "val/loss"), x_scale="log", y_scale="log", colour="model.kind"),
    "curves, stopping": FigureSpec(metrics=FOUR, stopping="val/loss", column="model.kind", x_scale="log"),
    "curves, gap": FigureSpec(metrics=("val/accuracy",), value="gap", colour="model.kind", x="time"),
    "against": FigureSpec(kind="sweep", metrics=FOUR, x="train.batch_size", x_scale="log2", y_scale="log"),
    "against, alpha": FigureSpec(kind="sweep", metrics=("val/loss",), x="train.batch_size", colour="alpha"),
    "against, words": FigureSpec(kind="sweep", metrics=("val/loss",), x="model.kind", colour="train.batch_size"),
    "against, parameters": FigureSpec(kind="sweep", metrics=("val/loss",), x="parameters", dash="model.kind"),
    "bars": FigureSpec(kind="bars", value="seconds", x="train.batch_size", colour="model.kind"),
    "bars, log": FigureSpec(kind="bars", metrics=("val/loss",), x="model.kind", y_scale="log"),
    "level": FigureSpec(
        kind="budget", metrics=("val/loss",), x="train.batch_size", column="model.kind", x_scale="log2"
    ),
    "parallel": FigureSpec(kind="parallel", metrics=("val/loss",)),
    "attention": FigureSpec(kind="attention", text=EQUATION, heads=(1,)),
    "circle": FigureSpec(kind="fourier"),
}


def grid_of_batches(n: int) -> list[RunCurves]:
    values = {"train/loss": [3.0, 2.0, 1.0], "val/loss": [3.0, 2.5, 2.0]}
    return [make_run({"train.batch_size": 2**i}, 0, values) for i in range(n)]


def draw(figure: FigureSpec, runs: list[RunCurves]) -> Any:
    kind = CHART_KINDS[figure.kind]
    return kind.draw(kind.gather(figure, runs))


def render_svg(figure: FigureSpec, runs: list[RunCurves], theme: Theme = LIGHT_THEME) -> str:
    return to_svg(without_interaction(to_vega_lite(draw(figure, runs), theme)))


def drawn_share(png: bytes) -> float:
    """The share of the picture that is not its background."""
    picture = pixels(png)[..., :3].astype(int)
    return float((np.abs(picture - picture[2, 2]).sum(axis=-1) > 60).mean())


DARK_FIGURES = [(name, DARK_THEME) for name in ("curves, colour bar", "against", "bars", "level", "parallel")]


@pytest.mark.parametrize(("name", "theme"), [*((name, LIGHT_THEME) for name in FIGURES), *DARK_FIGURES])
def test_every_kind_is_a_picture_with_something_on_it(name: str, theme: Theme) -> None:
    png = vl_convert.svg_to_png(render_svg(FIGURES[name], make_grid(), theme), scale=0.4)
    picture = pixels(png)[..., :3]
    background = tuple(int(theme.background_colour[i : i + 2], 16) for i in (1, 3, 5))
    assert tuple(picture[2, 2]) == background
    assert 0.01 < drawn_share(png) < 0.6
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 20  # lines, text and their smooth edges


def test_every_kind_has_a_figure_here() -> None:
    assert {figure.kind for figure in FIGURES.values()} == set(CHART_KINDS)


def test_a_blank_picture_would_fail() -> None:
    empty = alt.Chart(alt.InlineData(values=[])).mark_point().properties(width=200, height=100)
    assert drawn_share(to_png(to_svg(to_vega_lite(empty, LIGHT_THEME)))) < 0.01


@pytest.mark.parametrize("name", FIGURES)
def test_every_kind_is_valid_vega_lite(name: str) -> None:
    as_altair(draw(FIGURES[name], make_grid())).to_dict(validate=True)


@pytest.mark.parametrize("name", ["curves, colour bar", "level"])
def test_equal_charts_are_equal_files(name: str) -> None:
    first, second = (render_svg(FIGURES[name], make_grid()) for _ in range(2))
    assert first == second
    assert to_png(first) == to_png(second)
    assert len({to_pdf(first) for _ in range(6)}) == 1


def test_many_numbers_have_a_colour_bar_and_categories_a_legend_of_dashes() -> None:
    few, many = (render_svg(FIGURES["curves, colour bar"], grid_of_batches(n)) for n in (5, 9))
    assert "linearGradient" in many
    assert "linearGradient" not in few  # each has a colour of its own in the legend
    assert all(f">{2**i}</text>" in few for i in range(5))
    assert "stroke-dasharray" in render_svg(FIGURES["curves"], make_grid())


def test_a_band_is_not_drawn_through_a_gap() -> None:
    values = [3.0, 2.0, float("nan"), 1.0, 0.5]
    whole = [make_run({}, seed, {"val/loss": [3.0, 2.0, 1.5, 1.0, 0.5]}) for seed in (0, 1)]
    broken = [make_run({}, seed, {"val/loss": values}) for seed in (0, 1)]
    figure = FigureSpec(metrics=("val/loss",))
    assert _n_strokes(render_svg(figure, whole)) + 1 == _n_strokes(render_svg(figure, broken))


def test_a_single_evaluation_is_visible() -> None:
    svg = render_svg(FigureSpec(metrics=("val/loss",)), [make_run({}, 0, {"val/loss": [2.0]}, steps=[100])])
    assert svg.count('aria-roledescription="point"') == 1


def _n_strokes(svg: str) -> int:
    """The number of separate strokes in the lines of a chart."""
    lines = svg.split('class="mark-line')[1].split("</g>")[0]
    return lines.split(' d="')[1].split('"')[0].count("M")


# ---- widths ----


def rendered_width(spec: dict[str, Any]) -> float:
    return float(to_svg(without_interaction(spec)).split('width="')[1].split('"')[0])


@pytest.mark.parametrize("width", [360, 700, 1100])
@pytest.mark.parametrize("name", ["curves", "curves, stopping", "against", "bars", "level", "parallel"])
def test_a_chart_fits_the_width_of_a_page(name: str, width: int) -> None:
    spec = to_vega_lite(draw(FIGURES[name], make_grid()), LIGHT_THEME)
    assert rendered_width(fit_width(spec, width)) <= width * 1.06 + 12


@pytest.mark.parametrize("width", [300, 700, 1100])
def test_the_names_of_lines_fit_beside_the_panel_and_are_not_clipped(width: int) -> None:
    """Zooming would clip them with the lines."""
    runs = [make_run({"model.kind": kind}, 0, {"val/loss": [3.0, end]}) for kind, end in (("gpt", 1.0), ("lstm", 2.0))]
    figure = FigureSpec(metrics=("val/loss",), colour="model.kind")
    spec = fit_width(to_vega_lite(draw(figure, runs), LIGHT_THEME), width)
    [panel] = spec["concat"]
    assert panel["width"] + spec["usermeta"]["fit"]["side"] < width
    [names] = [layer for layer in panel["layer"] if layer["mark"].get("align") == "left"]
    assert names["mark"]["clip"] is False
    assert names["encoding"]["x"] == {"value": "width"}
    assert rendered_width(spec) <= width


def test_a_legend_of_long_names_below_the_panels_fits_a_narrow_page() -> None:
    runs = [
        make_run({"model.kind": kind, "task.operator": sign}, 0, {"val/loss": [3.0, 1.0]})
        for kind in ("gpt", "lstm") for sign in ("+", "-")
    ]  # fmt: skip
    figure = FigureSpec(metrics=("val/loss",), colour="model.kind+task.operator")
    spec = fit_width(to_vega_lite(draw(figure, runs), LIGHT_THEME), 360)
    assert spec["config"]["legend"]["columns"] < 3
    assert rendered_width(spec) <= 360 * 1.06 + 12


def test_symbols_at_the_ends_of_an_axis_have_room() -> None:
    """A page clips marks at the edges of a panel, where an accuracy of 1 would lose half of its symbol."""
    figure = FIGURES["against"].model_copy(update={"metrics": ("val/accuracy",)})
    [panel] = to_vega_lite(draw(figure, make_grid()))["concat"]
    scales = [layer["encoding"]["y"]["scale"] for layer in panel["layer"] if layer["mark"]["type"] == "point"]
    assert [(scale["domain"], scale["nice"], scale["padding"]) for scale in scales] == [([0, 1], False, 8)] * 2


def test_where_panels_are_rewrapped_each_has_its_titles_and_the_legend_is_below() -> None:
    figure = FIGURES["against"].model_copy(update={"metrics": FOUR[:2], "column": "train.lr", "colour": "model.kind"})
    runs = [make_run({"model.kind": kind, "train.lr": lr}, 0, {name: [2.0, 1.0] for name in FOUR})
            for kind in ("gpt", "lstm") for lr in (0.1, 0.2)]  # fmt: skip
    wide = to_vega_lite(draw(figure, runs), LIGHT_THEME)
    spec = fit_width(wide, 300)
    assert spec["columns"] == 1
    assert spec["spacing"]["row"] > wide["spacing"]["row"]  # room for the titles between two panels
    heads = ["learning rate = 0.1", "learning rate = 0.2"]
    assert [panel["title"]["text"] for panel in spec["concat"]] == heads * 2
    axes = [panel["layer"][-1]["encoding"]["y"]["title"] for panel in spec["concat"]]
    assert axes == ["lowest training loss (nats)"] * 2 + ["lowest validation loss (nats)"] * 2
    legends = [
        [bool(layer["encoding"].get("shape", {}).get("legend")) for layer in panel["layer"]] for panel in spec["concat"]
    ]
    assert [any(found) for found in legends] == [False, False, False, True]


def test_paper_is_a_column_wide_without_a_title_and_embeds_its_font() -> None:
    spec = paper_spec(to_vega_lite(draw(FIGURES["curves, log"], make_grid()), LIGHT_THEME))
    assert "title" not in spec
    assert rendered_width(spec) <= 504
    one = paper_spec(to_vega_lite(draw(FigureSpec(metrics=("val/loss",), title="gone"), make_grid()), LIGHT_THEME))
    svg = render(without_interaction(one), "svg", in_points=True).decode()
    assert "gone" not in svg
    assert 180 < float(svg.split('width="')[1].split('pt"')[0]) <= 240
    pdf = render(without_interaction(one), "pdf")
    assert b"+LiberationSans" in pdf
    assert b"FontFile" in pdf


def test_the_wheel_zooms_with_ctrl_alone() -> None:
    params = to_vega_lite(draw(FIGURES["curves"], make_grid()))["params"]
    assert {param["select"]["zoom"] for param in params} == {"wheel![event.ctrlKey]"}


def test_lines_that_coincide_are_drawn_one_wider_than_the_other() -> None:
    losses = ((1, [3.0, 2.0, 1.0]), (2, [3.0, 2.0, 1.0]), (3, [4.0, 3.0, 2.0]))
    runs = [make_run({"train.lr": lr}, 0, {"val/loss": values}) for lr, values in losses]
    rows = to_vega_lite(draw(FigureSpec(metrics=("val/loss",)), runs))["datasets"]["lines"].splitlines()
    widths = [float(row.rpartition(",")[2]) for row in rows[1:]]
    assert widths[0] > widths[1] == widths[2]


@pytest.mark.parametrize(("values", "ticks"), [((8, 32, 1024), [8, 32, 1024]), ((1232, 4496, 67088), None)])
def test_ticks_are_at_the_values_only_if_these_are_round(values: tuple[float, ...], ticks: list[float] | None) -> None:
    assert readable_ticks(values, (values[0], values[-1]), "log2", 300) == ticks


# ---- right to left ----


def small_pixels(svg: str) -> np.ndarray:
    return pixels(vl_convert.svg_to_png(svg, scale=1.0))


def title_pixels(title: str) -> np.ndarray:
    runs = [make_run({}, 0, {"val/loss": [2.0, 1.0]})]
    return small_pixels(render_svg(FigureSpec(metrics=("val/loss",), title=title), runs))


def test_mixed_hebrew_labels_are_laid_out_from_the_right() -> None:
    # From the left, a right-to-left line begins with its last word: it looks like a left-to-right line of the same
    # words in reverse order.
    shown = title_pixels("אבגד — words")
    plain = draw(FigureSpec(metrics=("val/loss",), title="x"), [make_run({}, 0, {"val/loss": [2.0, 1.0]})])
    plain["title"]["text"] = ["words — אבגד"]
    expected = small_pixels(to_svg(without_interaction(to_vega_lite(plain, LIGHT_THEME))))
    plain["title"]["text"] = ["אבגד — words"]  # the negative control: without isolates the order is wrong
    wrong = small_pixels(to_svg(without_interaction(to_vega_lite(plain, LIGHT_THEME))))
    assert shown.shape == expected.shape == wrong.shape
    assert np.array_equal(shown, expected)
    assert not np.array_equal(shown, wrong)


def test_hebrew_values_are_isolated_in_legend_and_panel() -> None:
    runs = [
        make_run({"model.kind": "gpt"}, 0, {"val/loss": [2.0, 1.0], "val/loss[poet=ביאליק]": [3.0, 2.0]}),
    ]
    svg = render_svg(FigureSpec(metrics=("val/loss", "val/loss[poet=ביאליק]"), colour="model.kind"), runs)
    assert "\u2067" in svg
    assert "ביאליק" in svg


# ---- in a page ----


def test_pictures_in_one_page_keep_their_ids_apart() -> None:
    svg = render_svg(FIGURES["curves, colour bar"], grid_of_batches(9))
    both = namespace_svg_ids(svg, "one") + namespace_svg_ids(svg, "two")
    ids = [part.split('"')[0] for part in both.split(' id="')[1:]]
    assert ids
    assert len(ids) == len(set(ids))
    assert all(f"#{name}" in both for name in ids)


def test_names_with_markup_stay_text_in_a_picture() -> None:
    runs = [make_run({}, 0, {"val/loss": [2.0, 1.0]})]
    svg = render_svg(FigureSpec(metrics=("val/loss",), title="<script>alert(1)</script> & co"), runs)
    assert "<script" not in svg
    assert "&lt;script" in svg
