"""The engine contract; a new engine inherits `EngineContract` and provides an `engine` fixture."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seedbed.engines import ENGINES, Engine
from seedbed.engines.base import DropJob, EngineResources, JobFailure, QueuedJob, ShouldStop
from seedbed.engines.local import LocalEngine
from seedbed.engines.ray import RayEngine
from seedbed.records import Cost, CostEvent, Event, StepEvent, StopEvent


def never() -> bool:
    return False


def count(job: int, should_stop: ShouldStop) -> Iterator[Event]:
    """One event per step; unlike step events, these are never thinned out."""
    for step in range(job):
        yield StepEvent(step)
        yield CostEvent(step, Cost())


def fail_at_two(job: int, should_stop: ShouldStop) -> Iterator[Event]:
    for step in range(job):
        if step == 2:
            raise ValueError("two is too many")
        yield CostEvent(step, Cost())


def need_memory(job: int, should_stop: ShouldStop) -> Iterator[Event]:
    yield CostEvent(job, Cost())
    if job > 2:
        raise MemoryError


def write_interval(job: Path, should_stop: ShouldStop) -> Iterator[Event]:
    start = time.monotonic()
    for _ in range(10):
        time.sleep(0.02)
        yield StepEvent(0)
    job.write_text(f"{start} {time.monotonic()}")


def run_until_stopped(job: int, should_stop: ShouldStop) -> Iterator[Event]:
    yield CostEvent(job, Cost())
    while not should_stop():
        time.sleep(0.01)
        yield StepEvent(job)
    yield StopEvent(job)


def identity(job: Any, device: str | None) -> Any:
    return job


def queue(*jobs: Any, exclusive: tuple[int, ...] = ()) -> list[QueuedJob]:
    return [QueuedJob(partial(identity, job), index in exclusive) for index, job in enumerate(jobs)]


class EventLog:
    """The events of each job, without step events."""

    def __init__(self) -> None:
        self.by_job: dict[int, list[Event | JobFailure]] = {}

    def __call__(self, job_index: int, event: Event | JobFailure) -> None:
        self.by_job.setdefault(job_index, [])
        if not isinstance(event, StepEvent):
            self.by_job[job_index].append(event)

    def steps(self, job_index: int) -> list[int]:
        return [event.step for event in self.by_job[job_index] if isinstance(event, CostEvent)]

    def failures(self) -> dict[int, JobFailure]:
        """The failures by job; each is the last event of its job."""
        failures = {index: event for index, events in self.by_job.items() for event in events if is_failure(event)}
        assert all(self.by_job[index][-1] is failure for index, failure in failures.items())
        return failures  # type: ignore[return-value]


def is_failure(event: Event | JobFailure) -> bool:
    return isinstance(event, JobFailure)


class EngineContract:
    """Tests that use only `Engine.run`."""

    def test_the_events_of_every_job_arrive_in_order_and_once(self, engine: Engine) -> None:
        log = EventLog()
        engine.run(queue(3, 7, 1, 5, 2), count, log, never)
        assert {index: log.steps(index) for index in range(5)} == {
            index: list(range(n)) for index, n in enumerate((3, 7, 1, 5, 2))
        }

    def test_nothing_to_run_is_nothing_to_wait_for(self, engine: Engine) -> None:
        engine.run([], count, EventLog(), never)

    def test_a_job_is_prepared_once_by_the_caller_before_its_first_event(self, engine: Engine) -> None:
        order: list[tuple[str, int, int]] = []

        def prepare(job: int, device: str | None) -> int:
            order.append(("prepare", job, os.getpid()))
            return 2

        jobs = [QueuedJob(partial(prepare, index)) for index in range(4)]
        engine.run(jobs, count, lambda index, _: order.append(("event", index, os.getpid())), never)
        assert {pid for _, _, pid in order} == {os.getpid()}
        for index in range(4):
            kinds = [kind for kind, job, _ in order if job == index]
            assert kinds[0] == "prepare"
            assert kinds.count("prepare") == 1

    def test_a_job_that_raises_ends_with_a_failure_and_the_others_continue(self, engine: Engine) -> None:
        log = EventLog()
        engine.run(queue(2, 5, 1), fail_at_two, log, never)
        assert [log.steps(index) for index in range(3)] == [[0, 1], [0, 1], [0]]
        assert list(log.failures()) == [1]
        failure = log.failures()[1]
        assert (failure.cause, failure.out_of_memory) == ("ValueError: two is too many", False)
        assert "fail_at_two" in failure.trace

    def test_a_job_that_ran_out_of_memory_can_be_requeued_in_parts(self, engine: Engine) -> None:
        """8 → 4 and 4 → 2, 2, 2 and 2; jobs that are appended meanwhile run too."""
        sizes, log = [1, 8, 2], EventLog()
        jobs = queue(*sizes)

        def on_event(index: int, event: Event | JobFailure) -> None:
            log(index, event)
            if isinstance(event, JobFailure):
                parts = [sizes[index] // 2] * 2
                sizes.extend(parts)
                jobs.extend(queue(*parts))

        engine.run(jobs, need_memory, on_event, never)
        assert sorted(sizes) == [1, 2, 2, 2, 2, 2, 4, 4, 8]
        assert {index: log.steps(index) for index in range(9)} == {index: [size] for index, size in enumerate(sizes)}
        assert {sizes[index] for index in log.failures()} == {4, 8}
        assert all(failure.out_of_memory for failure in log.failures().values())

    def test_a_job_can_be_requeued_exclusively(self, engine: Engine) -> None:
        log, jobs = EventLog(), queue(1, 3, 2)

        def on_event(index: int, event: Event | JobFailure) -> None:
            log(index, event)
            if isinstance(event, JobFailure) and not jobs[index].exclusive:
                jobs.append(QueuedJob(partial(identity, 3), exclusive=True))

        engine.run(jobs, need_memory, on_event, never)
        assert list(log.failures()) == [1, 3]

    def test_an_exclusive_job_runs_after_all_others_and_by_itself(self, engine: Engine, tmp_path: Path) -> None:
        paths = [tmp_path / str(index) for index in range(5)]
        engine.run(queue(*paths, exclusive=(0, 3)), write_interval, EventLog(), never)
        intervals = [tuple(map(float, path.read_text().split())) for path in paths]
        shared = [intervals[index] for index in (1, 2, 4)]
        first, second = sorted((intervals[0], intervals[3]))
        assert first[0] >= max(end for _, end in shared)
        assert second[0] >= first[1]

    def test_stopping_reaches_the_running_jobs_and_starts_no_others(self, engine: Engine) -> None:
        log, prepared = EventLog(), list[int]()

        def prepare(job: int, device: str | None) -> int:
            prepared.append(job)
            return job

        jobs = [QueuedJob(partial(prepare, index)) for index in range(30)]
        engine.run(jobs, run_until_stopped, log, lambda: bool(log.by_job))
        assert 1 <= len(prepared) < 30
        assert sorted(log.by_job) == prepared
        for index, events in log.by_job.items():
            assert events == [CostEvent(index, Cost()), StopEvent(index)]

    def test_a_job_that_is_dropped_ends_and_the_others_continue(self, engine: Engine) -> None:
        """The first job would never end."""
        log = EventLog()

        def on_event(index: int, event: Event | JobFailure) -> None:
            log(index, event)
            if index == 0 and isinstance(event, CostEvent):
                raise DropJob

        engine.run(queue(10**9, 7, 5, 2), count, on_event, never)
        assert [log.steps(index) for index in range(4)] == [[0], list(range(7)), list(range(5)), [0, 1]]
        assert log.failures() == {}

    def test_an_error_of_the_caller_is_raised_to_the_caller(self, engine: Engine) -> None:
        def on_event(index: int, event: Event | JobFailure) -> None:
            raise OSError("disk full")

        with pytest.raises(OSError, match="disk full"):
            engine.run(queue(3, 3, 3), count, on_event, never)


class TestLocalEngineInThisProcess(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return LocalEngine(EngineResources(n_slots=3))


class TestLocalEngineInWorkers(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return LocalEngine(EngineResources(n_workers=2, needs_processes=True))


class TestLocalEngineOnTwoDevices(EngineContract):
    """Two processes that each see one GPU; their jobs need none."""

    @pytest.fixture
    def engine(self) -> Engine:
        return LocalEngine(EngineResources(n_slots=2, devices=("cuda:0", "cuda:1")))


@pytest.mark.cluster
class TestRayEngine(EngineContract):
    """Two nodes of a cluster on this machine."""

    @pytest.fixture
    def engine(self, ray_cluster: str) -> Engine:
        return RayEngine(EngineResources(n_workers=2, address=ray_cluster))


def test_every_engine_of_the_registry_is_made_of_resources() -> None:
    engines: dict[str, Callable[[EngineResources], Engine]] = dict(ENGINES)
    for make in engines.values():
        assert isinstance(make(EngineResources(n_workers=2)), Engine)
