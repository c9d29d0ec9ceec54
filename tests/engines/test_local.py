"""The local engine: which jobs run concurrently, and how failures are reported."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seedbed.engines import local
from seedbed.engines.base import EngineResources, JobFailure, QueuedJob, ShouldStop, make_failure
from seedbed.engines.local import LocalEngine, _precompile_jobs
from seedbed.engines.machine import process_age_seconds
from seedbed.engines.precompile import PrecompilePool
from seedbed.records import Event, StepEvent


def never() -> bool:
    return False


def count_up(job: int, should_stop: ShouldStop) -> Iterator[Event]:
    for step in range(job):
        yield StepEvent(step)


def die_when_large(job: int, should_stop: ShouldStop) -> Iterator[Event]:
    yield StepEvent(job)
    if job > 2:
        os.kill(os.getpid(), signal.SIGKILL)


def write_times(job: tuple[Path, float], should_stop: ShouldStop) -> Iterator[Event]:
    path, seconds = job
    start = time.monotonic()
    yield StepEvent(0)
    time.sleep(seconds)
    path.write_text(f"{start} {time.monotonic()}")


def identity(job: Any, device: str | None) -> Any:
    return job


def run_jobs(
    jobs: list[QueuedJob],
    run_job: Callable[[Any, ShouldStop], Iterator[Event]],
    on_event: Callable[[int, Any], None],
    n_workers: int,
    should_stop: ShouldStop,
    n_slots: int = 1,
) -> None:
    LocalEngine(EngineResources(n_workers, n_slots)).run(jobs, run_job, on_event, should_stop)


def queue(*jobs: Any, exclusive: tuple[int, ...] = ()) -> list[QueuedJob]:
    return [QueuedJob(partial(identity, job), index in exclusive) for index, job in enumerate(jobs)]


def event_order(jobs: list[QueuedJob], n_slots: int) -> list[int]:
    """Job indices in the order of their events, in one process."""
    order: list[int] = []
    run_jobs(jobs, count_up, lambda index, _: order.append(index), 1, never, n_slots)
    return order


def test_jobs_are_time_sliced_and_an_exclusive_job_runs_by_itself_at_the_end() -> None:
    assert event_order(queue(2, 3, 2), n_slots=2) == [0, 1, 0, 1, 1, 2, 2]
    assert event_order(queue(2, 3, 2, exclusive=(0,)), n_slots=3) == [1, 2, 1, 2, 1, 0, 0]
    assert event_order(queue(2, 2, exclusive=(0, 1)), n_slots=3) == [0, 0, 1, 1]


def test_longer_jobs_get_more_time_slices_so_that_jobs_end_together() -> None:
    jobs = [QueuedJob(partial(identity, n), n_time_slices=length) for n, length in ((2, 20), (4, 41), (2, 20))]
    assert event_order(jobs, n_slots=3) == [0, 1, 1, 2, 0, 1, 1, 2]
    endless = [
        QueuedJob(partial(identity, 1), n_time_slices=1),
        QueuedJob(partial(identity, 30), n_time_slices=1_000_000),
    ]
    assert event_order(endless, n_slots=2)[:9] == [0] + [1] * 8
    unknown = [
        QueuedJob(partial(identity, 2)),
        QueuedJob(partial(identity, 4), n_time_slices=40),
        QueuedJob(partial(identity, 2), n_time_slices=20),
    ]
    assert event_order(unknown, n_slots=3) == [0, 1, 1, 2, 0, 1, 1, 2]
    assert event_order(
        [QueuedJob(partial(identity, 1), n_time_slices=0), QueuedJob(partial(identity, 1), n_time_slices=0)], n_slots=2
    ) == [0, 1]


@pytest.mark.parametrize(
    ("sizes", "finished_sizes", "max_concurrent"),
    [
        ([64, 64], [16] * 8, 1),
        ([8, 8, 8, 8], [8, 8, 4, 4, 4, 4], 2),
        ([32, 2, 2, 2], [2, 2, 2, 16, 8, 8], 3),
    ],
    ids=["none fits", "two fit", "a large one beside three small ones"],
)
def test_a_job_that_did_not_fit_beside_others_is_halved_and_there_are_fewer_slots(
    sizes: list[int], finished_sizes: list[int], max_concurrent: int
) -> None:
    """Memory for 20: both halves at once would need as much as the whole did, down to jobs of size 1."""
    memory, allocated, finished, most = 20, list[int](), list[int](), 0

    def allocate(size: int, should_stop: ShouldStop) -> Iterator[Event]:
        nonlocal most
        if sum(allocated) + size > memory:
            raise OutOfMemoryError("CUDA out of memory")
        allocated.append(size)
        most = max(most, len(allocated))
        yield StepEvent(1)
        yield StepEvent(2)
        allocated.remove(size)
        finished.append(size)

    jobs = queue(*sizes)

    def on_event(index: int, event: Event | JobFailure) -> None:
        if isinstance(event, JobFailure):
            sizes.extend([sizes[index] // 2] * 2)
            jobs.extend(queue(*sizes[-2:]))

    run_jobs(jobs, allocate, on_event, 1, never, n_slots=12)
    assert sorted(finished) == sorted(finished_sizes)
    assert most == max_concurrent


def test_jobs_that_are_added_while_others_run_are_run_too() -> None:
    jobs, order = queue(2), list[int]()

    def on_event(index: int, event: Event | JobFailure) -> None:
        order.append(index)
        if len(jobs) < 3:
            jobs.append(QueuedJob(partial(identity, 1)))

    run_jobs(jobs, count_up, on_event, 1, never)
    assert order == [0, 0, 1, 2]


def test_in_workers_an_exclusive_job_waits_until_all_others_have_ended(tmp_path: Path) -> None:
    jobs = [(tmp_path / str(index), 0.3) for index in range(3)]
    run_jobs(queue(*jobs, exclusive=(0,)), write_times, lambda *_: None, 2, never)
    (start, _), *others = [tuple(map(float, path.read_text().split())) for path, _ in jobs]
    assert start >= max(end for _, end in others)


@pytest.mark.parametrize(
    ("counts", "out_of_memory", "cause"),
    [
        ([3, 3, 4], True, "by the kernel: memory ran out"),
        ([3, 3, 3], False, "by another program or user: the kernel did not run out of memory"),
        ([None, None, None], True, "perhaps because memory ran out"),
    ],
)
def test_a_killed_worker_is_out_of_memory_if_the_kernel_says_so_and_its_work_can_be_retried(
    monkeypatch: pytest.MonkeyPatch, counts: list[int | None], out_of_memory: bool, cause: str
) -> None:
    jobs, failures, kernel = queue(2, 5), list[tuple[int, JobFailure]](), iter([*counts, counts[0]])
    monkeypatch.setattr(local, "count_oom_kills", lambda: next(kernel))

    def on_event(index: int, event: Event | JobFailure) -> None:
        if isinstance(event, JobFailure):
            failures.append((index, event))
            jobs.append(QueuedJob(partial(identity, 1)))

    run_jobs(jobs, die_when_large, on_event, 2, never)
    assert [(index, failure.out_of_memory) for index, failure in failures] == [(1, out_of_memory)]
    assert cause in failures[0][1].cause


def ignore_stop(job: float, should_stop: ShouldStop) -> Iterator[Event]:
    yield StepEvent(1)
    time.sleep(job)
    yield StepEvent(2)


@pytest.mark.parametrize(("limit", "stopped"), [(0.2, [0]), (60.0, [])])
def test_a_job_that_does_not_stop_in_time_is_killed_and_ends_as_stopped(
    monkeypatch: pytest.MonkeyPatch, limit: float, stopped: list[int]
) -> None:
    monkeypatch.setattr(local, "STOP_SECONDS", limit)
    monkeypatch.setattr(local, "PROGRESS_INTERVAL_SECONDS", 0.1)
    started, failures = list[int](), list[tuple[int, JobFailure]]()

    def on_event(index: int, event: Event | JobFailure) -> None:
        started.append(index)
        if isinstance(event, JobFailure):
            failures.append((index, event))

    engine = LocalEngine(EngineResources(needs_processes=True))
    engine.run(queue(600.0 if stopped else 0.5), ignore_stop, on_event, lambda: bool(started))
    assert [index for index, failure in failures if failure.stopped and not failure.out_of_memory] == stopped


def fail_when_stopped(job: int, should_stop: ShouldStop) -> Iterator[Event]:
    yield StepEvent(1)
    raise MemoryError("the compiler's processes are gone")


def test_a_job_that_fails_while_it_is_to_stop_ends_as_stopped() -> None:
    events = list[Any]()
    run_jobs(queue(1), fail_when_stopped, lambda _, event: events.append(event), 1, lambda: bool(events))
    assert (events[1].stopped, events[1].out_of_memory) == (True, False)
    control = list[Any]()
    run_jobs(queue(1), fail_when_stopped, lambda _, event: control.append(event), 1, never)
    assert (control[1].stopped, control[1].out_of_memory) == (False, True)


# ---- precompiling ----


def write_pid_and_sleep(path: Path, seconds: float) -> None:
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)
    time.sleep(seconds)
    path.with_suffix(".done").touch()


def fail_loudly() -> None:
    print("this is not printed")
    raise ValueError("nor is this")


def do_nothing() -> None: ...


def check_file_and_count(job: tuple[Path, int], should_stop: ShouldStop) -> Iterator[Event]:
    """Its first step is 1 if the file exists at the start, else 0; then it takes some time."""
    path, n = job
    yield StepEvent(int(path.exists()))
    for _ in range(n):
        time.sleep(0.02)
        yield StepEvent(2)


def test_a_job_starts_after_its_precompile_while_others_run(tmp_path: Path) -> None:
    path = tmp_path / "precompile"
    done, events = path.with_suffix(".done"), list[tuple[int, int]]()
    jobs = [
        QueuedJob(partial(identity, (done, 1)), precompile=partial(write_pid_and_sleep, path, 0.3)),
        QueuedJob(partial(identity, (done, 3))),
        QueuedJob(partial(identity, (done, 0)), exclusive=True),
    ]
    run_jobs(jobs, check_file_and_count, lambda index, event: events.append((index, event.step)), 1, never, n_slots=3)
    assert events == [(1, 0), (1, 2), (1, 2), (1, 2), (0, 1), (0, 2), (2, 1)]


def test_precompiled_jobs_may_start_beyond_the_slots_up_to_a_limit() -> None:
    plain, precompiled = QueuedJob(partial(identity, 1)), QueuedJob(partial(identity, 1), precompile=do_nothing)
    job_queue, slots = local.JobQueue([plain, plain, precompiled, precompiled, precompiled]), local.Slots(12)

    def pop(n_running: int) -> int | None:
        return job_queue.pop_ready(range(n_running and 1), lambda job: slots.has_slot(job, n_running))

    assert pop(0) == 0
    assert [pop(n_running) for n_running in (12, 13, 12 + local.EXTRA_SLOTS)] == [2, 3, None]
    assert [pop(12) for _ in range(2)] == [4, None]
    assert pop(11) == 1


def test_a_single_slot_has_no_extra_slots() -> None:
    jobs = [
        QueuedJob(partial(identity, 3)),
        QueuedJob(partial(identity, 2), precompile=do_nothing),
        QueuedJob(partial(identity, 2), precompile=do_nothing),
    ]
    assert event_order(jobs, n_slots=1) == [0, 0, 0, 1, 1, 2, 2]


def test_a_failing_precompile_is_silent_and_its_job_runs(capfd: pytest.CaptureFixture[str]) -> None:
    jobs = [QueuedJob(partial(identity, 2)), QueuedJob(partial(identity, 1), precompile=fail_loudly)]
    assert event_order(jobs, n_slots=2) == [0, 0, 1]
    assert capfd.readouterr() == ("", "")


def test_stopping_ends_precompile_processes_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / "precompile"
    jobs = [
        QueuedJob(partial(identity, 1)),
        QueuedJob(partial(identity, 1), precompile=partial(write_pid_and_sleep, path, 600)),
    ]
    start, order = time.monotonic(), list[int]()
    run_jobs(jobs, count_up, lambda index, _: order.append(index), 1, path.exists, n_slots=2)
    assert order == [0]
    assert time.monotonic() - start < 300, "it was waited for"
    with pytest.raises(ProcessLookupError):
        os.kill(int(path.read_text()), 0)


def test_jobs_are_precompiled_where_the_device_has_other_work_or_several_compile() -> None:
    plain, compiled = QueuedJob(partial(identity, 1)), QueuedJob(partial(identity, 1), precompile=do_nothing)
    exclusive = QueuedJob(partial(identity, 1), exclusive=True, precompile=do_nothing)
    assert list(_precompile_jobs([compiled])) == []
    assert list(_precompile_jobs([compiled, exclusive])) == [1]
    assert list(_precompile_jobs([compiled, compiled, compiled])) == [1, 2]  # nothing else could run before the first
    assert list(_precompile_jobs([compiled, plain, exclusive, compiled])) == [0, 2, 3]
    assert list(_precompile_jobs([exclusive, exclusive])) == [0, 1]
    assert list(_precompile_jobs([exclusive])) == list(_precompile_jobs([])) == []


def test_exclusive_jobs_wait_until_nothing_is_being_compiled() -> None:
    """Its time is compared with that of others, so a compiler beside it would be unfair."""
    exclusive = QueuedJob(partial(identity, 1), exclusive=True, precompile=do_nothing)
    pool = SimpleNamespace(is_ready=lambda _: True, is_idle=False)
    queue = local.JobQueue([exclusive, exclusive], cast(PrecompilePool, pool))
    assert queue.pop_ready([], lambda _: True) is None
    pool.is_idle = True
    assert queue.pop_ready([], lambda _: True) == 0
    assert queue.pop_ready([0], lambda _: True) is None


class OutOfMemoryError(RuntimeError):
    """Has the name of torch's own."""


