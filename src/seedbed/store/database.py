"""One SQLite file opened safely: created atomically, verified before use, written in immediate transactions.

A writer keeps its connections in WAL mode and flushes every commit. A reader opens a connection per query, so that it
never blocks WAL checkpoints, and leaves no file behind. The tables are defined in schema.py.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    Connection,
    NullPool,
    QueuePool,
    Table,
    create_engine,
    event,
    insert,
    text,
)
from sqlalchemy.exc import DBAPIError

from seedbed.errors import Busy, MissingData, SeedbedError, StoreError, UnreadableRun
from seedbed.store.digests import (
    LISTED_TABLES,
    DamagedRow,
    DamagedRun,
    damage_of,
    decode_json,
    lacks_definitions,
    verify_definitions,
    write_definitions,
    write_lists,
)
from seedbed.store.durable_files import (
    WriteFault,
    file_lock,
    fsync_folder,
    is_locked,
    make_folder,
    translate_os_errors,
    write_error,
)
from seedbed.store.schema import APPLICATION_ID, SCHEMA_VERSION, meta, metadata
from seedbed.store.sql_database import SQLDatabase, damaged
from seedbed.store.upgrade import keep_copy, schema_rows, upgrade_tables

T = TypeVar("T")
BUSY_TIMEOUT_SECONDS = 30
MAX_RETRY_SECONDS = 0.01  # between attempts to begin writing
_WRITER_PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "mmap_size = 0")
_PRESERVED_ON_FAILURE = "everything committed before"


def database_path(home: Path) -> Path:
    """The file of a home's store."""
    return home / "store.db"


