"""Every chart kind as a picture: not blank, in both themes; right-to-left text in order; equal bytes every time."""

from __future__ import annotations

import altair as alt
import numpy as np
import pytest
import vl_convert

from seedbed.charts.chart_kinds import CHART_KINDS
from seedbed.charts.render import namespace_svg_ids, to_pdf, to_png, to_svg
from seedbed.charts.theme import DARK_THEME, LIGHT_THEME, Theme
from seedbed.charts.vega_lite import to_vega_lite, without_interaction
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


def draw(figure: FigureSpec, runs: list[RunCurves]) -> alt.ConcatChart:
    kind = CHART_KINDS[figure.kind]
    chart: alt.ConcatChart = kind.draw(kind.gather(figure, runs))
    return chart


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
    draw(FIGURES[name], make_grid()).to_dict(validate=True)


@pytest.mark.parametrize("name", ["curves, colour bar", "level"])
def test_equal_charts_are_equal_files(name: str) -> None:
    first, second = (render_svg(FIGURES[name], make_grid()) for _ in range(2))
    assert first == second
    assert to_png(first) == to_png(second)
    assert len({to_pdf(first) for _ in range(6)}) == 1


def test_numbers_have_a_colour_bar_and_categories_a_legend_of_dashes() -> None:
    assert "linearGradient" in render_svg(FIGURES["curves, colour bar"], make_grid())
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
    plain.title.text = ["words — אבגד"]
    expected = small_pixels(to_svg(without_interaction(to_vega_lite(plain, LIGHT_THEME))))
    plain.title.text = ["אבגד — words"]  # the negative control: without isolates the order is wrong
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
    svg = render_svg(FIGURES["curves, colour bar"], make_grid())
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
