"""Read-only access to a home's store for the page, and a cache of results computed from it.

    with cache.open_store() as store:
        store.studies()
    runs = cache.get_or_compute(("runs", name), lambda store: load_run_curves(store, name))
    cache.get_or_derive(("configs", name), runs, lambda: summarise(runs))

The store is opened briefly and every query is its own transaction, so a viewer never blocks training. Expensive results
are computed once for all viewers, and again only after the store has changed.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from seedbed.errors import SeedbedError
from seedbed.store import ChangeStamp, Store, open_store, store_exists

MAX_CACHE_ENTRIES: Final = 64  # the least recently used entry is evicted first
# While the store keeps changing, a result is recomputed at most every FACTOR × (time it took to compute) seconds,
RECOMPUTE_DELAY_FACTOR: Final = 9.0
MIN_RECOMPUTE_DELAY_SECONDS: Final = 0.8  # but not more often than `live` polls,
MAX_RECOMPUTE_DELAY_SECONDS: Final = 1.5  # and often enough that no viewer is more than two seconds behind

Result = TypeVar("Result")


@dataclass
class _CacheEntry:
    """A cached result, the state it was computed from, and when."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    source: object = None  # the store's change stamp, or the object it was derived from
    value: Any = None
    computed_at: float = 0.0
    duration: float = 0.0

    def is_fresh(self, stamp: ChangeStamp) -> bool:
        delay = max(RECOMPUTE_DELAY_FACTOR * self.duration, MIN_RECOMPUTE_DELAY_SECONDS)
        is_recent = time.monotonic() - self.computed_at < min(delay, MAX_RECOMPUTE_DELAY_SECONDS)
        return self.source is not None and (self.source == stamp or is_recent)

    def update(self, source: object, compute: Callable[[], Any]) -> None:
        began = time.monotonic()
        self.value = compute()
        self.source, self.computed_at = source, time.monotonic()
        self.duration = self.computed_at - began


class StoreCache:
    """Read-only access to the store of one home, with cached results."""

    def __init__(self, home: Path) -> None:
        self.home = home.absolute()
        self._entries: OrderedDict[Hashable, _CacheEntry] = OrderedDict()
        self._lock = threading.Lock()
        self._polled_store: Store | None = None  # stays open, since opening takes longer than reading the stamp

    @contextmanager
    def open_store(self) -> Iterator[Store]:
        """The store, opened read-only for this block."""
        with open_store(self.home, read_only=True) as store:
            yield store

    def has_store(self) -> bool:
        """Whether the home has a store yet."""
        return store_exists(self.home)

    def change_stamp(self) -> ChangeStamp:
        """The change stamp of the store, or a value of its own while the store is missing or cannot be read."""
        with self._lock:
            try:
                if self._polled_store is None:
                    self._polled_store = open_store(self.home, read_only=True)
                return self._polled_store.change_stamp()
            except SeedbedError as error:
                return str(error)

    def get_or_compute(self, key: Hashable, compute: Callable[[Store], Result]) -> Result:
        """`compute(store)`, cached and at most slightly stale; concurrent callers wait for one computation."""
        entry = self._get_entry(key)
        with entry.lock:
            stamp = self.change_stamp()
            if not entry.is_fresh(stamp):
                with self.open_store() as store:
                    entry.update(stamp, lambda: compute(store))
            value: Result = entry.value
            return value

    def get_or_derive(self, key: Hashable, source: object, compute: Callable[[], Result]) -> Result:
        """`compute()`, cached until `source`, itself a cached object, is replaced by another one."""
        entry = self._get_entry(key)
        with entry.lock:
            if entry.source is not source:
                entry.update(source, compute)
            value: Result = entry.value
            return value

    def _get_entry(self, key: Hashable) -> _CacheEntry:
        with self._lock:
            entry = self._entries.setdefault(key, _CacheEntry())
            self._entries.move_to_end(key)
            while len(self._entries) > MAX_CACHE_ENTRIES:
                self._entries.popitem(last=False)
            return entry
