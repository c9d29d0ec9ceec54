"""Tables of a study that print as text in a terminal and as HTML in a notebook."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from seedbed.report.search_table import final_ranking, search_table
from seedbed.report.study_runs import check_t_max, load_run_curves
from seedbed.report.summary_tables import config_tables
from seedbed.report.tables import Table, to_csv, to_latex, to_markdown, to_rich
from seedbed.sampling.notebook_html import legend_html, table_html
from seedbed.settings import Value
from seedbed.stats.successive_halving import HalvingResult
from seedbed.stats.summary import summarise
from seedbed.store import Store

TEXT_WIDTH = 120


@dataclass(frozen=True)
class Tables:
    """One or more tables; `str`, `to_markdown`, `to_csv` and `to_latex` give them as text."""

    tables: tuple[Table, ...]

    def __iter__(self) -> Iterator[Table]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def __getitem__(self, index: int) -> Table:
        return self.tables[index]

    def to_markdown(self) -> str:
        return "\n\n".join(map(to_markdown, self.tables))

    def to_csv(self) -> str:
        """Formatted cells such as `0.95 ± 0.02`; `study.results()` has the numbers."""
        return "\n".join(map(to_csv, self.tables))

    def to_latex(self) -> str:
        return "\n\n".join(map(to_latex, self.tables))

    def __repr__(self) -> str:
        return tables_as_text(self.tables)

    def _repr_html_(self) -> str:
        return tables_as_html(self.tables)


@dataclass(frozen=True)
class Search:
    """The result of a successive halving: `best` is the config that won, `result` has the ranking of every rung."""

    result: HalvingResult

    @property
    def best(self) -> Mapping[str, Value]:
        return final_ranking(self.result)[0].candidate.config

    def __repr__(self) -> str:
        return tables_as_text([search_table(self.result)])

    def _repr_html_(self) -> str:
        return tables_as_html([search_table(self.result)])


def make_result_tables(store: Store, study: str, only: Sequence[str], t_max: float | None = None) -> Tables:
    """The tables of `show`."""
    last = None if t_max is None else str(t_max)
    check_t_max(last, "t_max")
    return Tables(tuple(config_tables(summarise(load_run_curves(store, study, only, last)))))


def tables_as_text(tables: Iterable[Table]) -> str:
    """The tables as in a terminal, without colours."""
    from rich.console import Console

    text = io.StringIO()
    console = Console(file=text, width=TEXT_WIDTH, highlight=False, color_system=None, force_jupyter=False)
    for table in tables:
        console.print(to_rich(table))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()).strip("\n")


def tables_as_html(tables: Iterable[Table]) -> str:
    """The tables for a notebook."""
    return "".join(
        f"<p><b>{escape(table.title)}</b></p>" * bool(table.title)
        + table_html(table.columns, _cells_html(table))
        + notes_as_html(table.notes)
        for table in tables
    )


def _cells_html(table: Table) -> Iterator[list[str]]:
    for row, cells in enumerate(table.rows):
        yield [
            f"<b>{escape(cell)}</b>" if (row, column) in table.best else escape(cell)
            for column, cell in enumerate(cells)
        ]


def notes_as_html(notes: Sequence[str]) -> str:
    """A small paragraph below a table or sentence; empty without notes."""
    return legend_html(*notes) if notes else ""
