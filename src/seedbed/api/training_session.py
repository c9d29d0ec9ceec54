"""One call that trains plans to their end, or to Ctrl-C, with a progress display that suits where it is shown."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from html import escape
from pathlib import Path
from typing import Any, Protocol

from seedbed.engines.base import JobFailure
from seedbed.engines.child_process import STOP_SIGNALS
from seedbed.engines.machine import Machine
from seedbed.errors import Busy
from seedbed.format import join_words, pluralise
from seedbed.pipeline import ActivePack, ProgressObserver, StudyOutcome, run_studies
from seedbed.records import CheckpointEvent, Event, Plan, StepEvent, StopEvent
from seedbed.store import open_store


class SessionDisplay(ProgressObserver, Protocol):
    """A display that also says, once, that training is being stopped."""

    def announce_stop(self) -> None: ...


def train_plans(
    plans: Sequence[Plan], home: Path, machine: Machine, show_progress: bool = True, until: int | None = None
) -> StudyOutcome:
    """Trains what is left of the plans; on Ctrl-C everything is saved before KeyboardInterrupt is raised."""
    with catch_stop_signals([signal.SIGINT]) as caught, _make_display(show_progress) as display:
        outcome = run_studies(plans, home, machine, display, lambda: is_stopping(caught, display), until=until)
    if caught and outcome.stopped:
        raise KeyboardInterrupt("stopped; all progress is saved: the same call again continues")
    if outcome.busy_packs:
        raise Busy(f"{describe_holders(plans, outcome)}; wait for it or stop it, then call this again")
    return outcome


def is_stopping(caught: Sequence[int], display: SessionDisplay) -> bool:
    """Whether a signal has asked to stop, which the display says once."""
    if caught:
        display.announce_stop()
    return bool(caught)


def describe_holders(plans: Sequence[Plan], outcome: StudyOutcome) -> str:
    """`quickstart is being trained by process 17 since 10:30 (3 packs)`."""
    names = join_words([planned.study for planned in plans])
    holders = [f"{holder} ({pluralise(n, 'pack')})" for holder, n in Counter(outcome.busy_packs).items()]
    return f"{names} {'is' if len(plans) == 1 else 'are'} being trained by {join_words(holders)}"


def restart_unfinished(home: Path, plan: Plan) -> None:
    """Sets unfinished runs of a plan back to step 0: those whose saved state is damaged or, if none is, all of them."""
    with open_store(home) as store:
        store.register(plan)
        run_ids = {run.id for run in plan.runs}
        packs = [pack for pack in store.study_packs(plan.study) if run_ids & set(pack.runs)]
        for pack in [pack for pack in packs if not store.can_resume(pack.id)] or packs:
            store.restart(pack.id)


@contextmanager
def catch_stop_signals(
    numbers: Sequence[int] = STOP_SIGNALS, exit_after_seconds: float | None = None
) -> Iterator[list[int]]:
    """Yields a list of received signals, for a graceful stop; a second Ctrl-C aborts at once.

    With `exit_after_seconds` the process ends that long after a signal whatever it is doing, which a kill would too:
    what was saved is kept. Signals can be handled only in the main thread; elsewhere nothing is caught.
    """
    caught: list[int] = []
    terminals = [stream for stream in (1, 2) if os.isatty(stream)]

    def handle(number: int, _: Any) -> None:
        if caught and number == signal.SIGINT:
            raise KeyboardInterrupt
        if number == getattr(signal, "SIGHUP", None):  # the terminal is gone, and writing to it is an error
            for stream in terminals:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        caught.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    numbers = [number for number in numbers if not _is_nohup(number)]
    before = {number: signal.signal(number, handle) for number in numbers}
    done = threading.Event()
    if exit_after_seconds is not None:
        threading.Thread(target=_exit_late, args=(caught, done, exit_after_seconds), daemon=True).start()
    try:
        yield caught
    finally:
        done.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_nohup(number: int) -> bool:
    """Whether it is a SIGHUP that `nohup` has told this process to ignore."""
    return number == getattr(signal, "SIGHUP", None) and signal.getsignal(number) == signal.SIG_IGN


def _exit_late(caught: Sequence[int], done: threading.Event, seconds: float) -> None:
    """Ends the process when it has not stopped in time after a signal."""
    while not done.wait(0.1):
        if caught:
            if not done.wait(seconds):
                os.write(2, f"seedbed: not stopped within {seconds:g} s; ended with what was saved before\n".encode())
                os._exit(128 + caught[0])
            return


def _make_display(show_progress: bool) -> AbstractContextManager[SessionDisplay]:
    from rich.console import Console

    from seedbed.progress import ProgressDisplay

    if show_progress and in_notebook():
        return nullcontext(NotebookProgress())
    return ProgressDisplay(Console(stderr=True, highlight=False), quiet=not show_progress)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return type(get_ipython()).__name__ == "ZMQInteractiveShell"


class NotebookProgress:
    """One bar over the steps of all packs, in the output of a notebook's cell."""

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self._make_html = HTML
        self._handle: Any = display(HTML("preparing"), display_id=True)
        self._steps: dict[str, int] = {}
        self._totals: dict[str, int] = {}
        self._messages: list[str] = []
        self._percent, self._is_stopping = -1, False

    def report(self, text: str) -> None:
        self._messages.append(text)
        self._refresh()

    def announce_stop(self) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            self.report("finishing this step and saving; interrupt again to abort at once")

    def on_start(self, packs: Sequence[ActivePack]) -> None:
        for pack in packs:
            self._totals[pack.stored.id] = pack.n_steps * len(pack.runs)
            self._steps[pack.stored.id] = (pack.stored.step or 0) * len(pack.runs)
        self._refresh()

    def on_split(self, pack: ActivePack, parts: Sequence[ActivePack]) -> None:
        del self._totals[pack.stored.id], self._steps[pack.stored.id]
        self.on_start(parts)

    def on_event(self, pack: ActivePack, event: Event | JobFailure) -> None:
        if isinstance(event, JobFailure):
            self.report(f"a pack of {len(pack.runs)} runs failed: {event.cause}")
        elif isinstance(event, StepEvent | CheckpointEvent | StopEvent):
            self._steps[pack.stored.id] = event.step * len(pack.runs)
            if self._fraction_percent() != self._percent:
                self._refresh()

    def _fraction_percent(self) -> int:
        return 100 * sum(self._steps.values()) // max(1, sum(self._totals.values()))

    def _refresh(self) -> None:
        self._percent = self._fraction_percent()
        n_steps, total = sum(self._steps.values()), sum(self._totals.values())
        bar = f'<progress value="{n_steps}" max="{max(1, total)}"></progress> {self._percent} %'
        text = f"{n_steps:,} of {total:,} steps, summed over runs"
        messages = "".join(f"<br>{escape(message)}" for message in self._messages[-5:])
        self._handle.update(self._make_html(f"<div>{bar} {text}{messages}</div>"))
