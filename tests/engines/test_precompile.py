"""The precompile pool: jobs in order, a limited index at a time, ended with the pool."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from seedbed.engines import precompile
from seedbed.engines.precompile import PrecompileJob, PrecompilePool


class Process:
    """A fake process that lives until it is killed."""

    def __init__(self, job: PrecompileJob) -> None:
        self.job, self.alive, self.waited = job, True, False

    def poll(self) -> int | None:
        return None if self.alive else 0

    def kill(self) -> None:
        self.alive = False

    def wait(self) -> int:
        assert not self.alive
        self.waited = True
        return 0


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[Process]:
    started: list[Process] = []

    def start(_: object, job: PrecompileJob) -> tuple[Process, SimpleNamespace]:
        started.append(Process(job))
        return started[-1], SimpleNamespace(close=do_nothing)

    monkeypatch.setattr(precompile, "start_process", start)
    monkeypatch.setattr(precompile, "POLL_INTERVAL_SECONDS", 0.0)
    return started


def do_nothing() -> None: ...


def test_a_limited_number_of_jobs_runs_at_a_time_in_order(processes: list[Process]) -> None:
    with PrecompilePool(dict.fromkeys((7, 3, 5), do_nothing), max_processes=2) as pool:
        pool.poll()
        pool.poll()
        assert len(processes) == 2
        assert [pool.is_ready(index) for index in (7, 3, 5, 9)] == [False, False, False, True]
        processes[1].alive = False
        pool.poll()
        assert len(processes) == 3
        assert [pool.is_ready(index) for index in (7, 3, 5)] == [False, True, False]
        processes[0].alive = processes[2].alive = False
        pool.poll()
        assert all(map(pool.is_ready, (7, 3, 5)))


def test_leaving_the_pool_ends_all_processes_and_starts_no_more(processes: list[Process]) -> None:
    with PrecompilePool(dict.fromkeys(range(4), do_nothing), max_processes=3) as pool:
        pool.poll()
    assert [process.waited for process in processes] == [True] * 3
    pool.poll()
    assert len(processes) == 3


def test_processes_are_polled_only_at_intervals(processes: list[Process], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 100.0, 100.05, 100.2, 100.2])
    monkeypatch.setattr(precompile, "POLL_INTERVAL_SECONDS", 0.1)
    # The module's own name, not the function of `time`: servers of other tests read that clock in their threads.
    monkeypatch.setattr(precompile, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with PrecompilePool({1: do_nothing}, max_processes=1) as pool:
        pool.poll()
        processes[0].alive = False
        pool.poll()
        assert not pool.is_ready(1)
        pool.poll()
        assert pool.is_ready(1)
        pool.poll()  # with no jobs left the clock, which is exhausted, is not read
