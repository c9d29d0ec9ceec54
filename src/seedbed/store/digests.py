"""Digests that tell when rows of a database are not those that were written; the same for every database.

    runs, studies, packs, notes, …     `row_digest`: of the row's other columns, and of a pack's costs
    evaluations, samples, checkpoints  a RowChain for each run, in the column `contents` of the run
    study_runs                         `members` of the study: the ids of its runs in order
    studies, notes, vocabularies       the digest of which there are, in `meta`, so that a vanished row is missed
    tables and indexes of SQLite       the digest of the statement that made each, in `meta`

A row that is read is verified, and so is a row that is changed, since its new digest would otherwise cover up damage.
Digests tell accidents, not forgeries: whoever can write a row can write its digest.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, Self
from zlib import adler32, crc32

from sqlalchemy import Connection, Table, insert, select, text, update

from seedbed.store.dialects import upsert
from seedbed.store.schema import (
    AnyRow,
    checkpoints,
    costs,
    evaluations,
    meta,
    metadata,
    metric_names,
    notes,
    packs,
    runs,
    samples,
    studies,
    study_runs,
    vocabularies,
)

_MAX_ROWS = 2**31 - 1  # that a cursor fetches at a time
_UNREADABLE = (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, struct.error)


class DamagedRow(Exception):
    """Rows that are not as they were written; the database that reads them adds its own name to the message."""


class DamagedRun(DamagedRow):
    """The row of one run."""


@contextmanager
def damage_of(what: str, kind: type[DamagedRow] = DamagedRow) -> Iterator[None]:
    """Report whatever goes wrong with the values of a row as damage to it."""
    try:
        yield
    except _UNREADABLE as error:
        raise kind(f"{what} cannot be read") from error


def _verify(
    is_intact: bool, what: str, kind: type[DamagedRow] = DamagedRow, fault: str = "differs from its digest"
) -> None:
    if not is_intact:
        raise kind(f"{what} {fault}")


# ---- rows ----


class UndecodableJSON:
    """A JSON column that does not hold JSON; no digest can be made of it."""


def decode_json(text: str | bytes) -> Any:
    """Read a JSON column, for the engine of a database; what cannot be read makes its row damaged."""
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return UndecodableJSON()


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=bytes.hex)


def canonical_json(value: Any) -> str:
    """JSON in which keys are sorted and bytes are hexadecimal."""
    return _ENCODER.encode(value)


def digest_values(*values: Any) -> str:
    """Digest of values that JSON or bytes can hold."""
    return digest_text(canonical_json(values))


def digest_text(text: str) -> str:
    """Hex BLAKE2b-128 digest."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


_PROGRESS = ("status", "settled", "step", "pack", "cause", "best", "fingerprint", "contents")  # of a run, and changes
PROGRESS_COLUMNS = [runs.c[name] for name in ("id", *_PROGRESS, "config_digest", "row_digest")]
_DIGESTED: dict[Table, tuple[str, ...]] = {
    runs: ("id", *_PROGRESS, "config_digest"),
    studies: ("name", "text", "axes", "created", "members"),
    metric_names: ("names",),
    notes: ("study", "run", "note", "tags"),
    vocabularies: ("dataset", "created", "digest"),
}
_PACK_COLUMNS = ("id", "members", "placement", "open", "step", "digest", "previous", "seconds", "environment")
COST_COLUMNS = ("predicted", "counts", "steady", "peak")
_NAMES = {
    "runs": ("run", "id"), "studies": ("study", "name"), "metric_names": ("list of metric names", "names"),
    "notes": ("note", "id"), "vocabularies": ("vocabulary", "dataset"),
}  # fmt: skip


def with_digest(table: Table, row: Mapping[Any, Any]) -> dict[str, Any]:
    """A row with its digest; what is absent has its default."""
    full = {column.name: _default(column) for column in table.columns if column.name in _DIGESTED[table]} | dict(row)
    return full | {"row_digest": digest_values(table.name, *(full[name] for name in _DIGESTED[table]))}


def _default(column: Any) -> Any:
    if column.default is None:
        return "" if column.server_default is not None else None
    return column.default.arg(None) if column.default.is_callable else column.default.arg


