"""What was seen inside runs, read from the looks that are kept; made by `looks`, and no torch is needed here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from seedbed.inside.looks import Look, is_inside
from seedbed.records import Curve, StoredRun
from seedbed.store.looks import kept_looks
from seedbed.store.store import Store
from seedbed.study.shows import Declared


def looks_of(store: Store, run: StoredRun) -> tuple[Look, ...]:
    """What was seen inside a run, by step; nothing where nobody looked."""
    return tuple(Look.from_json(document) for document in kept_looks(store, run.id))


def metrics_inside(declared: Declared) -> list[str]:
    """The readings from inside that figures and questions name."""
    names = [name for figure in declared.figures for name in figure.metrics]
    names += [name for one in declared.questions for name in (one.metric, one.and_metric or "")]
    return list(dict.fromkeys(filter(is_inside, names)))


def look_curves(looks: Sequence[Look], names: Iterable[str]) -> dict[str, Curve]:
    """The numbers of these names over the steps that were looked at."""
    found = {}
    for name in names:
        seen = [(look.step, look.readings[name].mean) for look in looks if name in look.readings]
        if seen:
            steps, values = zip(*seen, strict=True)
            found[name] = Curve(np.array(steps, dtype=np.int64), np.array(values))
    return found
