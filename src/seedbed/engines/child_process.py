"""Fresh Python processes that run a function of an importable module: worker processes and compilations.

    process, pipe = start_process(worker_main, run_job, device)     # there: worker_main(pipe, run_job, device)

Unlike those of `multiprocessing`, they do not import the caller's `__main__` again, so that a script without
`if __name__ == "__main__":`, a notebook and code from standard input can train. (A fork would copy threads and open
stores.) Ctrl-C, which reaches the whole process group, is ignored from the start: the parent decides.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

_BOOTSTRAP = """\
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
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
    with child_pipe:
        process = subprocess.Popen(
            [sys.executable, "-c", _BOOTSTRAP, str(child_pipe.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[child_pipe.fileno()],
        )
    pipe.send(list(sys.path))
    pipe.send((function, args))
    return process, pipe


def call_received_function(pipe: Connection) -> None:
    """Entry point of the process, once it can import what the parent can."""
    os.set_inheritable(pipe.fileno(), False)  # processes that it starts must not keep the pipe open
    function, args = pipe.recv()
    function(pipe, *args)
