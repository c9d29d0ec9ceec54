"""Runs studies end to end: plan → pack → train → record.

    outcome = run_studies([plan], Path("lab"), Machine.detect(), observer, should_stop=lambda: False)

Training yields events, which the recorder writes to the store: in this process or, on machines that share the store, in
the worker that trains (`record_pack_job`), under a grant of this process, which holds the pack. Finished runs are left
unchanged; the others resume in the pack they started in. A pack is split in two if it does not fit into memory, or if
only some of its runs are wanted.
"""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from seedbed import __version__
from seedbed.engines import find_engine
from seedbed.engines.base import REMOTE_PROGRESS_SECONDS, DropJob, JobFailure, QueuedJob, ShouldStop
from seedbed.engines.cost_estimator import CostEstimator
from seedbed.engines.machine import Machine as Machine
from seedbed.engines.machine import describe_lack_of_memory, gpu_name, processor_name
from seedbed.engines.placement import choose_placement, max_runs_by_shape
from seedbed.errors import Busy, MissingData, StoreError
from seedbed.estimates import (
    PackTiming,
    load_estimator,
    place_packs,
    probe_candidates,
    remaining_seconds,
    save_rates,
)
from seedbed.format import format_changes
from seedbed.recorder import BackgroundRecorder
from seedbed.recorder import Recorder as Recorder
from seedbed.records import (
    ENDED_STATUSES,
    Arrays,
    CheckpointEvent,
    Cost,
    DivergenceEvent,
    EndEvent,
    EvaluationEvent,
    Event,
    FinishEvent,
    Pack,
    Placement,
    Plan,
    Run,
    SampleEvent,
    StepEvent,
    StopEvent,
    StoredPack,
    StoredRun,
)
from seedbed.settings import Settings
from seedbed.store import Grant, Store, join_store, open_store, store_exists
from seedbed.study.pack import pack_runs
from seedbed.study.run_data import at_planned_paths, match_moved_corpora

MAX_LOSSES = 3  # of a pack's workers since its last checkpoint, before the pack itself is taken for the cause


@dataclass(frozen=True)
class PackJob:
    """All that a worker process needs to train one pack."""

    settings: Sequence[Settings]
    seeds: Sequence[int]
    placement: Placement
    state: Arrays | None
    previous_cost: Cost
    until: int | None = None  # the step to stop at, before the end
    dataset: str | None = None  # the digest of what is to be trained on, where it was recorded
    fault: str = ""  # why it cannot be trained, which fails this pack alone
    taken: bool = False  # another command trains it, or has trained it
    store: str = field(default="", repr=False)  # the address to which the worker writes
    grant: Grant | None = None  # with which it does; None: it yields everything to the process that holds the pack


def run_pack_job(job: PackJob, should_stop: ShouldStop) -> Iterator[Event]:
    """Trains a job's pack; torch is imported here, in the process that trains."""
    from seedbed.training.loop import train_pack

    if job.taken:
        yield EndEvent()
        return
    if job.fault:
        raise StoreError(job.fault)
    task = job.settings[0].task
    if job.dataset is not None and task.has_corpus and task.dataset_info().digest != job.dataset:
        raise MissingData(f"{task.corpus} on {platform.node()} is not the text that was planned; put that text there")
    yield from train_pack(job.settings, job.seeds, job.placement, job.state, job.previous_cost, should_stop, job.until)
    yield EndEvent()


def record_pack_job(job: PackJob, should_stop: ShouldStop) -> Iterator[Event]:
    """Trains a job's pack and writes to the store; yields what the process that holds the pack should hear of.

    That is the progress, for display, and how the training ends, after everything is committed.
    """
    if job.grant is None:
        yield from run_pack_job(job, should_stop)
        return
    store, last_evaluation, finished = join_store(job.store), 0.0, list[Event]()
    with store.write_under(job.grant):
        recorder = BackgroundRecorder(store, job.grant.pack_id)
        try:
            for event in run_pack_job(job, should_stop):
                if isinstance(event, EndEvent):
                    recorder.close()
                else:
                    recorder.record(event)
                match event:
                    case EvaluationEvent():
                        if time.monotonic() - last_evaluation > REMOTE_PROGRESS_SECONDS:
                            last_evaluation = time.monotonic()
                            yield event
                    case CheckpointEvent():
                        yield CheckpointEvent(event.step, {}, {})
                    case FinishEvent():  # a pack has many at its end; of interest only if another run diverges later
                        finished.append(event)
                    case DivergenceEvent():
                        yield from (*finished, event)
                        finished.clear()
                    case SampleEvent():
                        pass
                    case _:
                        yield event
        except Exception as error:
            with suppress(Exception):
                recorder.close()
            if isinstance(error, StoreError):
                raise StoreError(f"on {platform.node()}: {error}") from error
            raise


