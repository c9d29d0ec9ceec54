"""A laboratory for small sequence models: a study file in, answers with uncertainty out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from seedbed.sampling.loaded_run import LoadedRun, TextOrIds

__version__ = "0.1.0.dev0"


def load(run: str, home: str | os.PathLike[str] = "lab", step: int | Literal["last", "best"] = "last") -> LoadedRun:
    """A trained run, by its id or the start of it, at a kept step: to sample from, to read with, to look into."""
    from seedbed.sampling.loaded_run import LoadedRun
    from seedbed.store.store import Store

    with Store.open_read_only(Path(home)) as store:
        found = store.run(run)
        kept = store.find_checkpoint(found.id, step)
        return LoadedRun(found, kept.step, store.load_weights(found.id, kept.step), _render_attention_html)


def load_all(
    names: str | Sequence[str], home: str | os.PathLike[str] = "lab", step: int | Literal["last", "best"] = "last"
) -> list[LoadedRun]:
    """Several trained runs: by their ids, or by the name of a study, which stands for its runs that have weights."""
    from seedbed.errors import MissingData
    from seedbed.store.store import Store

    wanted = [names] if isinstance(names, str) else list(names)
    ids: list[str] = []
    with Store.open_read_only(Path(home)) as store:
        studies = {study.name for study in store.studies()}
        for name in wanted:
            of_study = [run.id for run in store.runs(name) if store.checkpoints(run.id)] if name in studies else [name]
            if not of_study:
                raise MissingData(f"no run of {name} has weights yet; `seedbed run {name}` trains them")
            ids += of_study
    return [load(one, home, step) for one in ids]


def _render_attention_html(loaded: LoadedRun, text: TextOrIds) -> str:
    """Attention as HTML; charts stand below models in the order of parts, so it is handed in from here."""
    from seedbed.report.notebook import attention_html

    return attention_html(loaded, text)
