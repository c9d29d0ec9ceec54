"""The store of a home: what a study planned, what its runs read, and what they can go on from.

One transaction per method; the order of the writer's calls keeps the promise that nothing recorded is lost:

    register(plan) → claim(packs) → with lock(pack): resume → (record …, save) … → finish | stop | fail

Readings are committed by `record` before the checkpoint that follows them is put in place by `save`; `resume` undoes
what came after the last save. A run's end counts for good once a save (or `finish`) has come after it. Files are
named by ids, never by names. What the numbers mean is left to measures; what arrays hold, to training.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

from sqlalchemy import ColumnElement, Connection, delete, func, select, update

from seedbed.errors import DamagedCheckpoint, MissingData, UsageError
from seedbed.records import (
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
)
from seedbed.store import changes, schema
from seedbed.store.checkpoints import (
    CheckpointFile,
    CheckpointIdentity,
    digest_json,
    read_checkpoint,
    select_slots,
    write_checkpoint,
    write_checkpoints,
)
from seedbed.store.database import Database
from seedbed.store.durable_files import file_lock, is_locked
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


class Store:
    """Open with `Store.open` to write, `Store.read` to look."""

    def __init__(self, home: Path, database: Database) -> None:
        self.home = home.absolute()
        self._database = database

    @classmethod
    def open(cls, home: Path) -> Self:
        """The store of this home, made when there is none."""
        return cls(home, Database.create_or_open(home))

    @classmethod
    def open_read_only(cls, home: Path) -> Self:
        """The store of this home, to read only: nothing is made or changed."""
        return cls(home, Database.open_read_only(home))

    def close(self) -> None:
        """Give up the connections."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- before training ----

    def register(self, plan: Plan) -> None:
        """Put a study's runs in the store; those that are there, from whatever study, stay as they are."""
        with self._database.transaction() as connection:
            changes.upsert_study(connection, plan, datetime.now(UTC).isoformat(timespec="seconds"))
            changes.insert_runs(connection, plan)

    def claim(self, given: Sequence[Pack], placement_of: Callable[[Pack], Placement]) -> list[StoredPack]:
        """The packs to work on: those that unended runs started in, as they were stored, and new ones for the rest."""
        with self._database.transaction() as connection:
            rows = changes.select_run_rows(connection, [run.id for pack in given for run in pack.runs])
            changes.close_packs(connection, {row.pack for row in rows.values() if row.settled})
            wanted: dict[str, None] = {}
            for pack in given:
                going = [run for run in pack.runs if not rows[run.id].settled]
                wanted |= dict.fromkeys(rows[run.id].pack for run in going if rows[run.id].pack)
                if free := tuple(run for run in going if not rows[run.id].pack):
                    fresh = replace(pack, id=digest_json([run.id for run in free])[:16], runs=free)
                    changes.insert_pack(connection, fresh, placement_of(fresh))
                    wanted[fresh.id] = None
        self._delete_stale_states()
        found = {pack.id: pack for pack in self._select_packs(packs.c.id.in_(wanted))}
        return [found[pack_id] for pack_id in wanted]

    def lock(self, pack_id: str) -> AbstractContextManager[None]:
        """Hold a pack while training it; `Busy` when another process does. A killed process holds nothing."""
        return file_lock(self._lock_path(pack_id), f"pack {pack_id}")

    # ---- while training; the caller holds the pack's lock ----

    def resume(self, pack_id: str, environment: Mapping[str, str] | None = None) -> tuple[int, Arrays] | None:
        """The saved step and state to go on from, or None; what was recorded after it is dropped, to be made again."""
        pack = self._pack_row(pack_id)
        state = None if pack.step is None else (pack.step, self._load_state(pack))
        with self._database.transaction() as connection:
            changes.rewind_pack(connection, pack_id, pack.step)
            if environment is not None:
                changes.record_environment(connection, pack_id, environment)
        return state

    def record(self, pack_id: str, events: Sequence[StoredEvent]) -> None:
        """Commit what happened, in the order of training; the same again changes nothing, nor does an ended run."""
        with self._database.transaction() as connection:
            slots = changes.progress_by_slot(connection, pack_id)
            before = {slot: replace(progress) for slot, progress in slots.items()}
            folded = fold_events(events, slots)
            changes.upsert_evaluations(connection, pack_id, folded.evaluations)
            changes.upsert(connection, samples, folded.samples)
            if folded.cost is not None:
                changes.upsert_cost(connection, pack_id, folded.cost)
            changes.update_progress(connection, [slots[slot] for slot in slots if slots[slot] != before[slot]])

    def save(self, pack_id: str, saved: CheckpointEvent) -> None:
        """Put weights and state in place after their readings were recorded; the state before is then given up."""
        pack = self._pack_row(pack_id)
        kept = "all recorded readings" + ("" if pack.step is None else f" and the state of step {pack.step:,}")
        due = self._weights_files(pack, saved)
        path = self._state_path(pack_id, saved.step)
        state = CheckpointFile(path, saved.state, _state_identity(pack_id, pack.members, saved.step))
        digested, *written = write_checkpoints([state, *due.values()], kept)  # the largest first
        weights = [{"run": run, "step": saved.step, **asdict(one)} for run, one in zip(due, written, strict=True)]
        with self._database.transaction() as connection:
            changes.upsert(connection, checkpoints, weights)
            values = {"step": saved.step, "digest": digested.digest}
            connection.execute(update(packs).where(packs.c.id == pack_id).values(values))
            changes.settle_ended_runs(connection, pack_id)
            changes.update_best_steps(connection, pack_id, saved.step, {row["run"] for row in weights})
        for older in path.parent.iterdir():
            if older != path:
                older.unlink(missing_ok=True)

    def _weights_files(self, pack: AnyRow, saved: CheckpointEvent) -> dict[str, CheckpointFile]:
        """Files of the weights to be kept, by run; a run taken out of the pack is passed over."""
        owned = {row.id: row for row in self._database.fetch(select(runs).where(runs.c.pack == pack.id))}
        due = {pack.members[slot]: arrays for slot, arrays in saved.weights.items() if pack.members[slot] in owned}
        return {
            run: CheckpointFile(self._weights_path(run, saved.step), arrays, _weights_identity(owned[run], saved.step))
            for run, arrays in due.items()
        }

    def stop(self, pack_id: str) -> None:
        """Mark the runs that were going on as stopped."""
        self._mark_unended(pack_id, {"status": "stopped"})

    def fail(self, pack_id: str, cause: str) -> None:
        """Mark the runs that were going on as failed; the next claim takes them up again where they were saved."""
        self._mark_unended(pack_id, {"status": "failed", "cause": cause})

    def _mark_unended(self, pack_id: str, values: Mapping[str, Any]) -> None:
        with self._database.transaction() as connection:
            connection.execute(
                update(runs).where(runs.c.pack == pack_id, runs.c.status.not_in(ENDED_STATUSES)).values(values)
            )

    def finish(self, pack_id: str) -> None:
        """Close a pack whose runs have all ended, and give up its state."""
        with self._database.transaction() as connection:
            changes.settle_ended_runs(connection, pack_id)
            going = connection.execute(select(runs.c.id).where(runs.c.pack == pack_id, ~runs.c.settled)).scalars().all()
            if going:
                raise ValueError(f"pack {pack_id} has runs that have not ended: {', '.join(going)}")
            changes.close_packs(connection, [pack_id])
        self._delete_stale_states()

    def split(self, pack_id: str) -> list[StoredPack]:
        """Two packs in the place of one that did not fit: half of its unended runs each, from where it was saved.

        None where fewer than two runs have not ended; the pack then stays as it is.
        """
        [pack] = self._select_packs(packs.c.id == pack_id)
        state = None if pack.step is None else self._load_state(self._pack_row(pack_id))
        with self._database.transaction() as connection:
            unsettled = select(runs.c.id).where(runs.c.pack == pack_id, ~runs.c.settled)
            going = set(connection.execute(unsettled).scalars())
            slots = [slot for slot, run in enumerate(pack.runs) if run in going]
            if len(slots) < 2:
                return []
            middle = -(-len(slots) // 2)
            parts = [self._start_split_pack(connection, pack, some, state) for some in (slots[:middle], slots[middle:])]
            changes.close_packs(connection, [pack_id])
        self._delete_stale_states()
        found = {part.id: part for part in self._select_packs(packs.c.id.in_(parts))}
        return [found[part] for part in parts]

    def _start_split_pack(
        self, connection: Connection, pack: StoredPack, slots: Sequence[int], state: Arrays | None
    ) -> str:
        members, share = [pack.runs[slot] for slot in slots], len(slots) / len(pack.runs)
        row: dict[str, Any] = {
            "id": digest_json(members)[:16], "members": members, "placement": asdict(pack.placement),
            "environment": list(pack.environment),
            "seconds": {name: spent * share for name, spent in pack.cost.seconds.items()},
        }  # fmt: skip
        if state is not None and pack.step is not None:
            path, identity = self._state_path(row["id"], pack.step), _state_identity(row["id"], members, pack.step)
            file = CheckpointFile(path, select_slots(state, slots, len(pack.runs)), identity)
            row |= {"step": pack.step, "digest": write_checkpoint(file, "the unsplit pack").digest}
        predicted = None if pack.predicted_bytes is None else round(pack.predicted_bytes * share)
        changes.insert_split_pack(connection, row, {"predicted": predicted, "counts": dict(pack.cost.counts)})
        return str(row["id"])

    # ---- going back ----

    def reset(self, run_ids: Sequence[str]) -> None:
        """Make runs planned again, without readings and checkpoints; `Busy` when one is being trained."""
        with self._lock_packs_of(run_ids) as pack_ids:
            with self._database.transaction() as connection:
                changes.reset_runs(connection, run_ids)
                changes.close_packs(connection, pack_ids)
            self._delete_files(run_ids)

    def restart(self, pack_id: str) -> None:
        """Reset the runs of a pack whose end is not in its saved state: the way out when that state is damaged."""
        unsettled = select(runs.c.id).where(runs.c.pack == pack_id, ~runs.c.settled)
        self.reset([row.id for row in self._database.fetch(unsettled)])

    def remove(self, study: str, run_ids: Sequence[str]) -> list[str]:
        """Take runs out of a study, and delete and return those that no other study holds; an empty study goes too."""
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
            self._delete_files(removed)
        return removed

    @contextmanager
    def _lock_packs_of(self, run_ids: Sequence[str]) -> Iterator[list[str]]:
        """The packs of these runs, none of which is being trained meanwhile."""
        statement = select(packs.c.id, packs.c.open).join_from(runs, packs, runs.c.pack == packs.c.id).distinct()
        batches = changes.batch_ids(run_ids)
        rows = [row for batch in batches for row in self._database.fetch(statement.where(runs.c.id.in_(batch)))]
        with ExitStack() as held:
            for pack_id in sorted({row.id for row in rows if row.open}):
                held.enter_context(self.lock(pack_id))
            yield sorted({row.id for row in rows})

    def _delete_files(self, run_ids: Sequence[str]) -> None:
        for run in run_ids:
            shutil.rmtree(self._checkpoints_folder / run, ignore_errors=True)
        self._delete_stale_states()

    def _delete_stale_states(self) -> None:
        """Give up states that no open pack needs, also those that a killed process left."""
        if not self._states_folder.exists():
            return
        with (
            self._database.transaction() as connection
        ):  # so that nobody is just splitting a pack: its parts come with files
            needed = set(connection.execute(select(packs.c.id).where(packs.c.open)).scalars())
            for folder in self._states_folder.iterdir():
                if folder.name not in needed:
                    shutil.rmtree(folder, ignore_errors=True)

    # ---- looking ----

    def studies(self) -> list[StoredStudy]:
        """All studies, the oldest first."""
        counts = (
            select(studies, runs.c.status, runs.c.pack, func.count().label("n"))
            .join_from(studies, study_runs, study_runs.c.study == studies.c.name)
            .join(runs, study_runs.c.run == runs.c.id)
            .group_by(studies.c.name, runs.c.status, runs.c.pack)
            .order_by(studies.c.created, studies.c.name, runs.c.status)
        )
        rows = self._database.fetch(counts)
        found = {row.name: row for row in rows}
        left = self._abandoned_packs()
        statuses: dict[str, Counter[RunStatus]] = {name: Counter() for name in found}
        for row in rows:
            statuses[row.name][_effective_status(row.status, row.pack, left)] += row.n
        return [_study_from_row(row, statuses[name]) for name, row in found.items()]

    def _abandoned_packs(self) -> set[str]:
        """Packs whose runs are marked as running although nobody trains them: their process was killed."""
        marked = self._database.fetch(select(runs.c.pack).where(runs.c.status == "running").distinct())
        return {row.pack for row in marked if not is_locked(self._lock_path(row.pack))}

    def study(self, name: str) -> StoredStudy:
        """The study of this name."""
        found = self.studies()
        for study in found:
            if study.name == name:
                return study
        known = ", ".join(study.name for study in found) or "none"
        raise MissingData(f"there is no study {name!r} in {self.home}; stored studies: {known}")

    def runs(self, study: str | None = None) -> list[StoredRun]:
        """The runs of a study in its order, or of all studies, each once."""
        statement = (
            select(runs)
            .join_from(study_runs, runs, study_runs.c.run == runs.c.id)
            .join(studies, study_runs.c.study == studies.c.name)
            .order_by(studies.c.created, studies.c.name, study_runs.c.position)
        )
        if study is not None:
            statement = statement.where(studies.c.name == self.study(study).name)
        return self._runs_from_rows({row.id: row for row in self._database.fetch(statement)}.values())

    def _runs_from_rows(self, rows: Iterable[AnyRow]) -> list[StoredRun]:
        left = self._abandoned_packs()
        return [replace(run, status=_effective_status(run.status, run.pack, left)) for run in map(run_from_row, rows)]

    def progress(self) -> dict[str, list[RunProgress]]:
        """How far the runs of every study have come, in the study's order; cheap enough to ask every second."""
        found: dict[str, list[RunProgress]] = {}
        columns = (study_runs.c.study, runs.c.id, runs.c.status, runs.c.step, runs.c.pack)
        ordered = select(*columns).join_from(study_runs, runs, study_runs.c.run == runs.c.id)
        left = self._abandoned_packs()
        for study, run, status, step, pack in self._database.fetch(ordered.order_by(study_runs.c.position)):
            found.setdefault(study, []).append(RunProgress(run, _effective_status(status, pack, left), step))
        return found

    def run(self, prefix: str) -> StoredRun:
        """The run with this id, or the only one whose id starts so."""
        return self._runs_from_rows([self._run_row(prefix)])[0]

    def _run_row(self, prefix: str) -> AnyRow:
        statement = select(runs).where(runs.c.id.startswith(prefix, autoescape=True)).order_by(runs.c.id).limit(4)
        rows = self._database.fetch(statement)
        if not rows:
            raise MissingData(f"there is no run {prefix!r} in {self.home}; `seedbed ls` shows the runs that are there")
        if len(rows) > 1 and rows[0].id != prefix:
            some = ", ".join(row.id for row in rows[:3])
            raise UsageError(
                f"{prefix!r} is the start of several runs ({some}{', …' * (len(rows) > 3)}); write more of the id"
            )
        return rows[0]

    def pack_members(self, pack_id: str) -> list[StoredRun]:
        """The runs of a pack by slot, also those that have been taken out of it since."""
        members = self._pack_row(pack_id).members
        batches = changes.batch_ids(members)
        rows = [row for batch in batches for row in self._database.fetch(select(runs).where(runs.c.id.in_(batch)))]
        found = {row.id: row for row in rows}
        return [run_from_row(found[run]) for run in members]

    def study_packs(self, study: str) -> list[StoredPack]:
        """The packs that runs of this study were or are trained in."""
        ids = (
            select(runs.c.pack)
            .join_from(study_runs, runs, study_runs.c.run == runs.c.id)
            .where(study_runs.c.study == study)
        )
        return self._select_packs(packs.c.id.in_(ids))

    def pack(self, pack_id: str) -> StoredPack:
        """The pack of this id."""
        self._pack_row(pack_id)
        return self._select_packs(packs.c.id == pack_id)[0]

    def _select_packs(self, wanted: ColumnElement[bool]) -> list[StoredPack]:
        rows = self._database.fetch(select(packs).where(wanted).order_by(packs.c.id))
        known = {}
        if self._database.has_table(costs):  # else a store of an older seedbed that is only read
            found = select(costs).join_from(costs, packs, costs.c.pack == packs.c.id).where(wanted)
            known = {row.pack: row for row in self._database.fetch(found)}
        return [pack_from_row(row, known.get(row.id)) for row in rows]

    def curves(self, run_ids: Sequence[str], names: Collection[str] | None = None) -> dict[str, dict[str, Curve]]:
        """Readings by run and name, all names or those given; a run without readings has no curves."""
        sets = {row.id: tuple(json.loads(row.names)) for row in self._database.fetch(select(schema.metric_names))}
        columns = (evaluations.c.run, evaluations.c.step, evaluations.c.names, evaluations.c.numbers)
        found: dict[str, dict[str, Curve]] = {run: {} for run in run_ids}
        for batch in changes.batch_ids(found):
            ordered = (
                select(*columns).where(evaluations.c.run.in_(batch)).order_by(evaluations.c.run, evaluations.c.step)
            )
            rows = ((run, step, sets[set_id], data) for run, step, set_id, data in self._database.fetch(ordered))
            found |= build_curves(rows, names)
        return found

    def samples(self, run_id: str) -> list[StoredSample]:
        """What a run wrote while it was trained, by step and number."""
        if not self._database.has_table(samples):  # a store of an older seedbed that is only read
            return []
        found = select(samples).where(samples.c.run == run_id).order_by(samples.c.step, samples.c.number)
        return [sample_from_row(row) for row in self._database.fetch(found)]

    def checkpoints(self, run_id: str) -> list[Checkpoint]:
        """The kept weights of a run, by step."""
        rows = self._database.fetch(select(checkpoints).where(checkpoints.c.run == run_id).order_by(checkpoints.c.step))
        return [Checkpoint(row.run, row.step, row.digest, row.bytes) for row in rows]

    def load_weights(self, run_id: str, step: int | Literal["last", "best"] = "last") -> Arrays:
        """Kept weights of a run, checked before they are used."""
        run, kept = self._run_row(run_id), self.find_checkpoint(run_id, step)
        return read_checkpoint(self._weights_path(run.id, kept.step), _weights_identity(run, kept.step), kept.digest)

    def find_checkpoint(self, run_id: str, step: int | Literal["last", "best"] = "last") -> Checkpoint:
        """The checkpoint that this step names."""
        run = self._run_row(run_id)
        kept = {each.step: each for each in self.checkpoints(run.id)}
        at = max(kept, default=None) if step == "last" else run.best if step == "best" else step
        if at not in kept:
            found = ", ".join(f"{each:,}" for each in kept) or "none"
            raise MissingData(f"run {run.id} has no kept weights for step {step}; steps with weights: {found}")
        return kept[at]

    # ---- places ----

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
                f"{error}; kept: all its readings and the weights of its runs; "
                "the same command with --restart trains these runs again from step 0"
            ) from error


def _effective_status(status: RunStatus, pack: str | None, left: Collection[str]) -> RunStatus:
    return "stopped" if status == "running" and pack in left else status


def _study_from_row(row: AnyRow, statuses: Mapping[RunStatus, int]) -> StoredStudy:
    return StoredStudy(row.name, row.text, tuple(row.axes), row.created, sum(statuses.values()), statuses)


def _weights_identity(run: AnyRow, step: int) -> CheckpointIdentity:
    return CheckpointIdentity("weights", run.id, step, digest_json({"seed": run.seed, "settings": run.settings}))


def _state_identity(pack_id: str, members: Sequence[str], step: int) -> CheckpointIdentity:
    return CheckpointIdentity("state", pack_id, step, digest_json(members))