def during_capture() -> None:
    try:
        raise OutOfMemoryError("tried to allocate 2.00 GiB")
    except OutOfMemoryError:
        raise RuntimeError("operation failed due to a previous error during capture")  # noqa: B904


def raising(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("fail", "out_of_memory"),
    [
        (raising(MemoryError()), True),
        (raising(OutOfMemoryError("CUDA out of memory")), True),
        (raising(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")), True),
        (raising(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")), True),
        (raising(RuntimeError("CUDA error: out of memory")), True),
        (raising(RuntimeError("Triton Error [CUDA]: out of memory")), True),
        (during_capture, True),
        (raising(RuntimeError("shapes do not match")), False),
        (raising(ValueError("memory")), False),
    ],
)
def test_out_of_memory_errors_of_all_libraries_are_recognized(fail: Callable[[], None], out_of_memory: bool) -> None:
    try:
        fail()
    except Exception as error:
        failure = make_failure(error)
    assert failure.out_of_memory is out_of_memory
    assert "Traceback" in failure.trace


def test_the_age_of_a_process_grows_with_time() -> None:
    before = process_age_seconds()
    time.sleep(0.05)
    assert before > 0
    assert 0.03 < process_age_seconds() - before < 5


class Unpicklable:
    """A job that arrives in pieces: reading it back fails."""

    def __reduce__(self) -> Any:
        return make_unpicklable, ()


def make_unpicklable() -> None:
    raise AttributeError("no such class here")


def test_a_job_that_a_worker_cannot_read_fails_and_the_others_run() -> None:
    events: dict[int, list[Event | JobFailure]] = {0: [], 1: [], 2: []}
    run_jobs(queue(2, Unpicklable(), 2), count_up, lambda index, event: events[index].append(event), 2, never)
    assert [type(event) for event in events[1]] == [JobFailure]
    assert "no such class here" in events[1][0].cause  # type: ignore[union-attr]
    assert isinstance(events[0][0], StepEvent)
    assert isinstance(events[2][0], StepEvent)
