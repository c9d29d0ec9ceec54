"""Started from the page: real processes that are paused, resumed and found again, and never the wrong one signalled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from seedbed.errors import Busy, MissingData
from seedbed.pipeline import Machine, run_studies
from seedbed.progress import ProgressDisplay
from seedbed.store.store import Store
from seedbed.study.plan import plan_named
from seedbed.web.job_manager import MAX_RUNNING_JOBS, JobManager, JobSpec
from seedbed.web.job_status import Job, describe_state
from seedbed.web.jobs import JobOutcome, JobRecord, JobStore
from seedbed.web.processes import ProcessIdentity, identify_process, is_alive, spawn, terminate

WORDS = (
    "task.p=7", "model.dim=8", "model.heads=2", "train.steps=500", "train.eval_first=0", "train.eval_every=20",
    "seeds=1",
)  # fmt: skip
N_RECORDS = 500 // 20 + 1  # and the closing one


@pytest.fixture
def one_core() -> Iterator[None]:
    """Processes that begin meanwhile have one core, so that threads do not wait for each other on a busy machine."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture
def home(tmp_path: Path, one_core: None) -> Iterator[Path]:
    """A home of which nothing runs on when the test is over."""
    home = tmp_path / "lab"
    yield home
    for one in JobStore(home).all():
        if one.process is not None and is_alive(one.process) and one.process.pid != os.getpid():
            os.kill(one.process.pid, signal.SIGKILL)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with us."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def order(words: tuple[str, ...] = WORDS) -> JobSpec:
    plan = plan_named("quickstart", words)
    return JobSpec("quickstart", "shipped", words, tuple(run.id for run in plan.runs), plan.text)


def until(control: JobManager, id: str, wanted: Callable[[Job], bool], seconds: float = 60) -> Job:
    end = time.monotonic() + seconds
    while not wanted(job := control.job(id)):
        assert time.monotonic() < end, job
        time.sleep(0.05)
    return job


def records(home: Path) -> int:
    """Committed readings of one kind so far."""
    if not (home / "store.db").exists():
        return 0
    with Store.open_read_only(home) as store:
        found = store.curves([run.id for run in store.runs()], ["val/loss"])
    return sum(len(curves["val/loss"].steps) for curves in found.values() if curves)


def started(home: Path, mark: ProcessIdentity | None, **changes: object) -> str:
    """A record as a server before us would have left it."""
    one = JobRecord("0123456789abcdef", "quickstart", "shipped", (), ("r0", "r1"), "2030-01-01T00:00:00+00:00", mark)
    ledger = JobStore(home)
    ledger.folder.mkdir(exist_ok=True)
    ledger.write(replace(one, **changes))  # type: ignore[arg-type]
    return one.id


# ---- the whole life of a study ----


def test_paused_and_resumed_it_ends_with_the_readings_of_one_that_never_stopped(home: Path) -> None:
    control = JobManager(home)
    job = control.start(order())
    assert job.state == "running"
    with pytest.raises(Busy, match="already"):
        control.start(order())
    while not records(home):
        assert control.job(job.id).state == "running", control.read_log(job.id)
        time.sleep(0.02)
    control.pause(job.id)
    paused = until(control, job.id, lambda job: job.state != "running")
    assert (paused.state, paused.message.partition(";")[0]) == ("paused", "Everything up to here is saved")
    assert 1 <= records(home) < N_RECORDS
    again = JobManager(home)  # another server, which is not the parent of anything
    assert again.job(job.id).state == "paused"
    again.resume(job.id)
    finished = until(again, job.id, lambda job: job.state not in ("running", "planned"))
    assert finished.state == "finished", finished
    assert "1 finished" in finished.log_lines[-1]

    other = home.with_name("other")
    with ProgressDisplay(Console(quiet=True), quiet=True) as watcher:
        run_studies([plan_named("quickstart", WORDS)], other, Machine.detect(), watcher, lambda: False)
    with Store.open_read_only(home) as one, Store.open_read_only(other) as two:
        run = plan_named("quickstart", WORDS).runs[0].id
        curves, whole = one.curves([run])[run], two.curves([run])[run]
        assert curves.keys() == whole.keys()
        for name in whole:
            np.testing.assert_array_equal(curves[name].steps, whole[name].steps)
            np.testing.assert_array_equal(curves[name].values, whole[name].values)


def test_a_study_that_is_killed_says_so_and_keeps_what_it_said(home: Path) -> None:
    control = JobManager(home)
    job = control.start(order())
    mark = JobStore(home).read(job.id).process
    assert mark is not None
    assert os.getpgid(mark.pid) == mark.pid  # a group of its own: what ends ours does not reach it
    os.kill(mark.pid, signal.SIGKILL)
    killed = until(control, job.id, lambda job: job.state != "running")
    assert killed.state == "failed"
    assert "killed (SIGKILL)" in killed.message


def test_a_study_goes_on_when_its_server_has_ended(home: Path) -> None:
    server = f"""
from pathlib import Path
from seedbed.web.job_manager import Control, Order
Control(Path({str(home)!r})).start(Order("quickstart", "shipped", {WORDS!r}, ("r0",), ""))
"""
    subprocess.run([sys.executable, "-c", server], check=True, timeout=60)
    (one,) = JobStore(home).all()
    assert one.process is not None
    assert is_alive(one.process)
    control = JobManager(home)  # the next server finds it, and can stop it
    control.stop(one.id)
    assert until(control, one.id, lambda job: job.state != "running").state == "stopped"


# ---- never the wrong process ----


