"""Tables as values, formatted as Markdown, CSV, LaTeX or terminal text; and the table of best values of any study.

The numbers come from `stats.summary`; this module only formats them. `config_tables` shows up to four configs as
columns with metrics as rows, and more configs as rows.

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
from seedbed.stats.metric_registry import QUANTITIES, Direction, MetricName, metric_label, metric_sort_key
from seedbed.stats.run_statistics import STATISTICS
from seedbed.stats.summary import ConfigSummary

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

MAX_CONFIG_COLUMNS = 4  # with more configs, they are rows
_COLUMN_GAP_CHARS = 2  # between columns in a terminal


@dataclass(frozen=True)
class Table:
    """A table of strings; the first `n_labels` columns label the row, `best` holds the (row, column) to highlight."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    best: frozenset[tuple[int, int]] = frozenset()
    n_labels: int = 1


def _escape_rows(table: Table, escape: Callable[[str], str], best_template: str) -> tuple[tuple[str, ...], ...]:
    """The rows with every cell escaped, and the best cells formatted by `best_template`."""
    rows = [[escape(cell) for cell in cells] for cells in table.rows]
    for row, column in table.best:
        rows[row][column] = best_template.format(rows[row][column])
    return tuple(map(tuple, rows))


def _printable_line(text: str) -> str:
    """The text with line breaks and control characters, which a name in a study may contain, replaced by spaces."""
    return "".join(char if char.isprintable() else " " for char in text)


# ---- Markdown ----


def to_markdown(table: Table) -> str:
    """The table as GitHub-flavoured Markdown, best cells bold, notes as paragraphs below."""
    alignment = [":---" if column < table.n_labels else "---:" for column in range(len(table.columns))]
    body = _escape_rows(table, _escape_markdown, "**{}**")
    lines = [f"| {' | '.join(cells)} |" for cells in (map(_escape_markdown, table.columns), alignment, *body)]
    title = [f"**{_escape_markdown(table.title)}**", ""] if table.title else []
    notes = [line for note in table.notes for line in ("", _escape_markdown(note))]
    return "\n".join([*title, *lines, *notes])


def _escape_markdown(text: str) -> str:
    # GitHub does not treat an underscore inside a word as markup, so L_train stays readable in the source.
    return re.sub(r"([\\|*`<]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", _printable_line(text))


# ---- CSV ----

_PLAIN_NUMBER = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?( ± [\d.]+(e[-+]?\d+)?)?")
_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠].")  # a lone sign, such as the operator +, is harmless


def to_csv(table: Table) -> str:
    """Columns and rows as comma-separated values; without title and notes, so that any CSV reader accepts them."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_escape_csv(cell) for cell in cells] for cells in (table.columns, *table.rows))
    return text.getvalue()


def _escape_csv(text: str) -> str:
    """The cell, quoted if a spreadsheet would run it as a formula (CWE-1236); numbers stay numbers."""
    cell = _printable_line(text)
    return f"'{cell}" if _FORMULA.match(cell) and not _PLAIN_NUMBER.fullmatch(cell) else cell


# ---- LaTeX ----

_LATEX_ESCAPES = {char: f"\\{char}" for char in "{}$&#%_"}
_LATEX_ESCAPES |= {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
}
_LATEX_ESCAPES |= {"±": r"$\pm$", "Δ": r"$\Delta$", "−": "$-$", "–": "--", "‖": r"$\|$", "θ": r"$\theta$", "₂": "$_2$"}
_LATEX_ESCAPES |= {"[": "{[}"}  # after \\ a bracket would be parsed as a length


def to_latex(table: Table) -> str:
    """The table as a LaTeX float that needs no package, with the notes in small print below."""
    alignment = "l" * table.n_labels + "r" * (len(table.columns) - table.n_labels)
    body = _escape_rows(table, _escape_latex, r"\textbf{{{}}}")
    head, *lines = [f"{' & '.join(cells)} \\\\" for cells in (map(_escape_latex, table.columns), *body)]
    caption = [f"\\caption{{{_escape_latex(table.title)}}}"] if table.title else []
    inner = [f"\\begin{{tabular}}{{{alignment}}}", r"\hline", head, r"\hline", *lines, r"\hline", r"\end{tabular}"]
    notes = [f"\\par{{\\footnotesize {_escape_latex(note)}}}" for note in table.notes]
    return "\n".join([r"\begin{table}", r"\centering", *caption, *inner, *notes, r"\end{table}"])


def _escape_latex(text: str) -> str:
    return "".join(_LATEX_ESCAPES.get(char, char) for char in _printable_line(text))


# ---- terminal ----


def to_rich(table: Table) -> RenderableType:
    """The table for rich's `console.print`: best cells bold in a terminal, starred elsewhere.

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
        for index, part in enumerate(_split_to_width(table, options.max_width)):
            yield from [""] * (index > 0)
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
    """The table, split into parts that fit the width, each with the label columns."""
    widths = [max(map(len, cells)) + _COLUMN_GAP_CHARS for cells in zip(table.columns, *table.rows, strict=True)]
    labels = list(range(table.n_labels))
    selected = labels.copy()
    for column in range(table.n_labels, len(widths)):
        if len(selected) > len(labels) and sum(widths[i] for i in [*selected, column]) - _COLUMN_GAP_CHARS > width:
            yield _select_columns(table, selected)
            selected = labels.copy()
        selected.append(column)
    yield _select_columns(table, selected)