def precompile_pack(job: PackJob) -> None:
    """Runs a pack's first evaluation and update, which leaves both in the compiler's caches."""
    for event in run_pack_job(job, lambda: False):
        if isinstance(event, StepEvent) and event.step > 0:
            return


class ProgressObserver(Protocol):
    """Receives the progress of training, to display it."""

    def report(self, text: str) -> None: ...

    def on_start(self, packs: Sequence[ActivePack]) -> None: ...

    def on_event(self, pack: ActivePack, event: Event | JobFailure) -> None: ...

    def on_split(self, pack: ActivePack, parts: Sequence[ActivePack]) -> None: ...


class SilentObserver(ProgressObserver):
    """Displays nothing."""


@dataclass(frozen=True)
class ActivePack:
    """A stored pack with its runs, while it is being trained."""

    stored: StoredPack
    runs: Sequence[StoredRun]
    until: int | None = None
    estimated_seconds: float | None = None  # of what is left to train when the command starts

    @property
    def n_steps(self) -> int:
        """The step at which its training ends in this command."""
        n_steps = max(run.settings.n_steps(run.settings.task.dataset_info()) for run in self.runs)
        return n_steps if self.until is None else min(n_steps, self.until)

    @property
    def n_remaining_steps(self) -> int | None:
        """Steps left to train; None with a time budget, which has no number of steps."""
        has_step_budget = self.until is not None or all(run.settings.train.seconds is None for run in self.runs)
        return max(0, self.n_steps - (self.stored.step or 0)) if has_step_budget else None


@dataclass
class StudyOutcome:
    """Number of runs by status after a command; `busy_packs`: who trains each pack that is locked."""

    store_address: str
    counts: Counter[str] = field(default_factory=Counter)
    stopped: bool = False
    out_of_memory: bool = False  # of a single run
    busy_packs: list[str] = field(default_factory=list)


def pack_plans(
    plans: Sequence[Plan], machine: Machine, is_ended: Callable[[str], bool] = lambda _: False
) -> list[Pack]:
    """Packs of the runs that have not ended, for this machine; not stacked where that was measured to be slower.

    OutOfResources if the machine has too little memory for a run.

    Runs of several plans share packs; a run that is in more than one plan is packed once.
    """
    planned = {run.id: run for plan in plans for run in plan.runs}
    runs = [run for run in planned.values() if not is_ended(run.id)]
    packs = pack_runs(runs, machine.capacity(max_runs_by_shape(runs, machine, load_estimator(machine.device))))
    for pack in packs:
        machine.check_memory(pack)
    return packs


def match_stored_runs(plans: Sequence[Plan], home: Path) -> tuple[list[Plan], list[str]]:
    """The plans with the ids of stored runs whose text has only moved, and a sentence about each such text."""
    if not store_exists(home):
        return list(plans), []
    try:
        with open_store(home, read_only=True) as store:
            stored = store.runs()
    except StoreError:  # training upgrades an older store, and reports one that it cannot use
        return list(plans), []
    matched = [match_moved_corpora(plan, stored) for plan in plans]
    return [plan for plan, _ in matched], [sentence for _, sentences in matched for sentence in sentences]


