"""One PostgreSQL database that several processes and machines write to at once.

    database.write_pack(pack_id, change)   READ COMMITTED: the rows of one pack, which only its holder changes
    database.write(change)                 one at a time, in a snapshot: what is there, and in which pack
    database.read(query)                   one snapshot

Whoever trains a pack holds a lease on it by the server's clock, renewed by a thread. Each lease has a number, which
rises whenever it is taken. A transaction that writes to a pack reads that number first and keeps others from changing
it until it ends, so a process that was given up cannot write any more. Leases are rows, not advisory locks, which a
connection pooler would leave behind. What the server asks to be repeated, and what a lost connection interrupts, is
done again for up to WAIT_SECONDS.
"""

from __future__ import annotations

import logging
import os
import platform
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import uuid4

from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Connection,
    DateTime,
    MetaData,
    QueuePool,
    String,
    Table,
    Text,
    bindparam,
    create_engine,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.schema import CreateSchema

from seedbed.errors import Busy, MissingData, SeedbedError, StoreError, UnreadableRun
from seedbed.store.dialects import insert_missing
from seedbed.store.digests import LISTED_TABLES, DamagedRow, DamagedRun, damage_of, decode_json, write_lists
from seedbed.store.schema import SCHEMA_VERSION, Name, meta, metadata
from seedbed.store.sql_database import SQLDatabase, damaged
from seedbed.store.upgrade import schema_rows

# When a connection is lost in the middle of a statement with many rows, psycopg raises that, and then logs that the
# pipeline of these rows could not be ended either. Without a handler Python would print it, though nothing is wrong
# once the transaction has been done again.
logging.getLogger("psycopg").addHandler(logging.NullHandler())
T = TypeVar("T")
WAIT_SECONDS = 120.0  # for a server that does not answer, while something is being written
CONNECT_SECONDS = 10
LEASE_SECONDS = 40.0
RENEW_SECONDS = 8.0
SCHEMA = "seedbed"  # in which all tables are, so that a database can be shared with other programs
_SERIALIZATION = {"40001", "40P01", "55P03"}  # to be repeated: not serializable, a deadlock, a lock that was not given
_UNREACHABLE = {"57P01", "57P02", "57P03", "53300", "25P03"}  # shut down, starting, too many connections, ended as idle
_CREATED_MEANWHILE = {"23505", "42P06", "42P07", "42710"}
# A process that is suspended in the middle of a transaction must not stop all others.
_LIMITS = "SET LOCAL lock_timeout = '10s'; SET LOCAL idle_in_transaction_session_timeout = '30s'"
# It waits before the snapshot is taken, which then has all that was written before; readers and `write_pack` go on.
_EXCLUSIVE = f"{_LIMITS}; LOCK TABLE {SCHEMA}.meta IN SHARE ROW EXCLUSIVE MODE"

lease_metadata = MetaData()
leases = Table(
    "leases",
    lease_metadata,
    Column("name", Name, primary_key=True),  # a pack, or the import of an archive
    Column("number", BigInteger, nullable=False),  # the fencing number: how often it has been taken
    Column("token", String, nullable=False),  # of who took it last
    Column("holder", Text, nullable=False),  # the same for messages
    Column("expires", DateTime(timezone=True), nullable=False),
)
_NOW = func.clock_timestamp(type_=DateTime(timezone=True))
_IS_HELD = (leases.c.expires > _NOW).label("is_held")


