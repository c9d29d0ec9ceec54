"""Analyses of runs, read from the store as metrics and curves, without torch; `stored_analyses` makes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from seedbed.interp.analysis import Analysis, is_analysis_metric
from seedbed.records import Curve, StoredRun
from seedbed.store import Store
from seedbed.study.declarations import Declarations


def load_analyses(store: Store, run: StoredRun) -> tuple[Analysis, ...]:
    """The stored analyses of a run, by step; empty if there are none."""
    return tuple(Analysis.from_json(document) for document in store.load_analyses(run.id))


def describe_missing_inputs(analyses: Iterable[Sequence[Analysis]]) -> list[str]:
    """Why analyses of held-out inputs are missing, from the analyses of each run; empty if none are."""
    errors = [of_run[-1].inputs_error for of_run in analyses if of_run and of_run[-1].inputs_error]
    if not errors:
        return []
    n = f"{len(errors)} run{'s' * (len(errors) != 1)}"
    return [f"Analyses of held-out text are missing for {n}: {errors[0]}."]


def declared_analysis_metrics(declared: Declarations) -> list[str]:
    """The analysis metrics that figures and questions name."""
    names = [name for figure in declared.figures for name in figure.metrics]
    names += [name for question in declared.questions for name in (question.metric, question.and_metric or "")]
    return list(dict.fromkeys(filter(is_analysis_metric, names)))


def analysis_curves(analyses: Sequence[Analysis], names: Iterable[str]) -> dict[str, Curve]:
    """These analysis metrics as curves over the analysed steps."""
    curves = {}
    for name in names:
        points = [(analysis.step, analysis.metrics[name].mean) for analysis in analyses if name in analysis.metrics]
        if points:
            steps, values = zip(*points, strict=True)
            curves[name] = Curve(np.array(steps, dtype=np.int64), np.array(values))
    return curves
