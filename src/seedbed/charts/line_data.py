"""What all charts of lines are made of, as plain numbers: panels, lines in them, and what tells the lines apart.

A line is a mean over seeds with its spread where every seed has the same steps, else one run.

>>> import numpy as np
>>> thinned(np.array([0.0, 1.0, 9.0, 1.0, 1.0, 1.0, -5.0, 1.0, 1.0, 1.0]), 4)
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
MAX_POINTS_PER_LINE: Final = 500  # of one line; more cannot be seen in a panel
MAX_POINTS_PER_FIGURE: Final = 16_000  # of all lines together: what a page can carry many times
MIN_POINTS_PER_LINE: Final = 24


@dataclass(frozen=True)
class Panel:
    """One set of axes; `metric` decides its scale, so panels of equal metrics can be compared by eye."""

    metric: str
    title: str
    y_title: str
    scale: Scale = "linear"
    is_fraction: bool = False  # from 0 to 1
    non_negative: bool = False  # never below 0, so that a spread ends there too


@dataclass(frozen=True)
class Line:
    """One line of a panel: what it shows against x, and from low to high how far seeds spread."""

    panel: int
    name: str
    colour: Value
    dash: str
    x: tuple[Value, ...]
    y: FloatArray
    low: FloatArray
    high: FloatArray
    n: int  # runs in it
    n_runs: int  # runs of its point, those left out included
    diverged: bool = False  # it diverged or failed where it ends


@dataclass(frozen=True)
class StoppingMark:
    """A place where training could have stopped: on the mean of a point's seeds, in the words of its legend."""

    panel: int
    rule: str
    x: float
    y: float
    name: str


@dataclass(frozen=True)
class Axis:
    """What an axis or a legend shows: its words, and a scale for numbers or None for words."""

    title: str
    scale: Scale | None = "linear"


@dataclass(frozen=True)
class LineChart:
    """A chart of lines, gathered."""

    title: str
    panels: tuple[Panel, ...]
    n_columns: int
    lines: tuple[Line, ...]
    x: Axis
    colour: Axis | None
    dash_title: str | None  # title of what dashes tell
    notes: tuple[str, ...]
    mark_type: Literal["line", "point"] = "line"
    stopping_marks: tuple[StoppingMark, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to see."""
        return not any(np.isfinite(line.y).any() for line in self.lines)


def downsample_indices(values: FloatArray, max_points: int = MAX_POINTS_PER_LINE) -> NDArray[np.int64]:
    """Places of at most `most` values to keep: the ends, and of each stretch its smallest, largest and first gap."""
    if len(values) <= max_points:
        return np.arange(len(values))
    kept = {0, len(values) - 1}
    missing = np.isnan(values)
    gaps = bool(missing.any())
    lows, highs = (np.where(missing, end, values) for end in (np.inf, -np.inf))
    for places in np.array_split(np.arange(1, len(values) - 1), max(1, (max_points - 2) // (3 if gaps else 2))):
        first = int(places[0])
        kept |= {first + int(lows[places].argmin()), first + int(highs[places].argmax())}
        if gaps and missing[places].any():
            kept.add(first + int(missing[places].argmax()))
    return np.array(sorted(kept))


def max_points_per_line(n_lines: int) -> int:
    """How many points each of so many lines may have."""
    return max(MIN_POINTS_PER_LINE, min(MAX_POINTS_PER_LINE, MAX_POINTS_PER_FIGURE // max(1, n_lines)))


def seed_count_note(lines: Iterable[Line]) -> str:
    """`n = 3 seeds.`, `n = 1 to 3 seeds.`: how many runs are in the means."""
    counts = sorted({line.n for line in lines if not line.diverged})
    if not counts:
        return ""
    few, many = counts[0], counts[-1]
    return f"n = {few if few == many else f'{few} to {many}'} seed{'s' * (many != 1)} a line."


def status_notes(runs: Sequence[RunCurves]) -> tuple[str, ...]:
    """What a reader must know of runs that are not in the means or not at their end."""
    by_status: dict[str, int] = {}
    for run in runs:
        by_status[run.run.status] = by_status.get(run.run.status, 0) + 1
    said = {
        "diverged": "diverged and are in no mean",
        "failed": "failed and are in no mean",
        "running": "are still running",
        "stopped": "were stopped early",
        "planned": "have not begun",
    }
    return tuple(f"{by_status[name]} of {len(runs)} runs {words}." for name, words in said.items() if name in by_status)