class PostgresDatabase(SQLDatabase):
    """Transactions on a PostgreSQL database."""

    def __init__(self, url: URL, writable: bool) -> None:
        super().__init__(url.set(drivername="postgresql").render_as_string(hide_password=True), writable)
        self.wait_seconds = WAIT_SECONDS if writable else 0.0
        self._tables: set[str] = set()  # known to be there
        self._numbers: dict[str, int] = {}  # the fencing numbers under which this process may write
        self._tokens: dict[str, str] = {}  # of the leases that it holds itself, and renews
        self._closed = threading.Event()
        self._renewer: threading.Thread | None = None
        # Prepared statements would be lost behind a pooler that gives each transaction another connection.
        arguments: dict[str, object] = {"prepare_threshold": None}
        if "connect_timeout" not in url.query:
            arguments["connect_timeout"] = CONNECT_SECONDS
        try:
            engine = create_engine(url, poolclass=QueuePool, json_deserializer=decode_json, connect_args=arguments)
        except ModuleNotFoundError:
            raise MissingData(
                "a store on PostgreSQL needs psycopg, which is not installed; type: pip install 'seedbed[cluster]'"
            ) from None
        self._engine = engine.execution_options(schema_translate_map={None: SCHEMA})

    @property
    def whole_name(self) -> str:
        """Its address with the password, if that is a part of it."""
        return self._engine.url.set(drivername="postgresql").render_as_string(hide_password=False)

    def open(self) -> None:
        """Create the tables if they are missing, or check that this version can use them; it does not wait."""
        with self.translate_errors():
            if not self.is_created():
                if not self._writable:
                    raise MissingData(f"there is no store in {self.name}; run a study there first")
                self._create()
        self.check_not_newer(self.read_schema())
        if self._writable:
            self.add_tables()

    def is_created(self) -> bool:
        """Whether there is a store in the database."""
        with self._engine.connect() as connection:
            return inspect(connection).has_table(meta.name, SCHEMA)

    def _create(self) -> None:
        try:
            with self._engine.begin() as connection:
                connection.execute(CreateSchema(SCHEMA, if_not_exists=True))
                metadata.create_all(connection)
                lease_metadata.create_all(connection)
                connection.execute(insert(meta), [*schema_rows(), {"key": "store", "value": uuid4().hex[:12]}])
                write_lists(connection, *LISTED_TABLES)
        except DBAPIError as error:
            if _sqlstate(error) not in _CREATED_MEANWHILE:
                raise

    def close(self) -> None:
        self._closed.set()
        if os.getpid() == self._owner_pid:
            if self._renewer is not None:
                self._renewer.join()
            self._engine.dispose()

    # ---- transactions ----

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        self.check_process()
        with self.translate_errors(), self._begin(()) as connection:
            yield connection

    def write(self, change: Callable[[Connection], T], packs: Collection[str] = ()) -> T:
        return self._write(change, packs, exclusive=True)

    def write_pack(self, pack_id: str, change: Callable[[Connection], T]) -> T:
        return self._write(change, [pack_id], exclusive=False)

    def _write(self, change: Callable[[Connection], T], packs: Collection[str], exclusive: bool) -> T:
        def attempt() -> T:
            with self._begin(packs, exclusive) as connection:
                return change(connection)

        return self._retry(attempt)

    @contextmanager
    def _begin(self, packs: Collection[str], exclusive: bool = True) -> Iterator[Connection]:
        level = "REPEATABLE READ" if exclusive else "READ COMMITTED"
        with self._engine.connect().execution_options(isolation_level=level) as connection, connection.begin():
            connection.exec_driver_sql(_EXCLUSIVE if exclusive else _LIMITS)
            if packs:
                self._check_fences(connection, packs)
            yield connection

    def read(self, query: Callable[[Connection], T]) -> T:
        def attempt() -> T:
            connected = self._engine.connect()
            options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
            with connected.execution_options(**options) as connection, damage_of("a row"):
                return query(connection)

        return self._retry(attempt)

    def _retry(self, attempt: Callable[[], T]) -> T:
        """What an attempt returns; it is made again while the database asks for it or cannot be reached."""
        self.check_process()
        deadline, pause = 0.0, 0.02
        with self.translate_errors():
            while True:
                try:
                    return attempt()
                except DBAPIError as error:
                    if not is_passing(error):
                        raise
                    deadline = deadline or time.monotonic() + self.wait_seconds
                    if time.monotonic() + pause > deadline:
                        raise
                time.sleep(random.uniform(pause / 2, pause))
                pause = min(2 * pause, 2.0)

    def translate_errors(self) -> AbstractContextManager[None]:
        return _translate_errors(self.name)

    def check_in_place(self) -> None:
        """The database is where its address leads; see PostgresStore for its files."""

    def change_stamp(self) -> str:
        """The snapshot that a transaction would see now: equal ones see the same rows."""
        snapshot = text("SELECT pg_current_snapshot()::text")
        return str(self.read(lambda connection: connection.execute(snapshot).scalar()))

    def has_table(self, table: Table) -> bool:
        if table.name not in self._tables and self.read(lambda it: inspect(it).has_table(table.name, SCHEMA)):
            self._tables.add(table.name)
        return table.name in self._tables

    # ---- leases ----

    def _check_fences(self, connection: Connection, names: Collection[str]) -> None:
        """Busy unless this process still has the leases that it holds, and nobody has the others; until the end of
        the transaction nobody can take them."""
        wanted = select(leases.c.name, leases.c.number, leases.c.holder, _IS_HELD).where(leases.c.name.in_(names))
        found = {row.name: row for row in connection.execute(wanted.order_by(leases.c.name).with_for_update(read=True))}
        for name in names:
            row, number = found.get(name), self._numbers.get(name)
            if number is not None and (row is None or row.number != number):
                raise _taken_over(name, "another process" if row is None else row.holder)
            if number is None and row is not None and row.is_held:
                raise _held(f"pack {name}", row.holder)

    @contextmanager
    def lease(self, name: str, description: str) -> Iterator[None]:
        """Hold a lease; `Busy` names its holder. It ends with the block, or LEASE_SECONDS after the process."""
        token = uuid4().hex
        holder = f"process {os.getpid()} since {datetime.now():%Y-%m-%d %H:%M:%S} on {platform.node()}"
        number = self._retry(lambda: self._take_lease(name, description, token, holder))
        self._numbers[name], self._tokens[name] = number, token
        self._start_renewing()
        try:
            yield
        finally:
            del self._numbers[name], self._tokens[name]
            own = (leases.c.name == name) & (leases.c.token == token)
            with suppress(DBAPIError), self._engine.begin() as connection:
                connection.execute(update(leases).where(own).values(expires=_NOW))

    def _take_lease(self, name: str, description: str, token: str, holder: str) -> int:
        with self._begin((), exclusive=False) as connection:
            free = {"name": name, "number": 0, "token": "", "holder": "", "expires": datetime.fromtimestamp(0, UTC)}
            insert_missing(connection, leases, [free])
            wanted = select(leases, _IS_HELD).where(leases.c.name == name)
            row = connection.execute(wanted.with_for_update(skip_locked=True)).first()
            if row is None:  # somebody is writing under it, renewing it or taking it
                raise _held(description, connection.execute(wanted).one().holder or "another process")
            if row.token == token:  # taken already, when the connection was lost
                return int(row.number)
            if row.is_held:
                raise _held(description, row.holder)
            taken = {"number": row.number + 1, "token": token, "holder": holder, "expires": _lease_end()}
            connection.execute(update(leases).where(leases.c.name == name).values(taken))
            return int(row.number) + 1

    def raise_number(self, name: str) -> int:
        """A new fencing number of a lease that this process holds: it ends what is written under the one before."""
        own = (leases.c.name == name) & (leases.c.token == self._tokens[name])
        raised = update(leases).where(own).values(number=leases.c.number + 1).returning(leases.c.number)

        def attempt() -> int:
            with self._begin((), exclusive=False) as connection:
                if (number := connection.execute(raised).scalar()) is None:
                    holder = connection.execute(select(leases.c.holder).where(leases.c.name == name)).scalar()
                    raise _taken_over(name, str(holder or "another process"))
                return int(number)

        self._numbers[name] = self._retry(attempt)
        return self._numbers[name]

    @contextmanager
    def use_number(self, name: str, number: int) -> Iterator[None]:
        """Write under the fencing number of a lease that another process holds and renews."""
        self._numbers[name] = number
        try:
            yield
        finally:
            del self._numbers[name]

    def held(self, names: Collection[str]) -> set[str]:
        """Those of these leases that some process holds now."""
        return {row.name for row in self.fetch(select(leases.c.name).where(leases.c.name.in_(names), _IS_HELD))}

    def _start_renewing(self) -> None:
        if self._renewer is None:
            self._renewer = threading.Thread(target=self._renew_leases, name="seedbed-leases", daemon=True)
            self._renewer.start()

    def _renew_leases(self) -> None:
        """Extend the leases until the database is closed; one that somebody else has taken stays theirs."""
        own = (leases.c.name == bindparam("own_name")) & (leases.c.token == bindparam("own_token"))
        statement = update(leases).where(own).values(expires=_lease_end())
        while not self._closed.wait(RENEW_SECONDS):
            held = [{"own_name": name, "own_token": token} for name, token in sorted(self._tokens.copy().items())]
            if held:
                with suppress(DBAPIError), self._begin((), exclusive=False) as connection:
                    connection.execute(statement, held)


