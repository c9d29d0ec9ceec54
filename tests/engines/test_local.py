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

from seedbed.engines.local import Failed, Stop, Task, failure, process_age, run_jobs
from seedbed.records import Event, Stepped


def never() -> bool:
    return False


def count_up(job: int, stop: Stop) -> Iterator[Event]:
    for step in range(job):
        yield Stepped(step)


def die_when_large(job: int, stop: Stop) -> Iterator[Event]:
    yield Stepped(job)
    if job > 2:
        os.kill(os.getpid(), signal.SIGKILL)


def note_times(job: tuple[Path, float], stop: Stop) -> Iterator[Event]:
    path, seconds = job
    start = time.monotonic()
    yield Stepped(0)
    time.sleep(seconds)
    path.write_text(f"{start} {time.monotonic()}")


def value(job: Any) -> Any:
    return job


def tasks(*jobs: Any, alone: tuple[int, ...] = ()) -> list[Task]:
    return [Task(partial(value, job), number in alone) for number, job in enumerate(jobs)]


def turns(jobs: list[Task], n_lanes: int) -> list[int]:
    """The numbers of the jobs in the order of their events, one process."""
    seen: list[int] = []
    run_jobs(jobs, count_up, lambda number, _: seen.append(number), 1, never, n_lanes)
    return seen


def test_lanes_take_turns_and_a_job_alone_has_none_beside_it_and_comes_last() -> None:
    assert turns(tasks(2, 3, 2), n_lanes=2) == [0, 1, 0, 1, 1, 2, 2]
    assert turns(tasks(2, 3, 2, alone=(0,)), n_lanes=3) == [1, 2, 1, 2, 1, 0, 0]
    assert turns(tasks(2, 2, alone=(0, 1)), n_lanes=3) == [0, 0, 1, 1]


def test_jobs_that_are_added_while_others_run_are_done_too() -> None:
    jobs, seen = tasks(2), []

    def on_event(number: int, event: Event | Failed) -> None:
        seen.append(number)
        if len(jobs) < 3:
            jobs.append(Task(partial(value, 1)))

    run_jobs(jobs, count_up, on_event, 1, never)
    assert seen == [0, 0, 1, 2]


def test_in_workers_a_job_alone_waits_until_all_others_are_over(tmp_path: Path) -> None:
    jobs = [(tmp_path / str(number), 0.3) for number in range(3)]
    run_jobs(tasks(*jobs, alone=(0,)), note_times, lambda *_: None, 2, never)
    (start, _), *others = [tuple(map(float, path.read_text().split())) for path, _ in jobs]
    assert start >= max(end for _, end in others)


def test_a_killed_worker_may_have_lacked_memory_and_its_work_goes_on_in_another_way() -> None:
    jobs, told = tasks(2, 5), list[tuple[int, Failed]]()

    def on_event(number: int, event: Event | Failed) -> None:
        if isinstance(event, Failed):
            told.append((number, event))
            jobs.append(Task(partial(value, 1)))

    run_jobs(jobs, die_when_large, on_event, 2, never)
    assert [(number, event.no_memory) for number, event in told] == [(1, True)]
    assert "SIGKILL, perhaps out of memory" in told[0][1].cause


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
        (during_capture, True),
        (raising(RuntimeError("shapes do not match")), False),
        (raising(ValueError("memory")), False),
    ],
)
def test_a_refusal_of_memory_is_known_whoever_refuses(fail: Callable[[], None], no_memory: bool) -> None:
    try:
        fail()
    except Exception as error:
        told = failure(error)
    assert told.no_memory is no_memory
    assert "Traceback" in told.trace


def test_a_process_knows_since_when_it_runs() -> None:
    before = process_age()
    time.sleep(0.05)
    assert before > 0
    assert 0.03 < process_age() - before < 5
