"""Readings record by record, as a report prints short trainings: a row a step, mean ± std over seeds in the columns.

Only where it can be read: few points and few records. Of text the columns are perplexities, else losses and accuracies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Final

import numpy as np

from seedbed.charts.axes import by_point, per_step
from seedbed.charts.panels import point_in_words
from seedbed.measures.catalogue import Metric, label, table_order
from seedbed.measures.compare import over_seeds
from seedbed.measures.curves import value_at
from seedbed.measures.summary import RunCurves
from seedbed.report.tables import Table, share_in_words, value_in_words

MOST_POINTS: Final = 4
MOST_ROWS: Final = 30


def step_tables(runs: Sequence[RunCurves]) -> list[Table]:
    """One table a point; none where points or records are too many, or seeds have no step in common."""
    points = by_point(run for run in runs if run.counts)
    if not 1 <= len(points) <= MOST_POINTS:
        return []
    return [table for members in points for table in _table(members, len(points) > 1)]


def _table(members: Sequence[RunCurves], several: bool) -> Iterator[Table]:
    metrics = _metrics(members)
    steps = _common_steps(members, metrics)
    if not metrics or not 2 <= len(steps) <= MOST_ROWS:
        return
    epoch = per_step("epoch", members[0].run.settings)
    clock = ["step"] + ["epoch"] * isfinite(epoch)
    rows = [
        (*[f"{step:,}", f"{step * epoch:.4g}"][: len(clock)], *(_cell(members, name, step) for name in metrics))
        for step in steps
    ]
    named = f": {point_in_words(members[0])}" if several else ""
    n = len(members)
    notes = (f"n = {n} seed{'s' * (n != 1)}{'; ± is the population std over them (ddof 0)' * (n > 1)}.",)
    columns = (*clock, *map(label, metrics))
    yield Table(f"Readings by step{named}", columns, tuple(rows), notes, n_labels=len(clock))


def _metrics(members: Sequence[RunCurves]) -> list[str]:
    """What all runs have read of whole splits."""
    shared = set.intersection(*(set(run.curves) for run in members))
    whole = sorted((name for name in shared if not Metric.parse(name).group), key=table_order)
    quantities = {name: Metric.parse(name).quantity for name in whole}
    wanted = ("perplexity",) if "perplexity" in quantities.values() else ("loss", "accuracy")
    return [name for name in whole if quantities[name] in wanted]


def _common_steps(members: Sequence[RunCurves], metrics: Sequence[str]) -> list[int]:
    """The steps that every run recorded, of every metric."""
    found = [run.curves[name].steps for run in members for name in metrics]
    steps = found[0] if found else np.array([], dtype=np.int64)
    for other in found[1:]:
        steps = np.intersect1d(steps, other)
    return [int(step) for step in steps]


def _cell(members: Sequence[RunCurves], name: str, step: int) -> str:
    in_words = share_in_words if Metric.parse(name).quantity == "accuracy" else value_in_words
    return in_words(over_seeds({run.run.seed: value_at(run.curves[name], step) for run in members}))