def _values_of(table: Table) -> Callable[[AnyRow], Any]:
    """The digested columns of a row."""
    names = _DIGESTED[table]
    return attrgetter(*names) if len(names) > 1 else lambda row: (getattr(row, names[0]),)


def verified(table: Table, rows: Iterable[AnyRow]) -> list[AnyRow]:
    """These rows; DamagedRow if one is not as it was written."""
    found, (kind, key) = list(rows), _NAMES[table.name]
    damage = DamagedRun if table is runs else DamagedRow
    values_of = _values_of(table)
    for row in found:
        try:
            is_intact = digest_values(table.name, *values_of(row)) == row.row_digest
        except _UNREADABLE:
            is_intact = False
        _verify(is_intact, f"{kind} {getattr(row, key)}", damage)
    return found


def digest_config(row: Any, settings: str) -> str:
    """Digest of what never changes of a run, with its settings as canonical JSON."""
    return digest_text(canonical_json([row["id"], row["seed"], row["parameters"], row["dataset"]]) + settings)


def with_run_digests(row: Mapping[Any, Any]) -> dict[str, Any]:
    """A new row of `runs` with both of its digests."""
    config = digest_config({"dataset": None, **row}, canonical_json(row["settings"]))
    return with_digest(runs, {**row, "config_digest": config})


def verified_run(row: AnyRow) -> str:
    """The settings of a whole row of `runs` as canonical JSON, after it was verified."""
    [row] = verified(runs, [row])
    with damage_of(f"run {row.id}", DamagedRun):
        settings = canonical_json(row.settings)
        digest = digest_config(row._mapping, settings)
    _verify(digest == row.config_digest, f"run {row.id}", DamagedRun)
    return settings


def digest_pack(pack: Mapping[Any, Any], cost: Mapping[Any, Any] | None) -> str:
    """Digest of a row of `packs` and its row of `costs`."""
    return digest_values([pack[name] for name in _PACK_COLUMNS], cost and [cost[name] for name in COST_COLUMNS])


def select_packs(connection: Connection, wanted: Any) -> list[tuple[AnyRow, AnyRow | None]]:
    """The packs that match a condition on `packs` by id, each with its cost; DamagedRow if one is damaged."""
    found = connection.execute(select(packs).where(wanted).order_by(packs.c.id)).all()
    spent = select(costs).join_from(costs, packs, costs.c.pack == packs.c.id).where(wanted)
    by_pack = {row.pack: row for row in connection.execute(spent)}
    pairs = [(row, by_pack.get(row.id)) for row in found]
    for pack, cost in pairs:
        verify_pack(pack, cost)
    return pairs


def verify_pack(pack: AnyRow, cost: AnyRow | None) -> None:
    """DamagedRow if a pack or its cost is not as it was written."""
    with damage_of(f"pack {pack.id}"):
        digest = digest_pack(pack._mapping, None if cost is None else cost._mapping)
    _verify(digest == pack.row_digest, f"pack {pack.id}")


# ---- names ----


def digest_names(names: Iterable[str]) -> str:
    """Digest of names in their order."""
    return digest_values(*names)


_LISTS: dict[Table, tuple[Any, ...]] = {
    studies: (studies.c.name,), notes: (notes.c.study, notes.c.run), vocabularies: (vocabularies.c.dataset,),
}  # fmt: skip
LISTED_TABLES = tuple(_LISTS)


def verify_list(connection: Connection, table: Table, rows: Iterable[AnyRow] | None = None) -> None:
    """DamagedRow unless a table has exactly the rows that were put into it, or these are exactly those.

    Whoever reads all rows gives them: a damaged table may have others than its index, from which a list may be read.
    """
    stored = connection.execute(select(meta.c.value).where(meta.c.key == table.name)).scalar()
    _verify(stored is None or _digest_list(connection, table, rows) == stored, f"the list of {table.name}")


def verify_absent(connection: Connection, table: Table, name: str) -> None:
    """DamagedRow if a table, whose rows are listed by name, has a row that was not found by its index."""
    of_index = select(*_LISTS[table])
    of_table = of_index.add_columns(table.c.row_digest)  # which the index does not have
    for names in (of_index, of_table):
        rows = connection.execute(names).all()
        verify_list(connection, table, rows)
        _verify(name not in {row[0] for row in rows}, f"the index of {table.name}")


