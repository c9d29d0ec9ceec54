"""Writes the events of one pack's training to the store, in an order in which a crash loses nothing.

They are written by the command that trains the pack or, where workers on other machines write to the store themselves,
by a `BackgroundRecorder` there; the command then only begins and ends the pack.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from seedbed.engines.base import JobFailure
from seedbed.records import (
    CheckpointEvent,
    Cost,
    CostEvent,
    DivergenceEvent,
    EvaluationEvent,
    Event,
    FinishEvent,
    SampleEvent,
    StepEvent,
    StopEvent,
    StoredEvent,
    StoredPack,
)
from seedbed.store import Store
from seedbed.store.base import PendingSave

FLUSH_INTERVAL_SECONDS = 0.5  # events of this time are committed together
MAX_UNRECORDED_EVENTS = 64  # of a pack whose worker writes them: training waits until some are committed


class Recorder:
    """Stores one pack's events: metrics are committed before the checkpoint that follows them.

    A checkpoint's files are written in a background thread while training continues. Until they are committed, later
    events are held back: a crash then resumes from the previous state, as if they had not happened.
    """

    def __init__(self, store: Store, pack_id: str) -> None:
        self._store, self.pack_id = store, pack_id
        self._pending: list[StoredEvent] = []
        self._last_flush = time.monotonic()
        self._is_open = False  # training has started and not been stopped, failed or split
        self._save_seconds = 0.0  # that training waited for checkpoints to be written
        self._writer = ThreadPoolExecutor(1)
        self._save: tuple[PendingSave, Future[None]] | None = None  # in progress
        self.cost = Cost()  # the last one reported

    def record(self, event: Event | JobFailure) -> None:
        self._is_open = True
        if isinstance(event, CostEvent):
            event = self._add_save_time(event)
        if isinstance(event, EvaluationEvent | SampleEvent | CostEvent | DivergenceEvent | FinishEvent):
            self._pending.append(event)
        is_due = time.monotonic() - self._last_flush > FLUSH_INTERVAL_SECONDS and not self.is_writing
        if is_due or isinstance(event, CheckpointEvent | StopEvent | JobFailure):
            self.flush()
        if isinstance(event, CheckpointEvent):
            save = self._store.begin_save(self.pack_id, event)
            self._save = save, self._writer.submit(save.write)
        elif isinstance(event, StopEvent):
            self._store.stop(self.pack_id)
            self._is_open = False
        elif isinstance(event, JobFailure):
            self._store.fail(self.pack_id, event.cause)
            self._is_open = False

    def note(self, event: Event) -> None:
        """An event that a worker has recorded: after all of them, `close` marks the pack as finished."""
        self._is_open = not isinstance(event, StopEvent)

    def _add_save_time(self, event: CostEvent) -> CostEvent:
        """Adds the time that training waited for checkpoints, since it measures only their copy to the host."""
        seconds = {**event.cost.seconds, "save": event.cost.seconds.get("save", 0.0) + self._save_seconds}
        self.cost = replace(event.cost, seconds=seconds)
        return replace(event, cost=self.cost)

    @property
    def is_writing(self) -> bool:
        return self._save is not None and not self._save[1].done()

    def flush(self) -> None:
        """Commits the checkpoint in progress, waiting for its files, and then pending events."""
        start = time.perf_counter()
        if self._save is not None:
            (save, written), self._save = self._save, None
            written.result()
            save.commit()
            self._save_seconds += time.perf_counter() - start
        if self._pending:
            self._store.record(self.pack_id, self._pending)
        self._pending, self._last_flush = [], time.monotonic()

    def split(self) -> list[StoredPack]:
        """Replaces the pack by two smaller ones and returns them; none if it has only one run."""
        self.flush()
        self._is_open = False
        return self._store.split(self.pack_id)

    def close_unfinished(self) -> None:
        """Commits pending events of a pack whose training broke off and will be resumed."""
        self._is_open = False
        self.close()

    def abandon(self) -> None:
        """Writes nothing more: another process has taken the pack over."""
        self._is_open, self._pending, self._save = False, [], None
        self._writer.shutdown()

    def close(self) -> None:
        """Commits pending events, and marks the pack as finished if its training was completed."""
        self.flush()
        self._writer.shutdown()
        if self._is_open:
            self._is_open = False
            self._store.finish(self.pack_id)


class BackgroundRecorder:
    """Records in a thread what the process that trains yields, while it goes on."""

    def __init__(self, store: Store, pack_id: str) -> None:
        self._recorder, self._thread = Recorder(store, pack_id), ThreadPoolExecutor(1)
        self._submitted: deque[Future[None]] = deque()
        self._last_step = time.monotonic()
        self._has_failed = False

    def record(self, event: Event) -> None:
        """Raises what an earlier event has raised; a checkpoint waits for all of them, so memory holds two at most."""
        if isinstance(event, StepEvent):  # commits what waits, as long as training goes on
            if time.monotonic() - self._last_step < FLUSH_INTERVAL_SECONDS:
                return
            self._last_step = time.monotonic()
        self._wait(0 if isinstance(event, CheckpointEvent) else MAX_UNRECORDED_EVENTS)
        self._submitted.append(self._thread.submit(self._record, event))

    def _record(self, event: Event) -> None:
        if self._has_failed:  # what follows must not be recorded without this
            return
        try:
            self._recorder.record(event)
        except BaseException:
            self._has_failed = True
            raise

    def _wait(self, most: int) -> None:
        """Waits until no more events than these are left to be recorded."""
        while self._submitted and (len(self._submitted) > most or self._submitted[0].done()):
            self._submitted.popleft().result()

    def close(self) -> None:
        """Commits everything; the pack is not marked as finished."""
        try:
            self._wait(0)
            self._recorder.close_unfinished()
        finally:
            self._thread.shutdown()
