"""Trained models by the ids of their runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from seedbed.api.homes import home as current_home

if TYPE_CHECKING:
    from seedbed.records import StoredRun
    from seedbed.sampling.loaded_run import LoadedRun, TextOrIds


def load(
    run: str | StoredRun,
    home: str | os.PathLike[str] | None = None,
    step: int | Literal["last", "best"] = "last",
) -> LoadedRun:
    """A trained run at a saved step: to sample, to score text, to look inside; `run` is an id, or the start of one."""
    from seedbed.sampling.loaded_run import LoadedRun
    from seedbed.store import open_store, stored_vocabulary

    with open_store(current_home() if home is None else home, read_only=True) as store:
        stored = store.run(run if isinstance(run, str) else run.id)
        checkpoint = store.find_checkpoint(stored.id, step)
        weights = store.load_weights(stored.id, checkpoint.step)
        return LoadedRun(stored, checkpoint.step, weights, _render_attention_html, stored_vocabulary(store, stored))


def load_all(
    names: str | Sequence[str],
    home: str | os.PathLike[str] | None = None,
    step: int | Literal["last", "best"] = "last",
    only: Sequence[str] = (),
) -> list[LoadedRun]:
    """Several trained runs by their ids; the name of a study loads its runs that have weights and match the filters."""
    from seedbed.errors import UsageError
    from seedbed.report.study_runs import matching_runs
    from seedbed.store import no_weights, open_store

    requested = [names] if isinstance(names, str) else list(names)
    ids: list[str] = []
    home = current_home() if home is None else home
    with open_store(home, read_only=True) as store:
        studies, with_weights = {study.name for study in store.studies()}, store.runs_with_weights()
        for name in requested:
            if only and name not in studies:
                raise UsageError(f"{name} is not a stored study, and a filter selects among the runs of one")
            is_study = name in studies
            run_ids = [run.id for run in matching_runs(store, name, only)] if is_study else [name]
            run_ids = [run for run in run_ids if not is_study or run in with_weights]
            if not run_ids:
                raise no_weights(name)
            ids += run_ids
    return [load(run_id, home, step) for run_id in ids]


def _render_attention_html(loaded: LoadedRun, text: TextOrIds) -> str:
    """Attention as HTML. Passed to LoadedRun as a callback because `sampling` may not import `report`."""
    from seedbed.report.notebook import attention_html

    return attention_html(loaded, text)
