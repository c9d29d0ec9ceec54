"""Where all parts meet: plan → pack → train → record.

    outcome = run_study(plan, Path("lab"), Machine.here(), observer, stop=lambda: False)

Training yields events, here they become records: readings first, then the checkpoint that follows them. Runs that are
finished are left alone; the others go on in the pack they started in.
"""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from seedbed import __version__
from seedbed.data.facts import facts_of
from seedbed.engines.local import Failed, Stop, find_device, n_cores, run_jobs
from seedbed.errors import Busy
from seedbed.records import (
    Arrays,
    Diverged,
    Evaluated,
    Event,
    Finished,
    Pack,
    Placement,
    Plan,
    Sampled,
    Saved,
    Stopped,
    StoredPack,
    StoredRun,
)
from seedbed.settings import Settings
from seedbed.store.store import Store
from seedbed.study.pack import Room, pack_runs

FLUSH = 0.5  # seconds that readings may wait before they are committed together
CPU_PACK = 24 * 2**20  # bytes; beyond the cache, stacking on a CPU gains nothing (docs/log.md)
GPU_PACK = 16 * 2**30
GPU_LANES = 6  # packs that share a GPU at a time, each on its own stream
WORTH_COMPILING = 100_000  # model-steps of a pack that earn back some 15 s of compiling (docs/log.md)


