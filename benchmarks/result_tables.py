"""Tables of docs/results: cells of a report beside the mean and standard deviation over seeds of ours, with verdicts.

    study = StoredStudy(home, "arithmetic/sanity")
    print(Table({"arithmetic/sanity": study}, tables[0]))

A cell is described by its table, row and column together, the later before the earlier: `study`, `only`, `metric`,
`statistic` or `step`, `t_max`, `factor`, `better`. The row or the column has the report's numbers.

A number of a report is one run's, or the mean of `report_seeds` runs. It is *as reported* if it lies in the 95 %
prediction interval of the mean of m further seeds, mean ± t·s·√(1/m + 1/n) of ours, give or take half a unit of its
last digit; *better* or *worse* (of steps *earlier* or *later*) say on which side of the interval ours is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from math import exp, inf, isfinite, nan, sqrt
from statistics import fmean, pstdev, stdev
from typing import Any

from seedbed.errors import MissingData
from seedbed.format import format_number
from seedbed.report.study_runs import load_run_curves
from seedbed.stats.answers import Answer, answer_question, format_question
from seedbed.stats.curve_statistics import value_at_best_step, value_at_step
from seedbed.stats.run_statistics import compute_statistic, truncate_run
from seedbed.stats.summary import RunCurves
from seedbed.store import open_store
from seedbed.study.conditions import select_runs
from seedbed.study.declarations import parse_declarations

AS_REPORTED, NOT_TRAINED = "as reported", "not trained"
# Ours lies below the report's number, or above it, by what is better of the quantity.
OUTSIDE = {"higher": ("worse", "better"), "lower": ("better", "worse"), "later": ("earlier", "later")}
OUTSIDE |= {"neither": ("ours is lower", "ours is higher")}
NUMBER = re.compile(r"[-−]?\d+(?:\.(?P<decimals>\d+))?(?:e(?P<exponent>-?\d+))?")


class StoredStudy:
    """A study's runs with their curves, loaded once, and its answers."""

    def __init__(self, home: str, name: str) -> None:
        self.home, self.name = home, name
        self._selected = dict[tuple[str, ...], list[RunCurves]]()

    @cached_property
    def runs(self) -> list[RunCurves]:
        with open_store(self.home, read_only=True) as store:
            return load_run_curves(store, self.name)

    def select(self, only: Sequence[str]) -> list[RunCurves]:
        """The finished runs that match the filters."""
        key = tuple(only)
        if key not in self._selected:
            finished = [run for run in self.runs if run.is_complete]
            ids = {run.id for run in select_runs([run.run for run in finished], key, owner=self.name)}
            self._selected[key] = [run for run in finished if run.run.id in ids]
        return self._selected[key]

    def answer(self, text: str) -> Answer:
        """The answer to the question of the study with this text."""
        with open_store(self.home, read_only=True) as store:
            questions = parse_declarations(store.study(self.name).text).questions
        question = next(one for one in questions if format_question(one) == text)
        return answer_question(question, self.runs)


class Table:
    """A table of a page, and the verdicts of its cells."""

    def __init__(self, studies: Mapping[str, StoredStudy], table: Mapping[str, Any]) -> None:
        self.table, self.studies = table, studies
        self.verdicts, self.n_seeds = list[str](), set[int]()
        self.rows, self.columns = [as_row(one) for one in table["rows"]], table["columns"]
        self.head = [table.get("of", ""), *(column["name"] for column in self.columns)]
        self.lines = [
            [str(row["label"]), *(self._cell(row, column, i, j) for j, column in enumerate(self.columns))]
            for i, row in enumerate(self.rows)
        ]

    def _cell(self, row: Mapping[str, Any], column: Mapping[str, Any], i: int, j: int) -> str:
        """A number of the report and ours, such as `87.8 / 88.3 ± 1.0`, with the verdict where they differ."""
        cell = {**self.table, **row, **column}
        cell["only"] = [*self.table.get("only", []), *row.get("only", []), *column.get("only", [])]
        reported = find_reported(row, j) if "report" in row else find_reported(column, i)
        if "missing" not in cell:
            cell |= {} if self._is_trained(cell) else {"missing": NOT_TRAINED}
        if "missing" in cell:
            self.verdicts += [NOT_TRAINED] * (reported is not None)
            return " / ".join(filter(None, (reported, cell["missing"])))
        values = list(read_values(self.studies[cell["study"]], cell).values())
        self.n_seeds |= {len(values)} - {0}
        ours = format_values(values)
        if reported is None:
            return ours
        if not cell.get("judged", True) or not values:
            return f"{reported} / {ours}"
        if "verdict" in cell:  # why the two cannot be compared
            self.verdicts.append(cell["verdict"])
            return f"{reported} / {ours}"
        verdict = compare(reported, values, cell.get("better", "higher"), cell.get("report_seeds", 1))
        self.verdicts.append(verdict)
        return f"{reported} / {ours}" + ("" if verdict == AS_REPORTED else f" ({verdict})")

    def _is_trained(self, cell: Mapping[str, Any]) -> bool:
        try:
            return cell["study"] in self.studies and bool(self.studies[cell["study"]].select(cell["only"]))
        except MissingData:  # the study is there, but these runs of it are not
            return False

    def __str__(self) -> str:
        named = [one["study"] for one in (self.table, *self.rows, *self.columns) if "study" in one]
        commands = ", ".join(f"`seedbed run {study}`" for study in dict.fromkeys(named))
        note = f" {self.table['note'].strip()}" if "note" in self.table else ""
        lines = [f"| {' | '.join(cells)} |" for cells in (self.head, ["---"] * len(self.head), *self.lines)]
        n = " or ".join(map(str, sorted(self.n_seeds)))
        has_report = any("report" in one for one in (*self.rows, *self.columns))
        what = "the report's number / ours" if has_report else "ours"
        n = f", n = {n}" if n else ""
        return f"## {self.table['title']}\n\n{commands}; {what}{n}.{note}\n\n" + "\n".join(lines)


