"""The tables, and how a row becomes a record.

A reading is keyed by (run, step, name), but kept as one row per run and step: little-endian float64 numbers in the
order of a names-set that many rows share. NaN and ±inf survive, which SQLite's own numbers would not allow.

A run's end (finished, diverged) is *settled* once a saved state has it in it; until then a resume undoes it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from pydantic import ValidationError
from sqlalchemy import JSON, Boolean, Column, ForeignKey, Integer, LargeBinary, MetaData, String, Table, Text

from seedbed.errors import StoreError
from seedbed.records import Cost, ParameterCounts, Placement, StoredPack, StoredRun
from seedbed.settings import Settings

SCHEMA_VERSION = 3  # raised whenever an older program could no longer write correctly; 2: samples; 3: costs
APPLICATION_ID = int.from_bytes(b"seed", "big")  # bytes 68–71 of the file, so that a foreign database is recognised

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
    Column("members", JSON, nullable=False),  # run ids by slot; a run taken out of the pack keeps its slot
    Column("placement", JSON, nullable=False),
    Column("open", Boolean, nullable=False, default=True),
    Column("step", Integer),  # of the saved state
    Column("digest", String),  # of the saved state's file
    Column("seconds", JSON, nullable=False, default=dict),
    Column("environment", JSON, nullable=False, default=list),  # [{"step": from which, …facts}], one entry per change
)

runs = Table(
    "runs",
    metadata,
    Column("id", String, primary_key=True),
    Column("seed", Integer, nullable=False),
    Column("settings", JSON, nullable=False),
    Column("parameters", JSON, nullable=False),
    Column("status", String, nullable=False, default="planned"),
    Column("settled", Boolean, nullable=False, default=False),
    Column("step", Integer, nullable=False, default=0),
    Column("pack", ForeignKey("packs.id"), index=True),
    Column("cause", Text),
    Column("best", Integer),
)

study_runs = Table(
    "study_runs",
    metadata,
    Column("study", ForeignKey("studies.name", ondelete="CASCADE"), primary_key=True),
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, index=True),
    Column("position", Integer, nullable=False),
)

metric_names = Table(
    "names",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("names", Text, nullable=False, unique=True),  # a JSON list, as text so that it can be unique anywhere
)

evaluations = Table(
    "readings",
    metadata,
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("names", ForeignKey("names.id"), nullable=False),
    Column("numbers", LargeBinary, nullable=False),
    sqlite_with_rowid=False,  # rows lie in key order, so a run's curves are one sweep
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
    # UTF-8 with lone surrogates let through: a model may write what no database takes for text, also NUL
    Column("prompt", LargeBinary, nullable=False),
    Column("text", LargeBinary, nullable=False),
    Column("tokens", LargeBinary, nullable=False),  # little-endian int64
    Column("log_probabilities", LargeBinary, nullable=False),  # little-endian float64
    sqlite_with_rowid=False,
)


def run_from_row(row: AnyRow) -> StoredRun:
    """The run in a row of `runs`."""
    try:
        settings = Settings.from_flat(row.settings)
    except (ValidationError, KeyError) as error:
        raise StoreError(
            f"run {row.id} has settings that this version does not know ({', '.join(row.settings)}); "
            "it was stored by a newer seedbed: upgrade seedbed to read it"
        ) from error
    parameters = ParameterCounts(**row.parameters)
    return StoredRun(row.id, row.seed, settings, parameters, row.status, row.step, row.pack, row.cause, row.best)


def pack_from_row(row: AnyRow, cost: AnyRow | None = None) -> StoredPack:
    """The pack in a row of `packs`, with what is known of its cost from a row of `costs`."""
    placement, environment = Placement(**row.placement), tuple(row.environment)
    spent = Cost(row.seconds) if cost is None else Cost(row.seconds, cost.counts, cost.steady, cost.peak)
    predicted = None if cost is None else cost.predicted
    return StoredPack(row.id, tuple(row.members), placement, row.step, spent, environment, predicted)