def _select_columns(table: Table, selected: Sequence[int]) -> Table:
    return replace(
        table,
        columns=tuple(table.columns[column] for column in selected),
        rows=tuple(tuple(cells[column] for column in selected) for cells in table.rows),
        best=frozenset((row, selected.index(column)) for row, column in table.best if column in selected),
    )


# ---- numbers ----


def format_mean_std(spread: SeedSummary) -> str:
    """`mean ± std` with up to 4 significant digits; scientific below 1e-2 and from 1e5: 1.51e-04."""
    size = abs(spread.mean)
    if not 1e-2 <= size < 1e5:
        return _format_spread(spread, lambda number: f"{number:.2e}" if number else "0")
    decimals = min(max(3 - floor(log10(size)), 0), 4)
    return _format_spread(spread, lambda number: f"{number:.{decimals}f}")


def format_accuracy(spread: SeedSummary) -> str:
    """`mean ± std` of an accuracy, with three decimals."""
    return _format_spread(spread, lambda number: f"{number:.3f}")


def format_steps(spread: SeedSummary) -> str:
    """`mean ± std` of steps: integers, or one decimal if fractional: 9900.5."""
    return _format_spread(spread, lambda number: f"{number:.0f}" if number == round(number) else f"{number:.1f}")


def _format_spread(spread: SeedSummary, format_number: Callable[[float], str]) -> str:
    """`mean ± std`; only the mean for one seed, and a dash for none."""
    if spread.n == 0:
        return "–"
    if not isfinite(spread.mean):
        return "NaN" if isnan(spread.mean) else str(spread.mean)
    return (
        format_number(spread.mean) if spread.n == 1 else f"{format_number(spread.mean)} ± {format_number(spread.std)}"
    )


# ---- the table of best values ----


@dataclass(frozen=True)
class _StatisticRow:
    """One statistic over all configs: a row if configs are columns, else a column."""

    label: str
    legend: str
    spreads: tuple[SeedSummary | None, ...]
    format_spread: Callable[[SeedSummary], str]
    direction: Direction | None = None

    def cells(self) -> list[str]:
        return [self.format_spread(spread) if spread else "–" for spread in self.spreads]

    def best_config(self) -> int | None:
        """The config with the best mean; None if the second best looks the same after rounding."""
        means = [
            (spread.mean, config) for config, spread in enumerate(self.spreads) if spread and not isnan(spread.mean)
        ]
        if self.direction is None or len(means) < 2:
            return None
        first, second = sorted(means, reverse=self.direction == "max")[:2]
        texts = {self.format_spread(summarise_seeds({0: mean})) for mean, _ in (first, second)}
        return first[1] if len(texts) == 2 else None


_Summaries: TypeAlias = Sequence[ConfigSummary]


