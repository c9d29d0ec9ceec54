"""Where the databases differ in what they are told: insertions that meet rows which are there already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import sqlite


def _insert(connection: Connection, table: Table) -> Any:
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)


def upsert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, or update those with the same primary key."""
    if rows:
        statement = _insert(connection, table)
        values = {column.name: statement.excluded[column.name] for column in table.columns if not column.primary_key}
        connection.execute(statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=values), rows)


def insert_missing(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert those rows that break no uniqueness."""
    if rows:
        connection.execute(_insert(connection, table).on_conflict_do_nothing(), rows)
