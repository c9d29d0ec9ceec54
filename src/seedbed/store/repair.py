"""A new home with everything of a damaged one that can be verified; the old one is only read.

    done = repair_home(Path("lab"), Path("lab-repaired"))
    done.losses                                             # ("the evaluations of run 3f2a differ …", …)

Rows are copied as they are, with the digests by which they were verified; archives (dump.py) would shorten paths and
leave out what an unfinished pack needs. A run whose evaluations are damaged is planned again. Runs whose study is
damaged are put into a study `recovered`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, delete, insert, select

from seedbed.errors import Busy, StoreError, UsageError
from seedbed.settings import Settings, UnreadableSettings
from seedbed.store.changes import PLANNED_RUN_COLUMNS, write_pack, write_study
from seedbed.store.checkpoints import ANALYSIS_SUFFIX, state_identity, state_path, weights_identity, weights_path
from seedbed.store.database import Database
from seedbed.store.digests import COST_COLUMNS, LISTED_TABLES, NO_ROWS, RunRows, with_digest, write_lists
from seedbed.store.doctor import analysis_fault, checkpoint_fault, examine
from seedbed.store.durable_files import is_locked, make_folder, translate_os_errors, write_atomic
from seedbed.store.event_rows import ENDED_STATUSES
from seedbed.store.intact_rows import IntactRows
from seedbed.store.schema import AnyRow, checkpoints, evaluations, metric_names, notes, packs, runs, vocabularies
from seedbed.study.expand import find_axes
from seedbed.study.toml_text import format_toml_key, format_toml_value

RECOVERED = "recovered"  # the study of runs whose own study is damaged
_KEPT = "the damaged home as it was"


@dataclass(frozen=True)
class Repair:
    """What was saved, in words, and what was not, in sentences."""

    home: Path
    examined: str
    losses: tuple[str, ...]

    def __str__(self) -> str:
        return f"wrote {self.home}: {self.examined}; the home that it was copied from was not changed"


def repair_home(home: Path, out: Path) -> Repair:
    """Write a new home, which `examine` finds healthy, or nothing at all."""
    if out.exists():
        raise UsageError(f"{out} is there already; name a folder that does not exist yet with --out")
    if held := [lock.stem for lock in (home / "locks").glob("*.lock") if is_locked(lock)]:
        raise Busy(f"{held[0]} of {home} is in use by another process; stop it before the home is repaired")
    partial = out.with_name(f"{out.name}.part")
    shutil.rmtree(partial, ignore_errors=True)  # of a repair that was interrupted
    try:
        with closing(Database.open_read_only(home)) as source, closing(Database.create_or_open(partial)) as target:
            losses = source.read(lambda old: _copy(old, target, home, partial))
        found = examine(partial)
        if found.errors:
            raise StoreError(f"{home} could not be repaired: {found.errors[0].what}; nothing was written")
        with translate_os_errors(out, _KEPT):
            os.replace(partial, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Repair(out, found.examined, tuple(dict.fromkeys(losses)))


def _copy(old: Connection, target: Database, home: Path, out: Path) -> list[str]:
    with target.transaction() as new:
        copying = _VerifiedCopy(old, new, home / "checkpoints", out / "checkpoints")
        copying.copy_all()
    return copying.losses


class _VerifiedCopy:
    """One pass over the rows that are intact, in an order in which no row refers to a later one."""

    def __init__(self, old: Connection, new: Connection, source: Path, target: Path) -> None:
        self._old, self._new, self._source, self._target = old, new, source, target
        self._rows = IntactRows.read(old)
        self.losses = [*self._rows.faults, *self._rows.orphans]

    def copy_all(self) -> None:
        rows = self._rows
        self._insert(metric_names, rows.names.values())
        self._insert(vocabularies, rows.vocabularies.values())
        resumable = {pack for pack in rows.packs if self._copy_pack(pack)}
        for run in rows.runs.values():
            self._copy_run(run, resumable)
        self._delete_empty_packs()
        for name, study in rows.studies.items():
            columns = {column: study._mapping[column] for column in ("name", "text", "axes", "created")}
            write_study(self._new, columns, rows.members[name])
        self._recover_runs({run for pack in resumable for run in rows.packs[pack][0].members})
        targets = {*rows.studies, *rows.runs}
        self._insert(notes, [row for row in rows.notes if (row.study or row.run) in targets])
        write_lists(self._new, *LISTED_TABLES)

    def _insert(self, table: Table, rows: Collection[AnyRow]) -> None:
        if values := [{column.name: row._mapping[column.name] for column in table.columns} for row in rows]:
            self._new.execute(insert(table), values)

    # ---- packs ----

    def _delete_empty_packs(self) -> None:
        """Delete packs all of whose runs are planned again."""
        used = set(self._new.execute(select(runs.c.pack).where(runs.c.pack.is_not(None))).scalars())
        for pack in self._rows.packs.keys() - used:
            self._new.execute(delete(packs).where(packs.c.id == pack))
            shutil.rmtree(state_path(self._target, pack, 0).parent, ignore_errors=True)

    def _copy_pack(self, pack_id: str) -> bool:
        """Copy a pack with its saved state; whether its runs can go on in it."""
        pack, cost = self._rows.packs[pack_id]
        state = self._copy_states(pack)
        goes_on = bool(pack.open) and state is not None and {*pack.members} <= self._rows.runs.keys()
        row = {column.name: pack._mapping[column.name] for column in packs.columns if column.name != "row_digest"}
        row |= (state or {}) if goes_on else {"open": False, "step": None, "digest": None, "previous": None}
        spent = None if cost is None else {name: cost._mapping[name] for name in COST_COLUMNS}
        write_pack(self._new, row, spent)
        if pack.open and not goes_on:
            self.losses.append(f"the state of pack {pack_id}: its unfinished runs start again from step 0")
            shutil.rmtree(state_path(self._target, pack_id, 0).parent, ignore_errors=True)
        return goes_on

    def _copy_states(self, pack: AnyRow) -> dict[str, Any] | None:
        """Copy the intact states of an unfinished pack; what its row says of them, None if there is none."""
        if not pack.open or pack.step is None:
            return {}
        saved = [(pack.step, pack.digest), *([(pack.previous[0], pack.previous[1])] if pack.previous else [])]
        intact = []
        for step, digest in saved:
            if fault := checkpoint_fault(self._source, state_identity(pack.id, pack.members, step), digest):
                self.losses.append(fault)
            else:
                self._copy_file(state_path(self._source, pack.id, step))
                intact.append((step, digest))
        if not intact:
            return None
        (step, digest), previous = intact[0], intact[1:]
        environment = [entry for entry in pack.environment if entry["step"] <= step]
        return {
            "step": step, "digest": digest, "previous": list(previous[0]) if previous else None,
            "environment": environment,
        }  # fmt: skip

    # ---- runs ----

    def _copy_run(self, run: AnyRow, resumable: Collection[str]) -> None:
        contents, faults = self._rows.contents(self._old, run)
        self.losses += faults
        row = {column.name: run._mapping[column.name] for column in runs.columns}
        if contents[evaluations] is None:
            self.losses.append(f"run {run.id} is planned again, without what it had recorded and saved")
            self._insert_run(row | PLANNED_RUN_COLUMNS)
            return
        if run.pack is not None and run.pack not in resumable:
            row["pack"] = run.pack if run.pack in self._rows.packs and run.settled else None
            row["settled"] = run.settled or run.status in ENDED_STATUSES
            row["status"] = "stopped" if run.status == "running" else run.status
        kept = {table: rows for table, rows in contents.items() if rows is not None}
        if checkpoints in kept:
            kept[checkpoints] = self._copy_weights(run, kept[checkpoints])
        chains = {table.name: list(rows.chain()) for table, rows in kept.items() if rows.chain() != NO_ROWS}
        self._insert_run(row | {"contents": chains})
        for table, rows in kept.items():
            if rows.steps:
                self._new.execute(insert(table), rows.as_dicts(table, run.id))
        self._copy_analyses(run.id)

    def _insert_run(self, row: dict[str, Any]) -> None:
        self._new.execute(insert(runs).values(with_digest(runs, row)))

    def _copy_weights(self, run: AnyRow, saved: RunRows) -> RunRows:
        """Copy the intact files of weights; the rows of these."""
        intact = []
        for index, step in enumerate(saved.steps):
            identity = weights_identity(run.id, run.fingerprint, step)
            if fault := checkpoint_fault(self._source, identity, saved.blobs[0][index]):
                self.losses.append(fault)
            else:
                self._copy_file(weights_path(self._source, run.id, step))
                intact.append(index)
        steps, tags = [saved.steps[i] for i in intact], [saved.tags[i] for i in intact]
        return replace(saved, steps=steps, tags=tags, blobs=[[column[i] for i in intact] for column in saved.blobs])

    def _copy_analyses(self, run_id: str) -> None:
        for path in sorted((self._source / run_id).glob(f"*{ANALYSIS_SUFFIX}")):
            if fault := analysis_fault(path, run_id):
                self.losses.append(f"{fault}; `seedbed analyze` makes it again")
            else:
                self._copy_file(path)

    def _copy_file(self, path: Path) -> None:
        target = self._target / path.relative_to(self._source)
        with translate_os_errors(target, _KEPT):
            make_folder(target.parent)
        write_atomic(target, path.read_bytes(), _KEPT)

    # ---- runs without a study ----

    def _recover_runs(self, training: Collection[str]) -> None:
        """Put runs that no intact study has into one, since runs of no study are deleted once they are trained."""
        known = {run for members in self._rows.members.values() for run in members} | {*training}
        if not (lost := [row for run, row in self._rows.runs.items() if run not in known]):
            return
        name = next(
            name for name in (RECOVERED, *(f"{RECOVERED}{n}" for n in range(2, 99))) if name not in self._rows.studies
        )
        configs: dict[str, Settings] = {}
        for row in lost:
            with suppress(UnreadableSettings):
                configs[json.dumps(row.settings, sort_keys=True)] = Settings.from_stored(row.settings)
        text = _study_text(configs.values(), sorted({row.seed for row in lost}))
        axes = find_axes(list(configs.values()))
        study = {"name": name, "text": text, "axes": axes, "created": datetime.now(UTC).isoformat(timespec="seconds")}
        write_study(self._new, study, [row.id for row in lost])
        self.losses.append(f"the study of {len(lost)} runs, which are now in the study {name}")


def _study_text(configs: Collection[Settings], seeds: list[int]) -> str:
    lines = ['question = "Which runs had a study that was damaged?"', f"seeds = {seeds}"]
    for settings in configs:
        values = {name: value for name, value in settings.flat().items() if value is not None and name != "plugins"}
        lines += ["", "[[configs]]", *(f"{format_toml_key(n)} = {format_toml_value(v)}" for n, v in values.items())]
    return "\n".join(lines) + "\n"