def config_tables(summaries: _Summaries, t_max: float | None = None) -> list[Table]:
    """Best values, t_f and Δt of every config: one table, or for many configs one of values and one of steps."""
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
    statistics = _value_rows(summaries, plain) + _at_best_rows(summaries) + _step_rows(summaries, plain)
    statistics += _delta_rows(summaries)
    statistics += _value_rows(summaries, grouped) + _step_rows(summaries, grouped)
    winners = [(row, statistic.best_config()) for row, statistic in enumerate(statistics)]
    best = frozenset((row, 1 + config) for row, config in winners if config is not None)
    return Table(
        title="Best values and the steps that first attain them",
        columns=("metric", *_headings(summaries)),
        rows=tuple((statistic.label, *statistic.cells()) for statistic in statistics),
        notes=_notes(summaries, statistics, t_max, "row" if best else None),
        best=best,
    )


def _configs_as_rows(
    title: str, summaries: _Summaries, statistics: Sequence[_StatisticRow], t_max: float | None
) -> Table:
    names = _short_names(summaries)
    counts = [] if _same_seeds(summaries) else [("n", [_format_run_count(summary) for summary in summaries])]
    settings = [(short, [_format_setting(summary, name) for summary in summaries]) for name, short in names.items()]
    labels = settings + counts
    columns = labels + [(statistic.label, statistic.cells()) for statistic in statistics]
    winners = [(statistic.best_config(), column) for column, statistic in enumerate(statistics, len(labels))]
    best = frozenset((row, column) for row, column in winners if row is not None)
    return Table(
        title=title,
        columns=tuple(name for name, _ in columns),
        rows=tuple(zip(*(cells for _, cells in columns), strict=True)),
        notes=_notes(summaries, statistics, t_max, "column" if best else None),
        best=best,
        n_labels=len(labels),
    )


# ---- its statistics ----


def _metric_names(summaries: _Summaries) -> tuple[list[str], list[str]]:
    """Metrics that have a best value: those over all samples, and those of a group."""
    names = {name for summary in summaries for name in summary.metrics if metric_direction(name)}
    grouped = [name for name in sorted(names, key=metric_sort_key) if MetricName.parse(name).group]
    return sorted(names.difference(grouped), key=metric_sort_key), grouped


def _value_rows(summaries: _Summaries, names: Sequence[str]) -> list[_StatisticRow]:
    return [_value_row(summaries, name) for name in names]


def _value_row(summaries: _Summaries, name: str) -> _StatisticRow:
    entry = QUANTITIES[MetricName.parse(name).quantity]
    which = "smallest" if entry.direction == "min" else "largest"
    legend = f"{entry.symbol}: {entry.name} ({entry.unit}), {which} recorded"
    metrics = [summary.metrics.get(name) for summary in summaries]
    spreads = tuple(metric.value if metric else None for metric in metrics)
    format_spread = format_accuracy if entry.unit == "share" else format_mean_std
    return _StatisticRow(metric_label(name), legend, spreads, format_spread, entry.direction)


def _at_best_rows(summaries: _Summaries) -> list[_StatisticRow]:
    """The training value at the step where validation is best."""
    quantities = [name for name in QUANTITIES if any(name in summary.at_best for summary in summaries)]
    legend = "PPL_train at best: training perplexity at the step where the validation perplexity is best"
    spreads = {name: tuple(summary.at_best.get(name) for summary in summaries) for name in quantities}
    labels = {name: f"{metric_label(f'train/{name}')} at best" for name in quantities}
    return [_StatisticRow(labels[name], legend, by_config, format_mean_std) for name, by_config in spreads.items()]


def _step_rows(summaries: _Summaries, names: Sequence[str]) -> list[_StatisticRow]:
    metrics = {name: [summary.metrics.get(name) for summary in summaries] for name in names}
    spreads = {
        name: tuple(metric.t_f if metric else None for metric in by_config) for name, by_config in metrics.items()
    }
    return [
        _StatisticRow(f"t_f({metric_label(name)})", _legend("t_f"), by_config, format_steps)
        for name, by_config in spreads.items()
    ]


