"""A study's figures, declared or default, rendered as Vega-Lite specs with the command that reproduces each.

Altair is imported only from here on: `plan`, `ls` and `show` do not import this module.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from seedbed.charts.chart_kinds import CHART_KINDS
from seedbed.charts.run_selection import distinct_values, is_number
from seedbed.charts.theme import THEMES
from seedbed.charts.vega_lite import to_vega_lite, without_interaction
from seedbed.errors import MissingData, UsageError
from seedbed.interp.analysis import is_analysis_metric
from seedbed.settings import Value
from seedbed.specs import FigureSpec
from seedbed.stats.curve_statistics import metric_direction
from seedbed.stats.format import join_words
from seedbed.stats.metric_registry import MetricName, metric_sort_key, training_metric
from seedbed.stats.summary import RunCurves
from seedbed.study.conditions import format_filter
from seedbed.study.declarations import Declarations, option_choices
from seedbed.study.former_words import FORMER_FIGURE_KINDS
from seedbed.study.toml_text import did_you_mean


@dataclass(frozen=True)
class RenderedFigure:
    """One figure: title, notes, the command that reproduces it, and its spec without a theme (None if it is empty)."""

    title: str
    report: str  # the figure of a published report that it reproduces
    notes: tuple[str, ...]
    command: str
    spec: dict[str, Any] | None

    @property
    def static_spec(self) -> dict[str, Any]:
        """The spec for static pictures, without tooltips and zoom."""
        return without_interaction(self.spec or {})


def render_figure(
    figure: FigureSpec, runs: Sequence[RunCurves], study: str, only: Sequence[str] = ()
) -> RenderedFigure:
    """The figure of these runs of a study, which the filters have selected; if it is empty, its notes say why."""
    kind = CHART_KINDS[figure.kind]
    command = kind.command(figure, runs) if kind.command else plot_command(figure, study, only)
    try:
        chart = kind.gather_figure(figure, runs)
    except UsageError as error:  # such as an unknown setting: shown in place of the figure, the report goes on
        return RenderedFigure(
            figure.title or f"A figure of kind {figure.kind}", figure.report, (str(error),), command, None
        )
    if chart.is_empty:
        return RenderedFigure(
            chart.title, figure.report, (f"{kind.empty_reason(figure)}.", *chart.notes), command, None
        )
    return RenderedFigure(chart.title, figure.report, chart.notes, command, to_vega_lite(kind.draw(chart)))


def figures_with_stopping(declared: Declarations) -> tuple[FigureSpec, ...]:
    """The study's figures; learning curves of a metric with a `stopping` question get its advice as marks."""
    stopping_metrics = [question.metric for question in declared.questions if question.ask == "stopping"]
    return tuple(_with_stopping_metric(figure, stopping_metrics) for figure in declared.figures)


def _with_stopping_metric(figure: FigureSpec, stopping_metrics: Sequence[str]) -> FigureSpec:
    drawn = CHART_KINDS[figure.kind].stoppable_metrics(figure)
    metric = next((name for name in drawn if name in stopping_metrics), None)
    return figure if figure.stopping or metric is None else figure.model_copy(update={"stopping": metric})


def plot_command(figure: FigureSpec, study: str, only: Sequence[str] = ()) -> str:
    """The `seedbed plot` command that reproduces a figure of the runs that match the filters."""
    options = figure.model_dump(exclude_defaults=True, exclude={"report", "only", "title"})
    own = " ".join(format_filter(name, value) for name, value in figure.only.items())
    command = ["seedbed", "plot", study, *(word for text in (*only, own) if text for word in ("--only", text))]
    for name, value in options.items():
        command += [f"--{name.replace('_', '-')}", _format_option(value)]
    return shlex.join(command)


