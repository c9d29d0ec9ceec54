"""One figure of a stored study, as `plot` on the command line and in Python asks for it; and the analyses it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seedbed.charts.chart_kinds import CHART_KINDS
from seedbed.charts.theme import THEMES, vega_config
from seedbed.errors import MissingData
from seedbed.interp.analysis import is_analysis_metric
from seedbed.report.analysis_curves import describe_missing_inputs, load_analyses
from seedbed.report.figures import check_theme, figures_with_stopping, requested_figure
from seedbed.report.stored_analyses import update_analyses
from seedbed.report.study_runs import load_run_curves, matching_runs
from seedbed.specs import FigureSpec
from seedbed.stats.summary import RunCurves
from seedbed.store import open_store
from seedbed.study.declarations import parse_declarations


def compute_missing_analyses(home: Path, study: str, only: Sequence[str]) -> tuple[int, list[str]]:
    """Computes the analyses that a study needs and the store lacks; imports torch only then.

    Returns how many were computed, and a sentence about each input that they lack.
    """
    n_analyzed = update_analyses(home, study, only)
    with open_store(home, read_only=True) as store:
        analyses = [load_analyses(store, run) for run in matching_runs(store, study, only)]
    return n_analyzed, list(describe_missing_inputs(analyses))


def load_figure(
    home: Path,
    study: str,
    only: Sequence[str],
    options: Mapping[str, Any],
    number: int | None = None,
    analyze: Callable[[Path, str, Sequence[str]], object] = compute_missing_analyses,
) -> tuple[FigureSpec, list[RunCurves]]:
    """The figure of this number or of these options, and the runs it shows; `analyze` computes what it lacks."""
    asked = filter(is_analysis_metric, options.get("metrics") or ())
    with open_store(home, read_only=True) as store:
        runs = load_run_curves(store, study, only, extra_metrics=[*asked])
        declared = figures_with_stopping(parse_declarations(store.study(study).text))
        spec = requested_figure(options, runs, declared, number)
    analysis_metrics = [*filter(is_analysis_metric, spec.metrics)]
    if CHART_KINDS[spec.kind].needs_analysis or analysis_metrics:
        analyze(home, study, only)
        with open_store(home, read_only=True) as store:
            runs = load_run_curves(store, study, only, extra_metrics=analysis_metrics)
    return spec, runs


def draw_figure(spec: FigureSpec, runs: Sequence[RunCurves], theme: str = "light") -> Any:
    """The figure as an Altair chart, which a notebook shows and whose `save` writes SVG, PNG, PDF, JSON and HTML."""
    check_theme(theme)
    kind = CHART_KINDS[spec.kind]
    data = kind.gather_figure(spec, runs)
    if data.is_empty:
        raise MissingData("; ".join([kind.empty_reason(spec), *data.notes]))
    chart = kind.draw(data)
    chart.config = vega_config(THEMES[theme])
    return chart
