"""Start, pause, resume and stop studies: each is a `seedbed run` process of its own, which no closed page ends.

    control = Control(home)
    job = control.start(planned)              # spawns `seedbed run`
    control.pause(job.id)                     # SIGTERM: it finishes its step, saves and ends
    control.resume(job.id)                    # the same command again goes on from there

What is started comes from a plan (planning.py), so a name or word from outside is known to mean something before it
reaches a command line; files and records are started.py's, signals processes.py's.
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
from seedbed.store.durable_files import file_lock, make_folder, write_atomic
from seedbed.store.store import Store
from seedbed.study.study_files import shipped_studies
from seedbed.web.job_status import Job, describe_state
from seedbed.web.jobs import JobOutcome, JobRecord, JobStore, StopRequest, StudySource
from seedbed.web.processes import ProcessIdentity, identify_process, is_alive, spawn, terminate

MAX_RUNNING_JOBS: Final = 4  # processes that the page keeps going; a terminal may start more
N_LOG_LINES: Final = 12


@dataclass(frozen=True)
class JobSpec:
    """What to start: a study by name, the words over it, the ids of its runs, and its text."""

    study: str
    source: StudySource
    overrides: tuple[str, ...]
    runs: tuple[str, ...]
    study_text: str


class JobManager:
    """The processes of one home; servers of the same home share what they know through its files."""

    def __init__(self, home: Path) -> None:
        self._home, self._store = home, JobStore(home)
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._thread_lock = threading.Lock()

    # ---- what a page asks for ----

    def start(self, order: JobSpec) -> Job:
        """Begin a study; `Busy` when these runs are going on already, or too much is."""
        with self._locked():
            known = [started for started in self._store.all() if self._is_running(started)]
            self._check_capacity(known, order.runs)
            id = secrets.token_hex(8)
            started = JobRecord(id, order.study, order.source, order.overrides, order.runs, _now())
            if order.source == "stored":
                write_atomic(self._store.study_path(id), order.study_text.encode(), "everything")
            self._launch(started)
        return self.job(id)

    def resume(self, id: str) -> Job:
        """Run the same command again, which goes on where it was."""
        with self._locked():
            started = self._store.read(id)
            going = [other for other in self._store.all() if self._is_running(other)]
            self._check_capacity(going, started.runs)
            self._launch(replace(started, started_at=_now()))
        return self.job(id)

    def pause(self, id: str) -> Job:
        """Ask it to save and end, to be resumed."""
        return self._request_stop(id, "pause")

    def stop(self, id: str) -> Job:
        """Ask it to save and end."""
        return self._request_stop(id, "stop")

    def forget(self, id: str) -> None:
        """Take an ended study off the list; what it computed stays in the store."""
        with self._locked():
            if self._is_running(self._store.read(id)):
                raise Busy("it is running; stop it before it is taken off the list")
            self._store.delete(id)

    def jobs(self) -> list[Job]:
        """Everything that was started, the latest first."""
        return [self._make_job(self._refresh(started)) for started in self._store.all()]

    def job(self, id: str) -> Job:
        return self._make_job(self._refresh(self._store.read(id)))

    def read_log(self, id: str) -> str:
        """The end of what its processes said."""
        return self._store.read_log_tail(id)

    # ---- processes ----

    def _launch(self, started: JobRecord) -> None:
        """The record first: what is not known to be started cannot be stopped."""
        started = replace(started, process=None, stop_request="", outcome=None)
        self._store.write(started)
        child = spawn(self._build_command(started), self._store.log_path(started.id))
        self._children[started.id] = child
        self._store.write(
            replace(started, process=identify_process(child.pid) or ProcessIdentity(child.pid, "ended at once"))
        )

    def _build_command(self, started: JobRecord) -> list[str]:
        """Options first, then `--`: whatever follows is a file that we chose and words that were planned."""
        file = shipped_studies()[started.study] if started.source == "shipped" else self._store.study_path(started.id)
        home = str(self._home.absolute())
        return [sys.executable, "-m", "seedbed", "run", "--home", home, "--", str(file), *started.overrides]

    def _request_stop(self, id: str, wish: StopRequest) -> Job:
        with self._locked():
            started = self._store.read(id)
            signalled = started.process is not None and terminate(started.process)
            if signalled or started.stop_request:  # to stop what is paused only changes the word
                self._store.write(replace(started, stop_request=wish))
        return self.job(id)

    def _is_running(self, started: JobRecord) -> bool:
        self._reap(started.id)
        return started.process is not None and is_alive(started.process)

    def _reap(self, id: str) -> int | None:
        """The exit code of a child that has ended, which also takes its remains off the list of processes."""
        child = self._children.get(id)
        return None if child is None else child.poll()

    def _check_capacity(self, going: Sequence[JobRecord], runs: Sequence[str]) -> None:
        for other in going:
            if not set(runs).isdisjoint(other.runs):
                raise Busy(
                    f"{other.study} is training some of these runs already, since {other.started_at}; wait or stop it"
                )
        if len(going) >= MAX_RUNNING_JOBS:
            names = ", ".join(one.study for one in going)
            raise Busy(f"{len(going)} studies are running ({names}); wait for one, or pause it")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One change at a time, among threads and among servers of this home."""
        make_folder(self._store.folder)
        with (
            self._thread_lock,
            file_lock(self._store.folder / "started.lock", "the list of what was started", wait=True),
        ):
            yield

    # ---- how it stands ----

    def _refresh(self, started: JobRecord) -> JobRecord:
        """The record, with its ending where the process is found ended for the first time."""
        if started.process is None or started.outcome is not None or self._is_running(started):
            return started
        ended = replace(started, outcome=JobOutcome(self._reap(started.id), self._count_statuses(started)))
        with self._locked():
            now = self._store.read(started.id)  # another request may have resumed it meanwhile
            if now != started:
                return now
            self._store.write(ended)
        return ended

    def _count_statuses(self, started: JobRecord) -> dict[str, int]:
        try:
            with Store.open_read_only(self._home) as store:
                wanted = set(started.runs)
                return dict(Counter(run.status for run in store.runs(started.study) if run.id in wanted))
        except MissingData:  # it ended before it had put anything into the store
            return {}

    def _make_job(self, started: JobRecord) -> Job:
        state, said = describe_state(started)
        lines = tuple(self._store.read_log_tail(started.id).splitlines()[-N_LOG_LINES:])
        return Job(
            started.id, started.study, started.overrides, started.started_at, state, said, self._shell_command(started), lines,
            len(started.runs),
        )  # fmt: skip

    def _shell_command(self, started: JobRecord) -> str:
        study = started.study if started.source == "shipped" else str(self._store.study_path(started.id))
        return shlex.join(["seedbed", "run", study, *started.overrides, "--home", str(self._home)])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