def _format_option(value: Value) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(_format_option, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def default_figures(runs: Sequence[RunCurves]) -> tuple[FigureSpec, ...]:
    """The figures of a study that declares none: learning curves, and best values against each varied number."""
    metrics = _default_metrics(runs)
    if not metrics:
        return (FigureSpec(),)
    names = dict.fromkeys(name for run in runs for name in run.config)
    varied = {name: values for name in names if len(values := distinct_values(runs, name)) > 1}
    column = "model.kind" if "model.kind" in varied else None
    numbers = [name for name, values in varied.items() if all(map(is_number, values))]
    others = [name for name in varied if name != column]
    colour = numbers[0] if numbers else others[0] if others else None
    figures = [
        FigureSpec(
            metrics=metrics, column=column, colour=colour, colour_scale=default_scale(varied.get(colour or "", []))
        )
    ]
    best = tuple(metric for metric in metrics if metric_direction(metric))
    for name in numbers if best else ():
        colour = next((other for other in others if other != name), None)
        scale = default_scale(varied[name])
        figures.append(FigureSpec(kind="sweep", x=name, metrics=best, column=column, colour=colour, x_scale=scale))
    if len(varied) > 2 and best:
        figures.append(FigureSpec(kind="parallel", metrics=best[-1:]))
    return tuple(figures)


def _default_metrics(runs: Iterable[RunCurves]) -> tuple[str, ...]:
    """Up to four metrics over all samples, those with a best direction first.

    For text with a validation split these are loss and perplexity.
    """
    names = sorted({name for run in runs for name in run.curves}, key=metric_sort_key)
    ungrouped = [name for name in names if not MetricName.parse(name).group]
    pairs = [(training_metric(quantity, ungrouped), f"val/{quantity}") for quantity in ("loss", "perplexity")]
    text_metrics = tuple(name for column in zip(*pairs, strict=True) for name in column)
    if set(text_metrics) <= set(ungrouped):
        return text_metrics
    return tuple(sorted(ungrouped, key=lambda name: metric_direction(name) is None)[:4])


def default_scale(values: Sequence[Value]) -> Any:
    """log₂ for powers of two, log for values that span orders of magnitude, else linear."""
    if not values or not all(is_number(value) and value > 0 for value in values):
        return "linear"
    if all(isinstance(value, int) and value & (value - 1) == 0 for value in values) and max(values) > 4:
        return "log2"
    return "log" if max(values) >= 50 * min(values) else "linear"


# ---- one figure from the command line ----


def requested_figure(
    options: Mapping[str, Any], runs: Sequence[RunCurves], declared: Sequence[FigureSpec], number: int | None
) -> FigureSpec:
    """The study's figure of this number, the figure of the given options, or the first default figure."""
    if number is not None:
        if not 1 <= number <= len(declared):
            raise UsageError(f"--figure {number}: the study declares {len(declared)} figures")
        return declared[number - 1]
    given = {name: value for name, value in options.items() if value is not None}
    if not given:
        return default_figures(runs)[0]
    if unknown := given.keys() - FigureSpec.model_fields.keys():
        name, known = min(unknown), sorted(FigureSpec.model_fields)
        raise UsageError(f"{name} is not an option of a figure{did_you_mean(name, known)}; expected {', '.join(known)}")
    try:
        figure = FigureSpec.model_validate(given)
        if "metrics" in given:
            _check_recorded(figure.metrics, runs)
        return figure
    except ValidationError as error:
        first = error.errors()[0]
        option = f"--{str(first['loc'][0]).replace('_', '-')} {first['input']}"
        if first["loc"] == ("kind",) and (replacement := FORMER_FIGURE_KINDS.get(str(first["input"]))):
            raise UsageError(f"{option} is now called {replacement}") from None
        if names := option_choices(FigureSpec.model_fields[str(first["loc"][0])]):
            guess = did_you_mean(str(first["input"]), names)
            raise UsageError(f"{option}: expected {join_words([repr(name) for name in names], 'or')}{guess}") from None
        raise UsageError(f"{option}: {first['msg'].lower().replace('input should be', 'expected')}") from None


def _check_recorded(metrics: Sequence[str], runs: Sequence[RunCurves]) -> None:
    """UsageError for a metric that no run has, if any run has been evaluated; those of analyses are computed later."""
    recorded = sorted({name for run in runs for name in run.curves}, key=metric_sort_key)
    for name in metrics if recorded else ():
        if name not in recorded and not name.startswith("gap/") and not is_analysis_metric(name):
            guess = did_you_mean(name, recorded)
            raise UsageError(f"--metrics {name}: no run has this metric{guess}; recorded: {', '.join(recorded)}")


def check_theme(theme: str) -> None:
    """UsageError for a theme that does not exist."""
    if theme not in THEMES:
        raise UsageError(f"--theme {theme}: expected {' or '.join(THEMES)}")


def write_figure(figure: FigureSpec, runs: Sequence[RunCurves], out: Path, theme: str = "light") -> None:
    """Writes the figure in the format of the file's suffix: svg, png, pdf, or the Vega-Lite spec as json."""
    from seedbed.charts.render import render

    check_theme(theme)
    if out.suffix not in (".svg", ".png", ".pdf", ".json"):
        raise UsageError(f"--out {out}: expected a file that ends in .svg, .png, .pdf or .json")
    kind = CHART_KINDS[figure.kind]
    chart = kind.gather_figure(figure, runs)
    if chart.is_empty:
        raise MissingData("; ".join([kind.empty_reason(figure), *chart.notes]))
    spec = without_interaction(to_vega_lite(kind.draw(chart), THEMES[theme]))
    file_format = out.suffix.removeprefix(".")
    content = json.dumps(spec, ensure_ascii=False).encode() if file_format == "json" else render(spec, file_format)
    try:
        out.write_bytes(content)
    except OSError as error:
        raise UsageError(f"{out} cannot be written ({error.strerror}); name another file") from None


def preview_figure(figure: FigureSpec, runs: Sequence[RunCurves]) -> str:
    """The figure as text for a terminal."""
    from seedbed.charts.terminal_preview import preview_chart

    kind = CHART_KINDS[figure.kind]
    return preview_chart(kind.gather_figure(figure, runs), kind.preview)