class Database(SQLDatabase):
    """Transactions on the file `store.db`."""

    def __init__(self, path: Path, writable: bool) -> None:
        super().__init__(str(path), writable)
        self.path = path
        self._place = self._find_place()
        pool = QueuePool if writable else NullPool
        self._engine = create_engine("sqlite://", creator=self._connect, poolclass=pool, json_deserializer=decode_json)
        event.listen(self._engine, "begin", _emit_begin)

    @classmethod
    def create_or_open(cls, home: Path) -> Database:
        """Open the store of a home for writing, creating it if there is none."""
        path = database_path(home.absolute())
        with translate_os_errors(path, "nothing was changed"):
            make_folder(path.parent / "locks")
            make_folder(path.parent / "checkpoints")
            if not path.exists():
                with file_lock(path.parent / "locks" / "store.lock", "the new store", wait=True):
                    _create_store_file(path)
        return cls._open_verified(path, writable=True)

    @classmethod
    def open_read_only(cls, home: Path) -> Database:
        """Open the store of a home for reading; never changes it."""
        path = database_path(home.absolute())
        if not path.exists():
            raise MissingData(f"there is no store in {home}; name another home with --home, or run a study first")
        return cls._open_verified(path, writable=False)

    @classmethod
    def _open_verified(cls, path: Path, writable: bool) -> Database:
        _check_header(path)
        database = cls(path, writable)
        try:
            found = database.read_schema()
            database.check_not_newer(found)
            if found < SCHEMA_VERSION and not writable:
                raise StoreError(
                    f"{path} has schema {found}, written by an earlier seedbed; nothing was changed; "
                    f"`seedbed upgrade --home {path.parent}` brings it to schema {SCHEMA_VERSION} and keeps a copy"
                )
            if found < SCHEMA_VERSION:
                database._upgrade(found)
            if writable:
                database.add_tables()
        except BaseException:
            database.close()
            raise
        return database

    def _upgrade(self, schema: int) -> None:
        """Migrate an older store to the current schema after a backup; atomic."""
        with file_lock(self.path.parent / "locks" / "store.lock", "the store", wait=True):
            if self.read_schema() != schema:  # another process has just migrated it
                return
            if held := [one.stem for one in (self.path.parent / "locks").glob("*.lock") if _is_held_pack(one)]:
                raise Busy(
                    f"{self.path} is to be upgraded, but pack {held[0]} is being trained; try again when it is done"
                )
            with translate_os_errors(self.path, "the store as it was"):
                keep_copy(self.path, schema)
            with self.transaction() as connection:
                upgrade_tables(connection, schema)

    def has_table(self, table: Table) -> bool:
        found = text("SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = :name")
        return bool(self.fetch(found.bindparams(name=table.name))[0][0])

    def add_tables(self) -> None:
        """Also those that are there must be as they were created: what they should reject might be written."""
        self.read(verify_definitions)
        super().add_tables()
        if self.read(lacks_definitions):
            self.write(write_definitions)

    def close(self) -> None:
        if os.getpid() == self._owner_pid:
            self._engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction that takes the write lock at its start, so that it cannot fail half-way under contention."""
        self.check_process()
        self.check_in_place()
        with _translate_database_errors(self.path), self._engine.connect() as connection:
            connection = connection.execution_options(immediate=True)
            with connection.begin():
                yield connection

    def read(self, query: Callable[[Connection], T]) -> T:
        """What a function reads, all of it from one consistent snapshot; it is called again if a writer appears."""
        self.check_process()
        while True:
            before = self._file_stamp()
            try:
                with self.translate_errors(), self._engine.connect() as connection, damage_of("a row"):
                    found = query(connection)
            except StoreError:
                if before == self._file_stamp():
                    raise
            else:
                if before is None or before == self._file_stamp():
                    return found

    def translate_errors(self) -> AbstractContextManager[None]:
        return _translate_database_errors(self.path)

    def check_in_place(self) -> None:
        """StoreError if the home or the database is no longer the one that was opened.

        Called before every write: what is written belongs together, and must not end up in two places.
        """
        if self._find_place() != self._place:
            raise _moved(self.path)

    def _find_place(self) -> tuple[int, ...]:
        """Which folder and file the path leads to now."""
        try:
            found = self.path.parent.stat(), self.path.stat()
        except OSError:
            return ()
        return tuple(number for one in found for number in (one.st_dev, one.st_ino))

    def change_stamp(self) -> tuple[int, ...]:
        """Inode, size and time of the database and its WAL: a commit changes one of them, or a WAL checkpoint both."""
        stamp: list[int] = []
        for path in (self.path, self._wal_path):
            try:
                found = path.stat()
            except OSError:
                stamp += [0, 0, 0]
            else:
                stamp += [found.st_ino, found.st_size, found.st_mtime_ns]
        return tuple(stamp)

    def _file_stamp(self) -> tuple[int, int] | None:
        """Stamp that changes if a writer appears while we read without a WAL; None if one may be active already."""
        if self._writable or self._wal_path.exists():
            return None
        found = self.path.stat() if self.path.exists() else None
        return (found.st_mtime_ns, found.st_size) if found else (0, 0)

    @property
    def _wal_path(self) -> Path:
        return self.path.with_name(self.path.name + "-wal")

    def _connect(self) -> sqlite3.Connection:
        if self._writable:
            connection = _connect_sqlite(
                self.path, "mode=rw"
            )  # never creates: a deleted store must not come back empty
            for setting in _WRITER_PRAGMAS:
                connection.execute(f"PRAGMA {setting}")
            return connection
        # Without a WAL file nobody is writing. A plain read-only connection would then create one, owned by the reader,
        # and leave it behind; an immutable one does not, and `fetch` retries if a writer appeared meanwhile.
        return _connect_sqlite(self.path, "mode=ro" if self._wal_path.exists() else "mode=ro&immutable=1")


def read_schema(home: Path) -> int:
    """The schema version of a home's store, which may be older or newer than ours."""
    path = database_path(home.absolute())
    if not path.exists():
        raise MissingData(f"there is no store in {home}; name another home with --home")
    _check_header(path)
    database = Database(path, writable=False)
    try:
        return database.read_schema()
    finally:
        database.close()


def _is_held_pack(lock: Path) -> bool:
    return lock.stem != "store" and is_locked(lock)


@contextmanager
def _translate_database_errors(path: Path) -> Iterator[None]:
    """Translate database errors and damaged rows into our own."""
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        raise _to_seedbed_error(path, getattr(error, "orig", error)) from error
    except UnicodeDecodeError as error:  # in a message of SQLite that quotes damaged text
        raise damaged(str(path), "it has text that is not UTF-8") from error
    except DamagedRun as error:
        raise UnreadableRun(str(damaged(str(path), str(error)))) from error
    except DamagedRow as error:
        raise damaged(str(path), str(error)) from error


