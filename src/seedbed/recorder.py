"""Writes the events of one pack's training to the store, in an order in which a crash loses nothing."""

from __future__ import annotations

import time
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
    StopEvent,
    StoredEvent,
    StoredPack,
)
from seedbed.store import Store
from seedbed.store.base import PendingSave

FLUSH_INTERVAL_SECONDS = 0.5  # events of this time are committed together


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

    def close(self) -> None:
        """Commits pending events, and marks the pack as finished if its training was completed."""
        self.flush()
        self._writer.shutdown()
        if self._is_open:
            self._is_open = False
            self._store.finish(self.pack_id)
