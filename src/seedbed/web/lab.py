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

MOST_KEPT: Final = 64  # computed things; the one not asked for longest goes first
REST: Final = 9.0  # a changing store is computed from again after so many times as long as it took,
SHORTEST_REST: Final = 0.8  # but not before the next look of `live`,
LONGEST_REST: Final = 1.5  # and before anybody is two seconds behind

Found = TypeVar("Found")
Stamp: TypeAlias = tuple[int, ...]


@dataclass
class _Kept:
    """One computed thing, of which store it is, and when it was made."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    source: object = None  # the store's stamp, or what it was derived from
    value: Any = None
    made: float = 0.0
    took: float = 0.0

    def is_good(self, stamp: Stamp) -> bool:
        rests = time.monotonic() - self.made < min(max(REST * self.took, SHORTEST_REST), LONGEST_REST)
        return self.source is not None and (self.source == stamp or rests)

    def fill(self, source: object, compute: Callable[[], Any]) -> None:
        began = time.monotonic()
        self.value = compute()
        self.source, self.made = source, time.monotonic()
        self.took = self.made - began


class Lab:
    """Looks at the store of one home."""

    def __init__(self, home: Path) -> None:
        self.home = home.absolute()
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def look(self) -> Iterator[Store]:
        """The store, to read from in this block only."""
        with Store.read(self.home) as store:
            yield store

    def stamp(self) -> Stamp:
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

    def kept(self, key: Hashable, compute: Callable[[Store], Found]) -> Found:
        """What `compute` makes of the store as it is, or was a moment ago; many who ask at once wait for one."""
        entry = self._entry(key)
        with entry.lock:
            stamp = self.stamp()
            if not entry.is_good(stamp):
                with self.look() as store:
                    entry.fill(stamp, lambda: compute(store))
            found: Found = entry.value
            return found

    def derived(self, key: Hashable, source: object, compute: Callable[[], Found]) -> Found:
        """What `compute` makes of a kept thing, made again only when that very thing has been replaced."""
        entry = self._entry(key)
        with entry.lock:
            if entry.source is not source:
                entry.fill(source, compute)
            found: Found = entry.value
            return found

    def _entry(self, key: Hashable) -> _Kept:
        with self._lock:
            entry = self._kept.setdefault(key, _Kept())
            self._kept.move_to_end(key)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
            return entry


def _lab_of(request: Request) -> Lab:
    found: Lab = request.app.state.lab
    return found


TheLab = Annotated[Lab, Depends(_lab_of)]
