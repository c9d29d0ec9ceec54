"""Which jobs run beside which, and what is told of those that end badly."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seedbed.engines import local
from seedbed.engines.local import (
    JobFailure,
    QueuedJob,
    ShouldStop,
    _precompile_jobs,
    make_failure,
    process_age_seconds,
    run_jobs,
)
from seedbed.records import Event, StepEvent


def never() -> bool:
    return False


def count_up(job: int, stop: ShouldStop) -> Iterator[Event]:
    for step in range(job):
        yield StepEvent(step)


def die_when_large(job: int, stop: ShouldStop) -> Iterator[Event]:
    yield StepEvent(job)
    if job > 2:
        os.kill(os.getpid(), signal.SIGKILL)


def note_times(job: tuple[Path, float], stop: ShouldStop) -> Iterator[Event]:
    path, seconds = job
    start = time.monotonic()
    yield StepEvent(0)
    time.sleep(seconds)
    path.write_text(f"{start} {time.monotonic()}")


def value(job: Any) -> Any:
    return job


def tasks(*jobs: Any, alone: tuple[int, ...] = ()) -> list[QueuedJob]:
    return [QueuedJob(partial(value, job), number in alone) for number, job in enumerate(jobs)]


def turns(jobs: list[QueuedJob], n_lanes: int) -> list[int]:
    """The numbers of the jobs in the order of their events, one process."""
    seen: list[int] = []
    run_jobs(jobs, count_up, lambda number, _: seen.append(number), 1, never, n_lanes)
    return seen


def test_lanes_take_turns_and_a_job_alone_has_none_beside_it_and_comes_last() -> None:
    assert turns(tasks(2, 3, 2), n_lanes=2) == [0, 1, 0, 1, 1, 2, 2]
    assert turns(tasks(2, 3, 2, alone=(0,)), n_lanes=3) == [1, 2, 1, 2, 1, 0, 0]
    assert turns(tasks(2, 2, alone=(0, 1)), n_lanes=3) == [0, 0, 1, 1]


def test_a_longer_task_has_more_turns_so_that_it_does_not_end_long_after_the_others() -> None:
    jobs = [QueuedJob(partial(value, n), n_time_slices=length) for n, length in ((2, 20), (4, 41), (2, 20))]
    assert turns(jobs, n_lanes=3) == [0, 1, 1, 2, 0, 1, 1, 2]
    endless = [QueuedJob(partial(value, 1), n_time_slices=1), QueuedJob(partial(value, 30), n_time_slices=1_000_000)]
    assert turns(endless, n_lanes=2)[:9] == [0] + [1] * 8
    unknown = [
        QueuedJob(partial(value, 2)),
        QueuedJob(partial(value, 4), n_time_slices=40),
        QueuedJob(partial(value, 2), n_time_slices=20),
    ]
    assert turns(unknown, n_lanes=3) == [0, 1, 1, 2, 0, 1, 1, 2]
    assert turns(
        [QueuedJob(partial(value, 1), n_time_slices=0), QueuedJob(partial(value, 1), n_time_slices=0)], n_lanes=2
    ) == [0, 1]


@pytest.mark.parametrize(
    ("sizes", "ended", "beside"),
    [
        ([64, 64], [16] * 8, 1),
        ([8, 8, 8, 8], [8, 8, 4, 4, 4, 4], 2),
        ([32, 2, 2, 2], [2, 2, 2, 16, 8, 8], 3),
    ],
    ids=["none fits", "two fit", "a large one, while three small ones go on"],
)
def test_what_did_not_fit_beside_others_is_halved_and_has_fewer_beside_it(
    sizes: list[int], ended: list[int], beside: int
) -> None:
    """Memory for 20: halves side by side would need as much as the whole did, down to tasks of 1."""
    room, held, done, most = 20, list[int](), list[int](), 0

    def hold(size: int, stop: ShouldStop) -> Iterator[Event]:
        nonlocal most
        if sum(held) + size > room:
            raise OutOfMemoryError("CUDA out of memory")
        held.append(size)
        most = max(most, len(held))
        yield StepEvent(1)
        yield StepEvent(2)
        held.remove(size)
        done.append(size)

    jobs = tasks(*sizes)

    def on_event(number: int, event: Event | JobFailure) -> None:
        if isinstance(event, JobFailure):
            sizes.extend([sizes[number] // 2] * 2)
            jobs.extend(tasks(*sizes[-2:]))

    run_jobs(jobs, hold, on_event, 1, never, n_slots=12)
    assert sorted(done) == sorted(ended)
    assert most == beside


def test_jobs_that_are_added_while_others_run_are_done_too() -> None:
    jobs, seen = tasks(2), []

    def on_event(number: int, event: Event | JobFailure) -> None:
        seen.append(number)
        if len(jobs) < 3:
            jobs.append(QueuedJob(partial(value, 1)))

    run_jobs(jobs, count_up, on_event, 1, never)
    assert seen == [0, 0, 1, 2]


def test_in_workers_a_job_alone_waits_until_all_others_are_over(tmp_path: Path) -> None:
    jobs = [(tmp_path / str(number), 0.3) for number in range(3)]
    run_jobs(tasks(*jobs, alone=(0,)), note_times, lambda *_: None, 2, never)
    (start, _), *others = [tuple(map(float, path.read_text().split())) for path, _ in jobs]
    assert start >= max(end for _, end in others)


def test_a_killed_worker_may_have_lacked_memory_and_its_work_goes_on_in_another_way() -> None:
    jobs, told = tasks(2, 5), list[tuple[int, JobFailure]]()

    def on_event(number: int, event: Event | JobFailure) -> None:
        if isinstance(event, JobFailure):
            told.append((number, event))
            jobs.append(QueuedJob(partial(value, 1)))

    run_jobs(jobs, die_when_large, on_event, 2, never)
    assert [(number, event.out_of_memory) for number, event in told] == [(1, True)]
    assert "SIGKILL, perhaps out of memory" in told[0][1].cause


# ---- ahead ----


def nap(path: Path, seconds: float) -> None:
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)
    time.sleep(seconds)
    path.with_suffix(".done").touch()


def fail_loudly() -> None:
    print("this is not shown")
    raise ValueError("nor is this")


def do_nothing() -> None: ...


def look_and_count(job: tuple[Path, int], stop: ShouldStop) -> Iterator[Event]:
    """Tells whether the file was there at the beginning, by its step; then takes its time."""
    path, n = job
    yield StepEvent(int(path.exists()))
    for _ in range(n):
        time.sleep(0.02)
        yield StepEvent(2)


def test_a_task_starts_when_what_is_done_ahead_for_it_has_ended_and_others_go_on_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "piece"
    done, seen = path.with_suffix(".done"), list[tuple[int, int]]()
    jobs = [
        QueuedJob(partial(value, (done, 1)), precompile=partial(nap, path, 0.3)),
        QueuedJob(partial(value, (done, 3))),
        QueuedJob(partial(value, (done, 0)), exclusive=True),
    ]
    run_jobs(jobs, look_and_count, lambda number, event: seen.append((number, event.step)), 1, never, n_slots=3)
    assert seen == [(1, 0), (1, 2), (1, 2), (1, 2), (0, 1), (0, 2), (2, 1)]


def test_where_lanes_are_full_those_made_ready_ahead_may_join_but_not_many() -> None:
    plain, ready = QueuedJob(partial(value, 1)), QueuedJob(partial(value, 1), precompile=do_nothing)
    queue = local._JobQueue([plain, plain, ready, ready, ready])
    assert queue.pop_ready((), free_slots=1) == 0
    assert [queue.pop_ready((0,), room) for room in (0, -1, -local.EXTRA_SLOTS)] == [2, 3, None]
    assert [queue.pop_ready((0,), free_slots=0) for _ in range(2)] == [4, None]
    assert queue.pop_ready((0,), free_slots=1) == 1


def test_a_single_lane_has_no_others_besides() -> None:
    jobs = [
        QueuedJob(partial(value, 3)),
        QueuedJob(partial(value, 2), precompile=do_nothing),
        QueuedJob(partial(value, 2), precompile=do_nothing),
    ]
    assert turns(jobs, n_lanes=1) == [0, 0, 0, 1, 1, 2, 2]


def test_what_fails_ahead_is_not_told_and_its_task_is_done(capfd: pytest.CaptureFixture[str]) -> None:
    jobs = [QueuedJob(partial(value, 2)), QueuedJob(partial(value, 1), precompile=fail_loudly)]
    assert turns(jobs, n_lanes=2) == [0, 0, 1]
    assert capfd.readouterr() == ("", "")


def test_stopping_does_not_wait_for_what_is_done_ahead_and_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "piece"
    jobs = [QueuedJob(partial(value, 1)), QueuedJob(partial(value, 1), precompile=partial(nap, path, 60))]
    start, seen = time.monotonic(), list[int]()
    run_jobs(jobs, count_up, lambda number, _: seen.append(number), 1, path.exists, n_slots=2)
    assert seen == [0]
    assert time.monotonic() - start < 20
    with pytest.raises(ProcessLookupError):
        os.kill(int(path.read_text()), 0)


def test_only_tasks_that_share_lanes_with_others_have_something_done_ahead() -> None:
    plain, due = QueuedJob(partial(value, 1)), QueuedJob(partial(value, 1), precompile=do_nothing)
    lone = QueuedJob(partial(value, 1), exclusive=True, precompile=do_nothing)
    assert list(_precompile_jobs([due])) == []
    assert list(_precompile_jobs([due, lone])) == []
    assert list(_precompile_jobs([due, due, due])) == [1, 2]  # the first would have nothing to wait for
    assert list(_precompile_jobs([due, plain, lone, due])) == [0, 3]
    assert list(_precompile_jobs([lone, lone])) == list(_precompile_jobs([])) == []


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


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
    ("fail", "no_memory"),
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
def test_a_refusal_of_memory_is_known_whoever_refuses(fail: Callable[[], None], no_memory: bool) -> None:
    try:
        fail()
    except Exception as error:
        told = make_failure(error)
    assert told.out_of_memory is no_memory
    assert "Traceback" in told.trace


def test_a_process_knows_since_when_it_runs() -> None:
    before = process_age_seconds()
    time.sleep(0.05)
    assert before > 0
    assert 0.03 < process_age_seconds() - before < 5
