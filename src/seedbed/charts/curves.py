"""Readings against steps, epochs, tokens or seconds: one line a point, the mean over seeds with a band of ± std.

A point whose seeds have different steps is drawn run by run: a mean over some of them would be another
number. A run that diverged or failed is in no mean; it has its own line to where it ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import isnan, nan
from typing import TYPE_CHECKING

import numpy as np

from seedbed.charts.axes import by_point, check_dials, chosen, curve_of, dial_of, worth_of_step
from seedbed.charts.labels import dial_in_words, metric_in_words, quantity_of, sentence, spelled
from seedbed.charts.lines import (
    Axis,
    Line,
    Lines,
    Numbers,
    count_note,
    points_per_line,
    status_notes,
    thinned,
)
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
)
from seedbed.charts.stops import stops_note, stops_of
from seedbed.measures.summary import RunCurves
from seedbed.records import Curve
from seedbed.shown import Figure

if TYPE_CHECKING:
    import altair as alt


def gather_curves(figure: Figure, runs: Sequence[RunCurves]) -> Lines:
    """The lines of a figure of kind `curves`."""
    check_dials(runs, (figure.colour, figure.dash, figure.row, figure.column))
    figure, drawn = _with_gaps(figure), chosen(runs, figure)
    cells = list(cells_of(figure, drawn))
    lines = [line for place, cell in enumerate(cells) for line in _lines_of(figure, place, cell, drawn)]
    shown = [_thin(line, points_per_line(len(lines))) for line in lines]
    stops = tuple(stop for place, cell in enumerate(cells) for stop in stops_of(figure, place, cell, drawn))
    return Lines(
        title=figure.title or _title(figure),
        panels=tuple(panel_of(figure, cell) for cell in cells),
        columns=n_columns(figure, drawn),
        lines=tuple(shown),
        x=Axis(dial_in_words(figure.x), figure.x_scale),
        colour=colour_axis(figure, drawn),
        dash=dash_title(figure),
        notes=tuple(filter(None, (*_notes(figure, drawn, shown), stops_note(stops, figure)))),
        stops=stops,
    )


def draw_curves(lines: Lines) -> alt.ConcatChart:
    """The gathered lines as panels of lines with bands."""
    from seedbed.charts.draw import draw_lines

    return draw_lines(lines)


def _with_gaps(figure: Figure) -> Figure:
    """With `value = "gap"` the curves are how far validation lags behind training."""
    if figure.value != "gap":
        return figure
    gaps = dict.fromkeys(f"gap/{metric.rpartition('/')[2]}" for metric in figure.metrics)
    return figure.model_copy(update={"metrics": tuple(gaps)})


# ---- lines ----


def _lines_of(figure: Figure, panel: int, cell: Cell, runs: Sequence[RunCurves]) -> Iterator[Line]:
    for members, metric in product(by_point(cell.runs(figure, runs)), cell.metrics):
        for group in _averaged(members, metric):
            if line := _line(figure, panel, metric, group, len(members)):
                yield line


def _averaged(members: Sequence[RunCurves], metric: str) -> Iterator[list[RunCurves]]:
    """Runs that make one mean, if all have the same steps; the others one by one."""
    counted = [run for run in members if run.counts]
    steps = [curve_of(run, metric).steps for run in counted]
    if all(np.array_equal(steps[0], other) for other in steps[1:]):
        yield counted
    else:
        yield from ([run] for run in counted)
    yield from ([run] for run in members if not run.counts)


def _line(figure: Figure, panel: int, metric: str, group: Sequence[RunCurves], n_of: int) -> Line | None:
    curves = [curve_of(run, metric) for run in group]
    worth = float(np.mean([worth_of_step(figure.x, run) for run in group])) if group else nan
    if not curves or not curves[0].steps.size or isnan(worth):
        return None
    first = group[0]
    mean, std = _mean_and_std(curves)
    split, _ = parts_of(metric)
    n = len(group)
    name = f"{point_in_words(first)} {metric_in_words(metric)}".strip()
    return Line(
        panel=panel,
        name=name if n > 1 else f"{name}, seed {first.run.seed}",
        colour=dial_of(first, figure.colour) if figure.colour else split,
        dash=spelled(dial_of(first, figure.dash)) if figure.dash else dash_of_metric(figure, metric),
        x=tuple(np.asarray(curves[0].steps * worth, dtype=np.float64)),
        y=mean,
        low=mean - std,
        high=mean + std,
        n=n,
        of=n_of,
        ended=not first.counts,
    )


def _mean_and_std(curves: Sequence[Curve]) -> tuple[Numbers, Numbers]:
    """Mean and population std at each step; one NaN makes both NaN, and the line has a gap."""
    values = np.stack([curve.values for curve in curves])
    values = np.where(np.isfinite(values), values, np.nan)
    return values.mean(axis=0), values.std(axis=0)


def _thin(line: Line, most: int) -> Line:
    kept = thinned(line.y, most)
    return replace(line, x=tuple(line.x[i] for i in kept), y=line.y[kept], low=line.low[kept], high=line.high[kept])


# ---- words ----


def _title(figure: Figure) -> str:
    metrics = list(dict.fromkeys(quantity_of(metric) for metric in figure.metrics))
    over = f" for each {dial_in_words(figure.colour)}" if figure.colour else ""
    return sentence(f"{' and '.join(metrics)} against {dial_in_words(figure.x)}{over}")


def _notes(figure: Figure, runs: Sequence[RunCurves], lines: Sequence[Line]) -> tuple[str, ...]:
    said = {
        "Bands are ± std over seeds (population).": any(line.n > 1 for line in lines),
        "Where seeds have different steps there is no mean: each run has its line.": _alone(lines),
        "Gaps are records that are not finite.": any(np.isnan(line.y).any() for line in lines),
        "Compute time is spread evenly over a run's steps.": figure.x == "time",
        "What is not positive has no place on a log axis.": {figure.x_scale, figure.y_scale} != {"linear"},
        "Epochs of these runs are not known here.": figure.x == "epoch" and not lines,
    }
    notes = (count_note(lines), *(note for note, holds in said.items() if holds), *status_notes(runs))
    return tuple(note for note in notes if note)


def _alone(lines: Sequence[Line]) -> bool:
    return any(line.n == 1 and line.of > 1 and not line.ended for line in lines)
