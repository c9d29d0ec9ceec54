"""What SQL databases have in common: transactions, consistent reads, and the tables that were added later.

    database.write(lambda connection: changes.register_plan(connection, plan, now))
    database.write_pack(pack_id, lambda connection: …)     # the caller holds the pack; only its rows are changed
    rows = database.fetch(select(runs))

A function that writes may be called again with a new transaction, after everything it did was rolled back.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from sqlalchemy import Connection, Executable, Table, select

from seedbed.errors import StoreError
from seedbed.store.digests import unlisted_tables, write_lists
from seedbed.store.schema import ADDED_TABLES, SCHEMA_VERSION, AnyRow, meta, metadata

T = TypeVar("T")


class SQLDatabase(ABC):
    """An open database, for one process; a subclass for each kind."""

    def __init__(self, name: str, writable: bool) -> None:
        self.name = name  # quoted in messages
        self._writable = writable
        self._owner_pid = os.getpid()

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Connection]:
        """A transaction that may write to all tables, after those of other processes; made once."""

    def write(self, change: Callable[[Connection], T], packs: Collection[str] = ()) -> T:
        """What a function returns that writes to all tables; `packs` are those that this process must still hold."""
        with self.transaction() as connection:
            return change(connection)

    def write_pack(self, pack_id: str, change: Callable[[Connection], T]) -> T:
        """The same for a function that changes the rows of one pack, which this process must still hold."""
        return self.write(change, [pack_id])

    @abstractmethod
    def read(self, query: Callable[[Connection], T]) -> T:
        """What a function reads, all of it from one consistent snapshot; it may be called again."""

    def fetch(self, statement: Executable) -> Sequence[AnyRow]:
        """All rows of one query, from one consistent snapshot."""
        return self.read(lambda connection: connection.execute(statement).all())

    @abstractmethod
    def translate_errors(self) -> AbstractContextManager[None]:
        """Report database errors and damaged rows as our own errors."""

    @abstractmethod
    def check_in_place(self) -> None:
        """StoreError if what was opened is no longer where it was; called before files are written."""

    @abstractmethod
    def change_stamp(self) -> Hashable:
        """A value that differs after every commit by any process."""

    @abstractmethod
    def has_table(self, table: Table) -> bool:
        """Whether the store has this table."""

    def has_added_table(self, table: Table) -> bool:
        """Whether the store has one of ADDED_TABLES: not if it was created before; StoreError if the table vanished."""
        if self.has_table(table):
            return True
        if self.fetch(select(meta.c.value).where(meta.c.key == table.name)):
            raise damaged(self.name, f"the table of {table.name} is missing")
        return False

    def add_tables(self) -> None:
        """Create the tables that were added to this schema after the store was created, and lists of their rows."""
        if not all(map(self.has_added_table, ADDED_TABLES)):
            self.write(lambda connection: metadata.create_all(connection, ADDED_TABLES))
        if self.read(unlisted_tables):
            self.write(lambda connection: write_lists(connection, *unlisted_tables(connection)))

    def read_schema(self) -> int:
        """The schema version of the database."""
        stored = {row.key: row.value for row in self.fetch(select(meta))}
        value = stored.get("schema", "")
        if (
            not value.isdecimal()
            or (int(value) > 4 and stored.get("schema_copy") != value)
            or (int(value) <= 4 and "schema_copy" in stored)
        ):
            raise damaged(self.name, "the number of its schema")
        return int(value)

    def check_not_newer(self, found: int) -> None:
        """StoreError if a newer version has written the store, unless it says that this one can read it."""
        if found > SCHEMA_VERSION and (self._writable or not self._is_readable_by(SCHEMA_VERSION)):
            raise StoreError(
                f"{self.name} has schema {found}, written by a newer seedbed; this one knows schema {SCHEMA_VERSION}; "
                "nothing was changed; upgrade seedbed to use this store"
            )

    def _is_readable_by(self, schema: int) -> bool:
        """Whether a version that knows this schema can read the store: what is newer only adds to it."""
        found = self.fetch(select(meta.c.value).where(meta.c.key == "readable_by"))
        return bool(found) and found[0].value.isdecimal() and int(found[0].value) <= schema

    def check_process(self) -> None:
        """StoreError in a child process, which must not use the connections of its parent."""
        if os.getpid() != self._owner_pid:
            raise StoreError(
                f"this store was opened by process {self._owner_pid} and cannot be used by its child {os.getpid()}; "
                "open it again in the child"
            )


def damaged(name: str, what: str) -> StoreError:
    """The error for rows that are not as they were written."""
    return StoreError(
        f"{name} is damaged: {what}; nothing was changed; `seedbed doctor` says what can be saved; or restore the home "
        "from a copy, or name another one with --home"
    )
