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
from seedbed.store.files import locked, make_folder, write_whole
from seedbed.store.store import Store
from seedbed.study.files import shipped_studies
from seedbed.web.processes import Mark, ask_to_end, is_alive, mark_of, spawn
from seedbed.web.standing import Job, state_of
from seedbed.web.started import Ending, Ledger, Source, Started, Wish

MOST_AT_ONCE: Final = 4  # processes that the page keeps going; a terminal may start more
LAST_LINES: Final = 12


@dataclass(frozen=True)
class Order:
    """What to start: a study by name, the words over it, the ids of its runs, and its text."""

    study: str
    source: Source
    words: tuple[str, ...]
    runs: tuple[str, ...]
    text: str


class Control:
    """The processes of one home; servers of the same home share what they know through its files."""

    def __init__(self, home: Path) -> None:
        self._home, self._ledger = home, Ledger(home)
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._here = threading.Lock()

    # ---- what a page asks for ----

    def start(self, order: Order) -> Job:
        """Begin a study; `Busy` when these runs are going on already, or too much is."""
        with self._alone():
            known = [started for started in self._ledger.all() if self._goes_on(started)]
            self._check_room(known, order.runs)
            id = secrets.token_hex(8)
            started = Started(id, order.study, order.source, order.words, order.runs, _now())
            if order.source == "stored":
                write_whole(self._ledger.text(id), order.text.encode(), "everything")
            self._begin(started)
        return self.job(id)

    def resume(self, id: str) -> Job:
        """Run the same command again, which goes on where it was."""
        with self._alone():
            started = self._ledger.read(id)
            going = [other for other in self._ledger.all() if self._goes_on(other)]
            self._check_room(going, started.runs)
            self._begin(replace(started, at=_now()))
        return self.job(id)

    def pause(self, id: str) -> Job:
        """Ask it to save and end, to be resumed."""
        return self._ask(id, "pause")

    def stop(self, id: str) -> Job:
        """Ask it to save and end."""
        return self._ask(id, "stop")

    def forget(self, id: str) -> None:
        """Take an ended study off the list; what it computed stays in the store."""
        with self._alone():
            if self._goes_on(self._ledger.read(id)):
                raise Busy("it is running; stop it before it is taken off the list")
            self._ledger.forget(id)

    def jobs(self) -> list[Job]:
        """Everything that was started, the latest first."""
        return [self._job(self._looked_at(started)) for started in self._ledger.all()]

    def job(self, id: str) -> Job:
        return self._job(self._looked_at(self._ledger.read(id)))

    def log(self, id: str) -> str:
        """The end of what its processes said."""
        return self._ledger.tail(id)

    # ---- processes ----

    def _begin(self, started: Started) -> None:
        """The record first: what is not known to be started cannot be stopped."""
        started = replace(started, mark=None, asked="", ending=None)
        self._ledger.write(started)
        child = spawn(self._command(started), self._ledger.log(started.id))
        self._children[started.id] = child
        self._ledger.write(replace(started, mark=mark_of(child.pid) or Mark(child.pid, "ended at once")))

    def _command(self, started: Started) -> list[str]:
        """Options first, then `--`: whatever follows is a file that we chose and words that were planned."""
        file = shipped_studies()[started.study] if started.source == "shipped" else self._ledger.text(started.id)
        home = str(self._home.absolute())
        return [sys.executable, "-m", "seedbed", "run", "--home", home, "--", str(file), *started.words]

    def _ask(self, id: str, wish: Wish) -> Job:
        with self._alone():
            started = self._ledger.read(id)
            signalled = started.mark is not None and ask_to_end(started.mark)
            if signalled or started.asked:  # to stop what is paused only changes the word
                self._ledger.write(replace(started, asked=wish))
        return self.job(id)

    def _goes_on(self, started: Started) -> bool:
        self._reap(started.id)
        return started.mark is not None and is_alive(started.mark)

    def _reap(self, id: str) -> int | None:
        """The exit code of a child that has ended, which also takes its remains off the list of processes."""
        child = self._children.get(id)
        return None if child is None else child.poll()

    def _check_room(self, going: Sequence[Started], runs: Sequence[str]) -> None:
        for other in going:
            if not set(runs).isdisjoint(other.runs):
                raise Busy(f"{other.study} is training some of these runs already, since {other.at}; wait or stop it")
        if len(going) >= MOST_AT_ONCE:
            names = ", ".join(one.study for one in going)
            raise Busy(f"{len(going)} studies are running ({names}); wait for one, or pause it")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One change at a time, among threads and among servers of this home."""
        make_folder(self._ledger.folder)
        with self._here, locked(self._ledger.folder / "started.lock", "the list of what was started", wait=True):
            yield

    # ---- how it stands ----

    def _looked_at(self, started: Started) -> Started:
        """The record, with its ending where the process is found ended for the first time."""
        if started.mark is None or started.ending is not None or self._goes_on(started):
            return started
        ended = replace(started, ending=Ending(self._reap(started.id), self._statuses(started)))
        with self._alone():
            now = self._ledger.read(started.id)  # another request may have resumed it meanwhile
            if now != started:
                return now
            self._ledger.write(ended)
        return ended

    def _statuses(self, started: Started) -> dict[str, int]:
        try:
            with Store.read(self._home) as store:
                wanted = set(started.runs)
                return dict(Counter(run.status for run in store.runs(started.study) if run.id in wanted))
        except MissingData:  # it ended before it had put anything into the store
            return {}

    def _job(self, started: Started) -> Job:
        state, said = state_of(started)
        lines = tuple(self._ledger.tail(started.id).splitlines()[-LAST_LINES:])
        return Job(
            started.id, started.study, started.words, started.at, state, said, self._by_hand(started), lines,
            len(started.runs),
        )  # fmt: skip

    def _by_hand(self, started: Started) -> str:
        study = started.study if started.source == "shipped" else str(self._ledger.text(started.id))
        return shlex.join(["seedbed", "run", study, *started.words, "--home", str(self._home)])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