def run_studies(
    plans: Sequence[Plan],
    home: Path,
    machine: Machine,
    observer: ProgressObserver,
    should_stop: ShouldStop,
    start_time: float | None = None,
    until: int | None = None,
) -> StudyOutcome:
    """Trains every run of the plans that has not ended yet, and no other, to its end or to step `until`.

    `start_time`: `perf_counter()` when the command began.
    """
    start_time = time.perf_counter() if start_time is None else start_time
    with open_store(home) as store, ExitStack() as locks:
        ended = {run.id for run in store.runs() if run.status in ENDED_STATUSES}
        pack_plans(plans, machine, ended.__contains__)  # refuses what does not fit before anything is stored
        for plan in plans:
            store.register(plan)
            _save_vocabularies(store, plan)
        planned = {run.id: run for plan in plans for run in plan.runs}
        stored = {run.id: run for run in _stored_runs(store, plans)}
        for run_id in planned.keys() - stored.keys():
            store.run(run_id)  # says why it cannot be read
        settled = store.settled_runs()
        new_runs = [run for run in planned.values() if stored[run.id].pack is None]  # others have their placement
        if machine.engine == "local":  # the time of probes is not part of the startup time
            start_time += probe_candidates(new_runs, machine, observer.report, should_stop)
        packs = pack_plans(plans, machine, lambda run: run in settled)
        machine = machine.fit_slots(packs)
        ordered = [pack for pack, _ in place_packs(packs, machine)]
        estimator, n_packs = load_estimator(machine.device), len(packs)
        runner = _StudyRunner(store, locks, machine, estimator, observer, planned, until)
        # Runs that were begun stay in their stored pack and placement, so what is claimed may differ from `ordered`.
        runner.enqueue_packs(store.claim(ordered, lambda pack: choose_placement(pack, n_packs, machine, estimator)))
        runner.run(should_stop)
        outcome = runner.outcome
        outcome.counts = Counter(run.status for run in _stored_runs(store, plans))
        if machine.engine == "local":  # rates are those of this machine
            save_rates(runner.pack_timings(), machine, None if outcome.stopped else time.perf_counter() - start_time)
        return outcome


def _stored_runs(store: Store, plans: Sequence[Plan]) -> Iterable[StoredRun]:
    """The stored runs of these plans that can be read."""
    planned = {run.id for plan in plans for run in plan.runs}
    stored = [run for plan in plans for run in store.runs(plan.study, skip_unreadable=True)]
    return {run.id: run for run in stored if run.id in planned}.values()


def _save_vocabularies(store: Store, plan: Plan) -> None:
    """Keeps what the runs of a plan need to be used without their corpora."""
    tasks = {run.dataset_info.digest: run.settings.task for run in plan.runs if run.dataset_info is not None}
    for dataset, task in tasks.items():
        if (vocabulary := task.dataset_vocabulary()) is not None:
            store.save_vocabulary(dataset, vocabulary)


