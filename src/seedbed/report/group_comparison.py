"""A comparison of named groups of runs: the sentence, tables of means and of all pairs, and charts.

    groups = load_groups(store, ["arithmetic/sanity", "model.kind"])
    comparison = compare_named_groups(groups, MetricStatistic("val/accuracy", "best"))

Groups and results are those of `seedbed compare`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, nan
from typing import Any

from seedbed.charts.axis_labels import metric_label
from seedbed.charts.pairwise_differences import draw_pairwise_differences, gather_pairwise_differences
from seedbed.charts.parallel_coordinates import draw_parallel_coordinates, gather_parallel_coordinates
from seedbed.charts.vega_lite import to_vega_lite
from seedbed.format import capitalise, format_interval, format_number, format_p_value, format_seeds, format_value
from seedbed.report.figures import RenderedFigure, render_figure
from seedbed.report.study_answers import compare_named
from seedbed.report.study_runs import differing_settings, pick_settings
from seedbed.report.tables import Table, format_mean_std
from seedbed.specs import FigureSpec
from seedbed.stats.answers.finding import Finding, MetricStatistic
from seedbed.stats.comparison import SeedSummary, has_width
from seedbed.stats.decision import Verdict, decide_difference
from seedbed.stats.metric_registry import training_metric
from seedbed.stats.summary import RunCurves


@dataclass(frozen=True)
class GroupComparison:
    """The result of a comparison, with its tables and figures."""

    subject: MetricStatistic
    groups: Mapping[str, Sequence[RunCurves]]
    result: Finding
    command: str

    def tables(self) -> tuple[Table, ...]:
        """Every group's mean, and every pair's difference where groups are compared in pairs."""
        if not self.result.numbers:
            return ()
        return (_centres_table(self), *([_pairs_table(self)] if "pairs" in self.result.numbers else []))

    def figures(self, interactive: bool = False) -> dict[str, RenderedFigure]:
        """Pairwise differences, the groups' learning curves, and parallel coordinates over the differing settings.

        If interactive, parallel coordinates can be brushed; static output has no use for that.
        """
        return {
            "differences": _differences_figure(self),
            "curves": _curves_figure(self),
            "parallel": _parallel_figure(self, interactive),
        }


def compare_named_groups(
    groups: Mapping[str, Sequence[RunCurves]],
    subject: MetricStatistic,
    arguments: Sequence[str] = (),
    allow_confounds: bool = False,
) -> GroupComparison:
    """The comparison of these groups; `arguments` are those of `seedbed compare` that name them."""
    options = ["--metric", subject.metric, "--value", subject.statistic, *(["--confounded"] * allow_confounds)]
    command = shlex.join(["seedbed", "compare", *arguments, *options])
    return GroupComparison(subject, groups, compare_named(groups, subject, arguments, allow_confounds), command)


# ---- tables ----


def _centres_table(comparison: GroupComparison) -> Table:
    """Every group's mean; of times to a threshold its median, and along many numbers the mean at each."""
    numbers, title = comparison.result.numbers, f"of {comparison.subject}"
    notes = tuple(comparison.result.notes)
    rows: tuple[tuple[str, ...], ...]
    if medians := numbers.get("medians"):
        reached = {name: f"{one['n_reached']} of {one['n']}" for name, one in medians.items()}
        rows = tuple(
            (name, format_number(one["median"]), format_interval(one["low"], one["high"]), reached[name])
            for name, one in medians.items()
        )
        return Table(f"Medians {title}", ("group", "median", "95 % interval", "runs that got there"), rows, notes)
    if "means" not in numbers:
        rows = tuple(
            (format_value(level), format_number(centre))
            for trend in numbers.values() for level, centre in trend["means"].items()
        )  # fmt: skip
        return Table(f"Means {title}", ("value", "mean"), rows, notes)
    spreads = {name: SeedSummary(**summary) for name, summary in numbers["means"].items()}
    rows = tuple(
        (name, format_mean_std(spread), str(spread.n), format_seeds(sorted(spread.values)))
        for name, spread in spreads.items()
    )
    notes = ("± is the population std over seeds (ddof 0).", *notes)
    return Table(f"Means {title}", ("group", "mean ± std", "n", "seeds"), rows, notes)


