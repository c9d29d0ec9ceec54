"""The status of a job started from the page: its state, and a sentence on what happened and what to do next.

`job_manager` checks whether the process is alive; here an up-to-date record is turned into text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from seedbed.web.jobs import JobRecord

JobState: TypeAlias = Literal["planned", "running", "paused", "stopped", "finished", "failed"]
ENDED_STATUSES: Final = ("finished", "diverged")
EXIT_CODE_REASONS: Final = {
    1: "some of its runs failed", 2: "the study was rejected", 4: "data or the store could not be used",
    5: "memory or disk was full", 75: "another process was training the same runs",
    -9: "it was killed (SIGKILL), probably out of memory",
}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A job and its status, as the page shows it."""

    id: str
    study: str
    overrides: tuple[str, ...]
    started_at: str
    state: JobState
    message: str
    command: str  # the equivalent shell command
    log_lines: tuple[str, ...]  # the last lines of its log
    n_runs: int


def describe_state(record: JobRecord) -> tuple[JobState, str]:
    """The state of an up-to-date record and a sentence that explains it."""
    outcome = record.outcome
    if record.process is None:
        return "planned", "Its process has not started; resume starts it."
    if outcome is None:
        return "running", "It is finishing its step and saving." if record.stop_request else "It is training."
    counts = ", ".join(f"{n} {status}" for status, n in outcome.statuses.items())
    done = sum(outcome.statuses.get(status, 0) for status in ENDED_STATUSES)
    if done == len(record.runs):
        return "finished", f"All {done} runs have ended: {counts}."
    so_far = f"Of {len(record.runs)} runs: {counts or 'none started'}."
    if record.stop_request or outcome.exit_code in (-15, 130, 143):
        origin = "" if record.stop_request else " It was stopped from outside this page."
        state: JobState = "stopped" if record.stop_request == "stop" else "paused"
        return state, f"Everything up to here is saved; resume continues from there. {so_far}{origin}"
    advice = "Recorded metrics are kept; resume continues from the last checkpoint."
    return "failed", f"{_describe_exit(outcome.exit_code)}. {so_far} {advice}"


def _describe_exit(code: int | None) -> str:
    if code is None:
        return "It ended unexpectedly while no server was running"
    return f"It ended with exit code {code}: {EXIT_CODE_REASONS.get(code, 'see its log')}"
