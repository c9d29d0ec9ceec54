"""Tables as values, their Markdown, CSV, LaTeX and terminal forms, and report D's table 1 for any study.

The numbers come from `measures.summary`; this module only words them. `point_tables` lays up to four points side by
side with metrics as rows, and more points as rows under each other.

>>> print(to_markdown(Table("", ("metric", "gpt"), (("L_val", "1.51e-04 ± 1.01e-05"),), best=frozenset({(0, 1)}))))
| metric | gpt |
| :--- | ---: |
| L_val | **1.51e-04 ± 1.01e-05** |
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import floor, isfinite, isnan, log10
from typing import TYPE_CHECKING, TypeAlias

from seedbed.records import RunStatus
from seedbed.settings import Value
from seedbed.stats.comparison import SeedSummary, summarise_seeds
from seedbed.stats.curve_statistics import metric_direction
from seedbed.stats.metric_registry import QUANTITIES, STATISTICS, Direction, MetricName, metric_label, metric_sort_key
from seedbed.stats.summary import ConfigSummary

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

MAX_CONFIG_COLUMNS = 4  # points; more of them stand under each other
_COLUMN_GAP_CHARS = 2  # blanks between two columns of text


@dataclass(frozen=True)
class Table:
    """Words in rows and columns; the first `n_labels` columns name the row, `best` holds (row, column) to stand out."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    best: frozenset[tuple[int, int]] = frozenset()
    n_labels: int = 1


def _escape_rows(table: Table, escape: Callable[[str], str], best_template: str) -> tuple[tuple[str, ...], ...]:
    """The rows with every cell escaped, and the best cells put in the frame `best`."""
    rows = [[escape(cell) for cell in cells] for cells in table.rows]
    for row, column in table.best:
        rows[row][column] = best_template.format(rows[row][column])
    return tuple(map(tuple, rows))


def _printable_line(text: str) -> str:
    """Line breaks and terminal control signs, which could come in by a name in a study, become spaces."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


# ---- Markdown ----


def to_markdown(table: Table) -> str:
    """The table as GitHub's Markdown, best cells bold, notes as paragraphs below."""
    sides = [":---" if column < table.n_labels else "---:" for column in range(len(table.columns))]
    body = _escape_rows(table, _escape_markdown, "**{}**")
    lines = [f"| {' | '.join(cells)} |" for cells in (map(_escape_markdown, table.columns), sides, *body)]
    title = [f"**{_escape_markdown(table.title)}**", ""] if table.title else []
    notes = [line for note in table.notes for line in ("", _escape_markdown(note))]
    return "\n".join([*title, *lines, *notes])


def _escape_markdown(text: str) -> str:
    # An underscore inside a word is no mark-up on GitHub: L_train stays readable in the source.
    return re.sub(r"([\\|*`<]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", _printable_line(text))


# ---- CSV ----

_PLAIN_NUMBER = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?( ± [\d.]+(e[-+]?\d+)?)?")
_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠].")  # a sign alone, such as the operator +, computes nothing