def _lease_end() -> object:
    return _NOW + timedelta(seconds=LEASE_SECONDS)


def _held(description: str, holder: str) -> Busy:
    return Busy(f"{description} is held by {holder}; wait for it or stop it, then run the same command again", holder)


def _taken_over(name: str, holder: str) -> Busy:
    return Busy(
        f"pack {name} was given up, since this process was not heard of for {LEASE_SECONDS:g} s, and taken over by "
        f"{holder}; this process has not written to it since",
        holder,
    )


def _sqlstate(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None)


def is_passing(error: DBAPIError) -> bool:
    """Whether the same transaction may succeed later."""
    state = _sqlstate(error)
    if state is None:
        return isinstance(error, OperationalError) or error.connection_invalidated
    return state in _SERIALIZATION | _UNREACHABLE or state.startswith("08") or error.connection_invalidated


@contextmanager
def _translate_errors(name: str) -> Iterator[None]:
    """Translate database errors and damaged rows into our own."""
    try:
        yield
    except DBAPIError as error:
        raise _to_seedbed_error(name, error) from error
    except DamagedRun as error:
        raise UnreadableRun(str(damaged(name, str(error)))) from error
    except DamagedRow as error:
        raise damaged(name, str(error)) from error


def _to_seedbed_error(name: str, error: DBAPIError) -> SeedbedError:
    state, reason = _sqlstate(error), " ".join(str(error.orig).split())
    if state in _SERIALIZATION:
        return Busy(f"{name}: other processes write to it all the time; run the same command again later")
    if is_passing(error):
        return StoreError(
            f"{name} cannot be reached: {reason}; everything committed is kept; check that the server runs and that "
            "the address is right, and give the same command again"
        )
    return StoreError(f"{name} cannot be used: {reason}; nothing was changed (schema {SCHEMA_VERSION})")
