"""What is done ahead: in its order, so much at a time, and ended with the one who asked for it."""

from __future__ import annotations

import pytest

from seedbed.engines.precompile import PrecompileJob, PrecompilePool


class Process:
    """Lives until it is told to end."""

    def __init__(self, piece: PrecompileJob) -> None:
        self.piece, self.alive, self.joined = piece, True, False

    def is_alive(self) -> bool:
        return self.alive

    def kill(self) -> None:
        self.alive = False

    def join(self) -> None:
        assert not self.alive
        self.joined = True


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[Process]:
    found: list[Process] = []

    def start(piece: PrecompileJob) -> Process:
        found.append(Process(piece))
        return found[-1]

    monkeypatch.setattr(ahead, "_start", start)
    monkeypatch.setattr(ahead, "LOOK", 0.0)
    return found


def piece() -> None: ...


def test_so_many_are_under_way_at_a_time_in_their_order(processes: list[Process]) -> None:
    with PrecompilePool(dict.fromkeys((7, 3, 5), piece), max_processes=2) as pieces:
        pieces.poll()
        pieces.poll()
        assert len(processes) == 2
        assert [pieces.is_ready(number) for number in (7, 3, 5, 9)] == [False, False, False, True]
        processes[1].alive = False
        pieces.poll()
        assert len(processes) == 3
        assert [pieces.is_ready(number) for number in (7, 3, 5)] == [False, True, False]
        processes[0].alive = processes[2].alive = False
        pieces.poll()
        assert all(map(pieces.is_ready, (7, 3, 5)))


def test_at_the_end_all_processes_are_ended_and_none_is_begun(processes: list[Process]) -> None:
    with PrecompilePool(dict.fromkeys(range(4), piece), max_processes=3) as pieces:
        pieces.poll()
    assert [process.joined for process in processes] == [True] * 3
    pieces.poll()
    assert len(processes) == 3


def test_processes_are_looked_at_now_and_then_only(processes: list[Process], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 100.0, 100.05, 100.2, 100.2])
    monkeypatch.setattr(ahead, "LOOK", 0.1)
    monkeypatch.setattr("seedbed.engines.precompile.time.monotonic", lambda: next(clock))
    with PrecompilePool({1: piece}, max_processes=1) as pieces:
        pieces.poll()
        processes[0].alive = False
        pieces.poll()
        assert not pieces.is_ready(1)
        pieces.poll()
        assert pieces.is_ready(1)
        pieces.poll()  # with nothing left the clock, which has run out, is not asked
