"""What of a damaged SQLite database can still be verified, row by row, and what is wrong with the rest; only reads.

    found = IntactRows.read(connection)             # studies, runs, packs, … that are as they were written
    rows, faults = found.contents(connection, run)  # the evaluations, samples and checkpoints of one of these runs
    found.faults, found.orphans                     # what is damaged or missing, and what belongs to nothing

A reader of the store stops at the first damaged row. This goes on behind it: rows are fetched one by one, by their
number in the table, so that a page that SQLite cannot read costs the rows on it and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from sqlalchemy import Connection, Table, literal_column, select, text
from sqlalchemy.exc import DBAPIError

from seedbed.errors import SeedbedError
from seedbed.store.digests import (
    RUN_COLUMNS,
    DamagedRow,
    RunRows,
    damage_of,
    select_members,
    select_run_contents,
    verified,
    verified_run,
    verify_definitions,
    verify_list,
    verify_pack,
)
from seedbed.store.schema import (
    AnyRow,
    checkpoints,
    costs,
    evaluations,
    metric_names,
    notes,
    packs,
    runs,
    samples,
    studies,
    study_runs,
    vocabularies,
)
from seedbed.store.vocabulary_rows import vocabulary_from_row

MAX_LISTED_FAULTS = 3  # of SQLite's own check

RunContents = Mapping[Table, RunRows | None]  # None: damaged


@contextmanager
def noted(faults: list[str], what: str) -> Iterator[None]:
    """Note what goes wrong within the block, and go on behind it."""
    try:
        with damage_of(what):
            yield
    except (DamagedRow, SeedbedError) as error:
        faults.append(str(error))
    except DBAPIError as error:
        faults.append(f"{what} cannot be read: {error.orig}")


@dataclass
class IntactRows:
    """Rows that are as they were written."""

    names: dict[int, AnyRow] = field(default_factory=dict)  # lists of metric names
    vocabularies: dict[str, AnyRow] = field(default_factory=dict)  # by dataset
    studies: dict[str, AnyRow] = field(default_factory=dict)
    members: dict[str, list[str]] = field(default_factory=dict)  # by study; where its list is damaged, what is left
    runs: dict[str, AnyRow] = field(default_factory=dict)
    packs: dict[str, tuple[AnyRow, AnyRow | None]] = field(default_factory=dict)  # with their costs
    notes: list[AnyRow] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, connection: Connection) -> Self:
        found = cls()
        with noted(found.faults, "the list of tables"):
            verify_definitions(connection)
        found.names = {row.id: row for row in found._intact(connection, metric_names)}
        found.vocabularies = {row.dataset: row for row in found._intact(connection, vocabularies, _check_vocabulary)}
        found.studies = {row.name: row for row in found._intact(connection, studies)}
        found.runs = {row.id: row for row in found._intact(connection, runs, verified_run)}
        found.notes = found._intact(connection, notes)
        found.packs = found._intact_packs(connection)
        found._read_lists(connection)
        found._check_references(connection)
        return found

    def _intact(
        self, connection: Connection, table: Table, check: Callable[[AnyRow], object] = lambda _: None
    ) -> list[AnyRow]:
        """The rows of a table that agree with their digests."""
        intact = []
        for row in self._readable(connection, table):
            with noted(self.faults, f"a row of {table.name}"):
                verified(table, [row])
                check(row)
                intact.append(row)
        return intact

    def _readable(self, connection: Connection, table: Table) -> list[AnyRow]:
        """The rows of a table that SQLite can read, whether they are found in the table itself or through its index."""
        numbers: dict[int, None] = {}
        index = ", ".join(column.name for column in table.primary_key)
        for order in ("NOT INDEXED", f"ORDER BY {index}"):
            with noted(self.faults, f"the table of {table.name}"):
                for (number,) in connection.execute(text(f"SELECT rowid FROM {table.name} {order}")):
                    numbers[number] = None
        rows: list[AnyRow] = []
        for number in sorted(numbers):
            with noted(self.faults, f"row {number} of {table.name}"):
                rows += connection.execute(select(table).where(literal_column("rowid") == number))
        return rows

    def _intact_packs(self, connection: Connection) -> dict[str, tuple[AnyRow, AnyRow | None]]:
        spent = {row.pack: row for row in self._readable(connection, costs)}
        intact = {}
        for row in self._readable(connection, packs):
            with noted(self.faults, f"pack {row.id}"):
                verify_pack(row, spent.get(row.id))
                intact[row.id] = (row, spent.get(row.id))
        return intact

    def _read_lists(self, connection: Connection) -> None:
        for table in (studies, notes, vocabularies):
            with noted(self.faults, f"the list of {table.name}"):
                verify_list(connection, table)
        ordered = select(study_runs.c.run).order_by(study_runs.c.position)
        for name, row in self.studies.items():
            self.members[name] = []
            with noted(self.faults, f"the list of runs of study {name}"):
                left = connection.execute(ordered.where(study_runs.c.study == name)).scalars()
                self.members[name] = [run for run in dict.fromkeys(left) if run in self.runs]
                for run in select_members(connection, row):
                    if run not in self.runs:
                        self.faults.append(f"run {run} of study {name} is missing or damaged")

    def _check_references(self, connection: Connection) -> None:
        in_studies = {run for members in self.members.values() for run in members}
        training = {run for pack, _ in self.packs.values() if pack.open for run in pack.members}
        used = {row.pack for row in self.runs.values()}
        for run, row in self.runs.items():
            if row.pack is not None and row.pack not in self.packs:
                self.faults.append(f"pack {row.pack} of run {run} is missing or damaged")
            if run not in in_studies | training:
                self.orphans.append(f"run {run} belongs to no study")
        for pack, (row, _) in self.packs.items():
            if pack not in used:
                self.orphans.append(f"pack {pack} has no runs")
            for run in row.members if row.open else ():
                if run not in self.runs:
                    self.faults.append(f"run {run} of pack {pack} is missing or damaged")
        for table in (evaluations, samples, checkpoints):
            with noted(self.faults, f"the {table.name}"):
                for run in connection.execute(select(table.c.run).distinct()).scalars().all():
                    if run not in self.runs:
                        self.orphans.append(f"{table.name} of run {run}, which is missing or damaged")

    def contents(self, connection: Connection, run: AnyRow) -> tuple[dict[Table, RunRows | None], list[str]]:
        """What an intact run has in each table, None where that is damaged; and what is wrong with it."""
        found: dict[Table, RunRows | None] = dict.fromkeys(RUN_COLUMNS)
        faults: list[str] = []
        for table in found:
            with noted(faults, f"the {table.name} of run {run.id}"):
                rows = select_run_contents(connection, table, {run.id: run}).get(run.id, RunRows())
                if table is evaluations and (lost := {*rows.tags} - self.names.keys()):
                    raise DamagedRow(f"the evaluations of run {run.id} are of metrics whose names are damaged: {lost}")
                found[table] = rows
        return found, faults


def _check_vocabulary(row: AnyRow) -> None:
    vocabulary_from_row(row, "the database")


def sqlite_faults(connection: Connection) -> list[str]:
    """What SQLite's own check finds: broken pages, and entries of indexes that do not fit to their tables."""
    faults: list[str] = []
    with noted(faults, "SQLite's check"):
        found: list[Any] = list(connection.execute(text("PRAGMA integrity_check")).scalars())
        if found != ["ok"]:
            listed = "; ".join(" ".join(str(one).split()) for one in found[:MAX_LISTED_FAULTS])
            faults.append(f"SQLite's check finds {len(found)} fault{'s' * (len(found) != 1)}: {listed}")
    return faults
