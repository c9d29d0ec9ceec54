"""`seedbed run` is killed, fails to write, or loses its home at any operation that changes a file there.

The same command afterwards ends with the same bytes as if nothing had happened, and leaves nothing else behind.

A few of the operations are tried always, every one by `make faults`.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import seedbed.pipeline
import seedbed.training.loop
from seedbed.cli import main
from seedbed.engines import machine
from seedbed.store import changes
from tests.faults.disk_operations import (
    EVERY,
    Fault,
    Operation,
    See,
    disk_full,
    each_operation,
    input_output_error,
    kill,
)

assert seedbed.pipeline
assert seedbed.training.loop  # imported once, before the forks

FORK = multiprocessing.get_context("fork")
N_QUICK = 4  # operations of each fault
N_RANDOM_KILLS = 4  # before a command may end
CORPUS = "the cat sat on the mat; a dog ate the hat, and so it went. " * 8
# Two packs (GPT and LSTM) of three runs: one diverges, one may stop early; dropout, samples, three saves, new batches.
STUDY = """
seeds = 1
[base]
task = {{ kind = "text", corpus = "{corpus}", length = 8, val_fraction = 0.2 }}
[base.model]
layers = 1
dim = 8
heads = 2
dropout = 0.1
[base.train]
steps = 6
batch_size = 3
eval_first = 2
eval_every = 2
save_every = 2
stop_after = 2
sample_every = 3
sample_tokens = 3
clip = 0.0
[grid]
model.kind = ["gpt", "lstm"]
train.lr = [0.001, 0.9, 1e25]
"""
COMPARED = {
    "studies": "name, text, axes, members",
    "study_runs": "*",
    "runs": "id, seed, settings, parameters, status, settled, step, pack, cause, best, dataset, fingerprint, contents",
    "metric_names": "names",
    "evaluations": "run, step, (SELECT names FROM metric_names WHERE id = evaluations.names), numbers",
    "samples": "*",
    "checkpoints": "*",
    "packs": "id, members, placement, open, step, digest, previous",
    "vocabularies": "dataset, content",
    "notes": "*",
}


def content(home: Path) -> dict[str, Any]:
    """All that a study leaves in a home but times, costs and locks: rows, names of files, the bytes of checkpoints."""
    with closing(sqlite3.connect(home / "store.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        rows = {
            table: sorted(connection.execute(f"SELECT {columns} FROM {table}").fetchall(), key=repr)
            for table, columns in COMPARED.items()
        }
    files = sorted(path for path in home.rglob("*") if path.is_file() and path.suffix != ".lock")
    names = [str(path.relative_to(home)) for path in files]
    return rows | {"files": names, "bytes": [path.read_bytes() for path in files if path.suffix == ".safetensors"]}


@dataclass(frozen=True)
class Ended:
    """How a command ended; a negative code is the signal that killed it."""

    code: int
    printed: str
    n_operations: int


def run_command(study: Path, home: Path, see: See = lambda _: None, **patches: Any) -> Ended:
    """Runs `seedbed run STUDY` in a fork of this process, so that nothing is imported again for every operation."""
    reader, writer = os.pipe()
    output = home.with_name(f"{home.name}.out")
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", closefd=False)
        sys.argv = ["seedbed", "run", str(study), "--home", str(home), "--workers", "1", "--device", "cpu", "-q"]
        machine.n_cores = lambda: 1  # threads of a pack would wait for one another on a busy machine
        for name, value in patches.items():
            setattr(changes, name, value)
        code, operations = 1, list[Operation]()
        try:
            with each_operation(lambda operation: (operations.append(operation), see(operation))[1], home):
                main()
            code = 0
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else 1
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(writer, f"{len(operations)} {' '.join(sys.modules)}".encode())
        os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as told:
        n_operations, *modules = told.read().split() or ["0"]
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for name in set(modules) - set(sys.modules):
        with suppress(ImportError):
            importlib.import_module(name)
    return Ended(code, output.read_text(encoding="utf-8"), int(n_operations))


@dataclass(frozen=True)
class Lab:
    """A study to be trained in any home, and what it leaves there when nothing happens."""

    study: Path
    expected: dict[str, Any]
    n_operations: int


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    folder = tmp_path_factory.mktemp("lab")
    (folder / "corpus.txt").write_text(CORPUS, encoding="utf-8")
    study = folder / "study.toml"
    study.write_text(STUDY.format(corpus=folder / "corpus.txt"), encoding="utf-8")
    ended = run_command(study, folder / "home")
    assert ended.code == 0, ended.printed
    return Lab(study, content(folder / "home"), ended.n_operations)


def test_the_study_has_an_early_end_a_divergence_samples_and_two_packs(lab: Lab) -> None:
    names = COMPARED["runs"].split(", ")
    runs = [dict(zip(names, row, strict=True)) for row in lab.expected["runs"]]
    assert sorted((run["status"], run["step"]) for run in runs) == [
        ("diverged", 1), ("finished", 2), ("finished", 2), ("finished", 6), ("finished", 6), ("finished", 6)
    ]  # fmt: skip
    assert len({run["pack"] for run in runs}) == 2
    assert len(lab.expected["samples"]) > 3
    assert lab.n_operations > 400


# ---- kills and errors ----


def fail_after(lab: Lab, home: Path, n: int, fault: Fault) -> str:
    """What is wrong after a fault at the n-th operation and the same command again; empty if nothing is."""
    seen = 0

    def see(operation: Operation) -> None:
        nonlocal seen
        seen += 1
        if seen == n or (fault is disk_full and seen > n):  # a disk stays full
            fault(operation)

    first = run_command(lab.study, home, see)
    wanted = [0, -signal.SIGKILL] if fault is kill else [0, 5]
    if "unable to open database file; check that it is there, may be written, and has space" in first.printed:
        wanted = [4]  # SQLite could not create a file, and does not say why
    return wrong_answer(first, wanted) or differences(lab, home)


def wrong_answer(ended: Ended, wanted: Sequence[int]) -> str:
    """What is wrong with how a command has ended; empty if nothing is."""
    if ended.code not in wanted or "Traceback" in ended.printed:
        return f"exit code {ended.code}\n{ended.printed}"
    if ended.code == 5 and not ("could not be written" in ended.printed and "kept:" in ended.printed):
        return ended.printed
    return ""


def differences(lab: Lab, home: Path, **patches: Any) -> str:
    """What the same command leaves in a home that it should not; empty if it is what was expected."""
    again = run_command(lab.study, home, **patches)
    if again.code:
        return f"then exit code {again.code}\n{again.printed}"
    found = content(home)
    return ", ".join(name for name in found if found[name] != lab.expected[name])


def check_all(lab: Lab, folder: Path, numbers: Iterable[int], check: Callable[[Path, int], str]) -> None:
    """Checks that nothing is wrong, in two processes."""
    numbers = list(numbers)
    groups = [numbers[::2], numbers[1::2]]
    children = [FORK.Process(target=_check_some, args=(folder, group, check)) for group in groups]
    for child in children:
        child.start()
    for child in children:
        child.join()
    problems = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.problem"))]
    assert not problems, f"{len(problems)} of {len(numbers)}: " + "\n".join(problems[:3])
    assert [child.exitcode for child in children] == [0, 0]
    n = sum(number <= lab.n_operations for number in numbers)
    print(f"{n} of {lab.n_operations} operations: nothing lost, doubled or left behind")


def _check_some(folder: Path, numbers: Iterable[int], check: Callable[[Path, int], str]) -> None:
    for n in numbers:
        home = folder / str(n)
        if problem := check(home, n):
            home.with_suffix(".problem").write_text(f"operation {n}: {problem}", encoding="utf-8")
        else:
            shutil.rmtree(home, ignore_errors=True)


def some_operations(lab: Lab, seed: int) -> list[int]:
    """Random operations, spread evenly."""
    part = lab.n_operations // N_QUICK
    return [part * i + random.Random(seed + i).randint(1, part) for i in range(N_QUICK)]


def every_operation(lab: Lab) -> range:
    return range(1, lab.n_operations + 15, EVERY)


FAULTS = [kill, input_output_error, disk_full]


@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_the_same_command_ends_with_the_same_bytes(lab: Lab, tmp_path: Path, fault: Fault) -> None:
    numbers = some_operations(lab, FAULTS.index(fault))
    check_all(lab, tmp_path, numbers, lambda home, n: fail_after(lab, home, n, fault))


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_at_every_operation_the_same_command_ends_with_the_same_bytes(
    lab: Lab, tmp_path: Path, fault: Fault
) -> None:
    check_all(lab, tmp_path, every_operation(lab), lambda home, n: fail_after(lab, home, n, fault))


def test_control_without_closing_ended_packs_some_kill_leaves_a_state_behind(lab: Lab, tmp_path: Path) -> None:
    """Killed when the last state of a pack is saved and an older one is deleted: the pack has ended, but is open."""
    steps = list[str]()

    def kill_at_the_end(operation: Operation) -> None:
        if operation.kind == "rename" and "/packs/" in operation.path:
            steps.append(Path(operation.target).stem)
        if operation.kind == "unlink" and "/packs/" in operation.path and steps[-1] == "000000006":
            kill(operation)

    assert run_command(lab.study, tmp_path / "home", kill_at_the_end).code == -signal.SIGKILL
    shutil.copytree(tmp_path / "home", tmp_path / "control")
    assert differences(lab, tmp_path / "home") == ""
    assert "files" in differences(lab, tmp_path / "control", close_ended_packs=lambda _: None)


# ---- a home that goes away ----


def move_away(home: Path) -> None:
    home.rename(home.with_suffix(".moved"))


def delete(home: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)


def lose_home(lab: Lab, home: Path, n: int, lose: Callable[[Path], None]) -> str:
    """What is wrong when the home is lost at the n-th operation, and found again if it was moved."""
    seen, moved = 0, home.with_suffix(".moved")

    def see(_: Operation) -> None:
        nonlocal seen
        seen += 1
        if seen == n and home.is_dir():
            lose(home)
            (home.with_suffix(".lost")).touch()

    ended = run_command(lab.study, home, see)
    if home.with_suffix(".lost").exists():
        if left := [str(path) for path in home.rglob("*") if path.is_file()]:
            return f"files in the old place: {left}"
        shutil.rmtree(home, ignore_errors=True)
        if moved.exists():
            moved.rename(home)
    return wrong_answer(ended, [0, 4]) or differences(lab, home)


LOSSES = [move_away, delete]


@pytest.mark.parametrize("lose", LOSSES)
def test_a_home_that_goes_away_stops_the_run_and_is_not_split(
    lab: Lab, tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    numbers = some_operations(lab, 10 + LOSSES.index(lose))
    check_all(lab, tmp_path, numbers, lambda home, n: lose_home(lab, home, n, lose))


@pytest.mark.slow
@pytest.mark.parametrize("lose", LOSSES)
def test_a_home_that_goes_away_at_any_operation_stops_the_run_and_is_not_split(
    lab: Lab, tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    check_all(lab, tmp_path, every_operation(lab), lambda home, n: lose_home(lab, home, n, lose))


# ---- processes and real disks ----


def start(study: Path, home: Path, *before: str) -> subprocess.Popen[str]:
    """The command in a session of its own, with two worker processes."""
    command = [*before, sys.executable, "-m", "seedbed", "run", str(study), "--home", str(home), "--workers", "2", "-q"]
    return subprocess.Popen(
        [*command, "train.steps=300"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@dataclass(frozen=True)
class Whole:
    """What the command of `start` leaves when nothing happens, and how long it takes."""

    content: dict[str, Any]
    seconds: float


@pytest.fixture(scope="module")
def whole(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    begun = time.monotonic()
    process = start(lab.study, home := tmp_path_factory.mktemp("long") / "home")
    printed, _ = process.communicate()
    assert process.returncode == 0, printed
    return Whole(content(home), time.monotonic() - begun)


def is_killed(study: Path, home: Path, seconds: float) -> bool:
    """Whether a command was killed so long after its first change of the home, rather than ended before."""
    begun, process = time.time_ns(), start(study, home)
    while process.poll() is None and not has_changed(home, begun):
        time.sleep(0.01)
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    if was_running := process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    printed, _ = process.communicate()
    assert process.returncode == (-signal.SIGKILL if was_running else 0), printed
    return was_running


def has_changed(home: Path, since_ns: int) -> bool:
    with suppress(FileNotFoundError):
        return any(path.stat().st_mtime_ns > since_ns for path in home.rglob("*"))
    return True  # a file was deleted meanwhile


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_killed_at_random_times_again_and_again_a_study_ends_with_the_same_bytes(
    lab: Lab, whole: Whole, tmp_path: Path, seed: int
) -> None:
    generator, kills, longest, home = random.Random(seed), 0, whole.seconds, tmp_path / "home"
    while kills < N_RANDOM_KILLS:
        if is_killed(lab.study, home, generator.uniform(0, longest)):
            kills += 1
        else:  # it was trained before it was killed often enough: again, and sooner
            shutil.rmtree(home)
            kills, longest = 0, longest / 2
    process = start(lab.study, home)
    printed, _ = process.communicate()
    assert process.returncode == 0, printed
    assert content(home) == whole.content
    print(f"killed {kills} times at random, within {longest:.1f} s of the first change: the same bytes")


@pytest.mark.slow
def test_two_commands_at_the_same_time_train_every_run_once(lab: Lab, whole: Whole, tmp_path: Path) -> None:
    generator, codes = random.Random(0), Counter[tuple[int, int]]()
    for pair in range(8):
        home = tmp_path / str(pair)
        first = start(lab.study, home)
        time.sleep(generator.uniform(0, 0.5 * whole.seconds))
        second = start(lab.study, home)
        printed = [process.communicate()[0] for process in (first, second)]
        codes[first.returncode, second.returncode] += 1
        assert {first.returncode, second.returncode} <= {0, 75}, printed
        if 0 not in (first.returncode, second.returncode):  # each has trained one of the packs
            assert start(lab.study, home).wait() == 0
        assert content(home) == whole.content
    print(f"pairs by their exit codes: {dict(codes)}")


CAN_MOUNT = (
    subprocess.run(["unshare", "-rm", "true"], check=False).returncode == 0 if shutil.which("unshare") else False
)


@pytest.mark.slow
@pytest.mark.skipif(not CAN_MOUNT, reason="a file system can be mounted only as root or in a user namespace")
@pytest.mark.parametrize("kilobytes", [0, 64, 150, 300, 500, 800])
def test_a_small_or_read_only_disk_is_named_and_the_study_goes_on_where_there_is_room(
    lab: Lab, tmp_path: Path, kilobytes: int
) -> None:
    """A real file system; 0: it is read-only. What was saved there is copied to a larger one."""
    home, small = tmp_path / "home", tmp_path / "small"
    small.mkdir()
    command = [sys.executable, "-m", "seedbed", "run", str(lab.study), "--home", str(small / "home"), "--workers", "1"]
    options = f"size={kilobytes}k" if kilobytes else "ro"
    script = f'mount -t tmpfs -o {options} none {small} && "$@"; code=$?; cp -a {small}/home {home}; exit $code'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", *command, "-q"], capture_output=True, text=True, check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),  # packs of one thread, as in forks
    )  # fmt: skip
    assert done.returncode == (5 if kilobytes else 4), done.stderr
    assert ("free); kept:" in done.stderr) if kilobytes else ("Read-only file system" in done.stderr)
    assert differences(lab, home) == ""
    print(f"{kilobytes} kB: {done.stderr.splitlines()[-1]}")


@pytest.mark.slow
@pytest.mark.skipif(not CAN_MOUNT, reason="a file system can be mounted only as root or in a user namespace")
def test_shared_memory_that_is_read_only_is_not_needed(lab: Lab, whole: Whole, tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o ro none /dev/shm && ! touch /dev/shm/x 2>/dev/null && exec "$@"'
    home = tmp_path / "home"
    process = start(lab.study, home, "unshare", "-rm", "sh", "-c", script, "sh")
    printed, _ = process.communicate()
    assert process.returncode == 0, printed
    assert content(home) == whole.content
