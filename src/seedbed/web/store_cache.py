"""The home that the page looks at: short read-only looks at its store, and computed things kept until it changes.

    with lab.look() as store:
        store.studies()
    runs = lab.kept(("runs", name), lambda store: gather_curves(store, name))
    lab.derived(("points", name), runs, lambda: summarise(runs))

A look opens the store and closes it again, and every query in it is a transaction of its own, so that a viewer never
holds up a study. What is costly is computed once for all viewers, and again only after the store has changed.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from fastapi import Depends, Request

from seedbed.store.store import Store

MAX_CACHE_ENTRIES: Final = 64  # computed things; the one not asked for longest goes first
RECOMPUTE_DELAY_FACTOR: Final = 9.0  # a changing store is computed from again after so many times as long as it took,
MIN_RECOMPUTE_DELAY_SECONDS: Final = 0.8  # but not before the next look of `live`,
MAX_RECOMPUTE_DELAY_SECONDS: Final = 1.5  # and before anybody is two seconds behind

Result = TypeVar("Result")
ChangeStamp: TypeAlias = tuple[int, ...]


@dataclass
class _CacheEntry:
    """One computed thing, of which store it is, and when it was made."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    source: object = None  # the store's stamp, or what it was derived from
    value: Any = None
    computed_at: float = 0.0
    duration: float = 0.0

    def is_fresh(self, stamp: ChangeStamp) -> bool:
        rests = time.monotonic() - self.computed_at < min(
            max(RECOMPUTE_DELAY_FACTOR * self.duration, MIN_RECOMPUTE_DELAY_SECONDS), MAX_RECOMPUTE_DELAY_SECONDS
        )
        return self.source is not None and (self.source == stamp or rests)

    def update(self, source: object, compute: Callable[[], Any]) -> None:
        began = time.monotonic()
        self.value = compute()
        self.source, self.computed_at = source, time.monotonic()
        self.duration = self.computed_at - began


class StoreCache:
    """Looks at the store of one home."""

    def __init__(self, home: Path) -> None:
        self.home = home.absolute()
        self._entries: OrderedDict[Hashable, _CacheEntry] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def open_store(self) -> Iterator[Store]:
        """The store, to read from in this block only."""
        with Store.open_read_only(self.home) as store:
            yield store

    def change_stamp(self) -> ChangeStamp:
        """Changes whenever something is written to the store."""
        found: list[int] = []
        for name in ("store.db", "store.db-wal"):
            try:
                state = (self.home / name).stat()
            except OSError:
                found += [0, 0, 0]
            else:
                found += [state.st_ino, state.st_size, state.st_mtime_ns]
        return tuple(found)

    def get_or_compute(self, key: Hashable, compute: Callable[[Store], Result]) -> Result:
        """What `compute` makes of the store as it is, or was a moment ago; many who ask at once wait for one."""
        entry = self._get_entry(key)
        with entry.lock:
            stamp = self.change_stamp()
            if not entry.is_fresh(stamp):
                with self.open_store() as store:
                    entry.update(stamp, lambda: compute(store))
            found: Result = entry.value
            return found

    def get_or_derive(self, key: Hashable, source: object, compute: Callable[[], Result]) -> Result:
        """What `compute` makes of a kept thing, made again only when that very thing has been replaced."""
        entry = self._get_entry(key)
        with entry.lock:
            if entry.source is not source:
                entry.update(source, compute)
            found: Result = entry.value
            return found

    def _get_entry(self, key: Hashable) -> _CacheEntry:
        with self._lock:
            entry = self._entries.setdefault(key, _CacheEntry())
            self._entries.move_to_end(key)
            while len(self._entries) > MAX_CACHE_ENTRIES:
                self._entries.popitem(last=False)
            return entry


def _get_store_cache(request: Request) -> StoreCache:
    found: StoreCache = request.app.state.lab
    return found


StoreCacheDep = Annotated[StoreCache, Depends(_get_store_cache)]
