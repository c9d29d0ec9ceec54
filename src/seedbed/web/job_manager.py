"""Starts, pauses, resumes and stops studies; each is its own `seedbed run` process, which outlives the page.

    manager = JobManager(home)
    job = manager.start(preview.job_spec)     # spawns `seedbed run`
    manager.pause(job.id)                     # SIGTERM: it finishes its step, saves and exits
    manager.resume(job.id)                    # the same command continues from the checkpoint

A job spec comes from `plan_preview`, so names and overrides from a request are validated before they reach a command
line. Files and records are left to `jobs`, signals to `processes`.
"""

from __future__ import annotations

import secrets
import shlex
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from seedbed.errors import Busy, MissingData
from seedbed.store import open_store
from seedbed.store.durable_files import file_lock, make_folder, write_atomic
from seedbed.study.study_files import shipped_studies
from seedbed.web.job_status import Job, describe_state
from seedbed.web.jobs import JobOutcome, JobRecord, JobStore, StopRequest, StudySource
from seedbed.web.processes import ProcessIdentity, identify_process, is_alive, spawn, terminate

MAX_RUNNING_JOBS: Final = 4  # started from the page; the command line has no limit
N_LOG_LINES: Final = 12


@dataclass(frozen=True)
class JobSpec:
    """A planned study to start: its name, overrides, run ids and text."""

    study: str
    source: StudySource
    overrides: tuple[str, ...]
    runs: tuple[str, ...]
    study_text: str


class JobManager:
    """The jobs of one home; several servers of the same home share them through the job files."""

    def __init__(self, home: Path) -> None:
        self._home, self._store = home, JobStore(home)
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._thread_lock = threading.Lock()

    # ---- requests from the page ----

    def start(self, spec: JobSpec) -> Job:
        """Starts a study; raises `Busy` when its runs are already training or too many jobs run."""
        with self._locked():
            running = [record for record in self._store.all() if self._is_running(record)]
            self._check_capacity(running, spec.runs)
            id = secrets.token_hex(8)
            record = JobRecord(id, spec.study, spec.source, spec.overrides, spec.runs, _now())
            if spec.source == "stored":
                write_atomic(self._store.study_path(id), spec.study_text.encode(), "everything")
            self._launch(record)
        return self.job(id)

    def resume(self, id: str) -> Job:
        """Runs the same command again, which continues from its checkpoints."""
        with self._locked():
            record = self._store.read(id)
            running = [other for other in self._store.all() if self._is_running(other)]
            self._check_capacity(running, record.runs)
            self._launch(replace(record, started_at=_now()))
        return self.job(id)

    def pause(self, id: str) -> Job:
        """Asks it to save and exit, to be resumed later."""
        return self._request_stop(id, "pause")

    def stop(self, id: str) -> Job:
        """Asks it to save and exit."""
        return self._request_stop(id, "stop")

    def forget(self, id: str) -> None:
        """Removes an ended job from the list; its runs stay in the store."""
        with self._locked():
            if self._is_running(self._store.read(id)):
                raise Busy("it is running; stop it before removing it from the list")
            self._store.delete(id)

    def jobs(self) -> list[Job]:
        """All jobs, most recent first."""
        return [self._make_job(self._refresh(record)) for record in self._store.all()]

    def job(self, id: str) -> Job:
        return self._make_job(self._refresh(self._store.read(id)))

    def read_log(self, id: str) -> str:
        """The end of its log."""
        return self._store.read_log_tail(id)

    # ---- processes ----

    def _launch(self, record: JobRecord) -> None:
        """Spawns the process; the record is written first, so that a crash cannot leave an unknown process."""
        record = replace(record, process=None, stop_request="", outcome=None)
        self._store.write(record)
        child = spawn(self._build_command(record), self._store.log_path(record.id))
        self._children[record.id] = child
        process = identify_process(child.pid) or ProcessIdentity(child.pid, "exited at once")
        self._store.write(replace(record, process=process))

    def _build_command(self, record: JobRecord) -> list[str]:
        """Options come before `--`, so that no override can be parsed as one."""
        file = shipped_studies()[record.study] if record.source == "shipped" else self._store.study_path(record.id)
        home = str(self._home.absolute())
        return [sys.executable, "-m", "seedbed", "run", "--home", home, "--", str(file), *record.overrides]

    def _request_stop(self, id: str, request: StopRequest) -> Job:
        with self._locked():
            record = self._store.read(id)
            signalled = record.process is not None and terminate(record.process)
            if signalled or record.stop_request:  # a paused job only changes its state to stopped
                self._store.write(replace(record, stop_request=request))
        return self.job(id)

    def _is_running(self, record: JobRecord) -> bool:
        self._reap(record.id)
        return record.process is not None and is_alive(record.process)

    def _reap(self, id: str) -> int | None:
        """The exit code of an ended child; polling also reaps the zombie process."""
        child = self._children.get(id)
        return None if child is None else child.poll()

    def _check_capacity(self, running: Sequence[JobRecord], runs: Sequence[str]) -> None:
        for other in running:
            if not set(runs).isdisjoint(other.runs):
                since = other.started_at
                raise Busy(f"{other.study} is already training some of these runs, since {since}; wait, or stop it")
        if len(running) >= MAX_RUNNING_JOBS:
            names = ", ".join(one.study for one in running)
            raise Busy(f"{len(running)} studies are running ({names}); wait for one, or pause it")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Serialises changes among threads and among servers of this home."""
        make_folder(self._store.folder)
        with (
            self._thread_lock,
            file_lock(self._store.folder / "started.lock", "the list of jobs", wait=True),
        ):
            yield

    # ---- status ----

    def _refresh(self, record: JobRecord) -> JobRecord:
        """The record, with its outcome added when the process is first found to have ended."""
        if record.process is None or record.outcome is not None or self._is_running(record):
            return record
        ended = replace(record, outcome=JobOutcome(self._reap(record.id), self._count_statuses(record)))
        with self._locked():
            current = self._store.read(record.id)  # another request may have resumed it meanwhile
            if current != record:
                return current
            self._store.write(ended)
        return ended

    def _count_statuses(self, record: JobRecord) -> dict[str, int]:
        try:
            with open_store(self._home, read_only=True) as store:
                wanted = set(record.runs)
                return dict(
                    Counter(run.status for run in store.runs(record.study, skip_unreadable=True) if run.id in wanted)
                )
        except MissingData:  # it ended before writing anything to the store
            return {}

    def _make_job(self, record: JobRecord) -> Job:
        state, message = describe_state(record)
        lines = tuple(self._store.read_log_tail(record.id).splitlines()[-N_LOG_LINES:])
        return Job(
            record.id, record.study, record.overrides, record.started_at, state, message, self._shell_command(record),
            lines, len(record.runs),
        )  # fmt: skip

    def _shell_command(self, record: JobRecord) -> str:
        study = record.study if record.source == "shipped" else str(self._store.study_path(record.id))
        return shlex.join(["seedbed", "run", study, *record.overrides, "--home", str(self._home)])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
