"""Several GPUs: a process for each, jobs spread by their estimated time. The jobs of these tests need no GPU."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from seedbed.engines import local
from seedbed.engines.base import EngineResources, JobFailure, QueuedJob, ShouldStop
from seedbed.engines.local import LocalEngine, _precompile_jobs, _precompile_on_device
from seedbed.records import CheckpointEvent, DivergenceEvent, Event, StepEvent

DEVICES = ("cuda:0", "cuda:1")


def never() -> bool:
    return False


def identity(job: Any, device: str | None) -> Any:
    return job


def message(text: object) -> Event:
    return DivergenceEvent(0, 0, str(text))


def report_process(job: Any, should_stop: ShouldStop) -> Iterator[Event]:
    yield message(f"{os.environ['CUDA_VISIBLE_DEVICES']} {os.getpid()}")


def run_and_report(jobs: list[QueuedJob], run_job: Any, n_slots: int, devices: tuple[str, ...] = DEVICES) -> list[Any]:
    """The reports of the jobs, by job index."""
    reports: dict[int, Any] = {}

    def on_event(index: int, event: Event | JobFailure) -> None:
        if not isinstance(event, StepEvent):
            assert index not in reports
            reports[index] = event.cause if isinstance(event, DivergenceEvent) else event

    LocalEngine(EngineResources(n_slots=n_slots, devices=devices)).run(jobs, run_job, on_event, never)
    return [reports[index] for index in range(len(jobs))]


def assigned_devices(jobs: list[QueuedJob], n_slots: int) -> list[str | None]:
    """The device that each job was prepared for, in order."""
    devices: dict[int, str | None] = {}

    def prepare(index: int, device: str | None) -> None:
        devices[index] = device

    jobs = [
        QueuedJob(partial(prepare, index), job.exclusive, seconds=job.seconds, device=job.device)
        for index, job in enumerate(jobs)
    ]
    reports = run_and_report(jobs, report_process, n_slots)
    for index, device in devices.items():  # and it ran in the process that sees this device
        assert f"cuda:{reports[index].split()[0]}" == device
    return [devices[index] for index in range(len(jobs))]


def jobs_of_seconds(*seconds: float, device: str | None = None) -> list[QueuedJob]:
    return [QueuedJob(partial(identity, None), seconds=each, device=device) for each in seconds]


@pytest.fixture(autouse=True)
def no_visible_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_jobs_go_to_the_device_with_the_fewest_estimated_seconds() -> None:
    assert assigned_devices(jobs_of_seconds(10, 4, 3, 2, 0.5, 0.1), n_slots=9) == [
        "cuda:0", "cuda:1", "cuda:1", "cuda:1", "cuda:1", "cuda:1",
    ]  # fmt: skip
    assert assigned_devices(jobs_of_seconds(10, 4, 3, 2), n_slots=2)[:3] == ["cuda:0", "cuda:1", "cuda:1"]


def test_without_estimates_devices_get_equally_many_jobs() -> None:
    assert assigned_devices(jobs_of_seconds(0, 0, 0, 0), n_slots=2) == ["cuda:0", "cuda:1"] * 2


def test_a_job_returns_to_its_device_if_that_is_there() -> None:
    returning = jobs_of_seconds(5, 5, device="cuda:1") + jobs_of_seconds(1, 1, device="cuda:7")
    assert assigned_devices(returning, n_slots=2) == ["cuda:1", "cuda:1", "cuda:0", "cuda:0"]


def test_each_device_has_one_process_that_sees_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-5f2a")
    reports = run_and_report(jobs_of_seconds(0, 0, 0, 0, 0, 0), report_process, n_slots=3)
    assert {report.split()[0] for report in reports} == {"3", "GPU-5f2a"}
    assert len(set(reports)) == 2
    assert str(os.getpid()) not in " ".join(reports)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3, GPU-5f2a"


def test_one_of_several_gpus_has_one_process_for_all_slots() -> None:
    reports = run_and_report(jobs_of_seconds(0, 0, 0), report_process, n_slots=2, devices=("cuda:1",))
    assert {report.split()[0] for report in reports} == {"1"}
    assert len(set(reports)) == 1


def kill_own_process(job: str, should_stop: ShouldStop) -> Iterator[Event]:
    if job == "kill":
        time.sleep(0.3)  # until the others of this process have started
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(50 if job == "long" else 1):
        time.sleep(0.02)
        yield StepEvent(0)
    yield message(os.environ["CUDA_VISIBLE_DEVICES"])


def test_a_killed_process_fails_the_jobs_of_its_device_only_and_they_can_be_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local, "count_oom_kills", lambda: None)  # as on a system that does not say
    jobs = [
        QueuedJob(partial(identity, kind), device=device)
        for kind, device in (("kill", "cuda:0"), ("long", "cuda:0"), ("long", "cuda:1"), ("long", "cuda:1"))
    ]
    failures: dict[int, JobFailure] = {}
    finished: dict[int, str] = {}

    def on_event(index: int, event: Event | JobFailure) -> None:
        if isinstance(event, JobFailure):
            failures[index] = event
            jobs.append(QueuedJob(partial(identity, "short"), device="cuda:0"))
        elif isinstance(event, DivergenceEvent):
            assert index not in finished
            finished[index] = event.cause

    LocalEngine(EngineResources(n_slots=2, devices=DEVICES)).run(jobs, kill_own_process, on_event, never)
    assert sorted(failures) == [0, 1]
    assert all(failure.out_of_memory and "SIGKILL" in failure.cause for failure in failures.values())
    assert finished == {2: "1", 3: "1", 4: "0", 5: "0"}


active_jobs: list[str] = []  # of the worker process


def count_active(job: str, should_stop: ShouldStop) -> Iterator[Event]:
    """Reports how many jobs were active at once in its process while it ran."""
    active_jobs.append(job)
    if job == "large":
        yield StepEvent(0)
        active_jobs.remove(job)
        raise MemoryError
    most = 0
    for _ in range(20):
        time.sleep(0.01)
        most = max(most, len(active_jobs))
        yield StepEvent(0)
    active_jobs.remove(job)
    yield message(most)


def test_a_device_that_ran_out_of_memory_has_fewer_slots_and_the_others_keep_theirs() -> None:
    jobs = [
        QueuedJob(partial(identity, kind), device=device)
        for device in DEVICES
        for kind in ("small", "large" if device == "cuda:0" else "small", "small", "small", "small")
    ]
    reports = run_and_report(jobs, count_active, n_slots=2)
    assert isinstance(reports[1], JobFailure)
    assert reports[1].out_of_memory
    assert reports[2:5] == ["1", "1", "1"]
    assert "2" in reports[5:]
    assert set(reports[5:]) <= {"1", "2"}


def send_arrays(job: bytes, should_stop: ShouldStop) -> Iterator[Event]:
    for step in range(4):
        yield CheckpointEvent(step, {"x": np.zeros(500_000)}, {})
    yield message(len(job))


def test_large_jobs_and_large_events_do_not_wait_for_each_other() -> None:
    """A job of 4 MB is sent to a process that is sending events of 4 MB; either exceeds what a pipe holds."""
    sizes, n_arrays = [4_000_000 + index for index in range(6)], [0] * 6
    jobs = [QueuedJob(partial(identity, bytes(size))) for size in sizes]
    reports: dict[int, str] = {}

    def on_event(index: int, event: Event | JobFailure) -> None:
        if isinstance(event, DivergenceEvent):
            reports[index] = event.cause
        else:
            n_arrays[index] += isinstance(event, CheckpointEvent)

    LocalEngine(EngineResources(n_slots=2, devices=("cuda:0",))).run(jobs, send_arrays, on_event, never)
    assert reports == {index: str(size) for index, size in enumerate(sizes)}
    assert n_arrays == [4] * 6


def do_nothing() -> None: ...


def test_devices_take_turns_to_precompile_and_compile_their_first_job_themselves() -> None:
    plain, compiled = QueuedJob(partial(identity, 1)), QueuedJob(partial(identity, 1), precompile=do_nothing)
    functions = _precompile_jobs([compiled] * 5, DEVICES)
    assert {index: function.args for index, function in functions.items() if isinstance(function, partial)} == {
        2: ("cuda:0", do_nothing),
        3: ("cuda:1", do_nothing),
        4: ("cuda:0", do_nothing),
    }
    assert list(_precompile_jobs([plain, compiled, compiled], DEVICES)) == [1, 2]
    assert list(_precompile_jobs([compiled], DEVICES)) == []


def test_a_precompile_process_sees_only_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    visible: list[str] = []
    _precompile_on_device("cuda:1", lambda: visible.append(os.environ["CUDA_VISIBLE_DEVICES"]))
    assert visible == ["6"]
