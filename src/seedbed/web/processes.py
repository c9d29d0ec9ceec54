"""Processes that the server starts: studies that outlive it, and a pool of one process for work of unknown size.

    child = spawn(["python", "-m", "seedbed", "run", "quickstart"], Path("cache/logs/3f2a.log"))
    process = identify_process(child.pid)
    terminate(process)                           # False, and no signal, if the pid now belongs to another process

    pool = ProcessPool()
    pool.run(preview_plan, home, request)        # returns or raises what the function does

A pid alone does not identify a process, because pids are reused; a `ProcessIdentity` also holds its start time. The
server and its pool download no missing corpora; studies get the environment that `seedbed serve` was started in.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from seedbed.errors import Busy, OutOfResources

PROC_DIR: Final = Path("/proc")
DEAD_STATES: Final = "ZX"  # zombie or dead (proc(5)): only the exit code is left
NICENESS_OFFSET: Final = 10  # how much nicer the server is than training
TASK_TIMEOUT_SECONDS: Final = 30.0
MAX_TASKS_PER_PROCESS: Final = 200  # then the pool's process is replaced, which returns its memory
# After lower_priority(): one thread that keeps the original priority, to spawn studies from.
_SPAWN_EXECUTORS: Final[list[ThreadPoolExecutor]] = []

Params = ParamSpec("Params")
Result = TypeVar("Result")


@dataclass(frozen=True)
class ProcessIdentity:
    """A process: its pid, and its start time as boot id and clock ticks since boot."""

    pid: int
    start_time: str


# ---- the server's own environment and priority ----


@cache
def _original_environment() -> dict[str, str]:
    """The environment that `seedbed serve` was started in, for the studies it spawns."""
    return dict(os.environ)


def forbid_network() -> None:
    """Disables corpus downloads in this process, after saving the original environment."""
    _original_environment()
    os.environ["SEEDBED_OFFLINE"] = "1"


def lower_priority() -> None:
    """Lowers the priority of this and all later threads below training, except the thread that spawns studies."""
    executor = ThreadPoolExecutor(1)
    executor.submit(int).result()  # creates its thread now, at the original priority
    _SPAWN_EXECUTORS[:] = [executor]
    if sys.platform == "linux":  # here niceness is per thread and inherited by what the thread starts
        os.setpriority(os.PRIO_PROCESS, 0, min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS_OFFSET))


# ---- processes that outlive the server ----


def spawn(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Starts the command as a process that survives this one: no shell, no stdin, output appended to the log."""
    return _SPAWN_EXECUTORS[0].submit(_spawn, command, log).result() if _SPAWN_EXECUTORS else _spawn(command, log)


def _spawn(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    environment = _original_environment() | {"PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
    with log.open("ab") as out:
        return subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True
        )


def identify_process(pid: int) -> ProcessIdentity | None:
    """The identity of the process that has this pid now; None if there is none or it has ended."""
    start_time = _start_time_from_proc(pid) if PROC_DIR.joinpath("self").exists() else _start_time_from_ps(pid)
    return ProcessIdentity(pid, start_time) if start_time else None


def _start_time_from_proc(pid: int) -> str:
    """Start time from /proc (proc(5)); fields are counted after the last `)`, because the name may contain anything."""
    try:
        fields = (PROC_DIR / str(pid) / "stat").read_text().rpartition(")")[2].split()
        boot = (PROC_DIR / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    return "" if fields[0] in DEAD_STATES else f"{boot}/{fields[19]}"


def _start_time_from_ps(pid: int) -> str:
    """Start time from `ps`, to the second, on systems without /proc."""
    ps = subprocess.run(["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, start_time = ps.stdout.strip().partition(" ")
    return "" if not state or state[0] in DEAD_STATES else start_time.strip()


def is_alive(process: ProcessIdentity) -> bool:
    return identify_process(process.pid) == process


def terminate(process: ProcessIdentity) -> bool:
    """Sends SIGTERM to exactly this process; returns False, without a signal, if it has ended."""
    with _open_pidfd(process.pid) as handle:  # an open pidfd pins the process, so check and signal agree
        if not is_alive(process):
            return False
        if handle is None:
            os.kill(process.pid, signal.SIGTERM)
        else:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
    return True


@contextmanager
def _open_pidfd(pid: int) -> Iterator[int | None]:
    """A pidfd of the process that has this pid now; None if there is none, or no pidfd support."""
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):
        yield None
        return
    try:
        yield handle
    finally:
        os.close(handle)


# ---- work of unknown size ----


class ProcessPool:
    """One worker process that runs one task at a time, with a time limit; started by the first task.

    Planning a study reads its corpus and may train a BPE vocabulary, and rendering a chart runs a JavaScript engine;
    in a process of their own neither can fill the server's memory or block it.
    """

    def __init__(self, timeout: float = TASK_TIMEOUT_SECONDS) -> None:
        self._timeout = timeout
        self._executor: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()

    def run(self, function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        """The result of calling the function in the worker process; raises `Busy` after the timeout."""
        if not self._lock.acquire(timeout=self._timeout):
            raise Busy("other plans and images are being made; try again in a moment")
        try:
            # Spawned, not forked: a fork would copy the locks of the server's threads in whatever state they are.
            self._executor = self._executor or ProcessPoolExecutor(
                1, mp.get_context("spawn"), _init_pool_process, max_tasks_per_child=MAX_TASKS_PER_PROCESS
            )
            return self._executor.submit(function, *args, **kwargs).result(self._timeout)
        except TimeoutError:
            self.close()
            raise Busy(
                f"this takes longer than the page's limit of {self._timeout:g} s; the command line has no limit"
            ) from None
        except BrokenProcessPool:
            self.close()
            raise OutOfResources("the process that plans and draws was killed, probably out of memory") from None
        finally:
            self._lock.release()

    def close(self) -> None:
        """Kills the process, whatever it is running."""
        executor, self._executor = self._executor, None
        if executor is not None:
            for process in list((executor._processes or {}).values()):
                process.kill()
            executor.shutdown(wait=True, cancel_futures=True)


def _init_pool_process() -> None:
    """Ignores Ctrl-C, which reaches the whole process group and is the server's to handle; forbids downloads."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    forbid_network()
