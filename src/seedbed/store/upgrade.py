"""Migration of stores with earlier schemas: a backup is made, then all tables change in one transaction.

    upgrade_tables(connection)     # by `seedbed upgrade`, and by every command that writes

From schema 4 on the row of a run holds all of its settings, so that a new default cannot change a stored run. Earlier
rows hold only the settings that differ from the defaults of seedbed 0.1.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, inspect, select, text, update

from seedbed.settings import Settings, UnreadableSettings
from seedbed.store.checkpoints import run_fingerprint
from seedbed.store.durable_files import fsync_folder
from seedbed.store.schema import SCHEMA_VERSION, meta, metadata, packs, runs

RENAMED_TABLES = {"readings": "evaluations", "names": "metric_names"}
RENAMED_PLACEMENT_KEYS = {"engine": "mode", "alone": "exclusive"}


def copy_path(path: Path, schema: int) -> Path:
    """Path of the backup of a store with this schema."""
    return path.with_name(f"{path.name}.schema{schema}")


def keep_copy(path: Path, schema: int) -> Path:
    """Back up the database, including its WAL, next to it; written under a temporary name, then renamed."""
    target = copy_path(path, schema)
    partial = target.with_name(target.name + ".part")
    partial.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(partial)) as copy:
        source.backup(copy)
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(partial, target)
    fsync_folder(target.parent)
    return target


def upgrade_tables(connection: Connection) -> None:
    """Migrate the tables of schemas 1 to 3 to schema 4, within the caller's transaction."""
    known = set(inspect(connection).get_table_names())
    for old, new in RENAMED_TABLES.items():
        if old in known:
            connection.execute(text(f"ALTER TABLE {old} RENAME TO {new}"))
    connection.execute(text("ALTER TABLE runs ADD COLUMN dataset JSON"))
    connection.execute(text("ALTER TABLE runs ADD COLUMN fingerprint VARCHAR NOT NULL DEFAULT ''"))
    metadata.create_all(connection)  # the tables added by schemas 2 and 3
    for row in connection.execute(select(runs.c.id, runs.c.seed, runs.c.settings)).all():
        changed = {"settings": _all_settings(row.settings), "fingerprint": run_fingerprint(row.seed, row.settings)}
        connection.execute(update(runs).where(runs.c.id == row.id).values(changed))
    for pack in connection.execute(select(packs.c.id, packs.c.placement)).all():
        placement = {RENAMED_PLACEMENT_KEYS.get(key, key): value for key, value in pack.placement.items()}
        connection.execute(update(packs).where(packs.c.id == pack.id).values(placement=placement))
    connection.execute(update(meta).where(meta.c.key == "schema").values(value=str(SCHEMA_VERSION)))


def _all_settings(stored: dict[str, Any]) -> dict[str, Any]:
    try:
        return Settings.from_stored(stored).flat()
    except UnreadableSettings:  # left unchanged; reading that run reports the reason
        return stored
