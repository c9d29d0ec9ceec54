"""The home that Python code uses where none is given, and the trained models in a home.

The home is the variable SEEDBED_HOME, so that commands see it too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from seedbed.records import StoredRun
    from seedbed.sampling.loaded_run import LoadedRun

DEFAULT_HOME = Path("lab")


def home(path: str | os.PathLike[str] | None = None) -> Path:
    """The folder of the store: sets it if a path is given; otherwise SEEDBED_HOME, or `lab` in the working directory.

    >>> before = os.environ.get("SEEDBED_HOME", "")
    >>> home("course/lab").name, home().is_absolute()
    ('lab', True)
    >>> os.environ["SEEDBED_HOME"] = before
    """
    if path is not None:
        os.environ["SEEDBED_HOME"] = str(Path(path).absolute())
    return Path(os.environ.get("SEEDBED_HOME") or DEFAULT_HOME)


def find_home(path: str | os.PathLike[str] | None, store: str | None = None) -> Path:
    """The given home, or the current one; its rows are in the given store, if there is one, such as on PostgreSQL."""
    found = home() if path is None else Path(path)
    if store is not None:
        from seedbed.store import bind_store

        bind_store(found, store)
    return found


def load(
    run: str | StoredRun,
    home: str | os.PathLike[str] | None = None,
    step: int | Literal["last", "best"] = "last",
    store: str | None = None,
) -> LoadedRun:
    """A trained run at a saved step: to sample, to score text, to look inside; `run` is an id, or the start of one."""
    from seedbed.report.trained_models import load_checkpoint
    from seedbed.store import open_store

    with open_store(find_home(home, store), read_only=True) as opened:
        return load_checkpoint(opened, opened.run(run if isinstance(run, str) else run.id), step)[0]


def load_all(
    names: str | Sequence[str],
    home: str | os.PathLike[str] | None = None,
    step: int | Literal["last", "best"] = "last",
    only: Sequence[str] = (),
    store: str | None = None,
) -> list[LoadedRun]:
    """Several trained runs by their ids; the name of a study loads its runs that have weights and match the filters.

    Runs of a study whose weights are damaged are left out with a warning; a run that is named raises.
    """
    from seedbed.report.trained_models import load_checkpoint, runs_with_weights, skip_damaged
    from seedbed.store import open_store

    loaded: list[LoadedRun] = []
    with open_store(find_home(home, store), read_only=True) as opened:
        for name in [names] if isinstance(names, str) else names:
            runs = runs_with_weights(opened, name, only)
            loaded += skip_damaged(runs, lambda run: load_checkpoint(opened, run, step)[0]).values()
    return loaded
