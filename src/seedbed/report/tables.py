"""Tables as values, formatted as Markdown, CSV, LaTeX or terminal text.

What stands in them is decided by others: `summary_tables` has the table of best values of any study.

>>> print(to_markdown(Table("", ("metric", "gpt"), (("L_val", "1.51e-04 ± 1.01e-05"),), best=frozenset({(0, 1)}))))
| metric | gpt |
| :--- | ---: |
| L_val | **1.51e-04 ± 1.01e-05** |
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import floor, isfinite, isnan, log10
from typing import TYPE_CHECKING, Any

from seedbed.stats.comparison import SeedSummary

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

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


def to_json(table: Table) -> dict[str, Any]:
    """The table for the page."""
    return {
        "title": table.title, "columns": table.columns, "rows": table.rows, "notes": table.notes,
        "best": sorted(table.best), "labels": table.n_labels,
    }  # fmt: skip


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
