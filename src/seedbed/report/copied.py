"""What a run's samples copy from its training text, as curves over training; made when looked at, from kept samples.

Beside each curve stands the same number of held-out text, under `[held-out]`; a task without a held-out part has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np

from seedbed.data.prepared import TextPart, prepare_text
from seedbed.data.verbatim import TextIndex
from seedbed.errors import MissingData
from seedbed.generate.copied import training_index
from seedbed.measures.copying import Copied, copied, copying
from seedbed.records import Curve, StoredRun, StoredSample
from seedbed.settings import Text
from seedbed.store.store import Store

READINGS: dict[str, Callable[[Copied], float]] = {
    "copied": lambda one: one.rate,
    "new_words": lambda one: one.new_words,
}


def copying_curves(store: Store, run: StoredRun) -> dict[str, Curve]:
    """The curves of a run that wrote samples; none where it wrote none, or its corpus is not at hand any more."""
    task = run.settings.task
    if not isinstance(task, Text) or not run.settings.train.sample_every:
        return {}
    by_step: dict[int, list[StoredSample]] = {}
    for sample in store.samples(run.id):
        by_step.setdefault(sample.step, []).append(sample)
    try:
        return _curves(task, by_step) if by_step else {}
    except MissingData:
        return {}


def _curves(task: Text, by_step: Mapping[int, Sequence[StoredSample]]) -> dict[str, Curve]:
    index, held_out = _texts(task)
    found: dict[str, list[Copied]] = {"": []}
    for samples in by_step.values():
        texts = [sample.text for sample in samples]
        if held_out:
            both = copying(index, texts, held_out)
            found[""].append(both.samples)
            found.setdefault("[held-out]", []).append(both.held_out)
        else:
            found[""].append(copied(index, texts))
    steps = np.array(list(by_step), dtype=np.int64)
    return {
        f"{name}{suffix}": Curve(steps, np.array([read(one) for one in several]))
        for suffix, several in found.items()
        for name, read in READINGS.items()
    }


@cache
def _texts(task: Text) -> tuple[TextIndex, str]:
    """The training text, indexed, and the held-out text."""
    prepared = prepare_text(task)

    def text_of(part: TextPart) -> str:
        return "\n".join(prepared.tokens.decode(piece) for piece in part.pieces())

    held_out = next((text_of(part) for name, part in prepared.parts.items() if name != "train"), "")
    return training_index(task), held_out