def to_csv(table: Table) -> str:
    """Columns and rows as comma-separated values; title and notes stay out so that any reader takes it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_escape_csv(cell) for cell in cells] for cells in (table.columns, *table.rows))
    return text.getvalue()


def _escape_csv(text: str) -> str:
    """A cell that a spreadsheet will not run as a formula (CWE-1236); numbers stay numbers."""
    cell = _printable_line(text)
    return f"'{cell}" if _FORMULA.match(cell) and not _PLAIN_NUMBER.fullmatch(cell) else cell


# ---- LaTeX ----

_LATEX_ESCAPES = {sign: f"\\{sign}" for sign in "{}$&#%_"}
_LATEX_ESCAPES |= {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
}
_LATEX_ESCAPES |= {"±": r"$\pm$", "Δ": r"$\Delta$", "−": "$-$", "–": "--", "‖": r"$\|$", "θ": r"$\theta$", "₂": "$_2$"}
_LATEX_ESCAPES |= {"[": "{[}"}  # after \\ a bracket would be read as a length


def to_latex(table: Table) -> str:
    """The table as a LaTeX float that needs no package; notes stand small under it."""
    sides = "l" * table.n_labels + "r" * (len(table.columns) - table.n_labels)
    body = _escape_rows(table, _escape_latex, r"\textbf{{{}}}")
    head, *lines = [f"{' & '.join(cells)} \\\\" for cells in (map(_escape_latex, table.columns), *body)]
    caption = [f"\\caption{{{_escape_latex(table.title)}}}"] if table.title else []
    inner = [f"\\begin{{tabular}}{{{sides}}}", r"\hline", head, r"\hline", *lines, r"\hline", r"\end{tabular}"]
    notes = [f"\\par{{\\footnotesize {_escape_latex(note)}}}" for note in table.notes]
    return "\n".join([r"\begin{table}", r"\centering", *caption, *inner, *notes, r"\end{table}"])


def _escape_latex(text: str) -> str:
    return "".join(_LATEX_ESCAPES.get(sign, sign) for sign in _printable_line(text))


# ---- terminal ----


def to_rich(table: Table) -> RenderableType:
    """The table for rich's `console.print`: best cells bold in a terminal, starred where there is no bold.

    A table wider than the console is continued below, with its labels repeated, rather than cut or wrapped.
    """
    return _RichTable(table)


@dataclass(frozen=True)
class _RichTable:
    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.text import Text

        table = self.table if options.is_terminal else replace(self.table, rows=_escape_rows(self.table, str, "*{}"))
        if table.title:
            yield Text(_printable_line(table.title), "bold")
        for place, part in enumerate(_split_to_width(table, options.max_width)):
            yield from [""] * (place > 0)
            yield _rich_grid(part)
        yield from (Text(_printable_line(note), "dim") for note in table.notes)


def _rich_grid(table: Table) -> RenderableType:
    from rich import box
    from rich import table as rich_table
    from rich.text import Text

    grid = rich_table.Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for column, name in enumerate(table.columns):
        grid.add_column(Text(_printable_line(name)), justify="left" if column < table.n_labels else "right")
    for row, cells in enumerate(table.rows):
        styles = ["bold" if (row, column) in table.best else "" for column in range(len(cells))]
        grid.add_row(*(Text(_printable_line(cell), style) for cell, style in zip(cells, styles, strict=True)))
    return grid


def _split_to_width(table: Table, width: int) -> Iterator[Table]:
    """The table, or its parts with the same labels and as many columns each as the width takes."""
    widths = [max(map(len, cells)) + _COLUMN_GAP_CHARS for cells in zip(table.columns, *table.rows, strict=True)]
    labels = list(range(table.n_labels))
    part = labels.copy()
    for column in range(table.n_labels, len(widths)):
        if len(part) > len(labels) and sum(widths[kept] for kept in [*part, column]) - _COLUMN_GAP_CHARS > width:
            yield _select_columns(table, part)
            part = labels.copy()
        part.append(column)
    yield _select_columns(table, part)


def _select_columns(table: Table, selected: Sequence[int]) -> Table:
    return replace(
        table,
        columns=tuple(table.columns[column] for column in selected),
        rows=tuple(tuple(cells[column] for column in selected) for cells in table.rows),
        best=frozenset((row, selected.index(column)) for row, column in table.best if column in selected),
    )


# ---- numbers ----


def format_mean_std(spread: SeedSummary) -> str:
    """`mean ± std` with up to 4 significant digits; scientific below 1e-2 and from 1e5, as 1.51e-04."""
    size = abs(spread.mean)
    if not 1e-2 <= size < 1e5:
        return _format_spread(spread, lambda number: f"{number:.2e}" if number else "0")
    decimals = min(max(3 - floor(log10(size)), 0), 4)
    return _format_spread(spread, lambda number: f"{number:.{decimals}f}")


def format_accuracy(spread: SeedSummary) -> str:
    """`mean ± std` of an accuracy, with three decimals."""
    return _format_spread(spread, lambda number: f"{number:.3f}")


def format_steps(spread: SeedSummary) -> str:
    """`mean ± std` of steps: whole numbers, with one decimal when fractional, as 9900.5."""
    return _format_spread(spread, lambda number: f"{number:.0f}" if number == round(number) else f"{number:.1f}")


def _format_spread(spread: SeedSummary, format_number: Callable[[float], str]) -> str:
    """One seed has no spread to show; no seed has nothing."""
    if spread.n == 0:
        return "–"
    if not isfinite(spread.mean):
        return "NaN" if isnan(spread.mean) else str(spread.mean)
    return (
        format_number(spread.mean) if spread.n == 1 else f"{format_number(spread.mean)} ± {format_number(spread.std)}"
    )


# ---- report D's table 1 ----


@dataclass(frozen=True)
class _StatisticRow:
    """One measured number over all points: a row where points stand side by side, else a column."""

    label: str
    legend: str
    spreads: tuple[SeedSummary | None, ...]
    format_spread: Callable[[SeedSummary], str]
    direction: Direction | None = None

    def cells(self) -> list[str]:
        return [self.format_spread(spread) if spread else "–" for spread in self.spreads]

    def best_config(self) -> int | None:
        """The point whose mean beats all others by a difference that can be seen; None when there is none."""
        means = [(spread.mean, point) for point, spread in enumerate(self.spreads) if spread and not isnan(spread.mean)]
        if self.direction is None or len(means) < 2:
            return None
        first, second = sorted(means, reverse=self.direction == "max")[:2]
        seen = {self.format_spread(summarise_seeds({0: mean})) for mean, _ in (first, second)}
        return first[1] if len(seen) == 2 else None


_Summaries: TypeAlias = Sequence[ConfigSummary]


def config_tables(summaries: _Summaries, t_max: float | None = None) -> list[Table]:
    """Best values, t_f and Δt of every point: one table, or one of values and one of steps when points are many."""
    if not summaries:
        return []
    if len(summaries) <= MAX_CONFIG_COLUMNS:
        return [_configs_as_columns(summaries, t_max)]
    plain, grouped = _metric_names(summaries)
    values = _value_rows(summaries, plain) + _at_best_rows(summaries) + _value_rows(summaries, grouped)
    steps = _step_rows(summaries, plain) + _delta_rows(summaries) + _step_rows(summaries, grouped)
    tables = [_configs_as_rows("Best values", summaries, values, t_max)]
    return tables + [_configs_as_rows("Steps to the best values", summaries, steps, t_max)] * bool(steps)


def _configs_as_columns(summaries: _Summaries, t_max: float | None) -> Table:
    plain, grouped = _metric_names(summaries)
    lines = _value_rows(summaries, plain) + _at_best_rows(summaries) + _step_rows(summaries, plain)
    lines += _delta_rows(summaries)
    lines += _value_rows(summaries, grouped) + _step_rows(summaries, grouped)
    winners = [(row, line.best_config()) for row, line in enumerate(lines)]
    best = frozenset((row, 1 + point) for row, point in winners if point is not None)
    return Table(
        title="Best values and the steps that first attain them",
        columns=("metric", *_headings(summaries)),
        rows=tuple((line.label, *line.cells()) for line in lines),
        notes=_notes(summaries, lines, t_max, "row" if best else None),
        best=best,
    )


def _configs_as_rows(
    title: str, summaries: _Summaries, statistics: Sequence[_StatisticRow], t_max: float | None
) -> Table:
    names = _short_names(summaries)
    counts = [] if _same_seeds(summaries) else [("n", [_format_run_count(summary) for summary in summaries])]
    dials = [(short, [_format_setting(summary, name) for summary in summaries]) for name, short in names.items()]
    labels = dials + counts
    columns = labels + [(line.label, line.cells()) for line in statistics]
    winners = [(line.best_config(), column) for column, line in enumerate(statistics, len(labels))]
    best = frozenset((row, column) for row, column in winners if row is not None)
    return Table(
        title=title,
        columns=tuple(name for name, _ in columns),
        rows=tuple(zip(*(cells for _, cells in columns), strict=True)),
        notes=_notes(summaries, statistics, t_max, "column" if best else None),
        best=best,
        n_labels=len(labels),
    )


# ---- its lines ----


def _metric_names(summaries: _Summaries) -> tuple[list[str], list[str]]:
    """Metrics that have a best value: those over all samples, and those of a group."""
    found = {name for summary in summaries for name in summary.metrics if metric_direction(name)}
    grouped = [name for name in sorted(found, key=metric_sort_key) if MetricName.parse(name).group]
    return sorted(found.difference(grouped), key=metric_sort_key), grouped


def _value_rows(summaries: _Summaries, names: Sequence[str]) -> list[_StatisticRow]:
    return [_value_row(summaries, name) for name in names]


def _value_row(summaries: _Summaries, name: str) -> _StatisticRow:
    entry = QUANTITIES[MetricName.parse(name).quantity]
    which = "smallest" if entry.direction == "min" else "largest"
    legend = f"{entry.symbol}: {entry.name} ({entry.unit}), {which} recorded"
    metrics = [summary.metrics.get(name) for summary in summaries]
    spreads = tuple(metric.value if metric else None for metric in metrics)
    in_words = format_accuracy if entry.unit == "share" else format_mean_std
    return _StatisticRow(metric_label(name), legend, spreads, in_words, entry.direction)


def _at_best_rows(summaries: _Summaries) -> list[_StatisticRow]:
    """Report C's second column: the training value at the step where validation is best."""
    quantities = [name for name in QUANTITIES if any(name in summary.at_best for summary in summaries)]
    legend = "PPL_train at best: training perplexity at the step where the validation perplexity is best"
    spreads = {name: tuple(summary.at_best.get(name) for summary in summaries) for name in quantities}
    heads = {name: f"{metric_label(f'train/{name}')} at best" for name in quantities}
    return [_StatisticRow(heads[name], legend, found, format_mean_std) for name, found in spreads.items()]


