"""The tables, and the conversion of rows to records.

A metric is keyed by (run, step, name), but stored as one row per run and step: little-endian float64 values in the
order of a list of names that many rows share. NaN survives this way; SQLite would store it as NULL.

The end of a run (finished, diverged) is *settled* once a saved state includes it; until then a resume undoes it.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, TypeAlias

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
)
from sqlalchemy.engine import Dialect

from seedbed.errors import UnreadableRun
from seedbed.records import Cost, ParameterCounts, Placement, StoredPack, StoredRun
from seedbed.settings import DatasetInfo, Settings, UnreadableSettings

# Raised whenever an older version could no longer write correctly; 2: samples, 3: costs, 4: all settings of a run,
# 5: digests of rows, and two saved states of a pack.
# ADDED_TABLES came later without raising it: a version that does not know them leaves them as they are, a writer adds
# them to a store that lacks them, and for a reader they are then empty.
SCHEMA_VERSION = 5
APPLICATION_ID = int.from_bytes(b"seed", "big")  # bytes 68–71 of the file, to recognise foreign databases

AnyRow: TypeAlias = Any  # sqlalchemy.Row; its type parameters differ between versions 2.0 and 2.1

metadata = MetaData()


class Bytes(LargeBinary):
    """Bytes as the driver returns them; SQLAlchemy would turn an integer, if damage left one, into that many zeros."""

    def result_processor(self, dialect: object, coltype: object) -> None:
        return None


class AnyText(TypeDecorator[str]):
    """Text that may hold NUL, which PostgreSQL refuses: there such a text is JSON after a control character."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or dialect.name == "sqlite" or not ("\0" in value or value.startswith(_ESCAPED)):
            return value
        return _ESCAPED + json.dumps(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or dialect.name == "sqlite" or not value.startswith(_ESCAPED):
            return value
        return str(json.loads(value[1:]))


_ESCAPED = "\x01"
Name = String().with_variant(String(collation="C"), "postgresql")  # ordered by bytes everywhere
Int64 = BigInteger().with_variant(Integer(), "sqlite")  # SQLite's INTEGER has 64 bits

meta = Table("meta", metadata, Column("key", Name, primary_key=True), Column("value", String, nullable=False))

studies = Table(
    "studies",
    metadata,
    Column("name", Name, primary_key=True),
    Column("text", AnyText, nullable=False),
    Column("axes", JSON, nullable=False),
    Column("created", String, nullable=False),
    Column("members", String, nullable=False, server_default=""),  # digest of the ids of its runs in order
    Column("row_digest", String, nullable=False, server_default=""),
)

packs = Table(
    "packs",
    metadata,
    Column("id", Name, primary_key=True),
    Column("members", JSON, nullable=False),  # run ids by slot; a run removed from the pack keeps its slot
    Column("placement", JSON, nullable=False),
    Column("open", Boolean, nullable=False, default=True),
    Column("step", Int64),  # of the saved state
    Column("digest", String),  # of the saved state's file
    Column("previous", JSON),  # [step, digest] of the state saved before it, if that is kept
    Column("seconds", JSON, nullable=False, default=dict),
    Column(
        "environment", JSON, nullable=False, default=list
    ),  # [{"step": first step, …versions}], one entry per change
    Column("row_digest", String, nullable=False, server_default=""),  # also of its row in `costs`
)

runs = Table(
    "runs",
    metadata,
    Column("id", Name, primary_key=True),
    Column("seed", Int64, nullable=False),
    Column("settings", JSON, nullable=False),  # all of them, by the names of the version that wrote them
    Column("parameters", JSON, nullable=False),
    Column("status", String, nullable=False, default="planned"),
    Column("settled", Boolean, nullable=False, default=False),
    Column("step", Int64, nullable=False, default=0),
    Column("pack", ForeignKey("packs.id"), index=True),
    Column("cause", AnyText),
    Column("best", Int64),
    Column("dataset", JSON),  # what its data determined; NULL: stored before schema 4
    Column("fingerprint", String, nullable=False, server_default=""),  # what its weights files say of it
    Column("contents", JSON, nullable=False, default=dict, server_default="{}"),  # {table: RowChain of its rows there}
    Column("config_digest", String, nullable=False, server_default=""),  # of the columns that never change
    Column("row_digest", String, nullable=False, server_default=""),
)

study_runs = Table(
    "study_runs",
    metadata,
    Column("study", ForeignKey("studies.name", ondelete="CASCADE"), primary_key=True),
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, index=True),
    Column("position", Int64, nullable=False),
)