class _StudyRunner:
    """The packs that a command trains, each with its lock, recorder and queued job."""

    def __init__(
        self,
        store: Store,
        locks: ExitStack,
        machine: Machine,
        estimator: CostEstimator,
        observer: ProgressObserver,
        planned: Mapping[str, Run],
        until: int | None,
    ) -> None:
        self._store, self._locks, self._machine, self._observer = store, locks, machine, observer
        self._estimator, self._planned, self._until = estimator, planned, until
        self._packs: list[ActivePack] = []  # by job index
        self._jobs: list[QueuedJob] = []
        self._recorders: dict[str, Recorder] = {}
        self._ended: list[Recorder] = []  # of packs that are trained, but whose last files may still be being written
        self._leases: dict[str, ExitStack] = {}  # of the packs being trained, where several commands share a study
        self._workers_write = store.shares_packs and find_engine(machine.engine).has_remote_workers
        self._losses: dict[str, list[int | None]] = {}  # by pack: where it went on from when its worker was lost
        self._reported: set[str] = set()
        self.outcome = StudyOutcome(store.address)

    def enqueue_packs(self, packs: Sequence[StoredPack]) -> None:
        """Queues packs, except those that another process is training."""
        self._observer.on_start([pack for stored in packs if (pack := self._lock_and_enqueue(stored)) is not None])

    def _lock(self, pack_id: str) -> ExitStack | None:
        """The lock on a pack, released with the command or by its `close`; None if another process holds it."""
        lock = ExitStack()
        try:
            lock.enter_context(self._store.lock(pack_id))
        except Busy as busy:
            self.outcome.busy_packs.append(busy.holder)
            return None
        self._locks.callback(lock.close)
        return lock

    def _lock_and_enqueue(self, stored: StoredPack) -> ActivePack | None:
        if (lock := self._lock(stored.id)) is None:
            return None
        pack = self._enqueue_locked(stored)
        if self._store.shares_packs:
            lock.close()
        return pack

    def _enqueue_locked(self, stored: StoredPack) -> ActivePack | None:
        members = at_planned_paths(self._store.pack_members(stored.id), self._planned)
        pack = ActivePack(stored, members, self._until)
        if self._until is not None and (stored.step or 0) >= self._until:
            return None
        if self._has_other_runs(pack) and (parts := self._store.split(stored.id, self._planned)):
            return self._lock_and_enqueue(parts[0])
        pack = replace(pack, estimated_seconds=self._estimate_seconds(pack))
        self._enqueue(pack, stored.placement.exclusive)
        return pack

    def _estimate_seconds(self, pack: ActivePack) -> float:
        """Estimated seconds of a pack up to the step at which its training ends in this command."""
        whole, n_remaining = replace(pack, until=None).n_remaining_steps, pack.n_remaining_steps
        share = n_remaining / whole if whole and n_remaining is not None else 1.0
        return share * remaining_seconds(pack.stored, pack.runs, self._estimator)

    def _has_other_runs(self, pack: ActivePack) -> bool:
        """Whether a stored pack has unended runs that this command is not to train."""
        others = [run for run in pack.runs if run.id not in self._planned and run.pack == pack.stored.id]
        return any(run.status not in ENDED_STATUSES for run in others)

    def _enqueue(self, pack: ActivePack, exclusive: bool) -> None:
        self._recorders[pack.stored.id] = Recorder(self._store, pack.stored.id)
        self._packs.append(pack)
        job = QueuedJob(
            prepare=lambda device: self._prepare_job(pack, device),
            exclusive=exclusive,
            precompile=_precompile_function(pack),
            n_time_slices=pack.n_remaining_steps,
            threads=pack.stored.placement.threads,
            bytes=pack.stored.predicted_bytes or 0,
        )
        if self._machine.gpus:
            job = replace(job, seconds=pack.estimated_seconds or 0.0, device=last_device(pack.stored))
        self._jobs.append(job)

    def _prepare_job(self, pack: ActivePack, device: str | None) -> PackJob:
        if not self._store.shares_packs:
            return self._resume_pack(pack, device)
        try:
            if (current := self._take(pack)) is not None:
                job = self._resume_pack(current, device)
                if self._workers_write and not job.fault:
                    return replace(job, store=self._store.shared_address, grant=self._store.grant(pack.stored.id))
                return job
        except Busy as busy:
            self._give_up(pack.stored.id, busy)
        return replace(_make_job(pack, None, Cost()), taken=True)

    def _resume_pack(self, pack: ActivePack, device: str | None) -> PackJob:
        """The job of a pack that this process holds, from its last checkpoint."""
        environment, before = describe_environment(pack.stored.placement, device), pack.stored.step
        try:
            resumed = self._store.resume(pack.stored.id, environment)
        except StoreError as error:  # damage to this pack; the others are trained
            self._observer.report(str(error))
            return replace(_make_job(pack, None, Cost()), fault=f"it cannot go on: {error}")
        if resumed is None:
            return _make_job(pack, None, Cost())
        step, state = resumed
        if before is not None and step < before:
            self._report_once(
                f"the state of a pack of {len(pack.runs)} runs at step {before:,} is damaged: they go on from "
                f"step {step:,}, where the state before it was saved"
            )
        if changes := describe_changes(pack.stored, environment):
            self._report_once(
                f"runs go on with {changes}: from here on their numbers may differ in the last bits from those of "
                "runs without a break; the report says from which step"
            )
        return _make_job(pack, state, self._store.pack(pack.stored.id).cost)

    def _take(self, pack: ActivePack) -> ActivePack | None:
        """A shared pack as it is now, held by this command; None if another one trains it or has trained it."""
        if pack.stored.id in self._leases:
            return replace(pack, stored=self._store.pack(pack.stored.id))
        if (lock := self._lock(pack.stored.id)) is None:
            return None
        try:
            members = self._store.pack_members(pack.stored.id)
        except MissingData:  # split by another command
            members = []
        if all(run.pack != pack.stored.id or run.status in ("finished", "diverged") for run in members):
            lock.close()
            return None
        self._leases[pack.stored.id] = lock
        return replace(pack, stored=self._store.pack(pack.stored.id))

    def _report_once(self, sentence: str) -> None:
        if sentence not in self._reported:
            self._reported.add(sentence)
            self._observer.report(sentence)

    def run(self, should_stop: ShouldStop) -> None:
        """Trains all packs and closes their recorders."""
        engine = find_engine(self._machine.engine)(self._machine.resources(self._n_workers()))
        engine.report = self._observer.report
        if self._workers_write:
            engine.check_worker = partial(join_store, self._store.shared_address)
        run_job = record_pack_job if self._workers_write else run_pack_job
        engine.run(self._jobs, run_job, self._on_event, should_stop)
        self.outcome.stopped |= should_stop()
        for recorder in list(self._recorders.values()):
            self._close(recorder)

    def _n_workers(self) -> int:
        """The requested number of worker processes, or else the number that the packs were started with."""
        stored = [pack.stored.placement.workers for pack in self._packs if not pack.stored.placement.exclusive]
        if self._machine.workers_requested or self._machine.device != "cpu" or not all(stored):  # 0: not known
            return self._machine.n_workers
        return max(stored, default=1)

    def _on_event(self, job_index: int, event: Event | JobFailure) -> None:
        self._close_ended()
        try:
            self._handle_event(job_index, event)
        except Busy as busy:
            if not self._store.shares_packs:
                raise
            self._give_up(self._packs[job_index].stored.id, busy)
            if not isinstance(event, EndEvent | JobFailure):
                raise DropJob from None

    def _handle_event(self, job_index: int, event: Event | JobFailure) -> None:
        pack, is_recorded = self._packs[job_index], self._workers_write and not isinstance(event, JobFailure)
        if (recorder := self._recorders.get(pack.stored.id)) is None:  # given up while it was prepared
            return
        if isinstance(event, EndEvent):
            self._ended.append(recorder)
            return
        if self._workers_write and isinstance(event, JobFailure) and pack.stored.id in self._leases:
            self._store.grant(pack.stored.id)  # from here on the worker is refused, wherever it is
        if isinstance(event, JobFailure) and event.worker_lost and not (event.stopped or event.out_of_memory):
            if self._resume_elsewhere(job_index, event):
                return
            event = replace(event, out_of_memory=True)  # the kernel ends processes that take too much without a word
        if isinstance(event, JobFailure) and event.stopped:
            event = StopEvent(pack.stored.step or 0)  # without a save of its own: it goes on from the one before
        if isinstance(event, JobFailure) and event.out_of_memory:
            if self._retry_with_less_memory(job_index):
                return
            event = replace(event, cause=describe_lack_of_memory(pack.stored.predicted_bytes, event.cause))
            self.outcome.out_of_memory = True
        if is_recorded and not isinstance(event, JobFailure):
            recorder.note(event)
        else:
            recorder.record(event)
        self._observer.on_event(pack, event)
        self.outcome.stopped |= isinstance(event, StopEvent) and event.step != self._until

    def _close_ended(self) -> None:
        """Marks packs as finished once their files are written, so that a study of many packs keeps none in memory."""
        for recorder in [each for each in self._ended if not each.is_writing]:
            self._ended.remove(recorder)
            self._close(recorder)

    def _close(self, recorder: Recorder) -> None:
        """Closes a recorder, and gives back the lease of its pack."""
        try:
            recorder.close()
        except Busy as busy:
            if not self._store.shares_packs:
                raise
            self._give_up(recorder.pack_id, busy)
        if (lease := self._leases.pop(recorder.pack_id, None)) is not None:
            lease.close()

    def _give_up(self, pack_id: str, busy: Busy) -> None:
        """Writes nothing more to a pack that another process has taken over; the others go on."""
        if (recorder := self._recorders.pop(pack_id, None)) is not None:
            recorder.abandon()
        if (lease := self._leases.pop(pack_id, None)) is not None:
            lease.close()
        self.outcome.busy_packs.append(busy.holder)
        self._observer.report(f"{busy}; the other packs go on")

    def _resume_elsewhere(self, job_index: int, failure: JobFailure) -> bool:
        """Requeues a pack whose worker was lost, from its last checkpoint; False if that has happened too often."""
        pack = self._packs[job_index]
        self._recorders[pack.stored.id].close_unfinished()
        stored, losses = self._store.pack(pack.stored.id), self._losses.setdefault(pack.stored.id, [])
        if not failure.preempted:
            losses.append(stored.step)
        if losses.count(stored.step) >= MAX_LOSSES:
            return False
        start = "the start" if stored.step is None else f"step {stored.step:,}"
        self._observer.report(f"a pack of {len(pack.runs)} runs goes on from {start}: {failure.cause}")
        self._enqueue(replace(pack, stored=stored), self._jobs[job_index].exclusive)
        return True

    def _retry_with_less_memory(self, job_index: int) -> bool:
        """Requeues a pack that did not fit, split in two or else exclusively; returns whether that was possible."""
        pack = self._packs[job_index]
        if parts := self._recorders[pack.stored.id].split():
            del self._recorders[pack.stored.id]
            active = [part for stored in parts if (part := self._lock_and_enqueue(stored)) is not None]
            self._observer.on_split(pack, active)
            return True
        if len(self._jobs) > 1 and not self._jobs[job_index].exclusive:
            self._enqueue(pack, exclusive=True)
            return True
        return False

    def pack_timings(self) -> list[PackTiming]:
        """The costs of the packs that have reported one."""
        packs = {pack.stored.id: pack for pack in self._packs}
        costs = {pack_id: recorder.cost for pack_id, recorder in self._recorders.items() if recorder.cost.counts}
        return [
            PackTiming(packs[pack_id].runs, packs[pack_id].stored.placement, cost, packs[pack_id].stored.cost)
            for pack_id, cost in costs.items()
        ]


