"""The numbers of modular arithmetic in the planes of their key frequencies, over training: a circle where the rule is.

A row a step (the first kept, one half-way, the last), a column a frequency; a line goes round in turns of 2πk / p.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from seedbed.charts.axes import chosen
from seedbed.inside.looks import Floats, Look, Plane
from seedbed.measures.summary import RunCurves
from seedbed.shown import Figure

if TYPE_CHECKING:
    import altair as alt

SIDE: Final = 200  # pixels of a plane
OUTWARD: Final = 0.2  # mean distances that a number's name stands further out than its dot
COLUMNS: Final[dict[str, Any]] = {
    "plane": "number", "number": "number", "turn": "number", "x": "number", "y": "number", "out_x": "number",
    "out_y": "number",
}  # fmt: skip


@dataclass(frozen=True)
class Ring:
    """One plane: where each number stands, as multiples of the mean distance from the middle."""

    title: str
    frequency: int
    places: Floats  # (p, 2)

    @property
    def radius_spread(self) -> float:
        """The std of the distances from the middle, whose mean is 1: 0 on an exact circle."""
        return float(np.linalg.norm(self.places, axis=1).std())


@dataclass(frozen=True)
class Rings:
    """A chart of planes, gathered."""

    title: str
    columns: int
    rings: tuple[Ring, ...]
    notes: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.rings


def gather_circle(figure: Figure, runs: Sequence[RunCurves]) -> Rings:
    """The planes of a figure of kind `circle`: of the first run that has some, at three of its kept steps."""
    run = next((run for run in chosen(runs, figure) if run.looks and run.looks[-1].planes), None)
    if run is None:
        return Rings(figure.title or "Numbers on circles", 1, (), ("`seedbed report` looks into runs.",))
    looks = _three(run.looks)
    rings = tuple(_ring(look, plane) for look in looks for plane in look.planes)
    last = rings[-len(looks[-1].planes) :]
    said = ", ".join(f"{ring.frequency}: {ring.radius_spread:.2f}" for ring in last)
    return Rings(
        title=figure.title or "Numbers in the planes of their key frequencies",
        columns=len(looks[-1].planes),
        rings=rings,
        notes=(
            f"Run {run.run.id}, seed {run.run.seed}. Std of the distance from the middle in the last row, whose mean "
            f"is 1, by frequency: {said} (0 on an exact circle).",
        ),
    )


def _three(looks: Sequence[Look]) -> list[Look]:
    """The first, one half-way, and the last."""
    last = looks[-1]
    middle = min(looks, key=lambda look: abs(look.step - last.step / 2))
    return list({look.step: look for look in (looks[0], middle, last) if look.planes}.values())


def _ring(look: Look, plane: Plane) -> Ring:
    size = float(np.linalg.norm(plane.places, axis=1).mean()) or 1.0
    title = f"step {look.step:,}, k = {plane.frequency}: {100 * plane.share:.0f} % of the power"
    return Ring(title, plane.frequency, plane.places / size)


# ---- as a picture ----


def draw_circle(rings: Rings) -> alt.ConcatChart:
    """The gathered planes, coloured by number."""
    import altair as alt

    from seedbed.charts.specs import table_of, titled

    data, block = table_of(COLUMNS, _rows(rings))
    reach = OUTWARD + 1.1 * max(float(np.abs(ring.places).max()) for ring in rings.rings)
    panels = [_draw_ring(alt.Chart(data), place, ring, reach) for place, ring in enumerate(rings.rings)]
    chart = alt.concat(*panels, columns=rings.columns, title=titled(rings.title), datasets=block, spacing=20)
    return chart.resolve_scale(color="shared")


def _rows(rings: Rings) -> Iterator[tuple[float, ...]]:
    """A row a number, and its first once more at the end of its round."""
    for place, ring in enumerate(rings.rings):
        p = len(ring.places)
        round_trip = [turn * pow(ring.frequency, -1, p) % p for turn in range(p)] if _turns(ring, p) else list(range(p))
        for turn, number in enumerate([*round_trip, round_trip[0]]):
            at = ring.places[number]
            out = at * (1 + OUTWARD / max(float(np.linalg.norm(at)), 0.1))
            yield place, number, turn, *map(float, at), *map(float, out)


def _turns(ring: Ring, p: int) -> bool:
    """Whether steps of this frequency come by all numbers, as they do for a prime."""
    return bool(np.gcd(ring.frequency, p) == 1)


def _draw_ring(base: alt.Chart, place: int, ring: Ring, reach: float) -> alt.LayerChart:
    import altair as alt

    own = base.transform_filter(f"datum.plane == {place}")
    scale = alt.Scale(domain=[-reach, reach], nice=False)
    axis = alt.Axis(grid=False, tickCount=3, format=".0f")
    x = alt.X("x:Q", title="cos, in mean distances", scale=scale, axis=axis)
    y = alt.Y("y:Q", title="sin", scale=scale, axis=axis)
    colour = alt.Color("number:Q", title="number", legend=alt.Legend(orient="right", tickCount=5, format="d"))
    line = own.mark_line(strokeWidth=0.8, opacity=0.35, color="#8a8a8a", aria=False).encode(x=x, y=y, order="turn:Q")
    dots = own.mark_circle(size=60, opacity=1).encode(x=x, y=y, color=colour, tooltip=["number:Q"])
    names = own.mark_text(fontSize=9, aria=False).encode(x=alt.X("out_x:Q"), y=alt.Y("out_y:Q"), text="number:Q")
    title = alt.TitleParams(text=ring.title, fontSize=11, offset=4)
    layers = alt.layer(line, dots, names)
    return layers.properties(width=SIDE, height=SIDE, title=title)  # type: ignore[return-value]


# ---- in a terminal ----


def preview_circle(rings: Rings) -> str:
    """Each plane as letters on a small field: numbers where they stand."""
    return "\n\n".join(f"{ring.title}\n{_field(ring)}" for ring in rings.rings)


def _field(ring: Ring, width: int = 42, height: int = 17) -> str:
    reach = float(np.abs(ring.places).max()) or 1.0
    lines = [[" "] * (width + 4) for _ in range(height)]
    for number, (x, y) in enumerate(ring.places):
        column, row = round((x / reach + 1) / 2 * width), round((1 - y / reach) / 2 * (height - 1))
        for at, sign in enumerate(str(number)):
            lines[row][column + at] = sign
    return "\n".join("".join(line).rstrip() for line in lines)
