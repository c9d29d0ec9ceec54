"""The store of a home on one machine: a SQLite database, with checkpoints and analyses as files next to it.

HOME/store.db            studies, runs, metrics, samples, costs, vocabularies, notes
HOME/locks/PACK.lock     held while a pack is being trained
HOME/checkpoints/…       weights, analyses and saved states (sql_store.py)
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Self

from seedbed.errors import SeedbedError
from seedbed.store.database import Database, database_path, read_schema
from seedbed.store.durable_files import file_lock, is_locked
from seedbed.store.schema import SCHEMA_VERSION
from seedbed.store.sql_store import SQLStore
from seedbed.store.upgrade import copy_path


class SQLiteStore(SQLStore):
    """A store in a folder; for one machine, since locks and WAL mode need a local file system."""

    def __init__(self, home: Path, database: Database) -> None:
        self.home = home.absolute()
        self._shown_home = home  # as the user wrote it
        super().__init__(self.home, database, str(self.home))

    @classmethod
    def open(cls, location: str | Path, read_only: bool = False) -> Self:
        home = Path(location)
        store = cls(home, Database.open_read_only(home) if read_only else Database.create_or_open(home))
        with suppress(SeedbedError, OSError):  # a home that cannot be written, or in which a merge is going on
            store._complete_merge()
        return store

    @classmethod
    def exists(cls, location: str | Path) -> bool:
        return database_path(Path(location)).exists()

    @classmethod
    def upgrade(cls, location: str | Path) -> str:
        home = Path(location)
        found, path = read_schema(home), database_path(home)
        if found == SCHEMA_VERSION:
            return f"{path} has schema {found} already; nothing was changed"
        cls.open(home).close()
        copy = copy_path(path, found)
        return f"upgraded {path} from schema {found} to {SCHEMA_VERSION}; a copy of it as it was: {copy}"

    @property
    def address(self) -> str:
        return str(database_path(self._shown_home))

    def lock(self, pack_id: str) -> AbstractContextManager[None]:
        return file_lock(self._lock_path(pack_id), f"pack {pack_id}")

    def _held_packs(self, pack_ids: Collection[str]) -> set[str]:
        return {pack for pack in pack_ids if is_locked(self._lock_path(pack))}

    def _lock_import(self) -> AbstractContextManager[None]:
        return file_lock(self.home / "locks" / "import.lock", "the import")

    def _lock_path(self, pack_id: str) -> Path:
        return self.home / "locks" / f"{pack_id}.lock"
