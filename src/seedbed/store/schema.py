"""The tables, and the conversion of rows to records.

A metric is keyed by (run, step, name), but stored as one row per run and step: little-endian float64 values in the
order of a list of names that many rows share. NaN survives this way; SQLite would store it as NULL.

The end of a run (finished, diverged) is *settled* once a saved state includes it; until then a resume undoes it.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, TypeAlias

from sqlalchemy import JSON, Boolean, Column, ForeignKey, Integer, LargeBinary, MetaData, String, Table, Text

from seedbed.errors import UnreadableRun
from seedbed.records import Cost, ParameterCounts, Placement, StoredPack, StoredRun
from seedbed.settings import DatasetInfo, Settings, UnreadableSettings

# Raised whenever an older version could no longer write correctly; 2: samples, 3: costs, 4: all settings of a run.
# ADDED_TABLES came later without raising it: a version that does not know them leaves them as they are, a writer adds
# them to a store that lacks them, and for a reader they are then empty.
SCHEMA_VERSION = 4
APPLICATION_ID = int.from_bytes(b"seed", "big")  # bytes 68–71 of the file, to recognise foreign databases

AnyRow: TypeAlias = Any  # sqlalchemy.Row; its type parameters differ between versions 2.0 and 2.1

metadata = MetaData()

meta = Table("meta", metadata, Column("key", String, primary_key=True), Column("value", String, nullable=False))

studies = Table(
    "studies",
    metadata,
    Column("name", String, primary_key=True),
    Column("text", Text, nullable=False),
    Column("axes", JSON, nullable=False),
    Column("created", String, nullable=False),
)

packs = Table(
    "packs",
    metadata,
    Column("id", String, primary_key=True),
    Column("members", JSON, nullable=False),  # run ids by slot; a run removed from the pack keeps its slot
    Column("placement", JSON, nullable=False),
    Column("open", Boolean, nullable=False, default=True),
    Column("step", Integer),  # of the saved state
    Column("digest", String),  # of the saved state's file
    Column("seconds", JSON, nullable=False, default=dict),
    Column(
        "environment", JSON, nullable=False, default=list
    ),  # [{"step": first step, …versions}], one entry per change
)

runs = Table(
    "runs",
    metadata,
    Column("id", String, primary_key=True),
    Column("seed", Integer, nullable=False),
    Column("settings", JSON, nullable=False),  # all of them, by the names of the version that wrote them
    Column("parameters", JSON, nullable=False),
    Column("status", String, nullable=False, default="planned"),
    Column("settled", Boolean, nullable=False, default=False),
    Column("step", Integer, nullable=False, default=0),
    Column("pack", ForeignKey("packs.id"), index=True),
    Column("cause", Text),
    Column("best", Integer),
    Column("dataset", JSON),  # what its data determined; NULL: stored before schema 4
    Column("fingerprint", String, nullable=False, server_default=""),  # what its weights files say of it
)

study_runs = Table(
    "study_runs",
    metadata,
    Column("study", ForeignKey("studies.name", ondelete="CASCADE"), primary_key=True),
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, index=True),
    Column("position", Integer, nullable=False),
)

metric_names = Table(
    "metric_names",
    metadata,
    Column("id", Integer, primary_key=True),
    Column(
        "names", Text, nullable=False, unique=True
    ),  # a JSON list, as text so that every database can index it as unique
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("names", ForeignKey("metric_names.id"), nullable=False),
    Column("numbers", LargeBinary, nullable=False),
    sqlite_with_rowid=False,  # rows are stored in key order, so a run's curves are one sequential scan
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("digest", String, nullable=False),
    Column("bytes", Integer, nullable=False),
)

costs = Table(  # besides the seconds in `packs`
    "costs",
    metadata,
    Column("pack", ForeignKey("packs.id", ondelete="CASCADE"), primary_key=True),
    Column("predicted", Integer),  # bytes
    Column("counts", JSON, nullable=False, default=dict),
    Column("steady", Integer),  # bytes
    Column("peak", Integer),  # bytes
)

samples = Table(
    "samples",
    metadata,
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("number", Integer, primary_key=True),
    # UTF-8 with surrogatepass: a model may generate lone surrogates or NUL, which a text column cannot hold
    Column("prompt", LargeBinary, nullable=False),
    Column("text", LargeBinary, nullable=False),
    Column("tokens", LargeBinary, nullable=False),  # little-endian int64
    Column("log_probabilities", LargeBinary, nullable=False),  # little-endian float64
    sqlite_with_rowid=False,
)

vocabularies = Table(
    "vocabularies",
    metadata,
    Column("dataset", String, primary_key=True),  # digest of the dataset
    Column("created", String, nullable=False),
    Column("content", LargeBinary, nullable=False),  # JSON, compressed with zlib
    Column("digest", String, nullable=False),  # of `content`
)

notes = Table(  # notes and tags
    "notes",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("study", ForeignKey("studies.name", ondelete="CASCADE"), unique=True),  # either a study or a run
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), unique=True),
    Column("note", Text, nullable=False, default=""),
    Column("tags", JSON, nullable=False, default=list),
)

ADDED_TABLES = (vocabularies, notes)


def run_from_row(row: AnyRow) -> StoredRun:
    """A run from a row of `runs`."""
    try:
        settings = _parse_settings(json.dumps(row.settings))
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
