"""The store that several machines share: rows in a PostgreSQL database, files in a folder that all of them see.

    open_store("postgresql://ada@db.example/lab#/shared/lab")

What follows # is the home of the files, by default that of the command. They are in HOME/databases/ID, where ID is that
of the store in the database, so that the files of two databases never mix in one home.
"""

from __future__ import annotations

import platform
from collections.abc import Collection
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Self

from sqlalchemy import make_url, select
from sqlalchemy.exc import ArgumentError

from seedbed.errors import SeedbedError, StoreError, UsageError
from seedbed.store.base import Grant
from seedbed.store.durable_files import make_folder, translate_os_errors
from seedbed.store.postgres_database import WAIT_SECONDS, PostgresDatabase
from seedbed.store.schema import meta
from seedbed.store.sql_store import SQLStore

JOIN_SECONDS = 60.0  # that a worker waits for the server before its node is given up
IMPORT_LEASE = "import"  # not the id of a pack


class PostgresStore(SQLStore):
    """A store for several processes and machines at once."""

    shares_packs = True
    _has_digests_in_names = True

    def __init__(self, home: Path, database: PostgresDatabase) -> None:
        self._postgres = database
        [identifier] = database.fetch(select(meta.c.value).where(meta.c.key == "store"))
        super().__init__(home.absolute() / "databases" / str(identifier.value), database, database.name)

    @classmethod
    def open(cls, location: str, read_only: bool = False) -> Self:
        home, database = _parse(location, not read_only)
        try:
            database.open()
            store = cls(home, database)
            if not read_only:
                with translate_os_errors(store._checkpoints_folder, "everything in the database"):
                    make_folder(store._checkpoints_folder)
        except BaseException:
            database.close()
            raise
        with suppress(SeedbedError, OSError):  # a home that cannot be written, or in which a merge is going on
            store._complete_merge()
        return store

    @classmethod
    def join(cls, location: str) -> Self:
        home, database = _parse(location, writable=True)
        database.wait_seconds = JOIN_SECONDS
        try:
            database.check_not_newer(database.read_schema())
            store = cls(home, database)
            if not store._checkpoints_folder.is_dir():
                raise StoreError(f"there is no {store._checkpoints_folder}; all nodes must see the home there")
        except SeedbedError as error:
            database.close()
            raise StoreError(f"the store cannot be used from {platform.node()}: {error}") from error
        database.wait_seconds = WAIT_SECONDS
        return store

    @classmethod
    def exists(cls, location: str) -> bool:
        _, database = _parse(location, writable=False)
        try:
            with database.translate_errors():
                return database.is_created()
        finally:
            database.close()

    @classmethod
    def upgrade(cls, location: str) -> str:
        with cls.open(location, read_only=True) as store:
            return f"{store.address} has schema {store._postgres.read_schema()} already; nothing was changed"

    @property
    def address(self) -> str:
        return self._postgres.name

    @property
    def shared_address(self) -> str:
        return f"{self._postgres.whole_name}#{self._folder.parents[1]}"

    def grant(self, pack_id: str) -> Grant:
        return Grant(pack_id, self._postgres.raise_number(pack_id))

    def write_under(self, grant: Grant) -> AbstractContextManager[None]:
        return self._postgres.use_number(grant.pack_id, grant.number)

    def lock(self, pack_id: str) -> AbstractContextManager[None]:
        return self._postgres.lease(pack_id, f"pack {pack_id}")

    def _held_packs(self, pack_ids: Collection[str]) -> set[str]:
        return self._postgres.held(pack_ids)

    def _lock_import(self) -> AbstractContextManager[None]:
        return self._postgres.lease(IMPORT_LEASE, "the import")


def _parse(location: str, writable: bool) -> tuple[Path, PostgresDatabase]:
    """The home of the files and the database, which is not connected to yet."""
    address, _, home = f"postgresql:{location}".partition("#")
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        raise UsageError("an address of PostgreSQL has the form postgresql://USER@HOST:PORT/DATABASE") from None
    return Path(home or "lab"), PostgresDatabase(url.set(drivername="postgresql+psycopg"), writable)
