"""The data of line charts as plain numbers: panels, lines, and the axes and legends that distinguish them.

A line is a mean over seeds with its std if every seed has the same steps, else one run.

>>> import numpy as np
>>> downsample_indices(np.array([0.0, 1.0, 9.0, 1.0, 1.0, 1.0, -5.0, 1.0, 1.0, 1.0]), 4)
array([0, 2, 6, 9])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seedbed.settings import Value
from seedbed.stats.summary import RunCurves

FloatArray: TypeAlias = NDArray[np.float64]
Scale: TypeAlias = Literal["linear", "log", "log2"]
MAX_POINTS_PER_LINE: Final = 500  # a panel cannot show more
MAX_POINTS_PER_FIGURE: Final = 16_000  # so that a page can hold many figures
MIN_POINTS_PER_LINE: Final = 24


@dataclass(frozen=True)
class Panel:
    """One set of axes; panels with the same y title share their y domain, so that they can be compared by eye."""

    metric: str
    title: str
    y_title: str
    scale: Scale = "linear"
    is_fraction: bool = False  # its y axis is 0 to 1
    non_negative: bool = False  # bands are cut at 0


@dataclass(frozen=True)
class Line:
    """One line of a panel: y against x, with a band from low to high over seeds."""

    panel: int
    name: str
    colour: Value
    dash: str
    x: tuple[Value, ...]
    y: FloatArray
    low: FloatArray
    high: FloatArray
    n: int  # runs in the mean
    n_runs: int  # runs of its config, including those left out
    diverged: bool = False  # or failed, where the line ends


@dataclass(frozen=True)
class StoppingMark:
    """Where a stopping rule (named as in the legend) would have stopped, on the mean over a config's seeds."""

    panel: int
    rule: str
    x: float
    y: float
    name: str


@dataclass(frozen=True)
class Axis:
    """The title of an axis or legend, and its scale: None if its values are categories."""

    title: str
    scale: Scale | None = "linear"


@dataclass(frozen=True)
class LineChart:
    """The data of a line chart."""

    title: str
    panels: tuple[Panel, ...]
    n_columns: int
    lines: tuple[Line, ...]
    x: Axis
    colour: Axis | None
    dash_title: str | None  # of the legend of dashes
    notes: tuple[str, ...]
    mark_type: Literal["line", "point"] = "line"
    stopping_marks: tuple[StoppingMark, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(np.isfinite(line.y).any() for line in self.lines)


def downsample_indices(values: FloatArray, max_points: int = MAX_POINTS_PER_LINE) -> NDArray[np.int64]:
    """Indices of at most `max_points` values to keep: both ends, and each chunk's minimum, maximum and first NaN."""
    if len(values) <= max_points:
        return np.arange(len(values))
    indices = {0, len(values) - 1}
    missing = np.isnan(values)
    has_gaps = bool(missing.any())
    lows, highs = (np.where(missing, end, values) for end in (np.inf, -np.inf))
    for chunk in np.array_split(np.arange(1, len(values) - 1), max(1, (max_points - 2) // (3 if has_gaps else 2))):
        first = int(chunk[0])
        indices |= {first + int(lows[chunk].argmin()), first + int(highs[chunk].argmax())}
        if has_gaps and missing[chunk].any():
            indices.add(first + int(missing[chunk].argmax()))
    return np.array(sorted(indices))


def max_points_per_line(n_lines: int) -> int:
    """The number of points that each of `n_lines` lines may have."""
    return max(MIN_POINTS_PER_LINE, min(MAX_POINTS_PER_LINE, MAX_POINTS_PER_FIGURE // max(1, n_lines)))


def seed_count_note(lines: Iterable[Line]) -> str:
    """`n = 3 seeds per line.`, `n = 1 to 3 seeds per line.`: how many runs are in the means."""
    counts = sorted({line.n for line in lines if not line.diverged})
    if not counts:
        return ""
    low, high = counts[0], counts[-1]
    return f"n = {low if low == high else f'{low} to {high}'} seed{'s' * (high != 1)} per line."


def status_notes(runs: Sequence[RunCurves], of_means: bool = False) -> tuple[str, ...]:
    """How many runs are unfinished, or excluded from the means, and why; `of_means`: a run gives a single value."""
    by_status: dict[str, int] = {}
    for run in runs:
        by_status[run.run.status] = by_status.get(run.run.status, 0) + 1
    descriptions = {
        "diverged": "diverged and are excluded from means",
        "failed": "failed and are excluded from means",
        "running": "are still running",
        "stopped": "were stopped early",
        "planned": "have not started",
    }
    notes = [
        f"{by_status[status]} of {len(runs)} runs {text}."
        for status, text in descriptions.items()
        if status in by_status
    ]
    if of_means and any(run.is_included and not run.is_complete for run in runs):
        notes.append(
            "Means are over complete runs; configs without any are shown as far as all of their runs have got."
        )
    return tuple(notes)
