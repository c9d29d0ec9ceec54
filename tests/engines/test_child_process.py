"""Child processes: they run a function of a module, and never the caller's own script."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection

import pytest

from seedbed.engines.child_process import STOP_SIGNALS, start_process


def add(pipe: Connection, first: int, second: int) -> None:
    pipe.send((first + second, os.getpid()))


def answer_after_a_signal(pipe: Connection) -> None:
    pipe.send("ready")
    pipe.recv()
    pipe.send("still here")


def test_the_function_runs_in_another_process() -> None:
    process, pipe = start_process(add, 2, 3)
    total, pid = pipe.recv()
    assert (total, process.wait()) == (5, 0)
    assert pid == process.pid != os.getpid()


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_to_the_process_group_leaves_it_alone_however_early(number: signal.Signals) -> None:
    process, pipe = start_process(answer_after_a_signal)
    process.send_signal(number)
    assert pipe.recv() == "ready"
    process.send_signal(number)
    time.sleep(0.05)
    pipe.send("go on")
    assert pipe.recv() == "still here"
    assert process.wait() == 0


def test_control_a_signal_reaches_a_process_that_does_not_ignore_it() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    process.send_signal(signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM


SCRIPT = """
import os
print("main runs")
from seedbed.engines.child_process import start_process
process, pipe = start_process(os.path.samefile, os.curdir)  # any function: it is called with the pipe first
print("exit code", process.wait())
"""


def test_a_script_without_a_guard_is_not_run_again() -> None:
    done = subprocess.run([sys.executable, "-"], input=SCRIPT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["main runs", "exit code 1"]  # a pipe is no path
