"""From events to records: what one pack's training tells goes into the store, in the order that loses nothing."""

from __future__ import annotations

import time
from dataclasses import replace

from seedbed.engines.local import Failed
from seedbed.records import (
    Cost,
    Diverged,
    Evaluated,
    Event,
    Finished,
    Happening,
    Measured,
    Sampled,
    Saved,
    Stopped,
    StoredPack,
)
from seedbed.store.store import Store

FLUSH = 0.5  # seconds that readings may wait before they are committed together


class Recorder:
    """Brings one pack's events into the store: readings are committed before the checkpoint that follows them."""

    def __init__(self, store: Store, pack_id: str) -> None:
        self._store, self._pack = store, pack_id
        self._waiting: list[Happening] = []
        self._since = time.monotonic()
        self._open = False  # training has begun and not been closed
        self._writing = 0.0  # seconds that checkpoints took to be put in place
        self.cost = Cost()  # the last that was told

    def take(self, event: Event | Failed) -> None:
        self._open = True
        if isinstance(event, Measured):
            event = self._with_writing(event)
        if isinstance(event, Evaluated | Sampled | Measured | Diverged | Finished):
            self._waiting.append(event)
        if isinstance(event, Saved | Stopped | Failed) or time.monotonic() - self._since > FLUSH:
            self.flush()
        if isinstance(event, Saved):
            self._save(event)
        elif isinstance(event, Stopped):
            self._store.stop(self._pack)
            self._open = False
        elif isinstance(event, Failed):
            self._store.fail(self._pack, event.cause)
            self._open = False

    def _with_writing(self, event: Measured) -> Measured:
        """Training knows what it took to copy a state, not what it took to write it."""
        seconds = {**event.cost.seconds, "save": event.cost.seconds.get("save", 0.0) + self._writing}
        self.cost = replace(event.cost, seconds=seconds)
        return replace(event, cost=self.cost)

    def _save(self, event: Saved) -> None:
        start = time.perf_counter()
        self._store.save(self._pack, event)
        self._writing += time.perf_counter() - start

    def flush(self) -> None:
        """Commits what waits."""
        if self._waiting:
            self._store.record(self._pack, self._waiting)
        self._waiting, self._since = [], time.monotonic()

    def split(self) -> list[StoredPack]:
        """Gives the pack up for two smaller ones; none where it has one run left."""
        self.flush()
        self._open = False
        return self._store.split(self._pack)

    def close(self) -> None:
        """Ends a pack whose training ran to its end."""
        self.flush()
        if self._open:
            self._store.finish(self._pack)