def studies_of(table: Mapping[str, Any]) -> list[str]:
    """The studies that a table reads."""
    return [one["study"] for one in (table, *map(as_row, table["rows"]), *table["columns"]) if "study" in one]


def as_row(row: Any) -> Mapping[str, Any]:
    """A row that is only a label or a step is short for both."""
    return row if isinstance(row, Mapping) else {"label": row}


def find_reported(owner: Mapping[str, Any], index: int) -> str | None:
    """The report's number as it prints it; None if it has none here."""
    reported = owner.get("report", [])
    return None if index >= len(reported) or reported[index] == "" else str(reported[index])


def read_values(study: StoredStudy, cell: Mapping[str, Any]) -> dict[int, float]:
    """The cell's number for each seed; of a ratio, to the same seed of the runs that it is relative to."""
    values = {}
    for run in study.select(cell["only"]):
        value = READERS[cell["read"]](run) if "read" in cell else read_metric(run, cell)
        if isfinite(value):
            values[run.run.seed] = cell.get("factor", 1) * value
    if "relative_to" in cell:
        base_cell = {key: value for key, value in cell.items() if key not in ("relative_to", "factor")}
        base = read_values(study, base_cell | {"only": cell["relative_to"]})
        values = {seed: value / base[seed] for seed, value in values.items() if seed in base}
    return {seed: value for seed, value in values.items() if seed in cell.get("seeds", values)}


def read_metric(run: RunCurves, cell: Mapping[str, Any]) -> float:
    """A metric at a step, or where another one is best, or a statistic of it."""
    if "t_max" in cell:
        run = truncate_run(run, cell["t_max"])
    metric, statistic = cell["metric"], cell.get("statistic", "last")
    if "step" in cell:
        return value_at_step(run.curves[metric], cell["step"])
    if statistic == "at best":
        return value_at_best_step(run.curves[metric], run.curves[cell["best_of"]], "min")
    value = compute_statistic(run, metric, statistic)
    return exp(value) if cell.get("exp") else value


READERS: dict[str, Callable[[RunCurves], float]] = {
    "parameters": lambda run: run.run.parameters.total,
    "non-embedding parameters": lambda run: run.run.parameters.non_embedding,
}


def format_values(values: Sequence[float]) -> str:
    """`0.9812 ± 0.0102`, `–` of nothing."""
    if not values:
        return "–"
    return format_number(fmean(values)) + (f" ± {format_number(pstdev(values))}" if len(values) > 1 else "")


def parse_number(text: str) -> tuple[float, float]:
    """The first number in a text, and half a unit of its last digit.

    >>> parse_number("1.51e-4 ± 1.01e-5")
    (0.000151, 5e-07)
    """
    if (found := NUMBER.search(text.replace(",", ""))) is None:
        return nan, inf
    digits, exponent = len(found["decimals"] or ""), int(found["exponent"] or 0)
    return float(found[0].replace("−", "-")), float(f"5e{exponent - digits - 1}")


def compare(reported: str, values: Sequence[float], better: str, report_seeds: int = 1) -> str:
    """Where the reported number lies with respect to the prediction interval of as many further seeds."""
    from scipy.stats import t

    n, mean = len(values), fmean(values)
    number, rounding = parse_number(reported)
    spread = stdev(values) * sqrt(1 / report_seeds + 1 / n) if n > 1 else 0.0
    width = float(t.ppf(0.975, n - 1)) * spread if n > 1 else 0.0
    if abs(number - mean) <= width + rounding:
        return AS_REPORTED
    return OUTSIDE[better][mean > number]
