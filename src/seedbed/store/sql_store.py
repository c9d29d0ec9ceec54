"""What the stores on SQL databases share: rows in the database, checkpoints and analyses as files in a folder.

    FOLDER/checkpoints/RUN/STEP.safetensors         weights
    FOLDER/checkpoints/RUN/STEP.analysis.json       analyses
    FOLDER/checkpoints/packs/PACK/STEP.safetensors  the state to resume a pack from
    FOLDER/imports/ID                               files on their way to checkpoints/, while a dump is merged

Files are named by ids, never by user-given names. Where several machines write, the name of a checkpoint also has its
digest (STEP.DIGEST.safetensors), by which its row finds it: a process that was given up overwrites no file of the one
that goes on. A subclass says which database and folder, and how a pack is held.
"""

from __future__ import annotations

import json
import os
import shutil
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, Table, func, select

from seedbed.errors import (
    Busy,
    DamagedCheckpoint,
    MissingData,
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
    ANALYSIS_SUFFIX,
    STATES,
    CheckpointFile,
    FileDigest,
    analysis_bytes,
    analysis_path,
    digest_bytes,
    digest_json,
    path_with_digest,
    read_analysis,
    read_checkpoint,
    select_slots,
    state_identity,
    state_path,
    weights_identity,
    weights_path,
    write_analysis,
    write_checkpoints,
)
from seedbed.store.dialects import upsert
from seedbed.store.digests import (
    PROGRESS_COLUMNS,
    DamagedRow,
    RunRows,
    canonical_json,
    select_members,
    select_packs,
    select_run_contents,
    verified,
    verified_run,
    verify_absent,
    verify_list,
    write_lists,
)
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
    fsync_folder,
    make_folder,
    make_folders,
    translate_os_errors,
    write_atomic,
)
from seedbed.store.event_rows import SlotProgress, build_curves, fold_events, sample_from_row
from seedbed.store.schema import (
    AnyRow,
    checkpoints,
    evaluations,
    pack_from_row,
    packs,
    run_from_row,
    runs,
    samples,
    studies,
    study_runs,
)
from seedbed.store.sql_database import SQLDatabase
from seedbed.store.vocabulary_rows import vocabulary_from_row, vocabulary_to_row
from seedbed.study.toml_text import did_you_mean

MAX_LISTED_STUDIES = 8  # in a message


