"""Progress of a study and its remaining time at the observed step rate; pure functions, the caller passes the time.

>>> rate = StepRate()
>>> rate.observe(10.0, 100), rate.observe(14.0, 300)
(None, 50.0)
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from seedbed.records import RunProgress, RunStatus

RATE_WINDOW_SECONDS: Final = 60.0  # the rate is averaged over this long
MIN_RATE_SECONDS: Final = 3.0  # no rate is reported before
UNFINISHED_STATUSES: Final[tuple[RunStatus, ...]] = ("planned", "running", "stopped", "failed")


@dataclass(frozen=True)
class StudyProgress:
    """Progress of one study; steps are summed over its runs, and the total is None if any run's is unknown."""

    states: Mapping[RunStatus, int]
    done_steps: int
    total_steps: int | None
    seconds_left: float | None
    version: int  # increases whenever a run changes

    @property
    def is_running(self) -> bool:
        return bool(self.states.get("running"))


@dataclass
class StepRate:
    """The step rate of a study over the last minute, and a version that counts its changes."""

    samples: deque[tuple[float, int]] = field(default_factory=deque)
    version: int = 0
    _last_state: object = None

    def observe(self, now: float, done: int) -> float | None:
        """Adds an observation; returns steps per second once MIN_RATE_SECONDS are covered."""
        self.samples.append((now, done))
        while now - self.samples[0][0] > RATE_WINDOW_SECONDS:
            self.samples.popleft()
        start, first = self.samples[0]
        return (done - first) / (now - start) if now - start >= MIN_RATE_SECONDS else None

    def update_version(self, state: object) -> int:
        """The version, incremented if the state differs from the previous one."""
        if state != self._last_state:
            self._last_state, self.version = state, self.version + 1
        return self.version


def compute_progress(
    runs: Sequence[RunProgress], target_steps: Mapping[str, int | None], rate: StepRate, now: float
) -> StudyProgress:
    """A study's progress from its runs and the planned steps of each; a diverged run has no steps left."""
    states: dict[RunStatus, int] = dict(Counter(run.status for run in runs))
    done = sum(run.step for run in runs)
    left = [_remaining_steps(run, target_steps.get(run.run)) for run in runs]
    known = [steps for steps in left if steps is not None]
    all_known = len(known) == len(left)
    version = rate.update_version([(run.status, run.step) for run in runs])
    steps_per_second = rate.observe(now, done)
    is_running = "running" in states
    seconds = sum(known) / steps_per_second if steps_per_second and is_running and all_known else None
    return StudyProgress(states, done, done + sum(known) if all_known else None, seconds, version)


def _remaining_steps(run: RunProgress, target: int | None) -> int | None:
    if run.status not in UNFINISHED_STATUSES:
        return 0
    return None if target is None else max(0, target - run.step)
