"""Fresh Python processes that run a function of an importable module: worker processes and compilations.

    process, pipe = start_process(worker_main, run_job, device)     # there: worker_main(pipe, run_job, device)

Unlike those of `multiprocessing`, they do not import the caller's `__main__` again, so that a script without
`if __name__ == "__main__":`, a notebook and code from standard input can train. (A fork would copy threads and open
stores.) Signals that ask to stop often reach the whole process group or container; they are ignored from the start: the
parent decides, and kills the process. This needs a POSIX system (`HAS_PROCESSES`).
"""

from __future__ import annotations

import ctypes
import multiprocessing as mp
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

HAS_PROCESSES: Final = hasattr(signal, "pthread_sigmask")  # not on Windows
# The signals that ask a process to stop; not every system has all of them.
STOP_SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGBREAK") if hasattr(signal, name)
)
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of mallopt(3)
DEFAULT_TRIM_THRESHOLD, DEFAULT_MMAP_MAX = 128 * 1024, 65_536
MAX_INT32 = 2**31 - 1

_BOOTSTRAP = """\
import signal
for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
import sys
from multiprocessing.connection import Connection
pipe = Connection(int(sys.argv[1]))
sys.path[:] = pipe.recv()
from seedbed.engines.child_process import call_received_function
call_received_function(pipe)
"""


def start_process(function: Callable[..., None], *args: Any) -> tuple[subprocess.Popen[bytes], Connection]:
    """Starts a process that calls `function(pipe, *args)`, both picklable; returns it with this end of the pipe."""
    pipe, child_pipe = mp.Pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # inherited, until the child ignores them
    try:
        with child_pipe:
            process = subprocess.Popen(
                [sys.executable, "-c", _BOOTSTRAP, str(child_pipe.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[child_pipe.fileno()],
            )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    pipe.send(list(sys.path))
    pipe.send((function, args))
    return process, pipe


def call_received_function(pipe: Connection) -> None:
    """Entry point of the process, once it can import what the parent can."""
    os.set_inheritable(pipe.fileno(), False)  # processes that it starts must not keep the pipe open
    function, args = pipe.recv()
    function(pipe, *args)


def count_oom_kills() -> int | None:
    """How many processes the kernel has killed because memory ran out, here or in this cgroup; None if not known."""
    files = [
        Path("/proc/vmstat"),
        Path("/sys/fs/cgroup/memory.events"),
        Path("/sys/fs/cgroup/memory/memory.oom_control"),
    ]
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory"):
                name = "memory.oom_control" if controllers else "memory.events"
                files.append(Path(f"/sys/fs/cgroup/{controllers}{path}", name))
    counts = []
    for file in dict.fromkeys(files):
        with suppress(OSError):
            counts += [int(line.split()[1]) for line in file.read_text().splitlines() if line.startswith("oom_kill ")]
    return sum(counts) if counts else None


def keep_freed_heap() -> bool:
    """Makes malloc keep freed memory in this process instead of returning it to the system; whether that could be set.

    Every update allocates the same large tensors; by default those above 32 MB are unmapped when freed and come back as
    fresh pages, with one page fault per 4 kB (docs/log.md). Only glibc has these parameters.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, MAX_INT32))


@contextmanager
def kept_heap() -> Iterator[None]:
    """Within it, malloc keeps freed memory in this process; at its end, what is free goes back to the system."""
    is_kept = keep_freed_heap()
    try:
        yield
    finally:
        if is_kept:
            libc = ctypes.CDLL(None)
            libc.mallopt(M_MMAP_MAX, DEFAULT_MMAP_MAX)
            libc.mallopt(M_TRIM_THRESHOLD, DEFAULT_TRIM_THRESHOLD)
            libc.malloc_trim(0)
