"""The store: studies, runs and metrics in one database, weights in files next to it; no torch.

>>> import tempfile
>>> from pathlib import Path
>>> with open_store(Path(tempfile.mkdtemp()) / "lab") as store:
...     store.studies()
[]

An address is the folder of a home, or `SCHEME:LOCATION`. A `Path` is always a folder, whatever its name.
"""

from __future__ import annotations

import os
import re

from seedbed.errors import MissingData, UsageError
from seedbed.records import StoredRun, Vocabulary
from seedbed.store.base import WEIGHTS_ADVICE, ChangeStamp, Store
from seedbed.store.sqlite import SQLiteStore

__all__ = [
    "STORES", "ChangeStamp", "Store", "no_weights", "open_store", "register_store", "store_exists", "stored_vocabulary",
    "upgrade_store",
]  # fmt: skip

STORES: dict[str, type[Store]] = {"sqlite": SQLiteStore}  # by the scheme of an address


def register_store(scheme: str, store: type[Store]) -> type[Store]:
    """Makes addresses `SCHEME:LOCATION` open this kind of store; returns it."""
    if STORES.get(scheme, store) is not store:
        raise ValueError(f"there is a store with the scheme {scheme!r} already")
    STORES[scheme] = store
    return store


def open_store(address: str | os.PathLike[str], read_only: bool = False) -> Store:
    """The store at an address: created if missing, or opened for reading, which changes nothing."""
    kind, location = _resolve_address(address)
    return kind.open(location, read_only)


def store_exists(address: str | os.PathLike[str]) -> bool:
    """Whether there is a store at this address."""
    kind, location = _resolve_address(address)
    return kind.exists(location)


def upgrade_store(address: str | os.PathLike[str]) -> str:
    """Bring the store at an address to the current schema; returns a sentence that says what was done."""
    kind, location = _resolve_address(address)
    return kind.upgrade(location)


def no_weights(study: str) -> MissingData:
    """The error for a study of which no run has weights."""
    return MissingData(
        f"no run of {study} has weights here; `seedbed run {study}` trains unended runs; {WEIGHTS_ADVICE}"
    )


def stored_vocabulary(store: Store, run: StoredRun) -> Vocabulary | None:
    """The vocabulary that is kept with a run; None if it has none, or was stored by a version that kept none."""
    return None if run.dataset_info is None else store.load_vocabulary(run.dataset_info.digest)


def _resolve_address(address: str | os.PathLike[str]) -> tuple[type[Store], str]:
    """The class of a store and its location.

    >>> _resolve_address("sqlite:lab")[1], _resolve_address("./postgres:lab")[1]
    ('lab', './postgres:lab')
    """
    named = re.match(r"([A-Za-z][\w+.-]*):(.*)", address, re.DOTALL) if isinstance(address, str) else None
    if named is None:
        return SQLiteStore, os.fspath(address)
    scheme, location = named.groups()
    if scheme not in STORES:
        accepted = " or ".join(f"{known}:FOLDER" for known in STORES)
        raise UsageError(
            f"{address}: {scheme} is not a kind of store; expected a folder or {accepted} "
            f"(a folder of that name is ./{address})"
        )
    return STORES[scheme], location