def test_a_number_that_was_given_away_is_not_signalled(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    mark = identify_process(sleeper.pid)
    assert mark is not None
    assert is_alive(mark)
    former = replace(mark, began=mark.start_time + "0")
    id = started(tmp_path, former)
    control = JobManager(tmp_path)
    assert control.stop(id).state == "failed"  # it is gone, and nobody had asked it to go
    assert control.pause(id).state == "failed"
    assert not terminate(former)
    time.sleep(0.05)
    assert sleeper.poll() is None
    assert terminate(mark)  # the control: the right mark does end it
    assert sleeper.wait(5) == -signal.SIGTERM


def test_a_process_that_has_ended_has_no_mark_even_before_its_parent_looks() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    end = time.monotonic() + 10
    while identify_process(child.pid) is not None:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert child.wait() == 0


def test_two_processes_of_one_number_differ_by_when_they_began(sleeper: subprocess.Popen[bytes]) -> None:
    first, second = identify_process(os.getpid()), identify_process(sleeper.pid)
    assert first is not None
    assert second is not None
    assert first.start_time != second.start_time
    assert identify_process(sleeper.pid) == second


def test_no_shell_reads_a_command(tmp_path: Path) -> None:
    words = ["; touch made; $(touch made) `touch made` | & > made", "*"]
    child = spawn([sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))", *words], tmp_path / "log")
    assert child.wait(20) == 0
    assert json.loads((tmp_path / "log").read_text()) == words
    assert not (tmp_path / "made").exists()
    assert not Path("made").exists()


# ---- what is refused ----


def test_more_than_a_few_at_once_are_refused(tmp_path: Path) -> None:
    ledger, mark = JobStore(tmp_path), identify_process(os.getpid())
    ledger.folder.mkdir()
    for number in range(MAX_RUNNING_JOBS):
        at = f"2030-01-0{number + 1}T00:00:00+00:00"
        ledger.write(JobRecord(f"{number:016x}", f"study {number}", "shipped", (), (f"run {number}",), at, mark))
    with pytest.raises(Busy, match=f"{MAX_RUNNING_JOBS} studies are running"):
        JobManager(tmp_path).start(order())
    assert len(list(ledger.all())) == MAX_RUNNING_JOBS


@pytest.mark.parametrize(
    "id", ["../store", "..%2fstore", "/etc/passwd", "", "0123456789ABCDEF", "0123456789abcdef\n", "x" * 5000]
)
def test_an_id_is_never_a_path(tmp_path: Path, id: str) -> None:
    (tmp_path / "store.json").write_text("{}")
    control = JobManager(tmp_path)
    for ask in (control.read_log, control.pause, control.stop, control.resume, control.forget, control.job):
        with pytest.raises(MissingData):
            ask(id)
    assert (tmp_path / "store.json").exists()


# ---- how it stands ----


@pytest.mark.parametrize(
    ("code", "asked", "statuses", "state", "said"),
    [
        (0, "", {"finished": 2}, "finished", "All 2 runs"),
        (None, "", {"finished": 1, "diverged": 1}, "finished", "1 diverged"),  # ended while no server watched
        (143, "pause", {"stopped": 2}, "paused", "is saved"),
        (143, "stop", {"stopped": 2}, "stopped", "is saved"),
        (143, "", {"stopped": 2}, "paused", "from outside"),
        (1, "", {"finished": 1, "failed": 1}, "failed", "some of its runs failed"),
        (-9, "", {"running": 2}, "failed", "SIGKILL"),
        (75, "", {}, "failed", "another process"),
        (None, "", {"running": 2}, "failed", "no server"),
        (0, "stop", {"finished": 2}, "finished", "All 2 runs"),  # it was done before it could be stopped
    ],
)  # fmt: skip
def test_every_ending_is_said_in_words(code: int, asked: str, statuses: dict[str, int], state: str, said: str) -> None:
    one = JobRecord(
        "0" * 16, "toy", "shipped", (), ("r0", "r1"), "", ProcessIdentity(1, ""), asked, JobOutcome(code, statuses)
    )  # type: ignore[arg-type]
    assert describe_state(one)[0] == state
    assert said in describe_state(one)[1]


def test_a_torn_record_hides_nothing_else(tmp_path: Path) -> None:
    id = started(tmp_path, None)
    (tmp_path / "logs" / f"{'f' * 16}.json").write_text('{"id": "')
    assert [job.id for job in JobManager(tmp_path).jobs()] == [id]
    with pytest.raises(MissingData, match="cannot be read"):
        JobManager(tmp_path).job("f" * 16)


def test_a_log_is_shown_from_its_end_without_control_signs(tmp_path: Path) -> None:
    id = started(tmp_path, None)
    JobStore(tmp_path).log_path(id).write_bytes(b"x" * 100_000 + b"\n\x1b[2Jthe end \xff\n")
    tail = JobManager(tmp_path).read_log(id)
    assert len(tail) < 70_000
    assert tail.endswith("\n[2Jthe end \ufffd\n")


@pytest.mark.skipif(sys.platform != "linux", reason="priorities belong to threads on Linux only")
def test_the_server_steps_behind_training_and_what_it_starts_does_not(tmp_path):
    code = (
        "import os, sys, threading\n"
        "from pathlib import Path\n"
        "from seedbed.web.processes import spawn, step_back\n"
        "before = os.getpriority(os.PRIO_PROCESS, 0)\n"
        "step_back()\n"
        "seen = []\n"
        "threading.Thread(target=lambda: seen.append(os.getpriority(os.PRIO_PROCESS, 0))).start()\n"
        "told = [sys.executable, '-c', 'import os; print(os.getpriority(os.PRIO_PROCESS, 0))']\n"
        "spawn(told, Path('log')).wait()\n"
        "print(before, os.getpriority(os.PRIO_PROCESS, 0), seen[0], Path('log').read_text())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    before, server, thread, study = map(int, done.stdout.split())
    assert server == thread == min(19, before + 10)
    assert study == before
