"""Jobs of the page: real processes that are paused, resumed and recovered, and no other process is ever signalled."""

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
from seedbed.store import open_store, store_exists
from seedbed.study.plan import plan_named
from seedbed.web.jobs import MAX_RUNNING_JOBS, Job, JobManager, JobOutcome, JobRecord, JobSpec, JobStore, describe_state
from seedbed.web.processes import ProcessIdentity, identify_process, is_alive, spawn, terminate

OVERRIDES = (
    "task.p=7", "model.dim=8", "model.heads=2", "train.steps=500", "train.eval_first=0", "train.eval_every=20",
    "seeds=1",
)  # fmt: skip
N_EVALUATIONS = 500 // 20 + 1  # including the final one


@pytest.fixture
def one_core() -> Iterator[None]:
    """Pins new processes to one core, so that their threads do not contend on a busy machine."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture
def home(tmp_path: Path, one_core: None) -> Iterator[Path]:
    """A home whose processes are killed after the test."""
    home = tmp_path / "lab"
    yield home
    for one in JobStore(home).all():
        if one.process is not None and is_alive(one.process) and one.process.pid != os.getpid():
            os.kill(one.process.pid, signal.SIGKILL)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process unrelated to any job."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def make_spec(overrides: tuple[str, ...] = OVERRIDES) -> JobSpec:
    plan = plan_named("quickstart", overrides)
    return JobSpec("quickstart", "shipped", overrides, tuple(run.id for run in plan.runs), plan.text)


def wait_for(manager: JobManager, id: str, condition: Callable[[Job], bool], seconds: float = 240) -> Job:
    end = time.monotonic() + seconds
    while not condition(job := manager.job(id)):
        assert time.monotonic() < end, job
        time.sleep(0.05)
    return job


def count_evaluations(home: Path) -> int:
    """Committed values of one metric so far."""
    if not store_exists(home):
        return 0
    with open_store(home, read_only=True) as store:
        curves_by_run = store.curves([run.id for run in store.runs()], ["val/loss"])
    return sum(len(curves["val/loss"].steps) for curves in curves_by_run.values() if curves)


def write_record(home: Path, process: ProcessIdentity | None, **changes: object) -> str:
    """A record as an earlier server would have left it."""
    record = JobRecord(
        "0123456789abcdef", "quickstart", "shipped", (), ("r0", "r1"), "2030-01-01T00:00:00+00:00", process
    )
    store = JobStore(home)
    store.folder.mkdir(exist_ok=True)
    store.write(replace(record, **changes))  # type: ignore[arg-type]
    return record.id


# ---- the life of a job ----


def test_a_paused_and_resumed_job_ends_with_the_metrics_of_an_uninterrupted_one(home: Path) -> None:
    manager = JobManager(home)
    job = manager.start(make_spec())
    assert job.state == "running"
    with pytest.raises(Busy, match="already"):
        manager.start(make_spec())
    while not count_evaluations(home):
        assert manager.job(job.id).state == "running", manager.read_log(job.id)
        time.sleep(0.02)
    manager.pause(job.id)
    paused = wait_for(manager, job.id, lambda job: job.state != "running")
    assert (paused.state, paused.message.partition(";")[0]) == ("paused", "Everything up to here is saved")
    assert 1 <= count_evaluations(home) < N_EVALUATIONS
    again = JobManager(home)  # another server, which is not the parent of the process
    assert again.job(job.id).state == "paused"
    again.resume(job.id)
    finished = wait_for(again, job.id, lambda job: job.state not in ("running", "planned"))
    assert finished.state == "finished", finished
    assert "1 finished" in finished.log_lines[-1]

    other = home.with_name("other")
    with ProgressDisplay(Console(quiet=True), quiet=True) as watcher:
        run_studies([plan_named("quickstart", OVERRIDES)], other, Machine.detect(), watcher, lambda: False)
    with open_store(home, read_only=True) as one, open_store(other, read_only=True) as two:
        run = plan_named("quickstart", OVERRIDES).runs[0].id
        curves, whole = one.curves([run])[run], two.curves([run])[run]
        assert curves.keys() == whole.keys()
        for name in whole:
            np.testing.assert_array_equal(curves[name].steps, whole[name].steps)
            np.testing.assert_array_equal(curves[name].values, whole[name].values)


def test_a_killed_job_is_reported_as_failed(home: Path) -> None:
    manager = JobManager(home)
    job = manager.start(make_spec())
    process = JobStore(home).read(job.id).process
    assert process is not None
    assert os.getpgid(process.pid) == process.pid  # its own process group: signals to ours do not reach it
    os.kill(process.pid, signal.SIGKILL)
    killed = wait_for(manager, job.id, lambda job: job.state != "running")
    assert killed.state == "failed"
    assert "killed (SIGKILL)" in killed.message


def test_a_job_outlives_its_server(home: Path) -> None:
    server = f"""
