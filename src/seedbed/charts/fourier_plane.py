"""Number embeddings of modular arithmetic in the Fourier planes of their key frequencies, over training.

Once the model has learned the rule, the numbers lie on a circle. One row per step (the first checkpoint, one half-way,
the last), one column per frequency; a line joins neighbours in angle, 2πk / p apart. For products, the
p − 1 numbers stand in the order of their discrete logarithm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from seedbed.interp.analysis import Analysis, Floats, FrequencyPlane
from seedbed.specs import FigureSpec
from seedbed.stats.groups import filter_runs
from seedbed.stats.summary import RunCurves

if TYPE_CHECKING:
    import altair as alt

PANEL_PIXELS: Final = 200  # side of a plane
LABEL_OFFSET: Final = 0.2  # of a number's label beyond its dot, in mean radii
DATASET_COLUMNS: Final[dict[str, Any]] = {
    "plane": "number", "number": "number", "turn": "number", "x": "number", "y": "number", "out_x": "number",
    "out_y": "number",
}  # fmt: skip


@dataclass(frozen=True)
class PlanePanel:
    """One plane: the coordinates of each number, in units of the mean radius."""

    title: str
    frequency: int
    coordinates: Floats  # (n, 2)
    numbers: tuple[int, ...]  # of each row, in cyclic order

    @property
    def radius_spread(self) -> float:
        """The std of the radii, whose mean is 1: 0 on an exact circle."""
        return float(np.linalg.norm(self.coordinates, axis=1).std())


@dataclass(frozen=True)
class FourierPlanes:
    """The data of a chart of Fourier planes."""

    title: str
    n_columns: int
    panels: tuple[PlanePanel, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.panels


def gather_fourier_planes(figure: FigureSpec, runs: Sequence[RunCurves]) -> FourierPlanes:
    """The data of a `fourier` figure: the planes of the first run that has any, at three of its checkpoints."""
    run = next((run for run in filter_runs(runs, figure.only) if run.analyses and run.analyses[-1].planes), None)
    if run is None:
        return FourierPlanes(figure.title or "Numbers on circles", 1, (), (_reason_for_no_planes(runs),))
    analyses = _first_middle_last(run.analyses)
    panels = tuple(_plane_panel(analysis, plane) for analysis in analyses for plane in analysis.planes)
    last_row = panels[-len(analyses[-1].planes) :]
    spreads = ", ".join(f"{panel.frequency}: {panel.radius_spread:.2f}" for panel in last_row)
    return FourierPlanes(
        title=figure.title or "Numbers in the planes of their key frequencies",
        n_columns=len(analyses[-1].planes),
        panels=panels,
        notes=(
            f"Run {run.run.id}, seed {run.run.seed}. Std of the radius in the last row, whose mean is 1, by "
            f"frequency: {spreads} (0 on an exact circle).",
            *_logarithm_notes(last_row[0].numbers),
        ),
    )


def _reason_for_no_planes(runs: Sequence[RunCurves]) -> str:
    if runs and all(run.weights_error for run in runs):
        return "The circles are drawn from the weights."
    if any(run.run.settings.task.cyclic_order() for run in runs):
        return "`seedbed analyze` analyses the runs."
    return (
        "Only numbers that are added or subtracted modulo p, or multiplied or divided modulo a prime, lie on circles."
    )


def _logarithm_notes(numbers: Sequence[int]) -> tuple[str, ...]:
    """How products are turned into sums, if they are."""
    if numbers[0] == 0:
        return ()
    return (
        f"Numbers are joined in the order of their discrete logarithm to base {numbers[1]}, which turns products into "
        f"sums modulo {len(numbers)}.",
    )


def _first_middle_last(analyses: Sequence[Analysis]) -> list[Analysis]:
    """The first analysis, the one nearest half-way, and the last."""
    last = analyses[-1]
    middle = min(analyses, key=lambda analysis: abs(analysis.step - last.step / 2))
    return list({one.step: one for one in (analyses[0], middle, last) if one.planes}.values())


def _plane_panel(analysis: Analysis, plane: FrequencyPlane) -> PlanePanel:
    mean_radius = float(np.linalg.norm(plane.coordinates, axis=1).mean()) or 1.0
    title = f"step {analysis.step:,}, k = {plane.frequency}: {100 * plane.power_share:.0f} % of the power"
    numbers = plane.numbers or tuple(range(len(plane.coordinates)))
    return PlanePanel(title, plane.frequency, plane.coordinates / mean_radius, numbers)


# ---- as a picture ----


def draw_fourier_planes(planes: FourierPlanes) -> alt.ConcatChart:
    """The planes as Altair panels, numbers by colour."""
    import altair as alt

    from seedbed.charts.vega_lite import csv_dataset, wrapped_title

    data, block = csv_dataset(DATASET_COLUMNS, _dataset_rows(planes))
    limit = LABEL_OFFSET + 1.1 * max(float(np.abs(panel.coordinates).max()) for panel in planes.panels)
    panels = [_draw_panel(alt.Chart(data), index, panel, limit) for index, panel in enumerate(planes.panels)]
    chart = alt.concat(*panels, columns=planes.n_columns, title=wrapped_title(planes.title), datasets=block, spacing=20)
    return chart.resolve_scale(color="shared")


def _dataset_rows(planes: FourierPlanes) -> Iterator[tuple[float, ...]]:
    """One row per number in the order of their angles; the first again at the end closes the loop."""
    for index, panel in enumerate(planes.panels):
        p = len(panel.coordinates)
        # Multiples of the frequency reach every number if they have no common divisor, as always where p is prime.
        reaches_all = gcd(panel.frequency, p) == 1
        by_angle = [turn * pow(panel.frequency, -1, p) % p if reaches_all else turn for turn in range(p)]
        for turn, row in enumerate([*by_angle, by_angle[0]]):
            dot = panel.coordinates[row]
            label = dot * (1 + LABEL_OFFSET / max(float(np.linalg.norm(dot)), 0.1))
            yield index, panel.numbers[row], turn, *map(float, dot), *map(float, label)


def _draw_panel(base: alt.Chart, panel_index: int, panel: PlanePanel, limit: float) -> alt.LayerChart:
    import altair as alt

    panel_base = base.transform_filter(f"datum.plane == {panel_index}")
    scale = alt.Scale(domain=[-limit, limit], nice=False)
    axis = alt.Axis(grid=False, tickCount=3, format=".0f")
    x = alt.X("x:Q", title="cos, in mean radii", scale=scale, axis=axis)
    y = alt.Y("y:Q", title="sin", scale=scale, axis=axis)
    colour = alt.Color("number:Q", title="number", legend=alt.Legend(orient="right", tickCount=5, format="d"))
    line = panel_base.mark_line(strokeWidth=0.8, opacity=0.35, color="#8a8a8a", aria=False).encode(
        x=x, y=y, order="turn:Q"
    )
    dots = panel_base.mark_circle(size=60, opacity=1).encode(x=x, y=y, color=colour, tooltip=["number:Q"])
    labels = panel_base.mark_text(fontSize=9, aria=False).encode(
        x=alt.X("out_x:Q"), y=alt.Y("out_y:Q"), text="number:Q"
    )
    title = alt.TitleParams(text=panel.title, fontSize=11, offset=4)
    layers = alt.layer(line, dots, labels)
    return layers.properties(width=PANEL_PIXELS, height=PANEL_PIXELS, title=title)  # type: ignore[return-value]


# ---- in a terminal ----


def preview_fourier_planes(planes: FourierPlanes) -> str:
    """Each plane as text: the numbers at their coordinates."""
    return "\n\n".join(f"{panel.title}\n{_panel_as_text(panel)}" for panel in planes.panels)


def _panel_as_text(panel: PlanePanel, width: int = 42, height: int = 17) -> str:
    limit = float(np.abs(panel.coordinates).max()) or 1.0
    lines = [[" "] * (width + 4) for _ in range(height)]
    for number, (x, y) in zip(panel.numbers, panel.coordinates, strict=True):
        column, row = round((x / limit + 1) / 2 * width), round((1 - y / limit) / 2 * (height - 1))
        for offset, digit in enumerate(str(number)):
            lines[row][column + offset] = digit
    return "\n".join("".join(line).rstrip() for line in lines)
