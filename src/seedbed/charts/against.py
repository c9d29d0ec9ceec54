"""One number of each run (best, t_f, gap, …) against a dial, parameters or α: means over seeds with ± std.

Runs that differ in anything but the seed and x are on lines of their own, so no mean mixes points. With α as x or
colour, each run is taken as if stopped at αT.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import product
from math import nan
from typing import TYPE_CHECKING, Final

import numpy as np

from seedbed.charts.axes import by_point, check_dials, chosen, dial_of, is_number, values_of
from seedbed.charts.labels import dial_in_words, quantity_of, sentence, spelled
from seedbed.charts.lines import Axis, Line, Lines, count_note, status_notes
from seedbed.charts.panels import (
    Cell,
    cells_of,
    colour_axis,
    dash_of_metric,
    dash_title,
    n_columns,
    panel_of,
    parts_of,
    point_in_words,
    scale_for,
)
from seedbed.measures.catalogue import MEASURES
from seedbed.measures.compare import Spread, over_seeds
from seedbed.measures.curves import direction
from seedbed.measures.summary import RunCurves
from seedbed.measures.values import replayed, run_value
from seedbed.settings import Value
from seedbed.shown import Figure

if TYPE_CHECKING:
    import altair as alt

ALPHAS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
UNITS: Final = {"t_f": "steps", "delta_t": "steps", "seconds": "s", "memory": "MiB"}


def gather_against(figure: Figure, runs: Sequence[RunCurves]) -> Lines:
    """The lines of a figure of kind `against`."""
    check_dials(runs, (figure.x, figure.colour, figure.dash, figure.row, figure.column))
    drawn = replays(figure, chosen(runs, figure))
    cells = list(cells_of(figure, drawn))
    lines = [line for place, cell in enumerate(cells) for line in _lines_of(figure, place, cell, drawn)]
    return Lines(
        title=figure.title or _title(figure),
        panels=tuple(panel_of(figure, cell, value_in_words(figure, cell), UNITS.get(figure.value)) for cell in cells),
        columns=n_columns(figure, drawn),
        lines=tuple(lines),
        x=Axis(dial_in_words(figure.x), scale_for(values_of(drawn, figure.x), figure.x_scale)),
        colour=colour_axis(figure, drawn),
        dash=dash_title(figure),
        notes=_notes(figure, runs, lines),
        marks="point",
    )


def draw_against(lines: Lines) -> alt.ConcatChart:
    """The gathered means as points with error bars, joined by lines where x is a number."""
    from seedbed.charts.draw import draw_lines

    return draw_lines(lines)


def replays(figure: Figure, runs: Sequence[RunCurves]) -> list[RunCurves]:
    """The runs, or each of them as if stopped at every α, where the figure asks for α."""
    if "alpha" not in (figure.x, figure.colour, figure.dash, figure.row, figure.column):
        return list(runs)
    return [replayed(run, alpha) for run in runs for alpha in figure.alphas or ALPHAS]


def _lines_of(figure: Figure, panel: int, cell: Cell, runs: Sequence[RunCurves]) -> Iterator[Line]:
    joined: dict[Hashable, list[list[RunCurves]]] = {}
    for members in by_point(cell.runs(figure, runs)):
        joined.setdefault(_identity(figure, members[0]), []).append(members)
    for points, metric in product(joined.values(), cell.metrics):
        yield _line(figure, panel, metric, points)


def _identity(figure: Figure, run: RunCurves) -> Hashable:
    """What the points of one line have in common: everything but x; for parameters only what is told apart."""
    told = tuple(dial_of(run, name) for name in (figure.colour, figure.dash) if name)
    if figure.x == "parameters":
        return told
    alpha = None if figure.x == "alpha" else run.point.get("alpha")
    others = tuple((name, value) for name, value in run.run.settings.dials().items() if name != figure.x)
    return told, alpha, others


def _line(figure: Figure, panel: int, metric: str, points: Sequence[Sequence[RunCurves]]) -> Line:
    ordered = sorted(points, key=lambda members: _rank(dial_of(members[0], figure.x)))
    spreads = [spread_of(members, metric, figure) for members in ordered]
    means = np.array([spread.mean for spread in spreads])
    means = np.where(np.isfinite(means), means, nan)
    stds = np.array([spread.std for spread in spreads])
    first = ordered[0][0]
    where, _ = parts_of(metric)
    return Line(
        panel=panel,
        name=point_in_words(first) if figure.colour else f"{point_in_words(first)} {where}".strip(),
        colour=dial_of(first, figure.colour) if figure.colour else where,
        dash=spelled(dial_of(first, figure.dash)) if figure.dash else dash_of_metric(figure, metric),
        x=tuple(dial_of(members[0], figure.x) for members in ordered),
        y=means,
        low=means - stds,
        high=means + stds,
        n=max(spread.n for spread in spreads),
        of=max(len(members) for members in ordered),
    )


def _rank(value: Value) -> tuple[int, Value]:
    """Sorts numbers by size and before words, which keep their order."""
    return (0, value) if is_number(value) else (1, 0)


def spread_of(members: Sequence[RunCurves], metric: str, figure: Figure) -> Spread:
    """The figure's value of a point's runs over seeds; runs that diverged or failed stay out."""
    return over_seeds({run.run.seed: run_value(run, metric, figure.value) for run in members if run.counts})


# ---- words ----


def value_in_words(figure: Figure, cell: Cell) -> str:
    """What the figure's value makes of a metric's name, with `{}` in its place."""
    kind = direction(cell.metrics[0])
    best = {"min": "lowest {}", "max": "highest {}", None: "last {}"}[kind]
    words = {
        "best": best,
        "t_f": "t_f of the {}",
        "last": "last {}",
        "gap": "gap of the {}",
        "delta_t": "Δt of the {}",
        "seconds": "compute time",
        "memory": "memory while training",
    }
    return words[figure.value]


def _title(figure: Figure) -> str:
    quantities = " and ".join(dict.fromkeys(map(quantity_of, figure.metrics)))
    words = {"best": f"best {quantities}", "t_f": f"t_f of {quantities}", "seconds": "compute time"}
    words |= {"gap": f"gap between training and validation {quantities}", "memory": "memory while training"}
    words |= {"delta_t": f"delay of validation behind training {quantities}", "last": f"last {quantities}"}
    return sentence(f"{words[figure.value]} against {dial_in_words(figure.x)}")


def _notes(figure: Figure, runs: Sequence[RunCurves], lines: Sequence[Line]) -> tuple[str, ...]:
    entry = MEASURES.get(figure.value)
    said = {
        f"{entry.symbol}: {entry.meaning}." if entry else "": entry is not None,
        count_note(lines): True,
        "Error bars are ± std over seeds (population).": any(line.n > 1 for line in lines),
        "α: as if each run had been stopped at αT.": "alpha" in (figure.x, figure.colour),
        "Points without a finite mean are left out.": any(np.isnan(line.y).any() for line in lines),
    }
    notes = (*(note for note, holds in said.items() if holds), *status_notes(chosen(runs, figure)))
    return tuple(note for note in notes if note)
