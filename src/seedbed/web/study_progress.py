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

from seedbed.records import RunProgress, RunStatus

RATE_WINDOW_SECONDS: Final = 60.0  # seconds over which a pace is taken
MIN_RATE_SECONDS: Final = 3.0  # seconds that must have been seen
UNFINISHED_STATUSES: Final[tuple[RunStatus, ...]] = ("planned", "running", "stopped", "failed")


@dataclass(frozen=True)
class StudyProgress:
    """One study now; `done` and `asked` are steps of all its runs, None where nobody knows how many there are."""

    states: Mapping[RunStatus, int]
    done_steps: int
    total_steps: int | None
    seconds_left: float | None
    version: int  # differs whenever there is something new to read

    @property
    def is_running(self) -> bool:
        return bool(self.states.get("running"))


@dataclass
class StepRate:
    """Steps seen over the last minute."""

    samples: deque[tuple[float, int]] = field(default_factory=deque)
    version: int = 0
    _last_state: object = None

    def observe(self, now: float, done: int) -> float | None:
        """Steps a second, once enough has been seen."""
        self.samples.append((now, done))
        while now - self.samples[0][0] > RATE_WINDOW_SECONDS:
            self.samples.popleft()
        (began, first) = self.samples[0]
        return (done - first) / (now - began) if now - began >= MIN_RATE_SECONDS else None

    def update_version(self, state: object) -> int:
        """How many different states were seen in a row."""
        if state != self._last_state:
            self._last_state, self.version = state, self.version + 1
        return self.version


def compute_progress(
    standings: Sequence[RunProgress], asked: Mapping[str, int | None], pace: StepRate, now: float
) -> StudyProgress:
    """How a study stands, from its runs and the steps that each was asked for; diverged runs ask for no more."""
    states: dict[RunStatus, int] = dict(Counter(run.status for run in standings))
    done = sum(run.step for run in standings)
    left = [_remaining_steps(run, asked.get(run.run)) for run in standings]
    known = [steps for steps in left if steps is not None]
    all_known = len(known) == len(left)
    version = pace.update_version([(run.status, run.step) for run in standings])
    rate = pace.observe(now, done)
    runs = "running" in states
    seconds = sum(known) / rate if rate and runs and all_known else None
    return StudyProgress(states, done, done + sum(known) if all_known else None, seconds, version)


def _remaining_steps(run: RunProgress, asked: int | None) -> int | None:
    if run.status not in UNFINISHED_STATUSES:
        return 0
    return None if asked is None else max(0, asked - run.step)