def _delta_rows(summaries: _Summaries) -> list[_StatisticRow]:
    quantities = [name for name in QUANTITIES if any(name in summary.delta_t for summary in summaries)]
    spreads = {name: tuple(summary.delta_t.get(name) for summary in summaries) for name in quantities}
    return [
        _StatisticRow(f"Δt({metric_label(name)})", _legend("delta_t"), by_config, format_steps)
        for name, by_config in spreads.items()
    ]


def _legend(statistic: str) -> str:
    return STATISTICS[statistic].legend


# ---- its headings and notes ----


def _headings(summaries: _Summaries) -> list[str]:
    """One heading per config, from its varied settings: `gpt`, `layers=2 dim=64`; with n if it differs."""
    names = _short_names(summaries)
    same_seeds = _same_seeds(summaries)
    return [
        _heading(summary, names) + ("" if same_seeds else f" (n = {_format_run_count(summary)})")
        for summary in summaries
    ]


def _heading(summary: ConfigSummary, names: Mapping[str, str]) -> str:
    values = {name: _format_setting(summary, name) for name in names if name in summary.config}
    return " ".join(text if name == "model.kind" else f"{names[name]}={text}" for name, text in values.items()) or "all"


def _short_names(summaries: _Summaries) -> dict[str, str]:
    """Each varied setting with the last part of its name, or all of it if two would be equal."""
    names = list(dict.fromkeys(name for summary in summaries for name in summary.config))
    ends = [name.rpartition(".")[2] for name in names]
    return {name: end if ends.count(end) == 1 else name for name, end in zip(names, ends, strict=True)}


def _format_setting(summary: ConfigSummary, name: str) -> str:
    return _format_value(summary.config[name]) if name in summary.config else "–"


def _format_value(value: Value) -> str:
    """A setting's value as on the command line: `0.001`, `1`, `true`, `[2,3]`."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_format_value, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _same_seeds(summaries: _Summaries) -> bool:
    """Whether all configs have the same seeds and all their runs are in the means."""
    return all(summary.n_included == summary.n_runs and summary.seeds == summaries[0].seeds for summary in summaries)


def _format_run_count(summary: ConfigSummary) -> str:
    return str(summary.n_included) if summary.n_included == summary.n_runs else f"{summary.n_included}/{summary.n_runs}"


def _notes(
    summaries: _Summaries, statistics: Sequence[_StatisticRow], t_max: float | None, best_axis: str | None
) -> tuple[str, ...]:
    several = any(spread and spread.n > 1 for statistic in statistics for spread in statistic.spreads)
    notes = [
        _seeds_note(summaries),
        _status_note(summaries),
        "± is the population std over seeds (ddof 0)." if several else "",
        "; ".join(dict.fromkeys(statistic.legend for statistic in statistics)) + "."
        if statistics
        else "Nothing is recorded yet.",
        "" if t_max is None else f"Only evaluations up to step {_format_value(t_max)} count.",
        f"The best mean of each {best_axis} is highlighted." if best_axis else "",
    ]
    return tuple(note for note in notes if note)


def _seeds_note(summaries: _Summaries) -> str:
    if not _same_seeds(summaries):
        return "n: runs in the means; 1/2 if one of two diverged, failed or has no evaluation."
    seeds = summaries[0].seeds
    return f"n = {len(seeds)} seed{'s' * (len(seeds) != 1)}: {_format_seed_ranges(seeds)}."


def _status_note(summaries: _Summaries) -> str:
    """The number of runs by status; empty if all are finished."""
    status = sum((Counter(summary.status_counts) for summary in summaries), Counter[RunStatus]())
    counts = ", ".join(f"{count} {name}" for name, count in sorted(status.items()))
    return "" if set(status) == {"finished"} else f"Runs: {counts}."


def _format_seed_ranges(seeds: Sequence[int]) -> str:
    """`0–9, 42`: three or more consecutive seeds as a range."""
    texts: list[str] = []
    for _, group in groupby(enumerate(seeds), key=lambda item: item[1] - item[0]):
        consecutive = [seed for _, seed in group]
        texts += [f"{consecutive[0]}–{consecutive[-1]}"] if len(consecutive) > 2 else map(str, consecutive)
    return ", ".join(texts)
