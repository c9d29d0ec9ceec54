"""The numbers of modular arithmetic in the planes of their key frequencies, over training: a circle where the rule is.

A row a step (the first kept, one half-way, the last), a column a frequency; a line goes round in turns of 2πk / p.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from seedbed.charts.run_selection import select_runs
from seedbed.interp.analysis import Analysis, Floats, FrequencyPlane
from seedbed.specs import FigureSpec
from seedbed.stats.summary import RunCurves

if TYPE_CHECKING:
    import altair as alt

PANEL_PIXELS: Final = 200  # pixels of a plane
LABEL_OFFSET: Final = 0.2  # mean distances that a number's name stands further out than its dot
COLUMNS: Final[dict[str, Any]] = {
    "plane": "number", "number": "number", "turn": "number", "x": "number", "y": "number", "out_x": "number",
    "out_y": "number",
}  # fmt: skip


@dataclass(frozen=True)
class PlanePanel:
    """One plane: where each number stands, as multiples of the mean distance from the middle."""

    title: str
    frequency: int
    coordinates: Floats  # (p, 2)

    @property
    def radius_spread(self) -> float:
        """The std of the distances from the middle, whose mean is 1: 0 on an exact circle."""
        return float(np.linalg.norm(self.coordinates, axis=1).std())


@dataclass(frozen=True)
class FourierPlanes:
    """A chart of planes, gathered."""

    title: str
    n_columns: int
    panels: tuple[PlanePanel, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.panels


def gather_fourier_planes(figure: FigureSpec, runs: Sequence[RunCurves]) -> FourierPlanes:
    """The planes of a figure of kind `circle`: of the first run that has some, at three of its kept steps."""
    run = next((run for run in select_runs(runs, figure) if run.analyses and run.analyses[-1].planes), None)
    if run is None:
        return FourierPlanes(figure.title or "Numbers on circles", 1, (), ("`seedbed report` looks into runs.",))
    looks = _first_middle_last(run.analyses)
    rings = tuple(_plane_panel(look, plane) for look in looks for plane in look.planes)
    last = rings[-len(looks[-1].planes) :]
    said = ", ".join(f"{ring.frequency}: {ring.radius_spread:.2f}" for ring in last)
    return FourierPlanes(
        title=figure.title or "Numbers in the planes of their key frequencies",
        n_columns=len(looks[-1].planes),
        panels=rings,
        notes=(
            f"Run {run.run.id}, seed {run.run.seed}. Std of the distance from the middle in the last row, whose mean "
            f"is 1, by frequency: {said} (0 on an exact circle).",
        ),
    )


def _first_middle_last(analyses: Sequence[Analysis]) -> list[Analysis]:
    """The first, one half-way, and the last."""
    last = analyses[-1]
    middle = min(analyses, key=lambda look: abs(look.step - last.step / 2))
    return list({look.step: look for look in (analyses[0], middle, last) if look.planes}.values())


def _plane_panel(analysis: Analysis, plane: FrequencyPlane) -> PlanePanel:
    size = float(np.linalg.norm(plane.coordinates, axis=1).mean()) or 1.0
    title = f"step {analysis.step:,}, k = {plane.frequency}: {100 * plane.power_share:.0f} % of the power"
    return PlanePanel(title, plane.frequency, plane.coordinates / size)


# ---- as a picture ----


def draw_fourier_planes(planes: FourierPlanes) -> alt.ConcatChart:
    """The gathered planes, coloured by number."""
    import altair as alt

    from seedbed.charts.vega_lite import csv_dataset, wrapped_title

    data, block = csv_dataset(COLUMNS, _rows(planes))
    reach = LABEL_OFFSET + 1.1 * max(float(np.abs(ring.coordinates).max()) for ring in planes.panels)
    panels = [_draw_panel(alt.Chart(data), place, ring, reach) for place, ring in enumerate(planes.panels)]
    chart = alt.concat(*panels, columns=planes.n_columns, title=wrapped_title(planes.title), datasets=block, spacing=20)
    return chart.resolve_scale(color="shared")


def _rows(planes: FourierPlanes) -> Iterator[tuple[float, ...]]:
    """A row a number, and its first once more at the end of its round."""
    for place, ring in enumerate(planes.panels):
        p = len(ring.coordinates)
        round_trip = (
            [turn * pow(ring.frequency, -1, p) % p for turn in range(p)]
            if _visits_all_numbers(ring, p)
            else list(range(p))
        )
        for turn, number in enumerate([*round_trip, round_trip[0]]):
            at = ring.coordinates[number]
            out = at * (1 + LABEL_OFFSET / max(float(np.linalg.norm(at)), 0.1))
            yield place, number, turn, *map(float, at), *map(float, out)


def _visits_all_numbers(panel: PlanePanel, p: int) -> bool:
    """Whether steps of this frequency come by all numbers, as they do for a prime."""
    return bool(np.gcd(panel.frequency, p) == 1)


def _draw_panel(base: alt.Chart, panel_index: int, panel: PlanePanel, limit: float) -> alt.LayerChart:
    import altair as alt

    own = base.transform_filter(f"datum.plane == {panel_index}")
    scale = alt.Scale(domain=[-limit, limit], nice=False)
    axis = alt.Axis(grid=False, tickCount=3, format=".0f")
    x = alt.X("x:Q", title="cos, in mean distances", scale=scale, axis=axis)
    y = alt.Y("y:Q", title="sin", scale=scale, axis=axis)
    colour = alt.Color("number:Q", title="number", legend=alt.Legend(orient="right", tickCount=5, format="d"))
    line = own.mark_line(strokeWidth=0.8, opacity=0.35, color="#8a8a8a", aria=False).encode(x=x, y=y, order="turn:Q")
    dots = own.mark_circle(size=60, opacity=1).encode(x=x, y=y, color=colour, tooltip=["number:Q"])
    names = own.mark_text(fontSize=9, aria=False).encode(x=alt.X("out_x:Q"), y=alt.Y("out_y:Q"), text="number:Q")
    title = alt.TitleParams(text=panel.title, fontSize=11, offset=4)
    layers = alt.layer(line, dots, names)
    return layers.properties(width=PANEL_PIXELS, height=PANEL_PIXELS, title=title)  # type: ignore[return-value]


# ---- in a terminal ----


def preview_fourier_planes(planes: FourierPlanes) -> str:
    """Each plane as letters on a small field: numbers where they stand."""
    return "\n\n".join(f"{ring.title}\n{_panel_as_text(ring)}" for ring in planes.panels)


def _panel_as_text(panel: PlanePanel, width: int = 42, height: int = 17) -> str:
    reach = float(np.abs(panel.coordinates).max()) or 1.0
    lines = [[" "] * (width + 4) for _ in range(height)]
    for number, (x, y) in enumerate(panel.coordinates):
        column, row = round((x / reach + 1) / 2 * width), round((1 - y / reach) / 2 * (height - 1))
        for at, sign in enumerate(str(number)):
            lines[row][column + at] = sign
    return "\n".join("".join(line).rstrip() for line in lines)
