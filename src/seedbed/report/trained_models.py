"""Trained models of stored runs: which runs of a study have weights, and the model of a run at a saved step.

with open_store(home, read_only=True) as store:
    for run in runs_with_weights(store, "speeches/classifier"):
        loaded, weights = load_checkpoint(store, run, parse_step("best"))
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from seedbed.errors import DamagedCheckpoint, UsageError
from seedbed.records import Arrays, StoredRun
from seedbed.report.study_runs import matching_runs
from seedbed.store import Store, no_weights, stored_vocabulary

if TYPE_CHECKING:
    from seedbed.sampling.loaded_run import LoadedRun, TextOrIds

Step: TypeAlias = int | Literal["last", "best"]
Result = TypeVar("Result")


def parse_step(text: str, accepted: str = "last, best, or a step such as 5000") -> Step:
    """What `--step` names, as the store takes it."""
    if text in ("last", "best"):
        return text  # type: ignore[return-value]
    if not text.strip().isdecimal():
        raise UsageError(f"--step {text}: expected {accepted}")
    return int(text)


def runs_with_weights(store: Store, name: str, only: Sequence[str] = ()) -> list[StoredRun]:
    """The runs of a study that have weights and match the filters, or the run with this id; MissingData without any."""
    if name not in {study.name for study in store.studies()}:
        if only:
            raise UsageError(f"{name} is not a stored study, and a filter selects among the runs of one")
        return [store.run(name)]
    with_weights = store.runs_with_weights()
    runs = [run for run in matching_runs(store, name, only) if run.id in with_weights]
    if not runs:
        raise no_weights(name)
    return runs


def skip_damaged(runs: Sequence[StoredRun], compute: Callable[[StoredRun], Result]) -> dict[str, Result]:
    """A result for each run by its id; those with damaged weights are left out with a warning, unless none is left."""
    results: dict[str, Result] = {}
    for run in runs:
        try:
            results[run.id] = compute(run)
        except DamagedCheckpoint as error:
            if not results and run is runs[-1]:
                raise
            warnings.warn(f"run {run.id} is left out: {error}", stacklevel=3)
    return results


def load_checkpoint(store: Store, run: StoredRun, step: Step = "last") -> tuple[LoadedRun, Arrays]:
    """A run's model at a checkpoint, and the stored weights."""
    from seedbed.sampling.loaded_run import LoadedRun

    checkpoint = store.find_checkpoint(run.id, step)
    weights = store.load_weights(run.id, checkpoint.step)
    return LoadedRun(run, checkpoint.step, weights, _attention_html, stored_vocabulary(store, run)), weights


def _attention_html(loaded: LoadedRun, text: TextOrIds) -> str:
    """Attention in a notebook. A callback of the model, since `sampling` may not import `report`."""
    from seedbed.report.attention_export import attention_html

    return attention_html(loaded, text)