@contextmanager
def changed_lists(connection: Connection, *tables: Table) -> Iterator[None]:
    """Rows are added to these tables or deleted from them within the `with` block."""
    for table in tables:
        verify_list(connection, table)
    yield
    write_lists(connection, *tables)


def unlisted_tables(connection: Connection) -> list[Table]:
    """The tables to be listed of which an earlier version has stored no list."""
    stored = {*connection.execute(select(meta.c.key)).scalars()}
    return [table for table in LISTED_TABLES if table.name not in stored]


def write_lists(connection: Connection, *tables: Table) -> None:
    """Store which rows these tables have."""
    for table in tables:
        value = _digest_list(connection, table)
        if not connection.execute(update(meta).where(meta.c.key == table.name).values(value=value)).rowcount:
            connection.execute(insert(meta).values(key=table.name, value=value))


def _digest_list(connection: Connection, table: Table, rows: Iterable[AnyRow] | None = None) -> str:
    found = connection.execute(select(*_LISTS[table])).all() if rows is None else rows
    names = [column.name for column in _LISTS[table]]
    with damage_of(f"the list of {table.name}"):
        return digest_names(sorted(canonical_json([row._mapping[name] for name in names]) for row in found))


# ---- tables ----

_TABLES_KEY = "tables"  # in `meta`
_DEFINED = {*metadata.tables, *(str(index.name) for table in metadata.tables.values() for index in table.indexes)}


def verify_definitions(connection: Connection) -> None:
    """DamagedRow unless the tables and indexes of a SQLite database are defined as they were created."""
    with damage_of("the list of tables"):
        stored, found = _stored_definitions(connection), _definitions(connection)
    for name, digest in stored.items():
        _verify(found.get(name) == digest, f"the definition of {name}")


def lacks_definitions(connection: Connection) -> bool:
    """Whether tables or indexes were created by a version that did not store how they are defined."""
    return not _definitions(connection).keys() <= _stored_definitions(connection).keys()


def write_definitions(connection: Connection) -> None:
    """Store how the tables and indexes are defined of which that is not stored yet."""
    value = canonical_json(_definitions(connection) | _stored_definitions(connection))
    upsert(connection, meta, [{"key": _TABLES_KEY, "value": value}])


def _stored_definitions(connection: Connection) -> dict[str, str]:
    stored = connection.execute(select(meta.c.value).where(meta.c.key == _TABLES_KEY)).scalar()
    return {} if stored is None else dict(json.loads(stored))


def _definitions(connection: Connection) -> dict[str, str]:
    """The digest of the statement that made each table and index of ours."""
    rows = connection.execute(text("SELECT name, CAST(sql AS BLOB) AS sql FROM sqlite_master")).all()
    return {row.name: digest_text(row.sql.decode(errors="replace")) for row in rows if row.name in _DEFINED}


def select_members(connection: Connection, study: AnyRow) -> list[str]:
    """The ids of a study's runs in order, verified."""
    ordered = select(study_runs.c.run).where(study_runs.c.study == study.name).order_by(study_runs.c.position)
    members = connection.execute(ordered).scalars().all()
    with damage_of(f"the list of runs of study {study.name}"):
        digest = digest_names(members)
    _verify(digest == study.members, f"the list of runs of study {study.name}")
    return list(members)


# ---- what a run has ----


class RowChain(NamedTuple):
    """The number and digest of rows in the order of their steps, to which later rows can be added.

    CRC-32 and Adler-32 go on from a stored value: a recorded row costs a few calls, and a run is verified at once.
    """

    n: int = 0
    last_step: int = -1
    steps: int = 0
    tags: int = 0
    data: int = 0
    data_sum: int = 1

    @classmethod
    def of(cls, run: AnyRow, table: Table) -> Self:
        """The chain of a run's rows in a table."""
        return cls(*run.contents.get(table.name, ()))

    def extended(self, steps: Sequence[int], tags: Sequence[int], data: Iterable[bytes]) -> RowChain:
        """The chain with more rows, each of which has a step, another integer and bytes."""
        if not steps:
            return self
        packed, joined = struct.Struct(f"<{len(steps)}q"), b"".join(data)
        return RowChain(
            self.n + len(steps),
            steps[-1],
            crc32(packed.pack(*steps), self.steps),
            crc32(packed.pack(*tags), self.tags),
            crc32(joined, self.data),
            adler32(joined, self.data_sum),
        )


