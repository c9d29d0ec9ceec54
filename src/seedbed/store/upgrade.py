"""Migration of stores with earlier schemas: a backup is made, then all tables change in one transaction.

    upgrade_tables(connection)     # by `seedbed upgrade`, and by every command that writes

From schema 4 on the row of a run holds all of its settings, so that a new default cannot change a stored run. Earlier
rows hold only the settings that differ from the defaults of seedbed 0.1. From schema 5 on rows have digests; what was
damaged before cannot be told from what was written, except where SQLite finds it.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, delete, insert, inspect, select, text, update
from sqlalchemy.schema import CreateColumn

from seedbed.settings import Settings, UnreadableSettings
from seedbed.store.checkpoints import run_fingerprint
from seedbed.store.digests import (
    LISTED_TABLES,
    RUN_COLUMNS,
    DamagedRow,
    digest_names,
    digest_pack,
    stored_run_rows,
    with_digest,
    with_run_digests,
    write_lists,
)
from seedbed.store.durable_files import fsync_folder
from seedbed.store.schema import (
    SCHEMA_VERSION,
    costs,
    meta,
    metadata,
    metric_names,
    notes,
    packs,
    runs,
    studies,
    study_runs,
    vocabularies,
)

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


def schema_rows() -> list[dict[str, str]]:
    """What `meta` says of the schema: twice, so that damage to the number shows; and who can read the store."""
    keys = {"schema": SCHEMA_VERSION, "schema_copy": SCHEMA_VERSION, "readable_by": SCHEMA_VERSION}
    return [{"key": key, "value": str(value)} for key, value in keys.items()]


def upgrade_tables(connection: Connection, schema: int) -> None:
    """Migrate the tables of an earlier schema, within the caller's transaction."""
    if (fault := connection.execute(text("PRAGMA integrity_check")).scalar()) != "ok":
        raise DamagedRow(str(fault))
    if schema < 4:
        _to_schema_4(connection)
    _to_schema_5(connection)
    connection.execute(delete(meta).where(meta.c.key == "schema"))
    connection.execute(insert(meta), schema_rows())


def _to_schema_4(connection: Connection) -> None:
    known = set(inspect(connection).get_table_names())
    for old, new in RENAMED_TABLES.items():
        if old in known:
            connection.execute(text(f"ALTER TABLE {old} RENAME TO {new}"))
    _add_column(connection, runs.c.dataset)
    _add_column(connection, runs.c.fingerprint)
    for row in connection.execute(select(runs.c.id, runs.c.seed, runs.c.settings)).all():
        changed = {"settings": _all_settings(row.settings), "fingerprint": run_fingerprint(row.seed, row.settings)}
        connection.execute(update(runs).where(runs.c.id == row.id).values(changed))
    for pack in connection.execute(select(packs.c.id, packs.c.placement)).all():
        placement = {RENAMED_PLACEMENT_KEYS.get(key, key): value for key, value in pack.placement.items()}
        connection.execute(update(packs).where(packs.c.id == pack.id).values(placement=placement))


def _add_column(connection: Connection, column: Column[Any]) -> None:
    connection.execute(text(f"ALTER TABLE {column.table.name} ADD COLUMN {CreateColumn(column).compile(connection)}"))


def _to_schema_5(connection: Connection) -> None:
    metadata.create_all(connection)  # tables that were added since
    for table in (studies, packs, runs, metric_names, vocabularies, notes):
        known = {column["name"] for column in inspect(connection).get_columns(table.name)}
        for column in table.columns:
            if column.name not in known:
                _add_column(connection, column)
    write_digests(connection)


def write_digests(connection: Connection) -> None:
    """Make the digests of all rows as they are."""
    for row in connection.execute(select(runs)).all():
        chains = {table.name: stored_run_rows(connection, table, row.id).chain() for table in RUN_COLUMNS}
        contents = {name: list(chain) for name, chain in chains.items() if chain.n}
        changed = with_run_digests({**row._mapping, "contents": contents})
        changed = {name: changed[name] for name in ("contents", "config_digest", "row_digest")}
        connection.execute(update(runs).where(runs.c.id == row.id).values(changed))
    spent = {row.pack: row._mapping for row in connection.execute(select(costs))}
    for row in connection.execute(select(packs)).all():
        digest = digest_pack(row._mapping, spent.get(row.id))
        connection.execute(update(packs).where(packs.c.id == row.id).values(row_digest=digest))
    for row in connection.execute(select(studies)).all():
        ordered = select(study_runs.c.run).where(study_runs.c.study == row.name).order_by(study_runs.c.position)
        members = digest_names(connection.execute(ordered).scalars())
        changed = with_digest(studies, {**row._mapping, "members": members})
        connection.execute(update(studies).where(studies.c.name == row.name).values(changed))
    for table in (metric_names, vocabularies, notes):
        key = next(iter(table.primary_key))
        for row in connection.execute(select(table)).all():
            digest = with_digest(table, row._mapping)["row_digest"]
            connection.execute(update(table).where(key == row._mapping[key.name]).values(row_digest=digest))
    write_lists(connection, *LISTED_TABLES)


def _all_settings(stored: dict[str, Any]) -> dict[str, Any]:
    try:
        return Settings.from_stored(stored).flat()
    except UnreadableSettings:  # left unchanged; reading that run reports the reason
        return stored