@dataclass(frozen=True)
class Machine:
    """What this machine offers a study."""

    device: str
    n_workers: int
    engine: str | None = None  # None: chosen for each pack

    @classmethod
    def here(cls, device: str | None = None, n_workers: int | None = None, engine: str | None = None) -> Machine:
        """This machine, as found or as asked for; a GPU has one worker, a CPU one for each core."""
        device = device or find_device()
        return cls(device, n_workers or (n_cores() if device == "cpu" else 1), engine)

    def room(self) -> Room:
        if self.device == "cpu":
            return Room(max_bytes=CPU_PACK, max_runs=64, min_packs=self.n_workers)
        return Room(max_bytes=GPU_PACK, max_runs=512, min_packs=1)

    def placement(self, pack: Pack, n_packs: int) -> Placement:
        """Single-threaded workers when there are packs for all of them; else a pack may use the idle cores."""
        threads = max(1, n_cores() // min(self.n_workers, max(1, n_packs))) if self.device == "cpu" else 1
        return Placement(device=self.device, threads=threads, engine=self.engine or self._engine(pack))

    def _engine(self, pack: Pack) -> str:
        """On a GPU the whole update is one graph, compiled first where the pack is long and wide enough to pay."""
        if self.device == "cpu":
            return "plain"
        n_model_steps = sum(run.settings.n_steps(run.facts) for run in pack.runs)
        return "compiled" if n_model_steps >= WORTH_COMPILING else "graph"


@dataclass(frozen=True)
class Job:
    """One pack's work, as it crosses to a worker."""

    settings: Sequence[Settings]
    seeds: Sequence[int]
    placement: Placement
    state: Arrays | None
    seconds: Mapping[str, float]


def work(job: Job, stop: Stop) -> Iterator[Event]:
    """Trains a job's pack; torch is imported here, in the process that trains."""
    from seedbed.train.loop import train_pack

    return train_pack(job.settings, job.seeds, job.placement, job.state, dict(job.seconds), stop)


class Observer(Protocol):
    """Is told what happens, to show it."""

    def begin(self, packs: Sequence[WorkingPack]) -> None: ...

    def see(self, pack: WorkingPack, event: Event | Failed) -> None: ...


@dataclass(frozen=True)
class WorkingPack:
    """A stored pack with its runs, as it is being trained."""

    stored: StoredPack
    runs: Sequence[StoredRun]

    @property
    def n_steps(self) -> int:
        return max(run.settings.n_steps(facts_of(run.settings.task)) for run in self.runs)


@dataclass
class Outcome:
    """How a study's runs stand after a command, by status; `busy` are packs that another process holds."""

    counts: Mapping[str, int] = field(default_factory=dict)
    stopped: bool = False
    busy: list[str] = field(default_factory=list)


def packs_of(plan: Plan, machine: Machine, ended: Callable[[str], bool] = lambda _: False) -> list[Pack]:
    """How the runs that have not ended would be packed on this machine."""
    return pack_runs([run for run in plan.runs if not ended(run.id)], machine.room())


def run_study(plan: Plan, home: Path, machine: Machine, observer: Observer, stop: Stop) -> Outcome:
    """Trains every run of the plan that is not in the store yet."""
    with Store.open(home) as store, ExitStack() as held:
        store.register(plan)
        status = {run.id: run.status for run in store.runs(plan.study)}
        packs = packs_of(plan, machine, lambda run: status[run] in ("finished", "diverged"))
        outcome = Outcome()
        mine = list(_hold(store, store.claim(packs, lambda pack: machine.placement(pack, len(packs))), held, outcome))
        observer.begin(mine)
        recorders = [Recorder(store, pack.stored.id) for pack in mine]

        def on_event(number: int, event: Event | Failed) -> None:
            recorders[number].take(event)
            observer.see(mine[number], event)
            outcome.stopped |= isinstance(event, Stopped)

        n_lanes = 1 if machine.device == "cpu" else GPU_LANES
        run_jobs([_preparing(store, pack) for pack in mine], work, on_event, machine.n_workers, stop, n_lanes)
        outcome.stopped |= stop()
        for recorder in recorders:
            recorder.close()
        wanted = {run.id for run in plan.runs}
        outcome.counts = Counter(run.status for run in store.runs(plan.study) if run.id in wanted)
        return outcome


def _hold(store: Store, packs: Sequence[StoredPack], held: ExitStack, outcome: Outcome) -> Iterator[WorkingPack]:
    """The packs that no other process is training, locked until the study is left."""
    for pack in packs:
        try:
            held.enter_context(store.lock(pack.id))
        except Busy as busy:
            outcome.busy.append(str(busy))
        else:
            yield WorkingPack(pack, store.members(pack.id))


def _preparing(store: Store, pack: WorkingPack) -> Callable[[], Job]:
    def prepare() -> Job:
        saved = store.resume(pack.stored.id, environment(pack.stored.placement))
        runs = pack.runs
        state = None if saved is None else saved[1]
        seconds = pack.stored.seconds
        return Job([run.settings for run in runs], [run.seed for run in runs], pack.stored.placement, state, seconds)

    return prepare


def environment(placement: Placement) -> dict[str, str]:
    """What the last bits of a result may depend on."""
    packages = {"seedbed": __version__} | {name: version(name) for name in ("torch", "numpy")}
    machine = {"python": platform.python_version(), "system": platform.platform(), "processor": _processor()}
    return packages | machine | {"device": placement.device, "threads": str(placement.threads)}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


class Recorder:
    """Brings one pack's events into the store: readings are committed before the checkpoint that follows them."""

    def __init__(self, store: Store, pack_id: str) -> None:
        self._store, self._pack = store, pack_id
        self._waiting: list[Evaluated | Sampled | Diverged | Finished] = []
        self._since = time.monotonic()
        self._open = False  # training has begun and not been closed

    def take(self, event: Event | Failed) -> None:
        self._open = True
        if isinstance(event, Evaluated | Sampled | Diverged | Finished):
            self._waiting.append(event)
        if isinstance(event, Saved | Stopped | Failed) or time.monotonic() - self._since > FLUSH:
            self._flush()
        if isinstance(event, Saved):
            self._store.save(self._pack, event)
        elif isinstance(event, Stopped):
            self._store.stop(self._pack)
            self._open = False
        elif isinstance(event, Failed):
            self._store.fail(self._pack, event.cause)
            self._open = False

    def _flush(self) -> None:
        if self._waiting:
            self._store.record(self._pack, self._waiting)
        self._waiting, self._since = [], time.monotonic()

    def close(self) -> None:
        """Ends a pack whose training ran to its end."""
        self._flush()
        if self._open:
            self._store.finish(self._pack)
