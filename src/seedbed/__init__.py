"""A laboratory for small sequence models: a study file in, answers with uncertainty out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import seedbed.models.families
import seedbed.tasks  # noqa: F401

if TYPE_CHECKING:
    from seedbed.sampling.loaded_run import LoadedRun, TextOrIds

__version__ = "0.2.0"
__all__ = ["__version__", "load", "load_all", "register"]


def register(kind: Any, name: str | None = None) -> Any:
    """Adds a kind of your own (an optimizer, a task, a chart and so on) and returns it; see docs/extending.md."""
    from seedbed.plugins import register as register_kind

    return register_kind(kind, name)


def load(run: str, home: str | os.PathLike[str] = "lab", step: int | Literal["last", "best"] = "last") -> LoadedRun:
    """Loads a trained run by its id, or a prefix of it, at a saved step: to sample, to score text, to interpret."""
    from seedbed.sampling.loaded_run import LoadedRun
    from seedbed.store import open_store, stored_vocabulary

    with open_store(home, read_only=True) as store:
        stored = store.run(run)
        checkpoint = store.find_checkpoint(stored.id, step)
        weights = store.load_weights(stored.id, checkpoint.step)
        return LoadedRun(stored, checkpoint.step, weights, _render_attention_html, stored_vocabulary(store, stored))


def load_all(
    names: str | Sequence[str], home: str | os.PathLike[str] = "lab", step: int | Literal["last", "best"] = "last"
) -> list[LoadedRun]:
    """Loads several trained runs by their ids; the name of a study loads all of its runs that have weights."""
    from seedbed.errors import MissingData
    from seedbed.store import open_store

    requested = [names] if isinstance(names, str) else list(names)
    ids: list[str] = []
    with open_store(home, read_only=True) as store:
        studies = {study.name for study in store.studies()}
        for name in requested:
            run_ids = [run.id for run in store.runs(name) if store.checkpoints(run.id)] if name in studies else [name]
            if not run_ids:
                raise MissingData(f"no run of {name} has weights yet; `seedbed run {name}` trains them")
            ids += run_ids
    return [load(run_id, home, step) for run_id in ids]


def _render_attention_html(loaded: LoadedRun, text: TextOrIds) -> str:
    """Attention as HTML. Passed to LoadedRun as a callback because `sampling` may not import `report`."""
    from seedbed.report.notebook import attention_html

    return attention_html(loaded, text)


def _load_plugins() -> None:
    from seedbed.plugins import load_plugins

    load_plugins()


_load_plugins()  # here, so that every process that imports seedbed knows the same kinds
