"""Where all parts meet: plan → pack → train → record.

    outcome = run_studies([plan], Path("lab"), Machine.here(), observer, stop=lambda: False)

Training yields events, the recorder makes records of them. Runs that are finished are left alone; the others go on in
the pack they started in, and a pack that does not fit into memory goes on as two.
"""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from seedbed import __version__
from seedbed.data.facts import facts_of
from seedbed.engines.choice import place, stacking
from seedbed.engines.local import Failed, Stop, Task, run_jobs
from seedbed.engines.machine import Machine as Machine
from seedbed.engines.machine import processor
from seedbed.errors import Busy
from seedbed.pricing import Timed, keep_rates, known_prices, placed, probe_undecided
from seedbed.recorder import Recorder as Recorder
from seedbed.records import Arrays, Cost, Event, Pack, Placement, Plan, Stepped, Stopped, StoredPack, StoredRun
from seedbed.settings import Settings
from seedbed.store.store import Store
from seedbed.study.pack import pack_runs


@dataclass(frozen=True)
class Job:
    """One pack's work, as it crosses to a worker."""

    settings: Sequence[Settings]
    seeds: Sequence[int]
    placement: Placement
    state: Arrays | None
    spent: Cost


def work(job: Job, stop: Stop) -> Iterator[Event]:
    """Trains a job's pack; torch is imported here, in the process that trains."""
    from seedbed.train.loop import train_pack

    return train_pack(job.settings, job.seeds, job.placement, job.state, job.spent, stop)


def compile_ahead(job: Job) -> None:
    """Does what a job's pack does first, its first record and update, and so leaves both in the compiler's caches."""
    for event in work(job, lambda: False):
        if isinstance(event, Stepped) and event.step > 0:
            return


class Observer(Protocol):
    """Is told what happens, to show it."""

    def say(self, text: str) -> None: ...

    def begin(self, packs: Sequence[WorkingPack]) -> None: ...

    def see(self, pack: WorkingPack, event: Event | Failed) -> None: ...

    def split(self, pack: WorkingPack, parts: Sequence[WorkingPack]) -> None: ...


@dataclass(frozen=True)
class WorkingPack:
    """A stored pack with its runs, as it is being trained."""

    stored: StoredPack
    runs: Sequence[StoredRun]

    @property
    def n_steps(self) -> int:
        return max(run.settings.n_steps(facts_of(run.settings.task)) for run in self.runs)

    @property
    def n_left(self) -> int | None:
        """Steps to go, where they are numbered: a budget of seconds has no number of them."""
        counted = all(run.settings.train.seconds is None for run in self.runs)
        return self.n_steps - (self.stored.step or 0) if counted else None


@dataclass
class Outcome:
    """How a study's runs stand after a command, by status; `busy` are packs that another process holds."""

    counts: Counter[str] = field(default_factory=Counter)
    stopped: bool = False
    busy: list[str] = field(default_factory=list)


def packs_of(plans: Sequence[Plan], machine: Machine, ended: Callable[[str], bool] = lambda _: False) -> list[Pack]:
    """How the runs that have not ended would be packed on this machine, stacked only as far as is known to pay.

    Runs of several plans share packs, and what is in more than one of them is there once.
    """
    wanted = {run.id: run for plan in plans for run in plan.runs}
    runs = [run for run in wanted.values() if not ended(run.id)]
    return pack_runs(runs, machine.room(stacking(runs, machine, known_prices(machine.device))))


def run_studies(
    plans: Sequence[Plan], home: Path, machine: Machine, observer: Observer, stop: Stop, began: float | None = None
) -> Outcome:
    """Trains every run of the plans that is not in the store yet; `began`: when the command did, on `perf_counter`."""
    began = time.perf_counter() if began is None else began
    with Store.open(home) as store, ExitStack() as held:
        for plan in plans:
            store.register(plan)
        wanted = {run.id: run for plan in plans for run in plan.runs}
        status = {run.id: run.status for run in store.runs() if run.id in wanted}
        fresh = [run for run in wanted.values() if status[run.id] == "planned"]
        began += probe_undecided(fresh, machine, observer.say, stop)
        due = packs_of(plans, machine, lambda run: status[run] in ("finished", "diverged"))
        machine = machine.fitted(due)
        packs = placed(due, machine)
        prices, n_packs = known_prices(machine.device), len(packs)
        training = _Training(store, held, machine, observer)
        training.take_up(store.claim([pack for pack, _ in packs], lambda pack: place(pack, n_packs, machine, prices)))
        training.run(stop)
        outcome = training.outcome
        outcome.counts = Counter(run.status for run in store.runs() if run.id in wanted)
        keep_rates(training.timed(), machine, None if outcome.stopped else time.perf_counter() - began)
        return outcome


