"""A study's figures, declared or default, rendered as Vega-Lite specs with the command that reproduces each.

Also the one figure that `plot` asks for, on the command line and in Python.

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
from seedbed.charts.panel_layout import distinct_values
from seedbed.charts.theme import THEMES, vega_config
from seedbed.charts.vega_lite import as_altair, paper_spec, to_vega_lite, without_interaction
from seedbed.errors import MissingData, UsageError
from seedbed.format import join_words
from seedbed.interp.analysis import is_analysis_metric
from seedbed.report.study_runs import load_run_curves
from seedbed.settings import Value
from seedbed.specs import FigureSpec
from seedbed.stats.groups import is_numeric, varying_settings
from seedbed.stats.metric_registry import MetricName, metric_direction, metric_sort_key, training_metric
from seedbed.stats.summary import RunCurves
from seedbed.store import open_store
from seedbed.study.conditions import format_filter
from seedbed.study.declarations import Declarations, option_choices, parse_declarations
from seedbed.study.former_words import FORMER_FIGURE_KINDS
from seedbed.study.toml_text import did_you_mean

STYLES = ("screen", "paper")


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
    names = varying_settings([runs])  # without those that follow another, as a GRU's gate biases follow its kind
    varied = {name: values for name in names if len(values := distinct_values(runs, name)) > 1}
    column = "model.kind" if "model.kind" in varied else None
    numbers = [name for name, values in varied.items() if is_numeric(values)]
    best = tuple(metric for metric in metrics if metric_direction(metric))
    figures = [FigureSpec(metrics=metrics, column=column)]
    figures += [FigureSpec(kind="sweep", x=name, metrics=best, column=column) for name in numbers if best]
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


def check_theme(theme: str, style: str = "screen") -> None:
    """UsageError for a theme or style that does not exist, or for dark print."""
    if theme not in THEMES:
        raise UsageError(f"--theme {theme}: expected {' or '.join(THEMES)}")
    if style not in STYLES:
        raise UsageError(f"--style {style}: expected {' or '.join(STYLES)}")
    if style == "paper" and theme != "light":
        raise UsageError("--style paper is printed on white; leave out --theme, or use --style screen")


def write_figure(
    figure: FigureSpec, runs: Sequence[RunCurves], out: Path, theme: str = "light", style: str = "screen"
) -> None:
    """Writes the figure in the format of the file's suffix: svg, png, pdf, or the Vega-Lite spec as json."""
    from seedbed.charts.render import render

    check_theme(theme, style)
    file_format = picture_format(out)
    kind = CHART_KINDS[figure.kind]
    chart = kind.gather_figure(figure, runs)
    if chart.is_empty:
        raise MissingData("; ".join([kind.empty_reason(figure), *chart.notes]))
    spec = without_interaction(to_vega_lite(kind.draw(chart), THEMES[theme]))
    spec = paper_spec(spec) if style == "paper" else spec
    is_json = file_format == "json"
    content = json.dumps(spec, ensure_ascii=False).encode() if is_json else render(spec, file_format, style == "paper")
    write_picture(out, content)


def picture_format(out: Path) -> str:
    """svg, png, pdf or json, by the suffix of a file; UsageError for another one."""
    if out.suffix not in (".svg", ".png", ".pdf", ".json"):
        raise UsageError(f"--out {out}: expected a file that ends in .svg, .png, .pdf or .json")
    return out.suffix.removeprefix(".")


def write_picture(out: Path, content: bytes) -> None:
    try:
        out.write_bytes(content)
    except OSError as error:
        raise UsageError(f"{out} cannot be written ({error.strerror}); name another file") from None


def preview_figure(figure: FigureSpec, runs: Sequence[RunCurves]) -> str:
    """The figure as text for a terminal."""
    from seedbed.charts.terminal_preview import preview_chart

    kind = CHART_KINDS[figure.kind]
    return preview_chart(kind.gather_figure(figure, runs), kind.preview)


def load_figure(
    home: Path, study: str, only: Sequence[str], options: Mapping[str, Any], number: int | None = None
) -> tuple[FigureSpec, list[RunCurves]]:
    """The figure of this number or of these options, and the runs that it shows."""
    asked = filter(is_analysis_metric, options.get("metrics") or ())
    with open_store(home, read_only=True) as store:
        runs = load_run_curves(store, study, only, extra_metrics=[*asked])
        declared = figures_with_stopping(parse_declarations(store.study(study).text))
    return requested_figure(options, runs, declared, number), runs


def draw_figure(spec: FigureSpec, runs: Sequence[RunCurves], theme: str = "light") -> Any:
    """The figure as an Altair chart, which a notebook shows and whose `save` writes SVG, PNG, PDF, JSON and HTML."""
    check_theme(theme)
    kind = CHART_KINDS[spec.kind]
    data = kind.gather_figure(spec, runs)
    if data.is_empty:
        raise MissingData("; ".join([kind.empty_reason(spec), *data.notes]))
    chart = as_altair(kind.draw(data))
    chart.config = vega_config(THEMES[theme])
    return chart
