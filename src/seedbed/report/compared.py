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

from seedbed.charts.differences import draw_differences, gather_differences
from seedbed.charts.parallel import draw_parallel, gather_parallel
from seedbed.charts.specs import spec_of
from seedbed.measures.answers.better import compare_groups
from seedbed.measures.answers.found import Found
from seedbed.measures.answers.said import Subject
from seedbed.measures.compare import LEVEL, Spread
from seedbed.measures.summary import RunCurves
from seedbed.measures.values import sibling
from seedbed.measures.words import bracket, chance, number
from seedbed.report.figures import Shown, show_figure
from seedbed.report.gather import differing_dials
from seedbed.report.tables import Table, value_in_words
from seedbed.shown import Figure


@dataclass(frozen=True)
class Compared:
    """A comparison, ready to be shown."""

    subject: Subject
    groups: Mapping[str, Sequence[RunCurves]]
    found: Found
    command: str

    def tables(self) -> tuple[Table, ...]:
        """Every group's mean, and every pair's difference."""
        return (_means_table(self), _pairs_table(self)) if self.found.numbers else ()

    def figures(self, live: bool = False) -> dict[str, Shown]:
        """Differences with intervals, the groups' curves over each other, and all dials side by side.

        Live, the last can be brushed: a page takes it, paper does not.
        """
        return {"differences": _differences(self), "curves": _curves(self), "parallel": _parallel(self, live)}


def compare_named(groups: Mapping[str, Sequence[RunCurves]], subject: Subject, names: Sequence[str] = ()) -> Compared:
    """The groups compared; `names` are the arguments of `seedbed compare` that name them."""
    options = ["--metric", subject.metric, "--value", subject.value]
    command = shlex.join(["seedbed", "compare", *names, *options])
    return Compared(subject, groups, compare_groups(groups, subject), command)


# ---- tables ----


def _means_table(compared: Compared) -> Table:
    rows = []
    for name, found in compared.found.numbers["means"].items():
        spread = Spread(**found)
        seeds = ", ".join(map(str, sorted(spread.values)))
        rows.append((name, value_in_words(spread), str(spread.n), seeds))
    notes = ("± is the population std over seeds (ddof 0).", *compared.found.notes)
    return Table(f"Means of {compared.subject}", ("group", "mean ± std", "n", "seeds"), tuple(rows), notes)


def _pairs_table(compared: Compared) -> Table:
    pairs = compared.found.numbers["pairs"]
    rows = tuple(_pair_row(pair) for pair in pairs)
    notes = ["Difference: first − second, with its 95 % interval; p: an exact test of seeds or runs."]
    notes += ["Holm: p corrected for the number of pairs."] if len(pairs) > 1 else []
    columns = ("first", "second", "difference", "95 % interval", "p", "p (Holm)", "n", "pairing", "told apart")
    return Table("All pairs", columns, rows, tuple(notes), n_labels=2)


def _pair_row(pair: Mapping[str, Any]) -> tuple[str, ...]:
    known = isfinite(pair["low"])
    between = bracket(pair["low"], pair["high"]) if known else "–"
    tested = [chance(p).removeprefix("p = ").removeprefix("p ") for p in (pair["p"]["value"], pair["corrected"])]
    apart = ("yes" if pair["corrected"] <= LEVEL else "no") if known else "one seed"
    pairing = "by seed" if pair["paired"] else "none"
    return (
        pair["first"], pair["second"], number(pair["effect"]), between, *(tested if known else ["–", "–"]),
        str(pair["n"]), pairing, apart,
    )  # fmt: skip


# ---- figures ----


def _differences(compared: Compared) -> Shown:
    gathered = gather_differences(compared.found.numbers, compared.subject)
    spec = None if gathered.empty else spec_of(draw_differences(gathered))
    notes = gathered.notes if spec else ("There is no difference to draw yet.",)
    return Shown(gathered.title, "", notes, compared.command, spec)


def _curves(compared: Compared) -> Shown:
    """Every group's curves in its colour; the same metric on training samples beside it where there is one."""
    runs = [replace(run, point={"group": name}) for name, some in compared.groups.items() for run in some]
    metric = compared.subject.metric
    known = {name for run in runs for name in run.curves}
    metrics = tuple(name for name in dict.fromkeys((sibling(metric, "train"), metric)) if name in known) or (metric,)
    shown = show_figure(Figure(metrics=metrics, colour="group", title=f"Curves of the groups, {metric}"), runs, "")
    return replace(shown, command=compared.command)


def _parallel(compared: Compared, live: bool) -> Shown:
    """All runs once, over every dial in which they differ."""
    once = list({run.run.id: run for some in compared.groups.values() for run in some}.values())
    dials = differing_dials([run.run for run in once])
    runs = [replace(run, point=_over(run, dials)) for run in once]
    figure = Figure(kind="parallel", metrics=(compared.subject.metric,), value=compared.subject.value)
    gathered = gather_parallel(figure, runs)
    if gathered.empty:
        return Shown(gathered.title, "", ("No run has a finite number yet.", *gathered.notes), compared.command, None)
    how = ("Drag along an axis to keep the lines that pass there; click it to let go.",) if live else ()
    spec = spec_of(draw_parallel(gathered, brushed=live))
    return Shown(gathered.title, "", (*how, *gathered.notes), compared.command, spec)


def _over(run: RunCurves, dials: Sequence[str]) -> dict[str, Any]:
    own = run.run.settings.dials()
    return {name: own[name] for name in dials if name in own}
