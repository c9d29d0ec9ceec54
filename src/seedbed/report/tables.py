"""Tables as values, formatted as Markdown, CSV, LaTeX or terminal text.

What stands in them is decided by others: `summary_tables` has the table of best values of any study.

>>> print(to_markdown(Table("", ("metric", "gpt"), (("L_val", "1.51e-4 ± 1.01e-5"),), best=frozenset({(0, 1)}))))
| metric | gpt |
| :--- | ---: |
| L_val | **1.51e-4 ± 1.01e-5** |
"""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import floor, isfinite, isnan, log10
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from seedbed.stats.comparison import SeedSummary
from seedbed.stats.metric_registry import find_metric

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

_COLUMN_GAP_CHARS = 2  # between columns in a terminal
MIN_HEADING_CHARS = 16  # of a line of a heading, below which it is not broken


@dataclass(frozen=True)
class Table:
    """A table of strings; the first `n_labels` columns label the row, `best` holds the (row, column) to highlight."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    best: frozenset[tuple[int, int]] = frozenset()
    n_labels: int = 1
    n_seeds: int | None = None  # behind every mean, where it is the same for all; in CSV a column


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

_NUMBER: Final = r"[-+−]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?"
_PLAIN_NUMBER = re.compile(rf"(?:{_NUMBER})(?: ± (?:{_NUMBER}))?")
# A cell of a number: `0.67 ± 0.12`, `1150 [900, 2100] (7/8)`, `> 152 (0/2)`.
_NUMBER_CELL: Final = re.compile(
    rf"(?P<censored>> )?(?P<mean>{_NUMBER})(?: ± (?P<std>{_NUMBER}))?"
    rf"(?: \[(?P<low>{_NUMBER}), (?P<high>{_NUMBER}|∞)\])?(?: \((?P<n>\d+)/(?P<total>\d+)\))?"
)
_PARTS: Final = ("std", "low", "high", "n")  # columns of their own, if any cell of a column has them
_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠].")  # a lone sign, such as the operator +, is harmless


def to_csv(table: Table) -> str:
    """Columns and rows as comma-separated values; numbers as numbers, with std, interval and n in columns of their own.

    Without title and notes, so that any CSV reader accepts them. A dash is an empty cell; a time that no run reached is
    empty, too, with the number of runs that did.
    """
    columns: list[tuple[str, ...]] = []
    headings: list[str] = []
    for index, heading in enumerate(table.columns):
        cells = [row[index] for row in table.rows]
        parts = _split_numbers(cells) if index >= table.n_labels else {"": tuple(map(_printable_line, cells))}
        headings += [f"{heading} {part}".strip() for part in parts]
        columns += parts.values()
    if table.n_seeds is not None:
        headings, columns = [*headings, "n"], [*columns, (str(table.n_seeds),) * len(table.rows)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    rows = zip(*columns, strict=True) if table.rows else ()
    writer.writerows([_escape_csv(cell) for cell in cells] for cells in (headings, *rows))
    return text.getvalue()


def _split_numbers(cells: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The cells of a column as a column each for the number, its std, the ends of its interval, and n."""
    found = [_NUMBER_CELL.fullmatch(cell) for cell in cells]
    present = [part for part in _PARTS if any(match and match[part] for match in found)]
    values = [("" if match["censored"] else _plain(match["mean"])) if match else "" if cell == "–" else cell
              for cell, match in zip(cells, found, strict=True)]  # fmt: skip
    parts = {part: tuple(_plain(match[part] or "") if match else "" for match in found) for part in present}
    return {"": tuple(values), **parts}


def _plain(number: str) -> str:
    return number.replace(",", "").replace("−", "-").replace("∞", "inf")


def _escape_csv(text: str) -> str:
    """The cell, quoted if a spreadsheet would run it as a formula (CWE-1236); numbers stay numbers."""
    cell = _printable_line(text)
    return f"'{cell}" if _FORMULA.match(cell) and not _PLAIN_NUMBER.fullmatch(cell) else cell


# ---- LaTeX ----

