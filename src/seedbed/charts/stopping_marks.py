"""Where training could have stopped, as marks on the curves of a figure; the advice itself is `measures.stopping`'s."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Final

import numpy as np

from seedbed.charts.labels import metric_label
from seedbed.charts.line_data import StoppingMark
from seedbed.charts.panel_layout import PanelSpec, config_label
from seedbed.charts.run_selection import group_by_config, measured_clock_units_per_step
from seedbed.specs import FigureSpec
from seedbed.stats.format import format_count
from seedbed.stats.stopping_advice import StoppingAdvice, advise_stopping_for_runs, mean_curve
from seedbed.stats.summary import RunCurves

STOPPING_RULES: Final = {"best": "best", "earliest": "first within one std. error", "copying": "samples begin to copy"}


def stopping_marks(
    figure: FigureSpec, panel: int, cell: PanelSpec, runs: Sequence[RunCurves]
) -> Iterator[StoppingMark]:
    """The marks in one panel: up to three for each point whose metric is drawn there."""
    if figure.stopping not in cell.metrics:
        return
    for members in group_by_config(cell.select(figure, runs)):
        if advice := advise_stopping_for_runs(members, figure.stopping):
            yield from _marks_of_config(figure, panel, members, advice)


def _marks_of_config(
    figure: FigureSpec, panel: int, seed_runs: Sequence[RunCurves], advice: StoppingAdvice
) -> Iterator[StoppingMark]:
    assert figure.stopping  # for mypy: there is advice about something
    counted = [run for run in seed_runs if run.is_included and figure.stopping in run.curves]
    mean = mean_curve([run.curves[figure.stopping] for run in counted])
    worth = float(np.mean([measured_clock_units_per_step(figure.x, run) for run in counted]))
    point = f"{config_label(seed_runs[0])} {metric_label(figure.stopping)}".strip()
    steps = {"best": advice.best, "copying": advice.copying}
    if advice.earliest < advice.best:
        steps["earliest"] = advice.earliest
    for field, step in steps.items():
        words = STOPPING_RULES[field]
        height = float(np.interp(step, mean.steps, mean.values)) if isfinite(step) else step
        if isfinite(height) and isfinite(worth):
            yield StoppingMark(panel, words, step * worth, height, f"{point}: {words}, step {format_count(step)}")


def stopping_note(marks: Sequence[StoppingMark], figure: FigureSpec) -> str:
    """What the marks are, in words; empty where there are none."""
    if not marks:
        return ""
    seen = [words for words in STOPPING_RULES.values() if any(stop.rule == words for stop in marks)]
    return f"Marks on the {metric_label(figure.stopping or '')}, mean over seeds: {'; '.join(seen)}."
