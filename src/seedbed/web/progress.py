"""How far a study has come, and how long it takes at the pace it was seen to have; plain values, no clock of its own.

>>> pace = Pace()
>>> pace.see(10.0, 100), pace.see(14.0, 300)
(None, 50.0)
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from seedbed.records import Standing, Status

WINDOW: Final = 60.0  # seconds over which a pace is taken
SHORTEST: Final = 3.0  # seconds that must have been seen
OPEN: Final[tuple[Status, ...]] = ("planned", "running", "stopped", "failed")


@dataclass(frozen=True)
class Progress:
    """One study now; `done` and `asked` are steps of all its runs, None where nobody knows how many there are."""

    states: Mapping[Status, int]
    done: int
    asked: int | None
    seconds_left: float | None
    version: int  # differs whenever there is something new to read

    @property
    def is_running(self) -> bool:
        return bool(self.states.get("running"))


@dataclass
class Pace:
    """Steps seen over the last minute."""

    seen: deque[tuple[float, int]] = field(default_factory=deque)
    version: int = 0
    _last: object = None

    def see(self, now: float, done: int) -> float | None:
        """Steps a second, once enough has been seen."""
        self.seen.append((now, done))
        while now - self.seen[0][0] > WINDOW:
            self.seen.popleft()
        (began, first) = self.seen[0]
        return (done - first) / (now - began) if now - began >= SHORTEST else None

    def count(self, state: object) -> int:
        """How many different states were seen in a row."""
        if state != self._last:
            self._last, self.version = state, self.version + 1
        return self.version


def progress_of(standings: Sequence[Standing], asked: Mapping[str, int | None], pace: Pace, now: float) -> Progress:
    """How a study stands, from its runs and the steps that each was asked for; diverged runs ask for no more."""
    states: dict[Status, int] = dict(Counter(run.status for run in standings))
    done = sum(run.step for run in standings)
    left = [_left(run, asked.get(run.run)) for run in standings]
    known = [steps for steps in left if steps is not None]
    all_known = len(known) == len(left)
    version = pace.count([(run.status, run.step) for run in standings])
    rate = pace.see(now, done)
    runs = "running" in states
    seconds = sum(known) / rate if rate and runs and all_known else None
    return Progress(states, done, done + sum(known) if all_known else None, seconds, version)


def _left(run: Standing, asked: int | None) -> int | None:
    if run.status not in OPEN:
        return 0
    return None if asked is None else max(0, asked - run.step)
