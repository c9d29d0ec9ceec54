"""The store: studies, runs and metrics in one database, weights in files next to it; no torch.

>>> import tempfile
>>> from pathlib import Path
>>> with open_store(Path(tempfile.mkdtemp()) / "lab") as store:
...     store.studies()
[]

An address is the folder of a home, or `SCHEME:LOCATION`. A `Path` is always a folder, whatever its name. The rows of a
home are in its `store.db`, or in the database that `bind_store` or the variable SEEDBED_STORE names.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

from seedbed.errors import MissingData, UsageError
from seedbed.records import StoredRun, Vocabulary
from seedbed.store.base import WEIGHTS_ADVICE, ChangeStamp, Grant, Store
from seedbed.store.postgres import PostgresStore
from seedbed.store.sqlite import SQLiteStore

__all__ = [
    "STORES", "ChangeStamp", "Grant", "Store", "bind_store", "bound_store", "check_address", "join_store", "no_weights",
    "open_store", "register_store", "store_exists", "stored_vocabulary", "upgrade_store",
]  # fmt: skip

STORES: dict[str, type[Store]] = {"sqlite": SQLiteStore, "postgresql": PostgresStore}  # by the scheme of an address
_ADDRESS = re.compile(r"([A-Za-z][\w+.-]*):(.*)", re.DOTALL)
_OF_SERVER = re.compile(r"([A-Za-z][\w+.-]*:)?//")
_BOUND: dict[Path, str] = {}  # the addresses of the databases of homes, in this process


def register_store(scheme: str, store: type[Store]) -> type[Store]:
    """Makes addresses `SCHEME:LOCATION` open this kind of store; returns it."""
    if STORES.get(scheme, store) is not store:
        raise ValueError(f"there is a store with the scheme {scheme!r} already")
    STORES[scheme] = store
    return store


def check_address(address: str) -> None:
    """UsageError unless it is `SCHEME:LOCATION` with a known scheme."""
    if _ADDRESS.fullmatch(address) is None:
        raise UsageError(f"{address}: expected the address of a store, such as postgresql://USER@HOST/DATABASE")
    _resolve_address(address)


def add_home(address: str, home: Path) -> str:
    """The address or location, with the home that keeps the files of a server's store if it names none.

    >>> add_home("postgresql://db/lab", Path("home")), add_home("sqlite:lab", Path("home"))
    ('postgresql://db/lab#home', 'sqlite:lab')
    """
    return f"{address}#{home}" if _OF_SERVER.match(address) and "#" not in address else address


def bind_store(home: Path, address: str) -> None:
    """Keep the rows of a home in the database at this address, for this process."""
    check_address(address)
    if _BOUND.setdefault(home.absolute(), address) != address:
        raise UsageError(f"{home} is used with another store already in this process; name another home for this one")


def bound_store(home: Path) -> str | None:
    """The address of the database of a home, to be shown: a password in it is hidden; None if it has its own."""
    address = _bound_address(home)
    return re.sub("(//[^/@:]*):[^@]*@", r"\1:***@", address) if address else None


def open_store(address: str | os.PathLike[str], read_only: bool = False) -> Store:
    """The store at an address: created if missing, or opened for reading, which changes nothing."""
    kind, location = _resolve_address(address)
    return kind.open(location, read_only)


@cache
def join_store(address: str) -> Store:
    """A store that another process has opened and shares, to write under its grants; opened once in each process."""
    kind, location = _resolve_address(address)
    return kind.join(location)


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
        f"no run of {study} has weights here; `seedbed run {study}` trains unfinished runs; {WEIGHTS_ADVICE}"
    )


def stored_vocabulary(store: Store, run: StoredRun) -> Vocabulary | None:
    """The vocabulary that is kept with a run; None if it has none, or was stored by a version that kept none."""
    return None if run.dataset_info is None else store.load_vocabulary(run.dataset_info.digest)


def _bound_address(home: Path) -> str | None:
    return _BOUND.get(home.absolute()) or os.environ.get("SEEDBED_STORE")


def _resolve_address(address: str | os.PathLike[str]) -> tuple[type[Store], str]:
    """The class of a store and its location.

    >>> _resolve_address("sqlite:lab")[1], _resolve_address("./postgres:lab")[1]
    ('lab', './postgres:lab')
    """
    named = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    home = Path(os.environ.get("SEEDBED_HOME") or "lab")
    if named is None:
        home = Path(address)
        bound = _bound_address(home)
        if not bound:
            return SQLiteStore, os.fspath(address)
        if (named := _ADDRESS.fullmatch(bound)) is None:
            raise UsageError(f"SEEDBED_STORE={bound}: expected an address such as postgresql://USER@HOST/DATABASE")
    scheme, location = named.groups()
    if scheme not in STORES:
        known = [f"{one}:FOLDER" for one in STORES if one != "postgresql"] + ["postgresql://USER@HOST/DATABASE"]
        raise UsageError(
            f"{named[0]}: {scheme} is not a kind of store; expected a folder or {' or '.join(known)} "
            f"(a folder of that name is ./{named[0]})"
        )
    return STORES[scheme], add_home(location, home)
