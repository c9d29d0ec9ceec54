"""Where training could have stopped, as marks on the curves of a figure; the advice itself is `measures.stopping`'s."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Final

import numpy as np

from seedbed.charts.axes import by_point, worth_of_step
from seedbed.charts.labels import metric_in_words
from seedbed.charts.lines import StopMark
from seedbed.charts.panels import Cell, point_in_words
from seedbed.measures.stopping import StoppingAdvice, advise_runs, mean_curve
from seedbed.measures.summary import RunCurves
from seedbed.measures.words import count
from seedbed.shown import Figure

WORDS: Final = {"best": "best", "earliest": "first within one std. error", "copying": "samples begin to copy"}


def stops_of(figure: Figure, panel: int, cell: Cell, runs: Sequence[RunCurves]) -> Iterator[StopMark]:
    """The marks in one panel: up to three for each point whose metric is drawn there."""
    if figure.stopping not in cell.metrics:
        return
    for members in by_point(cell.runs(figure, runs)):
        if advice := advise_runs(members, figure.stopping):
            yield from _marks(figure, panel, members, advice)


def _marks(figure: Figure, panel: int, members: Sequence[RunCurves], advice: StoppingAdvice) -> Iterator[StopMark]:
    assert figure.stopping  # for mypy: there is advice about something
    counted = [run for run in members if run.counts and figure.stopping in run.curves]
    mean = mean_curve([run.curves[figure.stopping] for run in counted])
    worth = float(np.mean([worth_of_step(figure.x, run) for run in counted]))
    point = f"{point_in_words(members[0])} {metric_in_words(figure.stopping)}".strip()
    steps = {"best": advice.best, "copying": advice.copying}
    if advice.earliest < advice.best:
        steps["earliest"] = advice.earliest
    for field, step in steps.items():
        words = WORDS[field]
        height = float(np.interp(step, mean.steps, mean.values)) if isfinite(step) else step
        if isfinite(height) and isfinite(worth):
            yield StopMark(panel, words, step * worth, height, f"{point}: {words}, step {count(step)}")


def stops_note(stops: Sequence[StopMark], figure: Figure) -> str:
    """What the marks are, in words; empty where there are none."""
    if not stops:
        return ""
    seen = [words for words in WORDS.values() if any(stop.what == words for stop in stops)]
    return f"Marks on the {metric_in_words(figure.stopping or '')}, mean over seeds: {'; '.join(seen)}."
