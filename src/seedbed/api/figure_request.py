"""One figure of a stored study, as `plot` on the command line and in Python asks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seedbed.charts.chart_kinds import CHART_KINDS
from seedbed.charts.theme import THEMES, vega_config
from seedbed.errors import MissingData, UsageError
from seedbed.interp.analysis import is_analysis_metric
from seedbed.report.figures import figures_with_stopping, requested_figure
from seedbed.report.stored_analyses import update_analyses
from seedbed.report.study_runs import load_run_curves
from seedbed.specs import FigureSpec
from seedbed.stats.summary import RunCurves
from seedbed.store import open_store
from seedbed.study.declarations import parse_declarations


def load_figure(
    home: Path, study: str, only: Sequence[str], options: Mapping[str, Any], number: int | None = None
) -> tuple[FigureSpec, list[RunCurves]]:
    """The figure of this number or of these options, and the runs it shows; computes analyses that it lacks."""
    asked = filter(is_analysis_metric, options.get("metrics") or ())
    with open_store(home, read_only=True) as store:
        runs = load_run_curves(store, study, only, extra_metrics=[*asked])
        declared = figures_with_stopping(parse_declarations(store.study(study).text))
        spec = requested_figure(options, runs, declared, number)
    analysis_metrics = [*filter(is_analysis_metric, spec.metrics)]
    if CHART_KINDS[spec.kind].needs_analysis or analysis_metrics:
        update_analyses(home, study, only)
        with open_store(home, read_only=True) as store:
            runs = load_run_curves(store, study, only, extra_metrics=analysis_metrics)
    return spec, runs


def draw_figure(spec: FigureSpec, runs: Sequence[RunCurves], theme: str = "light") -> Any:
    """The figure as an Altair chart, which a notebook shows and whose `save` writes SVG, PNG, PDF, JSON and HTML."""
    if theme not in THEMES:
        raise UsageError(f"theme {theme}: expected {' or '.join(THEMES)}")
    kind = CHART_KINDS[spec.kind]
    data = kind.gather(spec, runs)
    if data.is_empty:
        raise MissingData("; ".join([kind.empty_reason(spec), *data.notes]))
    chart = kind.draw(data)
    chart.config = vega_config(THEMES[theme])
    return chart
