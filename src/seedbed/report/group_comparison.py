"""Named groups of runs beside each other: the sentence, tables of means and of all pairs, and charts.

    groups = gather_groups(store, ["arithmetic/sanity", "model.kind"])
    compared = compare_named(groups, Subject("val/accuracy", "best"))

Groups are those of `seedbed compare`, and so is what is said of them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from seedbed.charts.pairwise_differences import draw_pairwise_differences, gather_pairwise_differences
from seedbed.charts.parallel_coordinates import draw_parallel_coordinates, gather_parallel_coordinates
from seedbed.charts.vega_lite import to_vega_lite
from seedbed.report.figures import RenderedFigure, render_figure
from seedbed.report.study_runs import differing_settings
from seedbed.report.tables import Table, format_mean_std
from seedbed.specs import FigureSpec
from seedbed.stats.answers.best_group import compare_groups
from seedbed.stats.answers.comparison_text import MetricStatistic
from seedbed.stats.answers.finding import Finding
from seedbed.stats.comparison import SIGNIFICANCE_LEVEL, SeedSummary
from seedbed.stats.format import format_interval, format_number, format_p_value
from seedbed.stats.run_statistics import metric_for_split
from seedbed.stats.summary import RunCurves


@dataclass(frozen=True)
class GroupComparison:
    """A comparison, ready to be shown."""

    subject: MetricStatistic
    groups: Mapping[str, Sequence[RunCurves]]
    result: Finding
    command: str

    def tables(self) -> tuple[Table, ...]:
        """Every group's mean, and every pair's difference."""
        return (_means_table(self), _pairs_table(self)) if self.result.numbers else ()

    def figures(self, interactive: bool = False) -> dict[str, RenderedFigure]:
        """Differences with intervals, the groups' curves over each other, and all dials side by side.

        Live, the last can be brushed: a page takes it, paper does not.
        """
        return {
            "differences": _differences_figure(self),
            "curves": _curves_figure(self),
            "parallel": _parallel_figure(self, interactive),
        }


def compare_named_groups(
    groups: Mapping[str, Sequence[RunCurves]], subject: MetricStatistic, arguments: Sequence[str] = ()
) -> GroupComparison:
    """The groups compared; `names` are the arguments of `seedbed compare` that name them."""
    options = ["--metric", subject.metric, "--value", subject.statistic]
    command = shlex.join(["seedbed", "compare", *arguments, *options])
    return GroupComparison(subject, groups, compare_groups(groups, subject), command)


# ---- tables ----


def _means_table(comparison: GroupComparison) -> Table:
    rows = []
    for name, found in comparison.result.numbers["means"].items():
        spread = SeedSummary(**found)
        seeds = ", ".join(map(str, sorted(spread.values)))
        rows.append((name, format_mean_std(spread), str(spread.n), seeds))
    notes = ("± is the population std over seeds (ddof 0).", *comparison.result.notes)
    return Table(f"Means of {comparison.subject}", ("group", "mean ± std", "n", "seeds"), tuple(rows), notes)


def _pairs_table(comparison: GroupComparison) -> Table:
    pairs = comparison.result.numbers["pairs"]
    rows = tuple(_pair_row(pair) for pair in pairs)
    notes = ["Difference: first − second, with its 95 % interval; p: an exact test of seeds or runs."]
    notes += ["Holm: p corrected for the number of pairs."] if len(pairs) > 1 else []
    columns = ("first", "second", "difference", "95 % interval", "p", "p (Holm)", "n", "pairing", "told apart")
    return Table("All pairs", columns, rows, tuple(notes), n_labels=2)


def _pair_row(pair: Mapping[str, Any]) -> tuple[str, ...]:
    known = isfinite(pair["low"])
    between = format_interval(pair["low"], pair["high"]) if known else "–"
    tested = [
        format_p_value(p).removeprefix("p = ").removeprefix("p ") for p in (pair["p"]["value"], pair["corrected"])
    ]
    apart = ("yes" if pair["corrected"] <= SIGNIFICANCE_LEVEL else "no") if known else "one seed"
    pairing = "by seed" if pair["paired"] else "none"
    return (
        pair["first"], pair["second"], format_number(pair["effect"]), between, *(tested if known else ["–", "–"]),
        str(pair["n"]), pairing, apart,
    )  # fmt: skip


# ---- figures ----


def _differences_figure(comparison: GroupComparison) -> RenderedFigure:
    gathered = gather_pairwise_differences(comparison.result.numbers, comparison.subject)
    spec = None if gathered.is_empty else to_vega_lite(draw_pairwise_differences(gathered))
    notes = gathered.notes if spec else ("There is no difference to draw yet.",)
    return RenderedFigure(gathered.title, "", notes, comparison.command, spec)


def _curves_figure(comparison: GroupComparison) -> RenderedFigure:
    """Every group's curves in its colour; the same metric on training samples beside it where there is one."""
    runs = [replace(run, config={"group": name}) for name, some in comparison.groups.items() for run in some]
    metric = comparison.subject.metric
    known = {name for run in runs for name in run.curves}
    metrics = tuple(name for name in dict.fromkeys((metric_for_split(metric, "train"), metric)) if name in known) or (
        metric,
    )
    shown = render_figure(
        FigureSpec(metrics=metrics, colour="group", title=f"Curves of the groups, {metric}"), runs, ""
    )
    return replace(shown, command=comparison.command)


def _parallel_figure(comparison: GroupComparison, interactive: bool) -> RenderedFigure:
    """All runs once, over every dial in which they differ."""
    once = list({run.run.id: run for some in comparison.groups.values() for run in some}.values())
    dials = differing_settings([run.run for run in once])
    runs = [replace(run, config=_setting_values(run, dials)) for run in once]
    figure = FigureSpec(kind="parallel", metrics=(comparison.subject.metric,), value=comparison.subject.statistic)
    gathered = gather_parallel_coordinates(figure, runs)
    if gathered.is_empty:
        return RenderedFigure(
            gathered.title, "", ("No run has a finite number yet.", *gathered.notes), comparison.command, None
        )
    how = ("Drag along an axis to keep the lines that pass there; click it to let go.",) if interactive else ()
    spec = to_vega_lite(draw_parallel_coordinates(gathered, brushable=interactive))
    return RenderedFigure(gathered.title, "", (*how, *gathered.notes), comparison.command, spec)


def _setting_values(run: RunCurves, names: Sequence[str]) -> dict[str, Any]:
    own = run.run.settings.flat()
    return {name: own[name] for name in names if name in own}
