"""Notes and tags as rows of the database, one row for each study or run that has any."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Literal

from sqlalchemy import Connection, delete, insert, select

from seedbed.errors import UsageError
from seedbed.records import Annotation, Annotations
from seedbed.store.digests import changed_lists, verified, with_digest
from seedbed.store.schema import AnyRow, notes


def check_tags(tags: Iterable[str]) -> None:
    """UsageError for a tag that a filter could not name: `tag=a,b` and `-draft` have a meaning of their own."""
    for tag in tags:
        if not re.fullmatch(r"[^\W_][\w.:/+-]*", tag):
            raise UsageError(
                f"{tag!r} cannot be a tag; expected one word of letters, digits and . : / + - _ that begins with a "
                "letter or digit"
            )


def with_tags(annotation: Annotation, added: Collection[str] = (), removed: Collection[str] = ()) -> Annotation:
    """The annotation after tags were added and removed."""
    for tag in removed:
        if tag not in annotation.tags:
            raise UsageError(f"there is no tag {tag!r} to remove; tags: {', '.join(annotation.tags) or 'none'}")
    check_tags(added)
    return Annotation(annotation.note, tuple(sorted({*annotation.tags, *added} - {*removed})))


def read_annotation(connection: Connection, kind: Literal["study", "run"], name: str) -> Annotation:
    """The annotation of a study or run; empty if it has none."""
    rows = verified(notes, connection.execute(select(notes).where(notes.c[kind] == name)))
    return Annotation(rows[0].note, tuple(rows[0].tags)) if rows else Annotation()


def write_annotation(connection: Connection, kind: Literal["study", "run"], name: str, annotation: Annotation) -> None:
    """Replace the annotation of a study or run; an empty one is deleted."""
    with changed_lists(connection, notes):
        connection.execute(delete(notes).where(notes.c[kind] == name))
        if annotation != Annotation():
            row = {kind: name, "note": annotation.note, "tags": list(annotation.tags)}
            connection.execute(insert(notes).values(with_digest(notes, row)))


def annotations_from_rows(rows: Iterable[AnyRow]) -> Annotations:
    """All annotations of a store."""
    studies, runs = {}, {}
    for row in rows:
        found = Annotation(row.note, tuple(row.tags))
        if row.study is not None:
            studies[row.study] = found
        else:
            runs[row.run] = found
    return Annotations(studies, runs)