_LATEX_ESCAPES: Final = {char: f"\\{char}" for char in "{}$&#%_"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$",
    "[": "{[}",  # after \\ a bracket would be parsed as a length
    "±": r"$\pm$", "Δ": r"$\Delta$", "−": "$-$", "–": "--", "‖": r"$\|$", "θ": r"$\theta$", "₂": "$_2$", "₁": "$_1$",
    "α": r"$\alpha$", "·": r"$\cdot$", "×": r"$\times$", "≥": r"$\geq$", "≤": r"$\leq$", "∞": r"$\infty$",
    "²": "$^2$", "…": r"\ldots{}", "“": "``", "”": "''", "’": "'",
}  # fmt: skip
_LATEX_LINE_CHARACTERS: Final = 66  # of a row that fits the text width; wider tables are set in parts
_LATEX_TEXT_CHARACTERS = 45  # of a cell, above which a column is broken into lines
_LATEX_EXPONENT: Final = re.compile(r"e([-+]?)0*(\d+)")
_SYMBOL: Final = re.compile(r"(?P<letters>[A-Za-z]{1,5})_(?P<split>[a-z]+)(?P<group>\[.*\])?")
_STEP_SYMBOL: Final = re.compile(r"(?P<name>t_f|t_\d+|Δt)\((?P<metric>.+)\)")


def to_latex(table: Table) -> str:
    """The table as a LaTeX float with booktabs, symbols and numbers as mathematics, and the notes in small print."""
    caption = [f"\\caption{{{_escape_latex(table.title)}}}"] if table.title else []
    parts: list[str] = []
    for part in split_to_width(table, _LATEX_LINE_CHARACTERS):
        body = _escape_rows(part, _latex_cell, r"\textbf{{{}}}")
        head, *lines = [f"{' & '.join(cells)} \\\\" for cells in (map(_latex_cell, part.columns), *body)]
        opening = f"\\begin{{tabular}}{{{_latex_alignment(part)}}}"
        parts += [*([r"\par\medskip"] if parts else []), opening, r"\toprule", head, r"\midrule", *lines]
        parts += [r"\bottomrule", r"\end{tabular}"]
    notes = [f"\\par{{\\footnotesize {_escape_latex(note)}}}" for note in table.notes]
    preamble = r"% in the preamble: \usepackage{booktabs}"
    return "\n".join([preamble, r"\begin{table}", r"\centering", *caption, *parts, *notes, r"\end{table}"])


def _latex_alignment(table: Table) -> str:
    """A letter for each column; long texts are broken into lines."""
    columns = list(zip(*table.rows, strict=True)) if table.rows else [()] * len(table.columns)
    long = [max(map(len, cells), default=0) > _LATEX_TEXT_CHARACTERS for cells in columns]
    kinds = ["l" if column < table.n_labels else "r" for column in range(len(columns))]
    return "".join(r"p{0.3\linewidth}" if is_long else kind for is_long, kind in zip(long, kinds, strict=True))


def _latex_cell(text: str) -> str:
    r"""A cell: numbers and symbols as mathematics, `$t_f(L_{\mathrm{train}})$`; anything else escaped."""
    if match := _STEP_SYMBOL.fullmatch(text):
        name = {"t_f": "t_f", "Δt": r"\Delta t"}.get(match["name"]) or f"t_{{{match['name'][2:]}}}"
        inner, group = _latex_symbol(match["metric"])
        return f"${name}({inner})${group}"
    if _SYMBOL.fullmatch(text):
        symbol, group = _latex_symbol(text)
        return f"${symbol}${group}"
    if (match := _NUMBER_CELL.fullmatch(text)) and re.search(r"[±e\-−+∞>]", text):
        body = text.replace("±", r"\pm").replace("−", "-").replace("∞", r"\infty").replace("%", r"\%")
        return f"${_LATEX_EXPONENT.sub(_latex_exponent, body)}$"
    return r"$\|\theta\|_2$" if text == "‖θ‖₂" else _escape_latex(text)


def _latex_symbol(text: str) -> tuple[str, str]:
    """A metric's symbol as mathematics, and its group of samples as text."""
    match = _SYMBOL.fullmatch(text)
    if match is None:
        return f"\\mathrm{{{_escape_latex(text)}}}" if len(text) > 1 else text, ""
    letters = match["letters"] if len(match["letters"]) == 1 else f"\\mathrm{{{match['letters']}}}"
    group = f" {_escape_latex(match['group'])}" if match["group"] else ""
    return f"{letters}_{{\\mathrm{{{match['split']}}}}}", group


def _latex_exponent(match: re.Match[str]) -> str:
    return f"\\times 10^{{{match[1].replace('+', '')}{match[2]}}}"


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
        for index, part in enumerate(split_to_width(table, options.max_width)):
            yield from [""] * (index > 0)
            yield _rich_grid(part)
        yield from (Text(_printable_line(note), "dim") for note in table.notes)