def _make_job(pack: ActivePack, state: Arrays | None, previous_cost: Cost) -> PackJob:
    settings, seeds = [run.settings for run in pack.runs], [run.seed for run in pack.runs]
    # A process sees only its own GPU, as `cuda`: a pack of a GPU that is gone continues on any other.
    placement = replace(pack.stored.placement, device=pack.stored.placement.device.partition(":")[0])
    dataset = info.digest if (info := pack.runs[0].dataset_info) is not None else None
    return PackJob(settings, seeds, placement, state, previous_cost, pack.until, dataset)


def last_device(pack: StoredPack) -> str | None:
    """The device on which a pack was trained up to its saved state; None for a pack that starts anew."""
    return str(pack.environment[-1]["device"]) if pack.step is not None and pack.environment else None


def _precompile_function(pack: ActivePack) -> Callable[[], None] | None:
    """Compiles a pack for a GPU in another process, since compiling here would block all slots; None if not needed."""
    placement = pack.stored.placement
    compiles = placement.device != "cpu" and placement.mode == "compiled"
    return partial(precompile_pack, _make_job(pack, None, Cost())) if compiles else None


def describe_changes(pack: StoredPack, environment: Mapping[str, str]) -> str:
    """`torch 2.14.0 instead of 2.13.0`: what differs from the environment in which a pack was last trained."""
    return format_changes(pack.environment[-1], environment) if pack.environment else ""


def describe_environment(placement: Placement, device: str | None = None) -> dict[str, str]:
    """Versions and hardware that the last bits of a result may depend on; `device`: which GPU, if there are several."""
    packages = {"seedbed": __version__} | {name: version(name) for name in ("torch", "numpy")}
    machine = {"python": platform.python_version(), "system": platform.platform(), "processor": processor_name()}
    gpu = {} if placement.device == "cpu" else {"gpu": gpu_name()}
    return packages | machine | gpu | {"device": device or placement.device, "threads": str(placement.threads)}