def _moved(path: Path) -> StoreError:
    return StoreError(
        f"{path} cannot be used any more: the home was moved, replaced or unmounted while it was in use; "
        "everything up to the last commit is in it; put it back, or name its new place with --home"
    )


def _to_seedbed_error(path: Path, error: BaseException) -> SeedbedError:
    """Our error for an error of the database."""
    kind, reason = getattr(error, "sqlite_errorname", ""), str(error)
    if not path.parent.is_dir():
        return _moved(path)
    if kind.startswith(("SQLITE_FULL", "SQLITE_IOERR")) or "disk is full" in reason:
        fault: WriteFault = "failing" if kind.startswith("SQLITE_IOERR") else "full"
        return write_error(path, reason, fault, _PRESERVED_ON_FAILURE)
    if kind.startswith("SQLITE_BUSY"):
        return Busy(
            f"{path}: another process has been writing for {BUSY_TIMEOUT_SECONDS} s; run the same command again later"
        )
    if kind.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")):
        return StoreError(f"{path} cannot be used: {reason}; check that it is there, may be written, and has space")
    return damaged(str(path), reason)


def _emit_begin(connection: Connection) -> None:
    # A deferred transaction that reads and then writes fails at once under contention, whatever the busy timeout.
    immediate = connection.get_execution_options().get("immediate", False)
    if immediate:
        raw: Any = connection.connection.driver_connection
        _begin_immediate(raw)
    else:
        connection.exec_driver_sql("BEGIN")


def _begin_immediate(connection: sqlite3.Connection) -> None:
    """Begin to write, when others have ended.

    Tried at short random intervals: SQLite tries the less often the longer it has waited, so that among many writers
    some would wait until the timeout.
    """
    deadline, random_source = time.monotonic() + BUSY_TIMEOUT_SECONDS, random.SystemRandom()
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                    raise
            time.sleep(random_source.uniform(0, MAX_RETRY_SECONDS))
    finally:
        connection.execute(f"PRAGMA busy_timeout = {1000 * BUSY_TIMEOUT_SECONDS}")


def _connect_sqlite(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.as_uri()}?{mode}", uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_SECONDS, check_same_thread=False
    )


def _create_store_file(path: Path) -> None:
    """Create a store under a temporary name and rename it, so that `store.db` is complete whenever it exists."""
    if path.exists():
        return
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:
        raise StoreError(
            f"{log} is there but {path.name} is not; nothing was changed; put {path.name} back or move the log"
        )
    for leftover in path.parent.glob("store.db.new*"):
        leftover.unlink()
    new = path.with_name("store.db.new")
    engine = create_engine("sqlite://", creator=lambda: _connect_sqlite(new, "mode=rwc"), poolclass=NullPool)
    event.listen(engine, "begin", _emit_begin)
    with _translate_database_errors(path), engine.begin() as connection:
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
        metadata.create_all(connection)
        connection.execute(insert(meta), schema_rows())
        write_lists(connection, *LISTED_TABLES)
        write_definitions(connection)
    with _translate_database_errors(path), closing(_connect_sqlite(new, "mode=rw")) as plain:
        plain.execute("PRAGMA journal_mode = WAL").fetchall()  # its errors come after its result
    fsync_folder(path.parent)  # the journal is gone for good before the store can have its name
    os.replace(new, path)
    fsync_folder(path.parent)


def _check_header(path: Path) -> None:
    """Reject files that are not our database before SQLite opens them; it accepts an empty file as valid."""
    with translate_os_errors(path, "nothing was changed"), path.open("rb") as file:
        header = file.read(100)
    if not header:
        fault = "is empty (0 bytes)"
    elif not header.startswith(b"SQLite format 3\0") or len(header) < 100:
        fault = "is not a database"
    elif int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        fault = "is a database of another program"
    else:
        return
    raise StoreError(f"{path} {fault}, not a store of seedbed; nothing was changed; move it away or use another home")