from pathlib import Path
from seedbed.web.jobs import JobManager, JobSpec
JobManager(Path({str(home)!r})).start(JobSpec("quickstart", "shipped", {OVERRIDES!r}, ("r0",), ""))
"""
    subprocess.run([sys.executable, "-c", server], check=True, timeout=60)
    (one,) = JobStore(home).all()
    assert one.process is not None
    assert is_alive(one.process)
    manager = JobManager(home)  # the next server finds it and can stop it
    manager.stop(one.id)
    assert wait_for(manager, one.id, lambda job: job.state != "running").state == "stopped"


# ---- never the wrong process ----


def test_a_process_that_reuses_the_pid_is_not_signalled(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    process = identify_process(sleeper.pid)
    assert process is not None
    assert is_alive(process)
    former = replace(process, start_time=process.start_time + "0")
    id = write_record(tmp_path, former)
    manager = JobManager(tmp_path)
    assert manager.stop(id).state == "failed"  # it has ended, and no stop was requested
    assert manager.pause(id).state == "failed"
    assert not terminate(former)
    time.sleep(0.05)
    assert sleeper.poll() is None
    assert terminate(process)  # negative control: the right identity does end it
    assert sleeper.wait(5) == -signal.SIGTERM


def test_a_zombie_process_has_no_identity() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    end = time.monotonic() + 120
    while identify_process(child.pid) is not None:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert child.wait() == 0


def test_processes_differ_by_start_time(sleeper: subprocess.Popen[bytes]) -> None:
    first, second = identify_process(os.getpid()), identify_process(sleeper.pid)
    assert first is not None
    assert second is not None
    assert first.start_time != second.start_time
    assert identify_process(sleeper.pid) == second


def test_a_command_is_not_interpreted_by_a_shell(tmp_path: Path) -> None:
    arguments = ["; touch made; $(touch made) `touch made` | & > made", "*"]
    child = spawn(
        [sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))", *arguments], tmp_path / "log"
    )
    assert child.wait(20) == 0
    assert json.loads((tmp_path / "log").read_text()) == arguments
    assert not (tmp_path / "made").exists()
    assert not Path("made").exists()


# ---- rejections ----


def test_more_than_the_maximum_of_running_jobs_are_rejected(tmp_path: Path) -> None:
    store, process = JobStore(tmp_path), identify_process(os.getpid())
    store.folder.mkdir()
    for number in range(MAX_RUNNING_JOBS):
        at = f"2030-01-0{number + 1}T00:00:00+00:00"
        store.write(JobRecord(f"{number:016x}", f"study {number}", "shipped", (), (f"run {number}",), at, process))
    with pytest.raises(Busy, match=f"{MAX_RUNNING_JOBS} studies are running"):
        JobManager(tmp_path).start(make_spec())
    assert len(list(store.all())) == MAX_RUNNING_JOBS


@pytest.mark.parametrize(
    "id", ["../store", "..%2fstore", "/etc/passwd", "", "0123456789ABCDEF", "0123456789abcdef\n", "x" * 5000]
)
def test_an_id_is_never_a_path(tmp_path: Path, id: str) -> None:
    (tmp_path / "store.json").write_text("{}")
    manager = JobManager(tmp_path)
    for method in (manager.read_log, manager.pause, manager.stop, manager.resume, manager.forget, manager.job):
        with pytest.raises(MissingData):
            method(id)
    assert (tmp_path / "store.json").exists()


# ---- status ----


@pytest.mark.parametrize(
    ("code", "stop_request", "statuses", "state", "message"),
    [
        (0, "", {"finished": 2}, "finished", "All 2 runs"),
        (None, "", {"finished": 1, "diverged": 1}, "finished", "1 diverged"),  # ended while no server was running
        (143, "pause", {"stopped": 2}, "paused", "is saved"),
        (143, "stop", {"stopped": 2}, "stopped", "is saved"),
        (143, "", {"stopped": 2}, "paused", "from outside"),
        (6, "", {"finished": 1, "failed": 1}, "failed", "some runs failed"),
        (-9, "", {"running": 2}, "failed", "SIGKILL"),
        (75, "", {}, "failed", "another process"),
        (None, "", {"running": 2}, "failed", "no server"),
        (0, "stop", {"finished": 2}, "finished", "All 2 runs"),  # it was done before it could be stopped
    ],
)  # fmt: skip
def test_every_outcome_has_a_state_and_a_message(
    code: int, stop_request: str, statuses: dict[str, int], state: str, message: str
) -> None:
    process, outcome = ProcessIdentity(1, ""), JobOutcome(code, statuses)
    record = JobRecord("0" * 16, "toy", "shipped", (), ("r0", "r1"), "", process, stop_request, outcome)  # type: ignore[arg-type]
    assert describe_state(record)[0] == state
    assert message in describe_state(record)[1]


def test_analyses_are_a_job_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def spawn_nothing(command: list[str], log: Path) -> subprocess.Popen[bytes]:
        commands.append(command[3:])
        return subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)

    monkeypatch.setattr("seedbed.web.jobs.spawn", spawn_nothing)
    manager = JobManager(tmp_path)
    job = manager.analyze("a/study")
    assert manager.analyze("a/study").id == job.id, "it is being computed already"
    assert commands == [["analyze", "--home", str(tmp_path), "--", "a/study"]]
    assert (job.state, job.kind, job.command) == ("running", "analyze", f"seedbed analyze a/study --home {tmp_path}")
    child = manager._children[job.id]
    child.communicate()
    assert manager.job(job.id).state == "finished"
    failed = replace(JobStore(tmp_path).read(job.id), outcome=JobOutcome(5, {}))
    assert describe_state(failed)[0] == "failed"
    assert "runs" not in describe_state(failed)[1]


def test_a_damaged_record_does_not_hide_the_others(tmp_path: Path) -> None:
    id = write_record(tmp_path, None)
    (tmp_path / "logs" / f"{'f' * 16}.json").write_text('{"id": "')
    assert [job.id for job in JobManager(tmp_path).jobs()] == [id]
    with pytest.raises(MissingData, match="cannot be read"):
        JobManager(tmp_path).job("f" * 16)


def test_a_log_tail_has_no_control_characters(tmp_path: Path) -> None:
    id = write_record(tmp_path, None)
    JobStore(tmp_path).path(id, "log").write_bytes(b"x" * 100_000 + b"\n\x1b[2Jthe end \xff\n")
    tail = JobManager(tmp_path).read_log(id)
    assert len(tail) < 70_000
    assert tail.endswith("\n[2Jthe end \ufffd\n")


@pytest.mark.skipif(sys.platform != "linux", reason="niceness is per thread only on Linux")
def test_the_server_runs_at_lower_priority_than_the_jobs_it_spawns(tmp_path):
    code = (
        "import os, sys, threading\n"
        "from pathlib import Path\n"
        "from seedbed.web.processes import lower_priority, spawn\n"
        "before = os.getpriority(os.PRIO_PROCESS, 0)\n"
        "lower_priority()\n"
        "seen = []\n"
        "threading.Thread(target=lambda: seen.append(os.getpriority(os.PRIO_PROCESS, 0))).start()\n"
        "command = [sys.executable, '-c', 'import os; print(os.getpriority(os.PRIO_PROCESS, 0))']\n"
        "spawn(command, Path('log')).wait()\n"
        "print(before, os.getpriority(os.PRIO_PROCESS, 0), seen[0], Path('log').read_text())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    before, server, thread, study = map(int, done.stdout.split())
    assert server == thread == min(19, before + 10)
    assert study == before