class _Training:
    """The packs that a command trains, each with its lock, its recorder and its place in the queue."""

    def __init__(self, store: Store, held: ExitStack, machine: Machine, observer: Observer) -> None:
        self._store, self._held, self._machine, self._observer = store, held, machine, observer
        self._packs: list[WorkingPack] = []  # by the number of their task
        self._tasks: list[Task] = []
        self._recorders: dict[str, Recorder] = {}
        self.outcome = Outcome()

    def take_up(self, packs: Sequence[StoredPack]) -> None:
        """Puts packs into the queue, but those that another process is training."""
        self._observer.begin([pack for stored in packs if (pack := self._hold(stored)) is not None])

    def _hold(self, stored: StoredPack) -> WorkingPack | None:
        try:
            self._held.enter_context(self._store.lock(stored.id))
        except Busy as busy:
            self.outcome.busy.append(str(busy))
            return None
        pack = WorkingPack(stored, self._store.members(stored.id))
        self._queue(pack, stored.placement.alone)
        return pack

    def _queue(self, pack: WorkingPack, alone: bool) -> None:
        self._recorders[pack.stored.id] = Recorder(self._store, pack.stored.id)
        self._packs.append(pack)
        self._tasks.append(Task(lambda: self._prepare(pack), alone, _ahead(pack), pack.n_left))

    def _prepare(self, pack: WorkingPack) -> Job:
        saved = self._store.resume(pack.stored.id, environment(pack.stored.placement))
        state, spent = (None, Cost()) if saved is None else (saved[1], self._store.pack(pack.stored.id).cost)
        return _job(pack, state, spent)

    def run(self, stop: Stop) -> None:
        """Trains all packs, and closes those that came to their end."""
        run_jobs(self._tasks, work, self._on_event, self._n_workers(), stop, self._machine.n_lanes)
        self.outcome.stopped |= stop()
        for recorder in self._recorders.values():
            recorder.close()

    def _n_workers(self) -> int:
        """As many as were asked for now, or as the packs that go on were begun with."""
        begun = [pack.stored.placement.workers for pack in self._packs if not pack.stored.placement.alone]
        if self._machine.workers_asked or self._machine.device != "cpu" or not all(begun):
            return self._machine.n_workers
        return max(begun, default=1)

    def _on_event(self, number: int, event: Event | Failed) -> None:
        pack = self._packs[number]
        if isinstance(event, Failed) and event.no_memory:
            if self._goes_on_otherwise(number):
                return
            event = replace(event, cause=_too_large(pack, event.cause))
        self._recorders[pack.stored.id].take(event)
        self._observer.see(pack, event)
        self.outcome.stopped |= isinstance(event, Stopped)

    def _goes_on_otherwise(self, number: int) -> bool:
        """Whether there is another way for a pack that did not fit: in two parts, or with nothing beside it."""
        pack = self._packs[number]
        if parts := self._recorders[pack.stored.id].split():
            del self._recorders[pack.stored.id]
            self._observer.split(pack, [held for part in parts if (held := self._hold(part)) is not None])
            return True
        if len(self._tasks) > 1 and not self._tasks[number].alone:
            self._queue(pack, alone=True)
            return True
        return False

    def timed(self) -> list[Timed]:
        """What the packs have cost, as far as it was told."""
        packs = {pack.stored.id: pack for pack in self._packs}
        costs = {name: recorder.cost for name, recorder in self._recorders.items() if recorder.cost.counts}
        return [
            Timed(packs[name].runs, packs[name].stored.placement, cost, packs[name].stored.cost)
            for name, cost in costs.items()
        ]


def _job(pack: WorkingPack, state: Arrays | None, spent: Cost) -> Job:
    settings, seeds = [run.settings for run in pack.runs], [run.seed for run in pack.runs]
    return Job(settings, seeds, pack.stored.placement, state, spent)


def _ahead(pack: WorkingPack) -> Callable[[], None] | None:
    """What can be done for a pack before its turn comes: on a GPU, compiling, during which its lanes would all wait."""
    placement = pack.stored.placement
    compiles = placement.device == "cuda" and placement.engine == "compiled"
    return partial(compile_ahead, _job(pack, None, Cost())) if compiles else None


def _too_large(pack: WorkingPack, cause: str) -> str:
    predicted = "" if pack.stored.bytes is None else f" (predicted: {pack.stored.bytes / 2**20:,.0f} MiB)"
    return (
        f"one run of it alone does not fit into memory{predicted}: {cause}; "
        "make train.batch_size, task.length or the model smaller, or use a larger machine"
    )


def environment(placement: Placement) -> dict[str, str]:
    """What the last bits of a result may depend on."""
    packages = {"seedbed": __version__} | {name: version(name) for name in ("torch", "numpy")}
    machine = {"python": platform.python_version(), "system": platform.platform(), "processor": processor()}
    return packages | machine | {"device": placement.device, "threads": str(placement.threads)}