class SQLStore(Store):
    """A store whose rows are in a SQL database and whose files are in a folder."""

    _has_digests_in_names = False  # of checkpoints

    def __init__(self, folder: Path, database: SQLDatabase, place: str) -> None:
        self._folder, self._database = folder, database
        self._place = place  # quoted in messages: where something is not

    @abstractmethod
    def _held_packs(self, pack_ids: Collection[str]) -> set[str]:
        """Those of these packs that some process holds now."""

    @abstractmethod
    def _lock_import(self) -> AbstractContextManager[None]:
        """Hold the right to merge a dump; `Busy` if another process does."""

    def close(self) -> None:
        self._database.close()

    # ---- before training ----

    def register(self, plan: Plan) -> None:
        self._database.write(lambda connection: changes.register_plan(connection, plan, _now()))

    def save_vocabulary(self, dataset: str, vocabulary: Vocabulary) -> None:
        try:
            if self.load_vocabulary(dataset) is not None:
                return
        except StoreError:  # damaged, and replaced
            pass
        row = vocabulary_to_row(dataset, vocabulary, _now())

        def insert(connection: Connection) -> None:
            upsert(connection, schema.vocabularies, [row])
            write_lists(connection, schema.vocabularies)

        self._database.write(insert)

    def claim(self, planned: Sequence[Pack], placement_of: Callable[[Pack], Placement]) -> list[StoredPack]:
        claimed = self._database.write(lambda connection: _claim_packs(connection, planned, placement_of))
        self._delete_stale_states()
        stored = {pack.id: pack for pack in self._select_packs(packs.c.id.in_(claimed))}
        return [stored[pack_id] for pack_id in claimed]

    def settled_runs(self) -> set[str]:
        return {row.id for row in self._database.read(_read_all_progress) if row.settled}

    # ---- while training; the caller holds the pack's lock ----

    def resume(self, pack_id: str, environment: Mapping[str, str] | None = None) -> tuple[int, Arrays] | None:
        state = self._load_state(self._pack_row(pack_id))

        def rewind(connection: Connection) -> None:
            changes.rewind_pack(connection, pack_id, None if state is None else state[0])
            if environment is not None:
                changes.record_environment(connection, pack_id, environment)

        self._database.write_pack(pack_id, rewind)
        return state

    def can_resume(self, pack_id: str) -> bool:
        row = self._pack_row(pack_id)
        try:
            self._load_state(row)
        except DamagedCheckpoint:
            return False
        return True

    def record(self, pack_id: str, events: Sequence[StoredEvent]) -> None:
        self._database.write_pack(pack_id, lambda connection: _record_events(connection, pack_id, events))

    def begin_save(self, pack_id: str, saved: CheckpointEvent) -> PendingSave:
        pack = self._pack_row(pack_id)
        preserved = "all recorded metrics" + ("" if pack.step is None else f" and the state of step {pack.step:,}")
        path = state_path(self._checkpoints_folder, pack_id, saved.step)
        identity = state_identity(pack_id, pack.members, saved.step)
        state = CheckpointFile(path, saved.state, identity, self._has_digests_in_names)
        return _PendingFiles(self, pack_id, saved.step, state, self._weights_files(pack, saved), preserved)

    def write_files(self, files: Sequence[CheckpointFile], preserved: str) -> list[FileDigest]:
        """Write checkpoints into the folder, if it is still where it was."""
        self._database.check_in_place()
        return write_checkpoints(files, self._checkpoints_folder, preserved)

    def commit_save(self, pack_id: str, step: int, state_digest: str, weights: Mapping[str, FileDigest]) -> None:
        """Record the files of a checkpoint, and delete the states of the pack before the previous one.

        No later ones: they belong to a process that has taken the pack over since the commit.
        """
        rows = [{"run": run, "step": step, **asdict(digest)} for run, digest in weights.items()]
        kept = self._database.write_pack(
            pack_id, lambda connection: changes.commit_checkpoint(connection, pack_id, step, state_digest, rows)
        )
        paths = {self._state_path(pack_id, *one) for one in kept}
        folder = state_path(self._checkpoints_folder, pack_id, step).parent
        with translate_os_errors(folder, f"the state of step {step:,}"):
            for older in [path for path in folder.iterdir() if path not in paths and _step_of(path) <= step]:
                older.unlink(missing_ok=True)

    def _weights_files(self, pack: AnyRow, saved: CheckpointEvent) -> dict[str, CheckpointFile]:
        """The weights to write, by run; runs that were removed from the pack are skipped."""
        rows = self._database.read(lambda it: changes.pack_progress(it, pack)).values()
        owned, step = {row.id: row for row in rows if not row.settled}, saved.step
        weights = {pack.members[slot]: arrays for slot, arrays in saved.weights.items() if pack.members[slot] in owned}
        return {
            run: CheckpointFile(
                weights_path(self._checkpoints_folder, run, step),
                arrays,
                weights_identity(run, owned[run].fingerprint, step),
                self._has_digests_in_names,
            )
            for run, arrays in weights.items()
        }

    def stop(self, pack_id: str) -> None:
        self._mark_unsettled(pack_id, {"status": "stopped"})

    def fail(self, pack_id: str, cause: str) -> None:
        self._mark_unsettled(pack_id, {"status": "failed", "cause": cause})

    def _mark_unsettled(self, pack_id: str, values: Mapping[str, Any]) -> None:
        """Also a run that ended after the last save: it has no weights, and a resume trains its last steps again."""

        def mark(connection: Connection) -> None:
            if (found := changes.select_pack(connection, pack_id)) is not None:
                rows = changes.pack_progress(connection, found[0]).values()
                changes.change_runs(connection, [row for row in rows if not row.settled], values)

        self._database.write_pack(pack_id, mark)

    def finish(self, pack_id: str) -> None:
        pack = self._pack_row(pack_id)

        def close(connection: Connection) -> None:
            changes.settle_ended_runs(connection, changes.pack_progress(connection, pack).values())
            rows = changes.pack_progress(connection, pack).values()
            if unended := [row.id for row in rows if not row.settled]:
                raise ValueError(f"pack {pack_id} has runs that have not ended: {', '.join(unended)}")
            changes.close_packs(connection, [pack_id])

        self._database.write(close, [pack_id])
        self._delete_stale_states()

    def split(self, pack_id: str, first: Collection[str] | None = None) -> list[StoredPack]:
        [pack] = self._select_packs(packs.c.id == pack_id)
        row = self._pack_row(pack_id)
        state = self._load_state(row)

        def separate(connection: Connection) -> list[str]:
            slots = [slot for slot, run in changes.pack_progress(connection, row).items() if not run.settled]
            wanted = {pack.runs[slot] for slot in slots[: -(-len(slots) // 2)]} if first is None else first
            chosen = [slot for slot in slots if pack.runs[slot] in wanted]
            others = [slot for slot in slots if pack.runs[slot] not in wanted]
            if not (chosen and others):
                return []
            parts = [self._start_split_pack(connection, pack, part, state) for part in (chosen, others)]
            changes.close_packs(connection, [pack_id])
            return parts

        if not (parts := self._database.write(separate, [pack_id])):
            return []
        self._delete_stale_states()
        stored = {part.id: part for part in self._select_packs(packs.c.id.in_(parts))}
        return [stored[part] for part in parts]

    def _start_split_pack(
        self, connection: Connection, pack: StoredPack, slots: Sequence[int], state: tuple[int, Arrays] | None
    ) -> str:
        members, fraction = [pack.runs[slot] for slot in slots], len(slots) / len(pack.runs)
        row: dict[str, Any] = {
            "id": digest_json(members)[:16], "members": members, "placement": asdict(pack.placement),
            "environment": list(pack.environment),
            "seconds": {name: spent * fraction for name, spent in pack.cost.seconds.items()},
        }  # fmt: skip
        if state is not None:
            step, arrays = state
            path = state_path(self._checkpoints_folder, row["id"], step)
            part, identity = select_slots(arrays, slots, len(pack.runs)), state_identity(row["id"], members, step)
            file = CheckpointFile(path, part, identity, self._has_digests_in_names)
            [written] = self.write_files([file], "the unsplit pack")
            row |= {"step": step, "digest": written.digest}
        predicted = None if pack.predicted_bytes is None else round(pack.predicted_bytes * fraction)
        changes.insert_pack_row(connection, row, {"predicted": predicted, "counts": dict(pack.cost.counts)})
        return str(row["id"])

    # ---- resetting and removing ----

    def reset(self, run_ids: Sequence[str]) -> None:
        with self._lock_packs_of(run_ids) as pack_ids:

            def reset(connection: Connection) -> None:
                changes.reset_runs(connection, run_ids)
                changes.close_packs(connection, pack_ids)

            self._database.write(reset, pack_ids)
            self._delete_files(run_ids)

    def restart(self, pack_id: str) -> None:
        pack = self._pack_row(pack_id)
        rows = self._database.read(lambda it: changes.pack_progress(it, pack)).values()
        self.reset([row.id for row in rows if not row.settled])

    def remove(self, study: str, run_ids: Sequence[str]) -> list[str]:
        with self._lock_packs_of(run_ids) as pack_ids:

            def remove(connection: Connection) -> list[str]:
                changes.remove_from_study(connection, study, run_ids)
                shared = set(connection.execute(select(study_runs.c.run)).scalars())
                removed = [run for run in run_ids if run not in shared]
                changes.reset_runs(connection, removed)
                changes.close_packs(connection, pack_ids)
                changes.delete_unused_vocabularies(connection)
                return removed

            removed = self._database.write(remove, pack_ids)
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

        def delete(connection: Connection) -> None:
            for folder in self._states_folder.iterdir():
                found = changes.select_pack(connection, folder.name)
                # The row of a pack that runs refer to is missing where the database is damaged.
                referred = select(func.count()).where(runs.c.pack == folder.name)
                if not found[0].open if found else not connection.execute(referred).scalar():
                    shutil.rmtree(folder, ignore_errors=True)

        # Inside a write transaction: a concurrent split writes state files before its packs are in the database.
        self._database.write(delete)

    # ---- reading ----

    def change_stamp(self) -> ChangeStamp:
        return self._database.change_stamp()

    def studies(self) -> list[StoredStudy]:
        rows, members, progress = self._database.read(_read_studies)
        abandoned = self._abandoned_packs(progress.values())
        found = []
        for row in rows:
            statuses = Counter(_effective_status(progress[run], abandoned) for run in members[row.name])
            found.append(_study_from_row(row, statuses))
        return found

    def _abandoned_packs(self, rows: Iterable[AnyRow]) -> set[str]:
        """Packs with runs marked as running that no process holds: their process was killed."""
        marked = {row.pack for row in rows if row.status == "running"}
        return marked - self._held_packs(marked) if marked else set()

    def study(self, name: str) -> StoredStudy:
        studies = self.studies()
        for study in studies:
            if study.name == name:
                return study
        known = [study.name for study in studies]
        listed = ", ".join(known[:MAX_LISTED_STUDIES]) or "none"
        more = f" and {len(known) - MAX_LISTED_STUDIES} more, see `seedbed ls`" if known[MAX_LISTED_STUDIES:] else ""
        guess = did_you_mean(name, known)
        raise MissingData(f"there is no study {name!r} in {self._place}{guess}; stored studies: {listed}{more}")

    def runs(self, study: str | None = None, skip_unreadable: bool = False) -> list[StoredRun]:
        rows = self._database.read(partial(_read_run_rows, study=study))
        if study is not None and not rows:
            self.study(study)  # says which studies there are
        return self._runs_from_rows(rows, skip_unreadable, skip_unknown=study is None)

    def _runs_from_rows(
        self, rows: Iterable[AnyRow], skip_unreadable: bool = False, skip_unknown: bool = False
    ) -> list[StoredRun]:
        """The runs in rows; `skip_unknown` leaves out those with settings that this version does not know."""
        stored = []
        for row in rows:
            is_skipped = skip_unreadable
            try:
                with self._database.translate_errors():
                    settings = verified_run(row)
                is_skipped |= skip_unknown  # one such study must not take the others of its home with it
                stored.append(run_from_row(row, settings))
            except UnreadableRun:
                if not is_skipped:
                    raise
        abandoned = self._abandoned_packs(stored)
        return [replace(run, status=_effective_status(run, abandoned)) for run in stored]

    def progress(self) -> dict[str, list[RunProgress]]:
        rows, members, progress = self._database.read(_read_studies)
        abandoned = self._abandoned_packs(progress.values())
        made = {run: RunProgress(run, _effective_status(row, abandoned), row.step) for run, row in progress.items()}
        return {row.name: [made[run] for run in members[row.name]] for row in rows}

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
            of_any = select(study_runs.c.run).where(study_runs.c.run.startswith(prefix, autoescape=True)).limit(1)
            if lost := self._database.fetch(of_any):
                with self._database.translate_errors():
                    raise DamagedRow(f"run {lost[0].run} is missing")
            raise MissingData(
                f"there is no run {prefix!r} in {self._place}; `seedbed ls` lists the runs that are there"
            )
        if len(rows) > 1 and rows[0].id != prefix:
            first = ", ".join(row.id for row in rows[:3])
            raise UsageError(
                f"{prefix!r} is the start of several runs ({first}{', …' * (len(rows) > 3)}); write more of the id"
            )
        return rows[0]

    def pack_members(self, pack_id: str) -> list[StoredRun]:
        members = self._pack_row(pack_id).members
        by_id = self._database.read(partial(_read_members_of_pack, pack_id=pack_id, members=members))
        return [run_from_row(by_id[run], canonical_json(by_id[run].settings)) for run in members]

    def study_packs(self, study: str) -> list[StoredPack]:
        rows = self._database.read(partial(_read_run_progress, study=study))
        ids = {row.pack for row in rows.values() if row.pack is not None}
        found = [pack for batch in changes.batch_ids(sorted(ids)) for pack in self._select_packs(packs.c.id.in_(batch))]
        if missing := sorted(ids - {pack.id for pack in found}):
            with self._database.translate_errors():
                raise DamagedRow(f"pack {missing[0]} is missing")
        return found

    def pack(self, pack_id: str) -> StoredPack:
        self._pack_row(pack_id)
        return self._select_packs(packs.c.id == pack_id)[0]

    def _select_packs(self, wanted: ColumnElement[bool]) -> list[StoredPack]:
        found = self._database.read(lambda connection: select_packs(connection, wanted))
        return [pack_from_row(pack, cost) for pack, cost in found]

    def curves(self, run_ids: Sequence[str], names: Collection[str] | None = None) -> dict[str, dict[str, Curve]]:
        def read(connection: Connection) -> dict[str, dict[str, Curve]]:
            name_sets = changes.select_metric_names(connection)
            curves: dict[str, dict[str, Curve]] = {run: {} for run in run_ids}
            for batch in changes.batch_ids(curves):
                found = self._contents(connection, evaluations, batch)
                curves |= {
                    run: build_curves(rows.steps, rows.tags, rows.blobs[0], name_sets, names)
                    for run, rows in found.items()
                }
            return curves

        return self._database.read(read)

    @staticmethod
    def _contents(connection: Connection, table: Table, run_ids: Collection[str]) -> dict[str, RunRows]:
        """What runs have in a table, verified; a run without a row must have nothing."""
        owners = changes.select_progress(connection, run_ids)
        return select_run_contents(connection, table, owners, [run for run in run_ids if run not in owners])

    def _rows_of_run(self, table: Table, run_id: str) -> list[dict[str, Any]]:
        found = self._database.read(lambda connection: self._contents(connection, table, [run_id]))
        return [row for rows in found.values() for row in rows.as_dicts(table, run_id)]

    def samples(self, run_id: str) -> list[StoredSample]:
        return [sample_from_row(row) for row in self._rows_of_run(samples, run_id)]

    def checkpoints(self, run_id: str) -> list[Checkpoint]:
        return [Checkpoint(**row) for row in self._rows_of_run(checkpoints, run_id)]

    def runs_with_weights(self) -> set[str]:
        return {row.id for row in self._database.read(_read_all_progress) if checkpoints.name in row.contents}

    def load_weights(self, run_id: str, step: int | Literal["last", "best"] = "last") -> Arrays:
        run, found = self._run_row(run_id), self.find_checkpoint(run_id, step)
        identity = weights_identity(run.id, run.fingerprint, found.step)
        return read_checkpoint(self._weights_path(run.id, found.step, found.digest), identity, found.digest)

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

        def read(connection: Connection) -> Sequence[AnyRow]:
            rows = connection.execute(select(table).where(table.c.dataset == dataset)).all()
            if not rows:
                verify_absent(connection, table, dataset)
            return rows

        rows = self._database.read(read) if self._database.has_added_table(table) else []
        return vocabulary_from_row(rows[0], self.address) if rows else None

    def dataset_dates(self) -> dict[str, str]:
        table = schema.vocabularies
        names = ("dataset", "created", "digest", "row_digest")

        def read(connection: Connection) -> list[AnyRow]:
            rows = verified(table, connection.execute(select(*(table.c[name] for name in names))))
            verify_list(connection, table, rows)
            return rows

        rows = self._database.read(read) if self._database.has_added_table(table) else []
        return {row.dataset: row.created for row in rows}

    # ---- notes and tags ----

    def find_target(self, name: str) -> tuple[Literal["study", "run"], str]:
        if self._database.fetch(select(studies.c.name).where(studies.c.name == name)):
            return "study", name
        try:
            return "run", str(self._run_row(name).id)
        except MissingData:
            raise MissingData(
                f"there is no study and no run {name!r} in {self._place}; `seedbed ls` lists those that are there"
            ) from None

    def set_note(self, target: str, note: str) -> Annotation:
        return self._annotate(target, lambda found: replace(found, note=note.strip()))

    def add_tags(self, target: str, tags: Collection[str]) -> Annotation:
        return self._annotate(target, lambda found: with_tags(found, added=tags))

    def remove_tags(self, target: str, tags: Collection[str]) -> Annotation:
        return self._annotate(target, lambda found: with_tags(found, removed=tags))

    def _annotate(self, target: str, change: Callable[[Annotation], Annotation]) -> Annotation:
        kind, name = self.find_target(target)

        def annotate(connection: Connection) -> Annotation:
            changed = change(read_annotation(connection, kind, name))
            write_annotation(connection, kind, name, changed)
            return changed

        return self._database.write(annotate)

    def annotations(self) -> Annotations:
        rows = self._database.read(_read_notes) if self._database.has_added_table(schema.notes) else []
        return annotations_from_rows(rows)

    # ---- analyses ----

    # Files rather than rows, so that the readers that compute them need no write access to the database.

    def save_analysis(self, run_id: str, step: int, document: Mapping[str, Any]) -> None:
        path, kept = self._analysis_path(run_id, step), "all weights and metrics"
        self._database.check_in_place()
        with translate_os_errors(path, kept):
            make_folders([path.parent], self._checkpoints_folder)
        write_analysis(path, document, kept)

    def load_analyses(self, run_id: str) -> list[Any]:
        analyses = []
        for path in sorted((self._checkpoints_folder / run_id).glob(f"*{ANALYSIS_SUFFIX}")):
            try:
                analyses.append(read_analysis(path))
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
                if self._held_packs([pack["id"]]):
                    raise Busy(f"pack {pack['id']} is being trained; stop it to export its state, or do not ask for it")
                path = self._state_path(pack["id"], pack["step"], pack["digest"])
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
            document = read_analysis(self._analysis_path(run_id, step))
            errors = {name: without_paths(text) for name, text in document.items() if name.endswith("_error")}
            return analysis_bytes(document | errors)
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
        with self._lock_import():
            self._finish_merge()
            plan = self._database.read(partial(self._plan_merge, dump))
            with self._lock_packs_of(plan.outcome.updated):
                staging = self._imports_folder / uuid4().hex
                try:
                    self._stage_files(staging, plan.outcome, read_file)
                    self._database.write(partial(self._merge_rows, dump, plan, staging.name))
                finally:
                    self._finish_merge()  # moves the files if they were committed, or else deletes them
        self._delete_stale_states()
        return plan.outcome

    def _merge_rows(self, dump: StoreDump, plan: MergePlan, staging: str, connection: Connection) -> None:
        if self._plan_merge(dump, connection) != plan:
            raise Busy(f"{self.address} has changed meanwhile; run the same command again")
        merge_dump(connection, dump, plan)
        upsert(connection, schema.meta, [{"key": "import", "value": staging}])

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
            make_folder(path.parent)
            if file.kind == "analysis":
                write_analysis(path, json.loads(read_file(file)), "everything that was here")
            else:
                write_atomic(path, read_file(file), "everything that was here")

    def _complete_merge(self) -> None:
        """Finish or undo a merge that was interrupted; `Busy` while one is going on."""
        if self._imports_folder.exists():
            with self._lock_import():
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
        return self._folder / "imports"

    @property
    def _checkpoints_folder(self) -> Path:
        return self._folder / "checkpoints"

    @property
    def _states_folder(self) -> Path:
        return self._checkpoints_folder / STATES

    def _state_path(self, pack_id: str, step: int, digest: str) -> Path:
        path = state_path(self._checkpoints_folder, pack_id, step)
        return path_with_digest(path, digest) if self._has_digests_in_names else path

    def _weights_path(self, run_id: str, step: int, digest: str) -> Path:
        path = weights_path(self._checkpoints_folder, run_id, step)
        return path_with_digest(path, digest) if self._has_digests_in_names else path

    def _analysis_path(self, run_id: str, step: int) -> Path:
        return analysis_path(self._checkpoints_folder, run_id, step)

    def _file_path(self, file: FileRow) -> Path:
        if file.kind == "analysis":
            return self._analysis_path(file.owner, file.step)
        find_path = self._weights_path if file.kind == "weights" else self._state_path
        return find_path(file.owner, file.step, file.digest)

    def _pack_row(self, pack_id: str) -> AnyRow:
        if (found := self._database.read(lambda it: changes.select_pack(it, pack_id))) is None:
            raise MissingData(f"there is no pack {pack_id!r} in {self._place}")
        return found[0]

    def _load_state(self, pack: AnyRow) -> tuple[int, Arrays] | None:
        """The last saved state of a pack or, if that is damaged, the one before it; None if nothing was saved."""
        if pack.step is None:
            return None
        faults = []
        for step, digest in ((pack.step, pack.digest), *([pack.previous] if pack.previous else ())):
            identity = state_identity(pack.id, pack.members, step)
            try:
                return step, read_checkpoint(self._state_path(pack.id, step, digest), identity, digest)
            except DamagedCheckpoint as error:
                faults.append(error)
        raise DamagedCheckpoint(
            f"{'; '.join(map(str, faults))}; kept: all its metrics and the weights of its runs; "
            "the same command with --restart trains these runs again from step 0, and no others"
        ) from faults[0]


@dataclass
class _PendingFiles:
    """The files of a checkpoint: the pack's state, and weights by run."""

    store: SQLStore
    pack_id: str
    step: int
    state: CheckpointFile
    weights: Mapping[str, CheckpointFile]
    preserved: str  # quoted in the error if writing fails
    digests: Sequence[FileDigest] = ()

    def write(self) -> None:
        files = [self.state, *self.weights.values()]  # the largest first: it takes longest
        self.digests = self.store.write_files(files, self.preserved)

    def commit(self) -> None:
        state_digest, *digests = self.digests
        weights = dict(zip(self.weights, digests, strict=True))
        self.store.commit_save(self.pack_id, self.step, state_digest.digest, weights)


def _step_of(path: Path) -> int:
    """The step in the name of a checkpoint or of what a killed process has left of one; 0 in any other."""
    step = path.name.partition(".")[0]
    return int(step) if step.isdecimal() else 0


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _claim_packs(
    connection: Connection, planned: Sequence[Pack], placement_of: Callable[[Pack], Placement]
) -> dict[str, None]:
    """The ids of the packs to train, as an ordered set; new ones are inserted."""
    changes.close_ended_packs(connection)
    rows = changes.select_progress(connection, [run.id for pack in planned for run in pack.runs])
    claimed: dict[str, None] = {}
    for pack in planned:
        unsettled = [run for run in pack.runs if not rows[run.id].settled]
        claimed |= dict.fromkeys(rows[run.id].pack for run in unsettled if rows[run.id].pack)
        if unstarted := tuple(run for run in unsettled if not rows[run.id].pack):
            new = replace(pack, id=digest_json([run.id for run in unstarted])[:16], runs=unstarted)
            changes.insert_pack(connection, new, placement_of(new))
            claimed[new.id] = None
    return claimed


def _record_events(connection: Connection, pack_id: str, events: Sequence[StoredEvent]) -> None:
    found = changes.select_pack(connection, pack_id)
    if found is None:
        raise DamagedRow(f"pack {pack_id} is missing")
    rows = changes.pack_progress(connection, found[0])
    slots = {slot: SlotProgress(row.id, row.status, row.step, row.cause) for slot, row in rows.items()}
    folded = fold_events(events, slots)
    owners = {row.id: row for row in rows.values()}
    contents = changes.record_rows(connection, owners, folded.evaluations, folded.samples)
    if folded.cost is not None:
        changes.change_cost(connection, pack_id, folded.cost)
    changed = {
        slots[slot].run: {
            "status": slots[slot].status, "step": slots[slot].step, "cause": slots[slot].cause,
            "contents": contents[row.id],
        }
        for slot, row in rows.items()
    }  # fmt: skip
    differing = [row for row in owners.values() if any(row._mapping[k] != v for k, v in changed[row.id].items())]
    changes.change_runs(connection, differing, lambda row: changed[row.id])


def _effective_status(run: AnyRow | StoredRun, abandoned: Collection[str]) -> RunStatus:
    status: RunStatus = run.status
    return "stopped" if status == "running" and run.pack in abandoned else status


def _read_studies(connection: Connection) -> tuple[list[AnyRow], dict[str, list[str]], dict[str, AnyRow]]:
    """All studies, oldest first, the ids of the runs of each, and the progress of these runs."""
    rows, members = _read_members(connection)
    found = changes.select_progress(connection, {run for ids in members.values() for run in ids})
    _check_present(members, found)
    return rows, members, found


def _read_members(connection: Connection) -> tuple[list[AnyRow], dict[str, list[str]]]:
    """All studies, oldest first, and the ids of the runs of each."""
    rows = verified(studies, connection.execute(select(studies).order_by(studies.c.created, studies.c.name)))
    verify_list(connection, studies, rows)
    return rows, {row.name: select_members(connection, row) for row in rows}


def _read_all_progress(connection: Connection) -> list[AnyRow]:
    """The progress of all runs, also of those that no study has."""
    rows = verified(runs, connection.execute(select(*PROGRESS_COLUMNS)))
    _check_present(_read_members(connection)[1], {row.id for row in rows})
    return rows


def _check_present(members: Mapping[str, Sequence[str]], found: Collection[str]) -> None:
    for study, ids in members.items():
        if missing := [run for run in ids if run not in found]:
            raise DamagedRow(f"of the runs of study {study}, {len(missing)} are missing: {', '.join(missing[:3])}")


def _read_run_rows(connection: Connection, study: str | None) -> list[AnyRow]:
    """The rows of the runs of a study in its order, or of all; they are not verified one by one yet."""
    if study is None:
        members = _read_members(connection)[1]
    else:
        row = changes.select_study(connection, study)
        members = {} if row is None else {study: select_members(connection, row)}
    ids = list(dict.fromkeys(run for of_study in members.values() for run in of_study))
    batches = (connection.execute(select(runs).where(runs.c.id.in_(one))) for one in changes.batch_ids(ids))
    rows = {row.id: row for batch in batches for row in batch}
    _check_present(members, rows)
    return [rows[run] for run in ids]


def _read_members_of_pack(connection: Connection, pack_id: str, members: Sequence[str]) -> Mapping[str, AnyRow]:
    found = changes.select_run_rows(connection, members)
    if missing := [run for run in members if run not in found]:
        raise DamagedRow(f"run {missing[0]} of pack {pack_id} is missing")
    return found


def _read_run_progress(connection: Connection, study: str) -> dict[str, AnyRow]:
    """The progress of the runs of a study; empty if there is no such study."""
    row = changes.select_study(connection, study)
    members = [] if row is None else select_members(connection, row)
    found = changes.select_progress(connection, members)
    _check_present({study: members}, found)
    return found


def _read_notes(connection: Connection) -> list[AnyRow]:
    rows = verified(schema.notes, connection.execute(select(schema.notes)))
    verify_list(connection, schema.notes, rows)
    return rows


def _study_from_row(row: AnyRow, statuses: Mapping[RunStatus, int]) -> StoredStudy:
    renamed = former_setting_names()
    axes = tuple(renamed.get(name, name) for name in row.axes)
    return StoredStudy(row.name, row.text, axes, row.created, sum(statuses.values()), statuses)
