"""Processes that outlive the server: spawned in their own session, identified by start time, ended by SIGTERM.

    child = spawn(["python", "-m", "seedbed", "run", "quickstart"], Path("cache/logs/3f2a.log"))
    process = identify_process(child.pid)
    terminate(process)                        # False, and no signal, if the pid now belongs to another process

A pid alone does not identify a process, because pids are reused; a `ProcessIdentity` also holds its start time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from seedbed.web.offline import original_environment

PROC_DIR: Final = Path("/proc")
DEAD_STATES: Final = "ZX"  # zombie or dead (proc(5)): only the exit code is left
NICENESS_OFFSET: Final = 10  # how much nicer the server is than training
# After lower_priority(): one thread that keeps the original priority, to spawn studies from.
_SPAWN_EXECUTORS: Final[list[ThreadPoolExecutor]] = []


@dataclass(frozen=True)
class ProcessIdentity:
    """A process: its pid, and its start time as boot id and clock ticks since boot."""

    pid: int
    start_time: str


def lower_priority() -> None:
    """Lowers the priority of this and all later threads below training, except the thread that spawns studies."""
    executor = ThreadPoolExecutor(1)
    executor.submit(int).result()  # creates its thread now, at the original priority
    _SPAWN_EXECUTORS[:] = [executor]
    if sys.platform == "linux":  # here niceness is per thread and inherited by what the thread starts
        os.setpriority(os.PRIO_PROCESS, 0, min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS_OFFSET))


def spawn(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Starts the command as a process that survives this one: no shell, no stdin, output appended to the log."""
    return _SPAWN_EXECUTORS[0].submit(_spawn, command, log).result() if _SPAWN_EXECUTORS else _spawn(command, log)


def _spawn(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    environment = original_environment() | {"PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
    with log.open("ab") as out:
        return subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True
        )


def identify_process(pid: int) -> ProcessIdentity | None:
    """The identity of the process that has this pid now; None if there is none or it has ended."""
    start_time = _start_time_from_proc(pid) if PROC_DIR.joinpath("self").exists() else _start_time_from_ps(pid)
    return ProcessIdentity(pid, start_time) if start_time else None


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
