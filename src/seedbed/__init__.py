"""A laboratory for small sequence models: a study file in, answers with uncertainty out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from seedbed.generate.load import Loaded

__version__ = "0.1.0.dev0"


def load(run: str, home: str | os.PathLike[str] = "lab", step: int | Literal["last", "best"] = "last") -> Loaded:
    """A trained run, by its id or the start of it, at a kept step: to sample from, to read with, to look into."""
    from seedbed.generate.load import Loaded
    from seedbed.store.store import Store

    with Store.read(Path(home)) as store:
        found = store.run(run)
        kept = store.kept(found.id, step)
        return Loaded(found, kept.step, store.load_weights(found.id, kept.step))
