"""The store of a home on one machine: a SQLite database, with checkpoints and analyses as files next to it.

    HOME/store.db                                 studies, runs, metrics, samples, costs, vocabularies, notes
    HOME/locks/PACK.lock                          held while a pack is being trained
    HOME/checkpoints/RUN/STEP.safetensors         weights
    HOME/checkpoints/RUN/STEP.analysis.json       analyses
    HOME/checkpoints/packs/PACK/STEP.safetensors  the state to resume a pack from
    HOME/imports/ID                               files on their way to checkpoints/, while a dump is merged

Files are named by ids, never by user-given names.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, delete, func, select, update

from seedbed.errors import (
    Busy,
    DamagedCheckpoint,
    MissingData,
    SeedbedError,
    StoreError,
    UnreadableRun,
    UsageError,
)
from seedbed.records import (
    Annotation,
    Annotations,
    Arrays,
    Checkpoint,
    CheckpointEvent,
    Curve,
    Pack,
    Placement,
    Plan,
    RunProgress,
    RunStatus,
    StoredEvent,
    StoredPack,
    StoredRun,
    StoredSample,
    StoredStudy,
    Vocabulary,
)
from seedbed.settings import former_setting_names
from seedbed.store import changes, schema
from seedbed.store.annotation_rows import annotations_from_rows, read_annotation, with_tags, write_annotation
from seedbed.store.base import WEIGHTS_ADVICE, ChangeStamp, PendingSave, Store
from seedbed.store.checkpoints import (
    CheckpointFile,
    CheckpointIdentity,
    FileDigest,
    digest_bytes,
    digest_json,
    read_checkpoint,
    select_slots,
    write_checkpoint,
    write_checkpoints,
)
from seedbed.store.database import Database, database_path, read_schema
from seedbed.store.dump import (
    FileReader,
    FileRow,
    MergeOutcome,
    StoreDump,
    WeightsChoice,
    without_paths,
)
from seedbed.store.dump_rows import MergePlan, merge_dump, plan_merge, select_dump
from seedbed.store.durable_files import (
    file_lock,
    fsync_folder,
    is_locked,
    make_folder,
    make_folders,
    write_atomic,
)
from seedbed.store.event_rows import ENDED_STATUSES, build_curves, fold_events, sample_from_row
from seedbed.store.schema import (
    AnyRow,
    checkpoints,
    costs,
    evaluations,
    pack_from_row,
    packs,
    run_from_row,
    runs,
    samples,
    studies,
    study_runs,
)
from seedbed.store.upgrade import copy_path
from seedbed.store.vocabulary_rows import vocabulary_from_row, vocabulary_to_row
from seedbed.study.toml_text import did_you_mean

ANALYSIS_SUFFIX = ".analysis.json"
MAX_LISTED_STUDIES = 8  # in a message


class SQLiteStore(Store):
    """A store in a folder; for one machine, since locks and WAL mode need a local file system."""

    def __init__(self, home: Path, database: Database) -> None:
        self.home = home.absolute()
        self._shown_home = home  # as the user wrote it
        self._database = database

    @classmethod
    def open(cls, location: str | Path, read_only: bool = False) -> Self:
        home = Path(location)
        store = cls(home, Database.open_read_only(home) if read_only else Database.create_or_open(home))
        with suppress(SeedbedError, OSError):  # a home that cannot be written, or in which a merge is going on
            store._complete_merge()
        return store

    @classmethod
    def exists(cls, location: str | Path) -> bool:
        return database_path(Path(location)).exists()

    @classmethod
    def upgrade(cls, location: str | Path) -> str:
        home = Path(location)
        found, path = read_schema(home), database_path(home)
        if found == schema.SCHEMA_VERSION:
            return f"{path} has schema {found} already; nothing was changed"
        cls.open(home).close()
        copy = copy_path(path, found)
        return f"upgraded {path} from schema {found} to {schema.SCHEMA_VERSION}; a copy of it as it was: {copy}"

    @property
    def address(self) -> str:
        return str(database_path(self._shown_home))

    def close(self) -> None:
        self._database.close()

    # ---- before training ----

    def register(self, plan: Plan) -> None:
        with self._database.transaction() as connection:
            changes.upsert_study(connection, plan, _now())
            changes.insert_runs(connection, plan)

    def save_vocabulary(self, dataset: str, vocabulary: Vocabulary) -> None:
        try:
            if self.load_vocabulary(dataset) is not None:
                return
        except StoreError:  # damaged, and replaced
            pass
        with self._database.transaction() as connection:
            changes.upsert(connection, schema.vocabularies, [vocabulary_to_row(dataset, vocabulary, _now())])

    def claim(self, planned: Sequence[Pack], placement_of: Callable[[Pack], Placement]) -> list[StoredPack]:
        with self._database.transaction() as connection:
            rows = changes.select_run_rows(connection, [run.id for pack in planned for run in pack.runs])
            changes.close_packs(connection, {row.pack for row in rows.values() if row.settled})
            claimed: dict[str, None] = {}  # an ordered set of pack ids
            for pack in planned:
                unsettled = [run for run in pack.runs if not rows[run.id].settled]
                claimed |= dict.fromkeys(rows[run.id].pack for run in unsettled if rows[run.id].pack)
                if unstarted := tuple(run for run in unsettled if not rows[run.id].pack):
                    new = replace(pack, id=digest_json([run.id for run in unstarted])[:16], runs=unstarted)
                    changes.insert_pack(connection, new, placement_of(new))
                    claimed[new.id] = None
        self._delete_stale_states()
        stored = {pack.id: pack for pack in self._select_packs(packs.c.id.in_(claimed))}
        return [stored[pack_id] for pack_id in claimed]

    def lock(self, pack_id: str) -> AbstractContextManager[None]:
        return file_lock(self._lock_path(pack_id), f"pack {pack_id}")

    # ---- while training; the caller holds the pack's lock ----

    def resume(self, pack_id: str, environment: Mapping[str, str] | None = None) -> tuple[int, Arrays] | None:
        pack = self._pack_row(pack_id)
        state = None if pack.step is None else (pack.step, self._load_state(pack))
        with self._database.transaction() as connection:
            changes.rewind_pack(connection, pack_id, pack.step)
            if environment is not None:
                changes.record_environment(connection, pack_id, environment)
        return state

    def record(self, pack_id: str, events: Sequence[StoredEvent]) -> None:
        with self._database.transaction() as connection:
            slots = changes.progress_by_slot(connection, pack_id)
            before = {slot: replace(progress) for slot, progress in slots.items()}
            folded = fold_events(events, slots)
            changes.upsert_evaluations(connection, pack_id, folded.evaluations)
            changes.upsert(connection, samples, folded.samples)
            if folded.cost is not None:
                changes.upsert_cost(connection, pack_id, folded.cost)
            changes.update_progress(connection, [slots[slot] for slot in slots if slots[slot] != before[slot]])

    def begin_save(self, pack_id: str, saved: CheckpointEvent) -> PendingSave:
        pack = self._pack_row(pack_id)
        preserved = "all recorded metrics" + ("" if pack.step is None else f" and the state of step {pack.step:,}")
        path = self._state_path(pack_id, saved.step)
        state = CheckpointFile(path, saved.state, _state_identity(pack_id, pack.members, saved.step))
        return _PendingFiles(self, pack_id, saved.step, state, self._weights_files(pack, saved), preserved)

    def commit_save(self, pack_id: str, step: int, state_digest: str, weights: Mapping[str, FileDigest]) -> None:
        """Record the files of a checkpoint, and delete the pack's other states."""
        rows = [{"run": run, "step": step, **asdict(digest)} for run, digest in weights.items()]
        with self._database.transaction() as connection:
            changes.upsert(connection, checkpoints, rows)
            values = {"step": step, "digest": state_digest}
            connection.execute(update(packs).where(packs.c.id == pack_id).values(values))
            changes.settle_ended_runs(connection, pack_id)
            changes.update_best_steps(connection, pack_id, step, set(weights))
        path = self._state_path(pack_id, step)
        for older in path.parent.iterdir():
            if older != path:
                older.unlink(missing_ok=True)

    def _weights_files(self, pack: AnyRow, saved: CheckpointEvent) -> dict[str, CheckpointFile]:
        """The weights to write, by run; runs that were removed from the pack are skipped."""
        owned = {row.id: row for row in self._database.fetch(select(runs).where(runs.c.pack == pack.id))}
        weights = {pack.members[slot]: arrays for slot, arrays in saved.weights.items() if pack.members[slot] in owned}
        return {
            run: CheckpointFile(self._weights_path(run, saved.step), arrays, _weights_identity(owned[run], saved.step))
            for run, arrays in weights.items()
        }

    def stop(self, pack_id: str) -> None:
        self._mark_unended(pack_id, {"status": "stopped"})

    def fail(self, pack_id: str, cause: str) -> None:
        self._mark_unended(pack_id, {"status": "failed", "cause": cause})

    def _mark_unended(self, pack_id: str, values: Mapping[str, Any]) -> None:
        with self._database.transaction() as connection:
            connection.execute(
                update(runs).where(runs.c.pack == pack_id, runs.c.status.not_in(ENDED_STATUSES)).values(values)
            )

    def finish(self, pack_id: str) -> None:
        with self._database.transaction() as connection:
            changes.settle_ended_runs(connection, pack_id)
            unsettled = select(runs.c.id).where(runs.c.pack == pack_id, ~runs.c.settled)
            if unended := connection.execute(unsettled).scalars().all():
                raise ValueError(f"pack {pack_id} has runs that have not ended: {', '.join(unended)}")
            changes.close_packs(connection, [pack_id])
        self._delete_stale_states()

    def split(self, pack_id: str, first: Collection[str] | None = None) -> list[StoredPack]:
        [pack] = self._select_packs(packs.c.id == pack_id)
        state = None if pack.step is None else self._load_state(self._pack_row(pack_id))
        with self._database.transaction() as connection:
            unsettled = select(runs.c.id).where(runs.c.pack == pack_id, ~runs.c.settled)
            unended = set(connection.execute(unsettled).scalars())
            slots = [slot for slot, run in enumerate(pack.runs) if run in unended]
            if first is None:
                first = {pack.runs[slot] for slot in slots[: -(-len(slots) // 2)]}
            chosen = [slot for slot in slots if pack.runs[slot] in first]
            others = [slot for slot in slots if pack.runs[slot] not in first]
            if not (chosen and others):
                return []
            parts = [self._start_split_pack(connection, pack, part, state) for part in (chosen, others)]
            changes.close_packs(connection, [pack_id])
        self._delete_stale_states()
        stored = {part.id: part for part in self._select_packs(packs.c.id.in_(parts))}
        return [stored[part] for part in parts]

    def _start_split_pack(
        self, connection: Connection, pack: StoredPack, slots: Sequence[int], state: Arrays | None
    ) -> str:
        members, fraction = [pack.runs[slot] for slot in slots], len(slots) / len(pack.runs)
        row: dict[str, Any] = {
            "id": digest_json(members)[:16], "members": members, "placement": asdict(pack.placement),
            "environment": list(pack.environment),
            "seconds": {name: spent * fraction for name, spent in pack.cost.seconds.items()},
        }  # fmt: skip
        if state is not None and pack.step is not None:
            path, identity = self._state_path(row["id"], pack.step), _state_identity(row["id"], members, pack.step)
            file = CheckpointFile(path, select_slots(state, slots, len(pack.runs)), identity)
            row |= {"step": pack.step, "digest": write_checkpoint(file, "the unsplit pack").digest}
        predicted = None if pack.predicted_bytes is None else round(pack.predicted_bytes * fraction)
        changes.insert_split_pack(connection, row, {"predicted": predicted, "counts": dict(pack.cost.counts)})
        return str(row["id"])

    # ---- resetting and removing ----

    def reset(self, run_ids: Sequence[str]) -> None:
        with self._lock_packs_of(run_ids) as pack_ids:
            with self._database.transaction() as connection:
                changes.reset_runs(connection, run_ids)
                changes.close_packs(connection, pack_ids)
            self._delete_files(run_ids)

    def restart(self, pack_id: str) -> None:
        unsettled = select(runs.c.id).where(runs.c.pack == pack_id, ~runs.c.settled)
        self.reset([row.id for row in self._database.fetch(unsettled)])

    def remove(self, study: str, run_ids: Sequence[str]) -> list[str]:
        with self._lock_packs_of(run_ids) as pack_ids:
            with self._database.transaction() as connection:
                for batch in changes.batch_ids(run_ids):
                    linked = study_runs.c.run.in_(batch)
                    connection.execute(delete(study_runs).where(study_runs.c.study == study, linked))
                shared = set(connection.execute(select(study_runs.c.run)).scalars())
                removed = [run for run in run_ids if run not in shared]
                changes.reset_runs(connection, removed)
                changes.close_packs(connection, pack_ids)
                connection.execute(delete(studies).where(studies.c.name.not_in(select(study_runs.c.study))))
                changes.delete_unused_vocabularies(connection)
            self._delete_files(removed)
        return removed

    @contextmanager
    def _lock_packs_of(self, run_ids: Sequence[str]) -> Iterator[list[str]]:
        """Lock the open packs of these runs, so that none is trained meanwhile; yields all their packs."""
        statement = select(packs.c.id, packs.c.open).join_from(runs, packs, runs.c.pack == packs.c.id).distinct()
        batches = changes.batch_ids(run_ids)
        rows = [row for batch in batches for row in self._database.fetch(statement.where(runs.c.id.in_(batch)))]
        with ExitStack() as locks:
            for pack_id in sorted({row.id for row in rows if row.open}):
                locks.enter_context(self.lock(pack_id))
            yield sorted({row.id for row in rows})

    def _delete_files(self, run_ids: Sequence[str]) -> None:
        for run in run_ids:
            shutil.rmtree(self._checkpoints_folder / run, ignore_errors=True)
        self._delete_stale_states()

    def _delete_stale_states(self) -> None:
        """Delete states that no open pack needs, including those left by a killed process."""
        if not self._states_folder.exists():
            return
        # Inside a write transaction: a concurrent split writes state files before its packs are in the database.
        with self._database.transaction() as connection:
            needed = set(connection.execute(select(packs.c.id).where(packs.c.open)).scalars())
            for folder in self._states_folder.iterdir():
                if folder.name not in needed:
                    shutil.rmtree(folder, ignore_errors=True)

    # ---- reading ----

    def change_stamp(self) -> ChangeStamp:
        return self._database.change_stamp()

    def studies(self) -> list[StoredStudy]:
        counts = (
            select(studies, runs.c.status, runs.c.pack, func.count().label("n"))
            .join_from(studies, study_runs, study_runs.c.study == studies.c.name)
            .join(runs, study_runs.c.run == runs.c.id)
            .group_by(studies.c.name, runs.c.status, runs.c.pack)
            .order_by(studies.c.created, studies.c.name, runs.c.status)
        )
        rows = self._database.fetch(counts)
        by_name = {row.name: row for row in rows}
        abandoned = self._abandoned_packs()
        statuses: dict[str, Counter[RunStatus]] = {name: Counter() for name in by_name}
        for row in rows:
            statuses[row.name][_effective_status(row.status, row.pack, abandoned)] += row.n
        return [_study_from_row(row, statuses[name]) for name, row in by_name.items()]

    def _abandoned_packs(self) -> set[str]:
        """Packs with runs marked as running that no process holds: their process was killed."""
        marked = self._database.fetch(select(runs.c.pack).where(runs.c.status == "running").distinct())
        return {row.pack for row in marked if not is_locked(self._lock_path(row.pack))}

    def study(self, name: str) -> StoredStudy:
        studies = self.studies()
        for study in studies:
            if study.name == name:
                return study
        known = [study.name for study in studies]
        listed = ", ".join(known[:MAX_LISTED_STUDIES]) or "none"
        more = f" and {len(known) - MAX_LISTED_STUDIES} more, see `seedbed ls`" if known[MAX_LISTED_STUDIES:] else ""
        guess = did_you_mean(name, known)
        raise MissingData(f"there is no study {name!r} in {self.home}{guess}; stored studies: {listed}{more}")

    def runs(self, study: str | None = None, skip_unreadable: bool = False) -> list[StoredRun]:
        statement = (
            select(runs)
            .join_from(study_runs, runs, study_runs.c.run == runs.c.id)
            .join(studies, study_runs.c.study == studies.c.name)
            .order_by(studies.c.created, studies.c.name, study_runs.c.position)
        )
        if study is not None:
            statement = statement.where(studies.c.name == self.study(study).name)
        rows = {row.id: row for row in self._database.fetch(statement)}.values()
        return self._runs_from_rows(rows, skip_unreadable or study is None)

    def _runs_from_rows(self, rows: Iterable[AnyRow], skip_unreadable: bool = False) -> list[StoredRun]:
        abandoned, stored = self._abandoned_packs(), []
        for row in rows:
            try:
                run = run_from_row(row)
            except UnreadableRun:  # one study that cannot be read must not take the others of its home with it
                if not skip_unreadable:
                    raise
            else:
                stored.append(replace(run, status=_effective_status(run.status, run.pack, abandoned)))
        return stored

    def progress(self) -> dict[str, list[RunProgress]]:
        progress: dict[str, list[RunProgress]] = {}
        columns = (study_runs.c.study, runs.c.id, runs.c.status, runs.c.step, runs.c.pack)
        ordered = select(*columns).join_from(study_runs, runs, study_runs.c.run == runs.c.id)
        abandoned = self._abandoned_packs()
        for study, run, status, step, pack in self._database.fetch(ordered.order_by(study_runs.c.position)):
            progress.setdefault(study, []).append(RunProgress(run, _effective_status(status, pack, abandoned), step))
        return progress

    def run(self, prefix: str) -> StoredRun:
        return self._runs_from_rows([self._run_row(prefix)])[0]

    def _run_row(self, prefix: str) -> AnyRow:
        statement = select(runs).where(runs.c.id.startswith(prefix, autoescape=True)).order_by(runs.c.id).limit(4)
        rows = self._database.fetch(statement)
        if not rows:
            of_study = select(study_runs.c.run).where(study_runs.c.study == prefix).order_by(study_runs.c.position)
            if members := self._database.fetch(of_study.limit(3)):
                names = ", ".join(row.run for row in members)
                raise UsageError(f"{prefix} is a study; name one of its runs, such as {names} (`seedbed ls {prefix}`)")
            raise MissingData(f"there is no run {prefix!r} in {self.home}; `seedbed ls` lists the runs that are there")
        if len(rows) > 1 and rows[0].id != prefix:
            first = ", ".join(row.id for row in rows[:3])
            raise UsageError(
                f"{prefix!r} is the start of several runs ({first}{', …' * (len(rows) > 3)}); write more of the id"
            )
        return rows[0]

    def pack_members(self, pack_id: str) -> list[StoredRun]:
        members = self._pack_row(pack_id).members
        batches = changes.batch_ids(members)
        rows = [row for batch in batches for row in self._database.fetch(select(runs).where(runs.c.id.in_(batch)))]
        by_id = {row.id: row for row in rows}
        return [run_from_row(by_id[run]) for run in members]

    def study_packs(self, study: str) -> list[StoredPack]:
        ids = (
            select(runs.c.pack)
            .join_from(study_runs, runs, study_runs.c.run == runs.c.id)
            .where(study_runs.c.study == study)
        )
        return self._select_packs(packs.c.id.in_(ids))

    def pack(self, pack_id: str) -> StoredPack:
        self._pack_row(pack_id)
        return self._select_packs(packs.c.id == pack_id)[0]

    def _select_packs(self, wanted: ColumnElement[bool]) -> list[StoredPack]:
        rows = self._database.fetch(select(packs).where(wanted).order_by(packs.c.id))
        selected = select(costs).join_from(costs, packs, costs.c.pack == packs.c.id).where(wanted)
        cost_rows = {row.pack: row for row in self._database.fetch(selected)}
        return [pack_from_row(row, cost_rows.get(row.id)) for row in rows]

    def curves(self, run_ids: Sequence[str], names: Collection[str] | None = None) -> dict[str, dict[str, Curve]]:
        name_sets = {row.id: tuple(json.loads(row.names)) for row in self._database.fetch(select(schema.metric_names))}
        columns = (evaluations.c.run, evaluations.c.step, evaluations.c.names, evaluations.c.numbers)
        curves: dict[str, dict[str, Curve]] = {run: {} for run in run_ids}
        for batch in changes.batch_ids(curves):
            ordered = (
                select(*columns).where(evaluations.c.run.in_(batch)).order_by(evaluations.c.run, evaluations.c.step)
            )
            rows = ((run, step, name_sets[set_id], data) for run, step, set_id, data in self._database.fetch(ordered))
            curves |= build_curves(rows, names)
        return curves

    def samples(self, run_id: str) -> list[StoredSample]:
        ordered = select(samples).where(samples.c.run == run_id).order_by(samples.c.step, samples.c.number)
        return [sample_from_row(row) for row in self._database.fetch(ordered)]

    def checkpoints(self, run_id: str) -> list[Checkpoint]:
        rows = self._database.fetch(select(checkpoints).where(checkpoints.c.run == run_id).order_by(checkpoints.c.step))
        return [Checkpoint(row.run, row.step, row.digest, row.bytes) for row in rows]

    def runs_with_weights(self) -> set[str]:
        return {row.run for row in self._database.fetch(select(checkpoints.c.run).distinct())}

    def load_weights(self, run_id: str, step: int | Literal["last", "best"] = "last") -> Arrays:
        run, found = self._run_row(run_id), self.find_checkpoint(run_id, step)
        return read_checkpoint(self._weights_path(run.id, found.step), _weights_identity(run, found.step), found.digest)

    def find_checkpoint(self, run_id: str, step: int | Literal["last", "best"] = "last") -> Checkpoint:
        run = self._run_row(run_id)
        by_step = {checkpoint.step: checkpoint for checkpoint in self.checkpoints(run.id)}
        wanted = max(by_step, default=None) if step == "last" else run.best if step == "best" else step
        if wanted not in by_step:
            known = ", ".join(f"{each:,}" for each in by_step) or "none"
            advice = f"; {WEIGHTS_ADVICE}" if run.step and not by_step else ""
            raise MissingData(f"run {run.id} has no saved weights for step {step}; steps with weights: {known}{advice}")
        return by_step[wanted]

    def load_vocabulary(self, dataset: str) -> Vocabulary | None:
        table = schema.vocabularies
        rows = self._database.fetch_added(table, select(table).where(table.c.dataset == dataset))
        return vocabulary_from_row(rows[0], self.address) if rows else None

    def dataset_dates(self) -> dict[str, str]:
        table = schema.vocabularies
        rows = self._database.fetch_added(table, select(table.c.dataset, table.c.created))
        return {row.dataset: row.created for row in rows}

    # ---- notes and tags ----

    def find_target(self, name: str) -> tuple[Literal["study", "run"], str]:
        if self._database.fetch(select(studies.c.name).where(studies.c.name == name)):
            return "study", name
        try:
            return "run", str(self._run_row(name).id)
        except MissingData:
            raise MissingData(
                f"there is no study and no run {name!r} in {self.home}; `seedbed ls` lists those that are there"
            ) from None

    def set_note(self, target: str, note: str) -> Annotation:
        return self._annotate(target, lambda found: replace(found, note=note.strip()))

    def add_tags(self, target: str, tags: Collection[str]) -> Annotation:
        return self._annotate(target, lambda found: with_tags(found, added=tags))

    def remove_tags(self, target: str, tags: Collection[str]) -> Annotation:
        return self._annotate(target, lambda found: with_tags(found, removed=tags))

    def _annotate(self, target: str, change: Callable[[Annotation], Annotation]) -> Annotation:
        kind, name = self.find_target(target)
        with self._database.transaction() as connection:
            changed = change(read_annotation(connection, kind, name))
            write_annotation(connection, kind, name, changed)
        return changed

    def annotations(self) -> Annotations:
        return annotations_from_rows(self._database.fetch_added(schema.notes, select(schema.notes)))

    # ---- analyses ----

    # Files rather than rows, so that the readers that compute them need no write access to the database.

    def save_analysis(self, run_id: str, step: int, document: Mapping[str, Any]) -> None:
        write_atomic(self._analysis_path(run_id, step), _analysis_bytes(document), "all weights and metrics")

    def load_analyses(self, run_id: str) -> list[Any]:
        analyses = []
        for path in sorted((self._checkpoints_folder / run_id).glob(f"*{ANALYSIS_SUFFIX}")):
            try:
                analyses.append(json.loads(path.read_bytes()))
            except (OSError, ValueError):
                continue
        return analyses

    # ---- parts of a store ----

    def dump(
        self, selection: Mapping[str, Collection[str]], weights: WeightsChoice = "none", unfinished: bool = False
    ) -> StoreDump:
        fields = self._database.read(lambda it: select_dump(it, selection, weights, unfinished, self.address))
        for pack in fields["packs"]:
            if pack["open"]:
                if is_locked(self._lock_path(pack["id"])):
                    raise Busy(f"pack {pack['id']} is being trained; stop it to export its state, or do not ask for it")
                path = self._state_path(pack["id"], pack["step"])
                if not path.exists():
                    raise DamagedCheckpoint(f"{path} is missing; export without saved states, or train with --restart")
                key = {"kind": "state", "owner": pack["id"], "step": pack["step"]}
                fields["files"].append(key | {"bytes": path.stat().st_size, "digest": pack["digest"]})
        for run in fields["runs"]:
            for step in self._analysed_steps(run["id"]):
                if (data := self._read_analysis(run["id"], step)) is not None:
                    key = {"kind": "analysis", "owner": run["id"], "step": step}
                    fields["files"].append(key | {"bytes": len(data), "digest": digest_bytes(data)})
        return StoreDump.model_validate(fields)

    def _analysed_steps(self, run_id: str) -> list[int]:
        files = (self._checkpoints_folder / run_id).glob(f"*{ANALYSIS_SUFFIX}")
        return sorted(int(step) for path in files if (step := path.name.partition(".")[0]).isdecimal())

    def _read_analysis(self, run_id: str, step: int) -> bytes | None:
        """An analysis without the paths of this machine; None if it is unreadable."""
        with suppress(OSError, ValueError, AttributeError, TypeError):
            document = json.loads(self._analysis_path(run_id, step).read_bytes())
            errors = {name: without_paths(text) for name, text in document.items() if name.endswith("_error")}
            return _analysis_bytes(document | errors)
        return None

    def read_file(self, file: FileRow) -> bytes:
        if file.kind == "analysis":
            data = self._read_analysis(file.owner, file.step) or b""
        else:
            path = self._file_path(file)
            try:
                data = path.read_bytes()
            except OSError as error:
                raise DamagedCheckpoint(f"{path} cannot be read: {error.strerror}") from error
        if digest_bytes(data) != file.digest:
            raise DamagedCheckpoint(f"{self._file_path(file)} is damaged: it differs from its stored digest")
        return data

    def merge(self, dump: StoreDump, read_file: FileReader) -> MergeOutcome:
        with file_lock(self.home / "locks" / "import.lock", "the import"):
            self._finish_merge()
            plan = self._database.read(partial(self._plan_merge, dump))
            with self._lock_packs_of(plan.outcome.updated):
                staging = self._imports_folder / uuid4().hex
                try:
                    self._stage_files(staging, plan.outcome, read_file)
                    with self._database.transaction() as connection:
                        if self._plan_merge(dump, connection) != plan:
                            raise Busy(f"{self.address} has changed meanwhile; run the same command again")
                        merge_dump(connection, dump, plan)
                        changes.upsert(connection, schema.meta, [{"key": "import", "value": staging.name}])
                finally:
                    self._finish_merge()  # moves the files if they were committed, or else deletes them
        self._delete_stale_states()
        return plan.outcome

    def _plan_merge(self, dump: StoreDump, connection: Connection) -> MergePlan:
        analyses = {(run.id, step) for run in dump.runs for step in self._analysed_steps(run.id)}
        return plan_merge(connection, dump, analyses)

    def _stage_files(self, staging: Path, outcome: MergeOutcome, read_file: FileReader) -> None:
        """Write files below `replaced`, where a folder takes the place of the run's one, or below `added`."""
        folders = [staging / "added", staging / "replaced", *(staging / "replaced" / run for run in outcome.taken)]
        make_folders(folders)
        for file in outcome.files:
            is_replaced = file.kind != "state" and file.owner in outcome.taken
            folder = staging / ("replaced" if is_replaced else "added")
            path = folder / self._file_path(file).relative_to(self._checkpoints_folder)
            write_atomic(path, read_file(file), "everything that was here")

    def _complete_merge(self) -> None:
        """Finish or undo a merge that was interrupted; `Busy` while one is going on."""
        if self._imports_folder.exists():
            with file_lock(self.home / "locks" / "import.lock", "the import"):
                self._finish_merge()

    def _finish_merge(self) -> None:
        """Move files whose rows are committed to their places, and delete the others; may be repeated at any point."""
        if not self._imports_folder.exists():
            return
        committed = self._database.fetch(select(schema.meta.c.value).where(schema.meta.c.key == "import"))
        for staging in self._imports_folder.iterdir():
            if staging.name in {row.value for row in committed}:
                for folder in (staging / "replaced").iterdir():
                    target = self._checkpoints_folder / folder.name
                    shutil.rmtree(target, ignore_errors=True)
                    os.replace(folder, target)
                for path in [path for path in (staging / "added").rglob("*") if path.is_file()]:
                    target = self._checkpoints_folder / path.relative_to(staging / "added")
                    make_folder(target.parent)
                    os.replace(path, target)
                    fsync_folder(target.parent)
                fsync_folder(self._checkpoints_folder)
            shutil.rmtree(staging)
        self._imports_folder.rmdir()

    # ---- paths and rows ----

    @property
    def _imports_folder(self) -> Path:
        return self.home / "imports"

    @property
    def _checkpoints_folder(self) -> Path:
        return self.home / "checkpoints"

    @property
    def _states_folder(self) -> Path:
        return self._checkpoints_folder / "packs"

    def _lock_path(self, pack_id: str) -> Path:
        return self.home / "locks" / f"{pack_id}.lock"

    def _state_path(self, pack_id: str, step: int) -> Path:
        return self._states_folder / pack_id / f"{step:09d}.safetensors"

    def _weights_path(self, run_id: str, step: int) -> Path:
        return self._checkpoints_folder / run_id / f"{step:09d}.safetensors"

    def _analysis_path(self, run_id: str, step: int) -> Path:
        return self._checkpoints_folder / run_id / f"{step:09d}{ANALYSIS_SUFFIX}"

    def _file_path(self, file: FileRow) -> Path:
        paths = {"weights": self._weights_path, "analysis": self._analysis_path, "state": self._state_path}
        return paths[file.kind](file.owner, file.step)

    def _pack_row(self, pack_id: str) -> AnyRow:
        rows = self._database.fetch(select(packs).where(packs.c.id == pack_id))
        if not rows:
            raise MissingData(f"there is no pack {pack_id!r} in {self.home}")
        return rows[0]

    def _load_state(self, pack: AnyRow) -> Arrays:
        try:
            identity = _state_identity(pack.id, pack.members, pack.step)
            return read_checkpoint(self._state_path(pack.id, pack.step), identity, pack.digest)
        except DamagedCheckpoint as error:
            raise DamagedCheckpoint(
                f"{error}; kept: all its metrics and the weights of its runs; "
                "the same command with --restart trains these runs again from step 0"
            ) from error


@dataclass
class _PendingFiles:
    """The files of a checkpoint: the pack's state, and weights by run."""

    store: SQLiteStore
    pack_id: str
    step: int
    state: CheckpointFile
    weights: Mapping[str, CheckpointFile]
    preserved: str  # quoted in the error if writing fails
    digests: Sequence[FileDigest] = ()

    def write(self) -> None:
        files = [self.state, *self.weights.values()]  # the largest first: it takes longest
        self.digests = write_checkpoints(files, self.preserved)

    def commit(self) -> None:
        state_digest, *digests = self.digests
        weights = dict(zip(self.weights, digests, strict=True))
        self.store.commit_save(self.pack_id, self.step, state_digest.digest, weights)


def _analysis_bytes(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _effective_status(status: RunStatus, pack: str | None, abandoned: Collection[str]) -> RunStatus:
    return "stopped" if status == "running" and pack in abandoned else status


def _study_from_row(row: AnyRow, statuses: Mapping[RunStatus, int]) -> StoredStudy:
    renamed = former_setting_names()
    axes = tuple(renamed.get(name, name) for name in row.axes)
    return StoredStudy(row.name, row.text, axes, row.created, sum(statuses.values()), statuses)


def _weights_identity(run: AnyRow, step: int) -> CheckpointIdentity:
    return CheckpointIdentity("weights", run.id, step, run.fingerprint)


def _state_identity(pack_id: str, members: Sequence[str], step: int) -> CheckpointIdentity:
    return CheckpointIdentity("state", pack_id, step, digest_json(members))
