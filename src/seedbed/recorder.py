"""Writes the events of one pack's training to the store, in an order in which a crash loses nothing."""

from __future__ import annotations

import time
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

FLUSH_INTERVAL_SECONDS = 0.5  # events of this time are committed together


class Recorder:
    """Stores one pack's events: metrics are committed before the checkpoint that follows them."""

    def __init__(self, store: Store, pack_id: str) -> None:
        self._store, self._pack = store, pack_id
        self._pending: list[StoredEvent] = []
        self._last_flush = time.monotonic()
        self._is_open = False  # training has started and not been stopped, failed or split
        self._write_seconds = 0.0  # spent on writing checkpoints
        self.cost = Cost()  # the last one reported

    def record(self, event: Event | JobFailure) -> None:
        self._is_open = True
        if isinstance(event, CostEvent):
            event = self._add_write_time(event)
        if isinstance(event, EvaluationEvent | SampleEvent | CostEvent | DivergenceEvent | FinishEvent):
            self._pending.append(event)
        if (
            isinstance(event, CheckpointEvent | StopEvent | JobFailure)
            or time.monotonic() - self._last_flush > FLUSH_INTERVAL_SECONDS
        ):
            self.flush()
        if isinstance(event, CheckpointEvent):
            self._save_checkpoint(event)
        elif isinstance(event, StopEvent):
            self._store.stop(self._pack)
            self._is_open = False
        elif isinstance(event, JobFailure):
            self._store.fail(self._pack, event.cause)
            self._is_open = False

    def _add_write_time(self, event: CostEvent) -> CostEvent:
        """Adds the time of writing checkpoints, since training measures only the copy to the host."""
        seconds = {**event.cost.seconds, "save": event.cost.seconds.get("save", 0.0) + self._write_seconds}
        self.cost = replace(event.cost, seconds=seconds)
        return replace(event, cost=self.cost)

    def _save_checkpoint(self, event: CheckpointEvent) -> None:
        start = time.perf_counter()
        self._store.save(self._pack, event)
        self._write_seconds += time.perf_counter() - start

    def flush(self) -> None:
        """Commits pending events."""
        if self._pending:
            self._store.record(self._pack, self._pending)
        self._pending, self._last_flush = [], time.monotonic()

    def split(self) -> list[StoredPack]:
        """Replaces the pack by two smaller ones and returns them; none if it has only one run."""
        self.flush()
        self._is_open = False
        return self._store.split(self._pack)

    def close(self) -> None:
        """Commits pending events, and marks the pack as finished if its training was completed."""
        self.flush()
        if self._is_open:
            self._store.finish(self._pack)
