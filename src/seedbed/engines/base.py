"""The Engine contract: where jobs run, and how their events come back; it knows neither models nor stores.

    engine.run([QueuedJob(prepare), …], run_job, on_event, should_stop=lambda: interrupted)

`run_job(job, should_stop)` yields events, somewhere: in this process, another one, or on another machine. Each event is
passed to `on_event(job_index, event)` in the caller's process:

- the events of a job arrive in order, each once, except that step events may be thinned out;
- a job that raises, or whose process dies, ends with a `JobFailure`; the others continue, and no later event of a
  process that was given up is passed on;
- `on_event` may append jobs to the list, to retry the work in another way, or raise `DropJob` to end this one;
- `prepare` is called once per job, in the caller's process, when the job starts;
- an exclusive job starts after all others, and no other job runs anywhere until it ends;
- once `should_stop` returns True no job starts, and running jobs see it as their own `should_stop`; one that fails
  then, or does not end in time, ends with a `JobFailure` that is `stopped`.

A new engine is a subclass, a line in `ENGINES`, and a test class that inherits the contract in tests/contracts/; the
option --engine or the variable SEEDBED_ENGINE chooses one by name.
"""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from seedbed.records import Event

EXTRA_SLOTS = 3  # of a device beyond its limit, for precompiled jobs: the longest are among them
REMOTE_PROGRESS_SECONDS = 2.0  # between events for display alone: each costs the caller about half a millisecond
OUT_OF_MEMORY_MESSAGES = (
    "can't allocate memory",
    "CUDA error: out of memory",
    "[CUDA]: out of memory",
    "STATUS_ALLOC_FAILED",
)


@dataclass(frozen=True)
class JobFailure:
    """A job that ended with an error; `out_of_memory` if it did not fit, as far as that can be detected.

    `stopped`: it was to stop and did not save; what it had saved before is where it goes on. `worker_lost`: its worker
    or node in a cluster is gone, so it may well succeed elsewhere; `preempted`: the node was taken away on purpose.
    """

    cause: str
    trace: str = ""
    out_of_memory: bool = False
    stopped: bool = False
    worker_lost: bool = False
    preempted: bool = False


class DropJob(Exception):
    """Raised by `on_event`: the job is of no use any more; it ends without another event, and the others continue."""


ShouldStop: TypeAlias = Callable[[], bool]  # polled between updates
Job: TypeAlias = Any  # what `prepare` returns and `run_job` takes; must be picklable
JobFunction: TypeAlias = Callable[[Job, ShouldStop], Iterator[Event]]
EventHandler: TypeAlias = Callable[[int, Event | JobFailure], None]
PrecompileJob: TypeAlias = Callable[[], None]  # must be picklable


@dataclass(frozen=True)
class QueuedJob:
    """A job, prepared just before it starts; an `exclusive` one runs while no other job does.

    `precompile` (picklable) shortens its start if it has run before in any process. `n_time_slices` is the number of
    slices it needs, if known, so that long and short jobs end together. `device` is the device it should run on, if the
    engine has it; otherwise it runs on the device with the fewest estimated `seconds` of running jobs. `threads` and
    `bytes` are what it needs of a CPU and of its memory, for engines that reserve them.
    """

    prepare: Callable[[str | None], Job]  # takes the device, None if the engine does not distinguish any
    exclusive: bool = False
    precompile: PrecompileJob | None = None
    n_time_slices: int | None = None
    seconds: float = 0.0
    device: str | None = None
    threads: int = 1
    bytes: int = 0


@dataclass(frozen=True)
class EngineResources:
    """What an engine may use."""

    n_workers: int = 1  # processes, if there are no `devices`; 0: as many as a cluster has slots for
    n_slots: int = 1  # jobs that run concurrently on one device, time-sliced
    devices: tuple[str, ...] = ()  # GPUs with a process of their own, such as cuda:1
    needs_processes: bool = False  # even for a single job
    address: str | None = None  # of a cluster


class Engine(ABC):
    """Runs jobs and gives back their events; what a user should know meanwhile goes to `report`."""

    report: Callable[[str], None] = staticmethod(lambda _: None)
    has_remote_workers: ClassVar[bool] = False  # on other machines, where files and addresses may mean something else
    check_worker: Callable[[], object] | None = None  # called there before the first job; no worker if it raises

    def __init__(self, resources: EngineResources) -> None:
        self.resources = resources

    @abstractmethod
    def run(self, jobs: list[QueuedJob], run_job: JobFunction, on_event: EventHandler, should_stop: ShouldStop) -> None:
        """Run all jobs, including those appended meanwhile; returns when they have ended or were stopped."""


def make_failure(error: Exception) -> JobFailure:
    """An exception as an event; call it inside the `except` block."""
    cause = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return JobFailure(cause, traceback.format_exc(), _is_memory_error(error))


def _is_memory_error(error: BaseException | None) -> bool:
    """Whether an error, or one that led to it, means that memory ran out."""
    if error is None:
        return False
    # By name, since torch is not imported here; libraries such as cuBLAS and Triton have messages of their own.
    class_names = {cls.__name__ for cls in type(error).__mro__}
    is_memory_error = bool(class_names & {"MemoryError", "OutOfMemoryError"}) or any(
        message in str(error) for message in OUT_OF_MEMORY_MESSAGES
    )
    return is_memory_error or _is_memory_error(error.__cause__ or error.__context__)
