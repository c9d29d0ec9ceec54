"""How what was started stands: one word for its state, and a sentence that says what happened and what to do.

Whether a process lives is control.py's to find out; here a record that was just looked at is put into words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from seedbed.web.jobs import JobRecord

JobState: TypeAlias = Literal["planned", "running", "paused", "stopped", "finished", "failed"]
ENDED_STATUSES: Final = ("finished", "diverged")
EXIT_CODE_REASONS: Final = {
    1: "some of its runs failed", 2: "the study was refused", 4: "data or the store could not be used",
    5: "memory or disk was full", 75: "another process was training the same runs",
    -9: "it was killed (SIGKILL), perhaps for want of memory",
}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """How something that was started stands, in one word and in a sentence."""

    id: str
    study: str
    overrides: tuple[str, ...]
    started_at: str
    state: JobState
    message: str
    command: str  # the same by hand
    log_lines: tuple[str, ...]  # the last of its log
    n_runs: int


def describe_state(started: JobRecord) -> tuple[JobState, str]:
    """The state of a record that was just looked at, and what it means."""
    ending = started.outcome
    if started.process is None:
        return "planned", "Its process has not begun; resume begins it."
    if ending is None:
        return "running", "It finishes its step, saves and ends." if started.stop_request else "It is being trained."
    counts = ", ".join(f"{n} {status}" for status, n in ending.statuses.items())
    done = sum(ending.statuses.get(status, 0) for status in ENDED_STATUSES)
    if done == len(started.runs):
        return "finished", f"All {done} runs have ended: {counts}."
    so_far = f"Of {len(started.runs)} runs: {counts or 'none begun'}."
    if started.stop_request or ending.exit_code in (-15, 130, 143):
        who = "" if started.stop_request else " It was ended from outside this page."
        state: JobState = "stopped" if started.stop_request == "stop" else "paused"
        return state, f"Everything up to here is saved; resume goes on from there. {so_far}{who}"
    return (
        "failed",
        f"{_describe_exit(ending.exit_code)}. {so_far} What was recorded is kept; resume goes on from the last save.",
    )


def _describe_exit(code: int | None) -> str:
    if code is None:
        return "It ended unexpectedly while no server was watching"
    return f"It ended with exit code {code}: {EXIT_CODE_REASONS.get(code, 'see what it said')}"
