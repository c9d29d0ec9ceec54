"""Processes that outlive the page: spawned in a group of their own, known again by when they began, asked to end.

    child = spawn(["python", "-m", "seedbed", "run", "quickstart"], Path("lab/logs/3f2a.log"))
    mark = mark_of(child.pid)
    ask_to_end(mark)                          # False, and no signal, where the number is another process's by now

A number alone names nothing: it is given away again. A `Mark` holds the moment of birth as well, and both must agree.
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
DEAD_STATES: Final = "ZX"  # states of a process that is gone but for its exit code
NICENESS_OFFSET: Final = 10  # steps of priority that the server stands behind training
_SPAWN_EXECUTORS: Final[
    list[ThreadPoolExecutor]
] = []  # once others have stepped back: the thread that has not, to start studies


@dataclass(frozen=True)
class ProcessIdentity:
    """One process: its number, and the start of this machine and the ticks since then at which it began."""

    pid: int
    start_time: str


def lower_priority() -> None:
    """Lets training go first: every thread from here on has a low priority, but for the one that starts studies."""
    ahead = ThreadPoolExecutor(1)
    ahead.submit(int).result()  # its thread exists now, with the priority that the server began with
    _SPAWN_EXECUTORS[:] = [ahead]
    if sys.platform == "linux":  # where a priority belongs to a thread, and what a thread starts inherits it
        os.setpriority(os.PRIO_PROCESS, 0, min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS_OFFSET))


def spawn(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """The command as a process that stays when this one ends; no shell, no input, all it says goes into the log."""
    return _SPAWN_EXECUTORS[0].submit(_spawn, command, log).result() if _SPAWN_EXECUTORS else _spawn(command, log)


def _spawn(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    environment = original_environment() | {"PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
    with log.open("ab") as out:
        return subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True
        )


def identify_process(pid: int) -> ProcessIdentity | None:
    """The mark of the process that has this number now; None when none has, or it has ended."""
    began = _start_time_from_proc(pid) if PROC_DIR.joinpath("self").exists() else _start_time_from_ps(pid)
    return ProcessIdentity(pid, began) if began else None


def is_alive(mark: ProcessIdentity) -> bool:
    return identify_process(mark.pid) == mark


def terminate(mark: ProcessIdentity) -> bool:
    """Send SIGTERM to this very process; False, and nothing sent, when it is gone."""
    with _open_pidfd(
        mark.pid
    ) as handle:  # the number cannot be given away while it is held, so looking and sending agree
        if not is_alive(mark):
            return False
        if handle is None:
            os.kill(mark.pid, signal.SIGTERM)
        else:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
    return True


@contextmanager
def _open_pidfd(pid: int) -> Iterator[int | None]:
    """A handle on whatever process has this number now; None where there is none, or no such handles."""
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
    """Birth by Linux's account (proc(5)): the name in brackets may hold anything, so fields count from its end."""
    try:
        fields = (PROC_DIR / str(pid) / "stat").read_text().rpartition(")")[2].split()
        boot = (PROC_DIR / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    return "" if fields[0] in DEAD_STATES else f"{boot}/{fields[19]}"


def _start_time_from_ps(pid: int) -> str:
    """Birth where there is no /proc, to the second."""
    said = subprocess.run(["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, began = said.stdout.strip().partition(" ")
    return "" if not state or state[0] in DEAD_STATES else began.strip()
