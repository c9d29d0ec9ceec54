"""What was seen inside runs, read from the looks that are kept; made by `looks`, and no torch is needed here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from seedbed.interp.analysis import Analysis, is_analysis_metric
from seedbed.records import Curve, StoredRun
from seedbed.store.analyses import load_analyses as load_documents
from seedbed.store.store import Store
from seedbed.study.declarations import Declarations


def load_analyses(store: Store, run: StoredRun) -> tuple[Analysis, ...]:
    """What was seen inside a run, by step; nothing where nobody looked."""
    return tuple(Analysis.from_json(document) for document in load_documents(store, run.id))


def declared_analysis_metrics(declared: Declarations) -> list[str]:
    """The readings from inside that figures and questions name."""
    names = [name for figure in declared.figures for name in figure.metrics]
    names += [name for one in declared.questions for name in (one.metric, one.and_metric or "")]
    return list(dict.fromkeys(filter(is_analysis_metric, names)))


def analysis_curves(analyses: Sequence[Analysis], names: Iterable[str]) -> dict[str, Curve]:
    """The numbers of these names over the steps that were looked at."""
    found = {}
    for name in names:
        seen = [(look.step, look.metrics[name].mean) for look in analyses if name in look.metrics]
        if seen:
            steps, values = zip(*seen, strict=True)
            found[name] = Curve(np.array(steps, dtype=np.int64), np.array(values))
    return found