def _pairs_table(comparison: GroupComparison) -> Table:
    pairs = comparison.result.numbers["pairs"]
    rows = tuple(_pair_row(pair, comparison.result.verdict) for pair in pairs)
    notes = ["Holm: corrected for the number of pairs, and the intervals with it."] if len(pairs) > 1 else []
    if any("effect" in pair for pair in pairs):
        held = "its 95 % interval holds the differences that the tests do not reject"
        notes.insert(0, f"Difference: first − second; {held}.")
    if any(not isfinite(pair.get("low", 0.0)) for pair in pairs):
        notes.append("In parentheses: too few seeds for an interval, so the smallest and largest single difference.")
    columns = ("first", "second", "difference", "95 % interval", "p", "p (Holm)", "n", "pairing", "different")
    return Table("All pairs", columns, rows, tuple(notes), n_labels=2)


def _pair_row(pair: Mapping[str, Any], overall: Verdict | None) -> tuple[str, ...]:
    has_test = isfinite(pair.get("low", 0.0))
    verdict = "no verdict" if overall == "no verdict" else decide_difference(pair["corrected"])
    interval = "–"
    if "smallest" in pair and pair["n"] > 1 and not has_width(pair["smallest"], pair["largest"]):
        interval = "all equal"
    elif isfinite(pair.get("low", nan)):
        interval = format_interval(pair["low"], pair["high"])
    elif "smallest" in pair and pair["n"] > 1:
        interval = f"({format_number(pair['smallest'])} to {format_number(pair['largest'])})"
    p_values = [
        format_p_value(p).removeprefix("p = ").removeprefix("p ") for p in (pair["p"]["value"], pair["corrected"])
    ]
    return (
        pair["first"], pair["second"], format_number(pair["effect"]) if "effect" in pair else "–", interval,
        *(p_values if has_test else ["–", "–"]), str(pair["n"]), "by seed" if pair["paired"] else "none", verdict,
    )  # fmt: skip


# ---- figures ----


def _differences_figure(comparison: GroupComparison) -> RenderedFigure:
    chart = gather_pairwise_differences(comparison.result.numbers, comparison.subject)
    spec = None if chart.is_empty else to_vega_lite(draw_pairwise_differences(chart))
    notes = chart.notes if spec else ("There is no difference to draw yet.",)
    return RenderedFigure(chart.title, "", notes, comparison.command, spec)


def _curves_figure(comparison: GroupComparison) -> RenderedFigure:
    """The learning curves of each group in its colour, beside the same metric on the training split if there is one."""
    runs = [replace(run, config={"group": name}) for name, group in comparison.groups.items() for run in group]
    metric = comparison.subject.metric
    known = {name for run in runs for name in run.curves}
    metrics = tuple(name for name in dict.fromkeys((training_metric(metric, known), metric)) if name in known) or (
        metric,
    )
    rendered = render_figure(
        FigureSpec(metrics=metrics, colour="group", title=f"{capitalise(metric_label(metric))} of the groups"), runs, ""
    )
    return replace(rendered, command=comparison.command)


def _parallel_figure(comparison: GroupComparison, interactive: bool) -> RenderedFigure:
    """Every run once, over the settings in which they differ."""
    unique = list({run.run.id: run for group in comparison.groups.values() for run in group}.values())
    names = differing_settings([run.run for run in unique])
    runs = [replace(run, config=pick_settings(run.run.settings, names)) for run in unique]
    figure = FigureSpec(kind="parallel", metrics=(comparison.subject.metric,), value=comparison.subject.statistic)
    chart = gather_parallel_coordinates(figure, runs)
    if chart.is_empty:
        return RenderedFigure(
            chart.title, "", ("No run has a finite value yet.", *chart.notes), comparison.command, None
        )
    hint = ("Drag along an axis to keep the lines that pass there; click it to reset.",) if interactive else ()
    spec = to_vega_lite(draw_parallel_coordinates(chart, brushable=interactive))
    return RenderedFigure(chart.title, "", (*hint, *chart.notes), comparison.command, spec)