NO_ROWS = RowChain()


@dataclass(frozen=True)
class RunRows:
    """Rows of one run in one table by step: columns of equal length."""

    steps: Sequence[int] = ()
    tags: Sequence[int] = ()  # the list of metrics, the number of a sample, the bytes of a checkpoint
    blobs: Sequence[Sequence[Any]] = ()

    def up_to(self, step: int) -> RunRows:
        """The rows up to this step."""
        n = sum(one <= step for one in self.steps)
        return RunRows(self.steps[:n], self.tags[:n], [column[:n] for column in self.blobs])

    def as_dicts(self, table: Table, run: str) -> list[dict[str, Any]]:
        """These rows as they are in the table."""
        columns = zip(self.steps, self.tags, *self.blobs, strict=True)
        return [dict(zip(RUN_COLUMNS[table], (run, *row), strict=True)) for row in columns]

    def chain(self, chain: RowChain = NO_ROWS) -> RowChain:
        """The chain of these rows, or one that is extended by them."""
        whole = len(self.blobs) == 1 and isinstance(next(iter(self.blobs[0]), None), bytes)
        data = self.blobs[0] if whole else (canonical_json(blobs).encode() for blobs in zip(*self.blobs, strict=True))
        return chain.extended(self.steps, self.tags, data)


RUN_COLUMNS: dict[Table, tuple[str, ...]] = {
    evaluations: ("run", "step", "names", "numbers"),
    samples: ("run", "step", "number", "prompt", "text", "tokens", "log_probabilities"),
    checkpoints: ("run", "step", "bytes", "digest"),
}


def select_run_contents(
    connection: Connection, table: Table, owners: Mapping[str, AnyRow], others: Collection[str] = ()
) -> dict[str, RunRows]:
    """All rows that runs have in a table, verified; `owners` are rows of `runs` by id.

    `others` are ids without a row: there must be nothing of them.
    """
    chains = dict.fromkeys(others, RowChain()) | {run: RowChain.of(row, table) for run, row in owners.items()}
    found: dict[str, RunRows] = {}
    for run, rows in _rows_by_run(connection, table, {run: chain.n for run, chain in chains.items()}):
        what = f"the {table.name} of run {run}"
        with damage_of(what):
            _verify(rows.chain() == chains[run], what, DamagedRow, "differ from their digest")
        found[run] = rows
    for run, chain in chains.items():
        if chain.n and run not in found:
            raise DamagedRow(f"the {chain.n:,} {table.name} of run {run} are missing")
    return found


def stored_run_rows(connection: Connection, table: Table, run: str) -> RunRows:
    """The rows that a run has in a table as they are, to make their digest."""
    return dict(_rows_by_run(connection, table, {run: _MAX_ROWS})).get(run, RunRows())


def _rows_by_run(connection: Connection, table: Table, counts: Mapping[str, int]) -> Iterator[tuple[str, RunRows]]:
    """The rows of runs, at most as many of each as it should have at a time."""
    if not counts:
        return
    columns = [table.c[name] for name in RUN_COLUMNS[table]]
    order = [column for column in columns if column.primary_key]
    result = connection.execute(select(*columns).where(table.c.run.in_(counts)).order_by(*order))
    cursor = result.cursor  # its rows are plain tuples: there may be millions
    seen = set()
    while cursor is not None and (first := cursor.fetchone()) is not None:
        if first[0] in seen:
            raise DamagedRow(f"there are more {table.name} of run {first[0]} than were written")
        seen.add(first[0])
        n_more = counts.get(first[0], 1) - 1
        rows = [first, *(cursor.fetchmany(n_more) if n_more > 0 else ())]
        owners, steps, tags, *blobs = zip(*rows, strict=True)
        if owners.count(first[0]) != len(rows):
            n = owners.count(first[0])
            raise DamagedRow(f"of {len(rows):,} {table.name} of run {first[0]}, {n:,} are there")
        yield first[0], RunRows(steps, tags, blobs)
    result.close()