def _rich_grid(table: Table) -> RenderableType:
    from rich import box
    from rich import table as rich_table
    from rich.text import Text

    grid = rich_table.Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for column, name in enumerate(table.columns):
        cells = [row[column] for row in table.rows]
        width = column_width(name, cells)
        heading = Text("\n".join(textwrap.wrap(_printable_line(name), width, break_long_words=False)))
        is_text = column < table.n_labels or 2 * sum(map(_starts_as_number, cells)) <= len(cells)
        grid.add_column(heading, justify="left" if is_text else "right", vertical="bottom")
    for row, cells_of_row in enumerate(table.rows):
        styles = ["bold" if (row, column) in table.best else "" for column in range(len(cells_of_row))]
        grid.add_row(*(Text(_printable_line(cell), style) for cell, style in zip(cells_of_row, styles, strict=True)))
    return grid


def _starts_as_number(cell: str) -> bool:
    return bool(re.match(r"[*<≤]? ?[-−+]?\.?\d", cell)) or cell in ("–", "NaN")


def split_to_width(table: Table, width: int) -> Iterator[Table]:
    """The table, split into parts that fit the width, each with the label columns; long headings take several lines."""
    columns = zip(
        table.columns, zip(*table.rows, strict=True) if table.rows else [()] * len(table.columns), strict=True
    )
    widths = [column_width(heading, cells) + _COLUMN_GAP_CHARS for heading, cells in columns]
    labels = list(range(table.n_labels))
    selected = labels.copy()
    for column in range(table.n_labels, len(widths)):
        if len(selected) > len(labels) and sum(widths[i] for i in [*selected, column]) - _COLUMN_GAP_CHARS > width:
            yield _select_columns(table, selected)
            selected = labels.copy()
        selected.append(column)
    yield _select_columns(table, selected)


def column_width(heading: str, cells: Iterable[str]) -> int:
    """Characters of a column whose heading may be broken between words, but not below MIN_HEADING_CHARS."""
    folded = max([min(len(heading), MIN_HEADING_CHARS), *map(len, heading.split())])
    return max([folded, *map(len, cells)])


def _select_columns(table: Table, selected: Sequence[int]) -> Table:
    return replace(
        table,
        columns=tuple(table.columns[column] for column in selected),
        rows=tuple(tuple(cells[column] for column in selected) for cells in table.rows),
        best=frozenset((row, selected.index(column)) for row, column in table.best if column in selected),
    )


# ---- numbers ----


def format_mean_std(spread: SeedSummary) -> str:
    """`mean ± std` with up to 4 significant digits; scientific below 1e-2 and from 1e5: 1.51e-4."""
    size = abs(spread.mean)
    if not 1e-2 <= size < 1e5:
        return _format_spread(spread, lambda number: _scientific(number) if number else "0")
    decimals = min(max(3 - floor(log10(size)), 0), 4)
    return _format_spread(spread, lambda number: f"{number:.{decimals}f}")


def _scientific(number: float) -> str:
    """`1.51e-4`, `9.90e20`."""
    mantissa, _, exponent = f"{number:.2e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def spread_format(metric: str) -> Callable[[SeedSummary], str]:
    """How the `mean ± std` of a metric is written: a share with three decimals, others with significant digits."""
    info = find_metric(metric)
    return format_accuracy if info is not None and info.unit == "share" else format_mean_std


def format_accuracy(spread: SeedSummary) -> str:
    """`mean ± std` of an accuracy or another share, with three decimals."""
    return _format_spread(spread, lambda number: f"{number:.3f}")


def format_steps(spread: SeedSummary) -> str:
    """`mean ± std` of steps: integers, or one decimal if fractional: 9900.5."""
    return _format_spread(spread, format_step)


def format_step(step: float) -> str:
    return f"{step:.0f}" if step == round(step) else f"{step:.1f}"


def format_hundredths(values: Sequence[float]) -> str:
    """`0.25 ± 0.02`: mean ± population std with two decimals; the value alone if there is one."""
    return f"{np.mean(values):.2f}" + (f" ± {np.std(values):.2f}" if len(values) > 1 else "")


def _format_spread(spread: SeedSummary, format_number: Callable[[float], str]) -> str:
    """`mean ± std`; only the mean for one seed, and a dash for none."""
    if spread.n == 0:
        return "–"
    if not isfinite(spread.mean):
        return "NaN" if isnan(spread.mean) else str(spread.mean)
    return (
        format_number(spread.mean) if spread.n == 1 else f"{format_number(spread.mean)} ± {format_number(spread.std)}"
    )
