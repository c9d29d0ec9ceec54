"""Stores of earlier schemas, brought to today's: a copy is kept, then everything changes in one transaction.

    upgrade_store(path)            # `seedbed upgrade`, and every verb that writes

From schema 4 on each run's row says all of its settings, so a later default cannot change what a stored run claims; the
rows before held only what differed from the defaults of seedbed 0.1, which are the defaults that settings were born with.
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
from seedbed.store.schema import SCHEMA_VERSION, meta, metadata, packs, runs

RENAMED_TABLES = {"readings": "evaluations", "names": "metric_names"}
RENAMED_PLACEMENT_KEYS = {"engine": "mode", "alone": "exclusive"}


def copy_path(path: Path, schema: int) -> Path:
    """Where the copy of a store of this schema is kept."""
    return path.with_name(f"{path.name}.schema{schema}")


def keep_copy(path: Path, schema: int) -> Path:
    """Copies the database, its write-ahead log included, beside it; complete as soon as it has its name."""
    target = copy_path(path, schema)
    partial = target.with_name(target.name + ".part")
    partial.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(partial)) as copy:
        source.backup(copy)
    os.replace(partial, target)
    return target


def upgrade_tables(connection: Connection) -> None:
    """Brings the tables of schemas 1 to 3 to schema 4, within the caller's transaction."""
    known = set(inspect(connection).get_table_names())
    for old, new in RENAMED_TABLES.items():
        if old in known:
            connection.execute(text(f"ALTER TABLE {old} RENAME TO {new}"))
    connection.execute(text("ALTER TABLE runs ADD COLUMN dataset JSON"))
    connection.execute(text("ALTER TABLE runs ADD COLUMN fingerprint VARCHAR NOT NULL DEFAULT ''"))
    metadata.create_all(connection)  # those that came with schemas 2 and 3
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
    except UnreadableSettings:  # stays as it is; whoever reads that run is told why
        return stored