metric_names = Table(
    "metric_names",
    metadata,
    Column("id", Integer, primary_key=True),
    Column(
        "names", Text, nullable=False, unique=True
    ),  # a JSON list, as text so that every database can index it as unique
    Column("row_digest", String, nullable=False, server_default=""),
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("step", Int64, primary_key=True),
    Column("names", ForeignKey("metric_names.id"), nullable=False),
    Column("numbers", Bytes, nullable=False),
    sqlite_with_rowid=False,  # rows are stored in key order, so a run's curves are one sequential scan
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("step", Int64, primary_key=True),
    Column("digest", String, nullable=False),
    Column("bytes", Int64, nullable=False),
)

costs = Table(  # besides the seconds in `packs`
    "costs",
    metadata,
    Column("pack", ForeignKey("packs.id", ondelete="CASCADE"), primary_key=True),
    Column("predicted", Int64),  # bytes
    Column("counts", JSON, nullable=False, default=dict),
    Column("steady", Int64),  # bytes
    Column("peak", Int64),  # bytes
)

samples = Table(
    "samples",
    metadata,
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("step", Int64, primary_key=True),
    Column("number", Int64, primary_key=True),
    # UTF-8 with surrogatepass: a model may generate lone surrogates or NUL, which a text column cannot hold
    Column("prompt", Bytes, nullable=False),
    Column("text", Bytes, nullable=False),
    Column("tokens", Bytes, nullable=False),  # little-endian int64
    Column("log_probabilities", Bytes, nullable=False),  # little-endian float64
    sqlite_with_rowid=False,
)

vocabularies = Table(
    "vocabularies",
    metadata,
    Column("dataset", Name, primary_key=True),  # digest of the dataset
    Column("created", String, nullable=False),
    Column("content", Bytes, nullable=False),  # JSON, compressed with zlib
    Column("digest", String, nullable=False),  # of `content`
    Column("row_digest", String, nullable=False, server_default=""),
)

notes = Table(  # notes and tags
    "notes",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("study", ForeignKey("studies.name", ondelete="CASCADE"), unique=True),  # either a study or a run
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), unique=True),
    Column("note", AnyText, nullable=False, default=""),
    Column("tags", JSON, nullable=False, default=list),
    Column("row_digest", String, nullable=False, server_default=""),
)

ADDED_TABLES = (vocabularies, notes)


def run_from_row(row: AnyRow, settings_json: str) -> StoredRun:
    """A run from a row of `runs`, with its settings as JSON."""
    try:
        settings = _parse_settings(settings_json)
    except UnreadableSettings as error:
        raise UnreadableRun(f"run {row.id} cannot be read: {error}; its other data is kept") from error
    return StoredRun(
        row.id, row.seed, settings, ParameterCounts(**row.parameters), row.status, row.step, row.pack, row.cause,
        row.best, None if row.dataset is None else DatasetInfo(**row.dataset),
    )  # fmt: skip


@lru_cache(maxsize=4096)  # the seeds of a config share their settings
def _parse_settings(stored: str) -> Settings:
    return Settings.from_stored(json.loads(stored))


def pack_from_row(row: AnyRow, cost: AnyRow | None = None) -> StoredPack:
    """A pack from a row of `packs`, with its cost from a row of `costs` if there is one."""
    placement, environment = Placement(**row.placement), tuple(row.environment)
    spent = Cost(row.seconds) if cost is None else Cost(row.seconds, cost.counts, cost.steady, cost.peak)
    predicted = None if cost is None else cost.predicted
    return StoredPack(row.id, tuple(row.members), placement, row.step, spent, environment, predicted)