def _step_rows(summaries: _Summaries, names: Sequence[str]) -> list[_StatisticRow]:
    metrics = {name: [summary.metrics.get(name) for summary in summaries] for name in names}
    spreads = {name: tuple(metric.t_f if metric else None for metric in found) for name, found in metrics.items()}
    return [
        _StatisticRow(f"t_f({metric_label(name)})", _legend("t_f"), found, format_steps)
        for name, found in spreads.items()
    ]


def _delta_rows(summaries: _Summaries) -> list[_StatisticRow]:
    quantities = [name for name in QUANTITIES if any(name in summary.delta_t for summary in summaries)]
    spreads = {name: tuple(summary.delta_t.get(name) for summary in summaries) for name in quantities}
    return [
        _StatisticRow(f"Δt({metric_label(name)})", _legend("delta_t"), found, format_steps)
        for name, found in spreads.items()
    ]


def _legend(statistic: str) -> str:
    return f"{STATISTICS[statistic].symbol}: {STATISTICS[statistic].meaning}"


# ---- its headings and notes ----


def _headings(summaries: _Summaries) -> list[str]:
    """One heading per point, from its varied dials: `gpt`, `layers=2 dim=64`; with n where points differ in it."""
    names = _short_names(summaries)
    alike = _same_seeds(summaries)
    return [
        _heading(summary, names) + ("" if alike else f" (n = {_format_run_count(summary)})") for summary in summaries
    ]


