"""macOS and Windows: planning, training on a CPU and reading work without what only Linux or POSIX has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HIDE = """
import builtins, fcntl as real_fcntl, io, multiprocessing.connection, os, signal, subprocess, sys, types

def as_on_windows():
    def locking(descriptor, mode, n_bytes):
        real_fcntl.flock(descriptor, real_fcntl.LOCK_EX | real_fcntl.LOCK_NB)
    sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=1)
    for name in ("fcntl", "resource", "pwd", "grp"):
        sys.modules[name] = None
    for name in ("fork", "nice", "pread", "pwrite", "O_DIRECTORY", "sched_getaffinity", "getpriority", "sysconf"):
        delattr(os, name)
    for name in ("SIGHUP", "SIGQUIT", "SIGKILL", "pthread_sigmask"):
        delattr(signal, name)

def without_proc():
    def hidden(original):
        def guarded(path, *args, **kwargs):
            if str(path).startswith(("/proc", "/sys")):
                raise FileNotFoundError(2, "No such file or directory", str(path))
            return original(path, *args, **kwargs)
        return guarded
    io.open, builtins.open, os.stat = hidden(io.open), hidden(builtins.open), hidden(os.stat)

without_proc()
if sys.argv.pop(1) == "windows":
    as_on_windows()
sys.argv[0] = "seedbed"
from seedbed.cli import main
main()
"""
TINY = ["task.p=5", "model.dim=8", "model.heads=2", "model.layers=1", "model.kind=gpt,lstm", "train.steps=4",
        "train.eval_every=2", "train.save_every=2", "seeds=2"]  # fmt: skip


def seedbed(system: str, home: Path, *arguments: object, code: int = 0) -> str:
    command = [sys.executable, "-c", HIDE, system, *map(str, arguments), "--home", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("system", ["macos", "windows"])
def test_a_study_is_planned_trained_and_shown(tmp_path: Path, system: str) -> None:
    home = tmp_path / "home"
    printed = seedbed(system, home, "run", "quickstart", *TINY, "-q")
    assert "4 finished" in printed
    assert "L_val" in printed


LOCK = HIDE.replace("from seedbed.cli import main\nmain()", """
from pathlib import Path
from seedbed.errors import Busy
from seedbed.store.durable_files import file_lock, is_locked
with file_lock(Path(sys.argv[1]), "it"):
    assert is_locked(Path(sys.argv[1]))
    print("held", flush=True)
    sys.stdin.readline()
""")  # fmt: skip


@pytest.mark.parametrize("system", ["macos", "windows"])
def test_a_lock_keeps_another_process_out_and_ends_with_its_process(tmp_path: Path, system: str) -> None:
    command, path = [sys.executable, "-c", LOCK, system, str(tmp_path / "x.lock")], tmp_path / "x.lock"
    first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "held\n"
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f"it is held by process {first.pid} since" in refused.stderr
    assert path.read_text().startswith(f"process {first.pid}")
    first.kill()
    first.communicate()
    allowed = subprocess.run(command, input="\n", capture_output=True, text=True, check=False)
    assert (allowed.stdout, allowed.returncode) == ("held\n", 0), allowed.stderr


def test_control_what_is_hidden_is_missing() -> None:
    """Without the fall-backs a command could not work."""
    for code, error in (("import fcntl", "ModuleNotFoundError"), ("open('/proc/self/stat')", "FileNotFoundError"),
                        ("os.fork()", "AttributeError")):  # fmt: skip
        script = HIDE.replace("from seedbed.cli import main\nmain()", code)
        done = subprocess.run([sys.executable, "-c", script, "windows"], capture_output=True, text=True, check=False)
        assert error in done.stderr