def _heading(summary: ConfigSummary, names: Mapping[str, str]) -> str:
    words = {name: _format_setting(summary, name) for name in names if name in summary.config}
    return " ".join(word if name == "model.kind" else f"{names[name]}={word}" for name, word in words.items()) or "all"


def _short_names(summaries: _Summaries) -> dict[str, str]:
    """Each varied dial with the last part of its name, or all of it where two dials end alike."""
    names = list(dict.fromkeys(name for summary in summaries for name in summary.config))
    ends = [name.rpartition(".")[2] for name in names]
    return {name: end if ends.count(end) == 1 else name for name, end in zip(names, ends, strict=True)}


def _format_setting(summary: ConfigSummary, name: str) -> str:
    return _format_value(summary.config[name]) if name in summary.config else "–"


def _format_value(value: Value) -> str:
    """A dial's value as one would type it: `0.001`, `1`, `true`, `[2,3]`."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_format_value, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _same_seeds(summaries: _Summaries) -> bool:
    """Whether all points have the same seeds and all their runs are in the means."""
    return all(summary.n_included == summary.n_runs and summary.seeds == summaries[0].seeds for summary in summaries)


def _format_run_count(summary: ConfigSummary) -> str:
    return str(summary.n_included) if summary.n_included == summary.n_runs else f"{summary.n_included}/{summary.n_runs}"


def _notes(
    summaries: _Summaries, statistics: Sequence[_StatisticRow], t_max: float | None, best_axis: str | None
) -> tuple[str, ...]:
    several = any(spread and spread.n > 1 for line in statistics for spread in line.spreads)
    notes = [
        _seeds_note(summaries),
        _status_note(summaries),
        "± is the population std over seeds (ddof 0)." if several else "",
        "; ".join(dict.fromkeys(line.legend for line in statistics)) + "."
        if statistics
        else "Nothing is recorded yet.",
        "" if t_max is None else f"Only records up to step {_format_value(t_max)} count.",
        f"The best mean of a {best_axis} is marked." if best_axis else "",
    ]
    return tuple(note for note in notes if note)


def _seeds_note(summaries: _Summaries) -> str:
    if not _same_seeds(summaries):
        return "n: runs in the means; 1/2 where one of two diverged, failed or has no record."
    seeds = summaries[0].seeds
    return f"n = {len(seeds)} seed{'s' * (len(seeds) != 1)}: {_format_seed_ranges(seeds)}."


def _status_note(summaries: _Summaries) -> str:
    """How many runs are in which state, unless all are finished."""
    status = sum((Counter(summary.status_counts) for summary in summaries), Counter[RunStatus]())
    counts = ", ".join(f"{count} {name}" for name, count in sorted(status.items()))
    return "" if set(status) == {"finished"} else f"Runs: {counts}."


def _format_seed_ranges(seeds: Sequence[int]) -> str:
    """`0–9, 42`: three or more neighbours as one range."""
    words: list[str] = []
    for _, group in groupby(enumerate(seeds), key=lambda place: place[1] - place[0]):
        run = [seed for _, seed in group]
        words += [f"{run[0]}–{run[-1]}"] if len(run) > 2 else map(str, run)
    return ", ".join(words)
