"""What modular addition and subtraction do on all pairs of numbers, at the token `=` where the result must be known.

    pairs = over_pairs(loaded)             # None where numbers do not add
    pairs.logits                           # (p, p, V), of every a and b

How much of it lies on circles is left to `measures.fourier`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from seedbed.data.arithmetic import split, table
from seedbed.generate.load import Loaded
from seedbed.models.gpt import Stream
from seedbed.models.taps import tap_values
from seedbed.settings import Arithmetic

Floats = NDArray[np.float64]
OUTPUT = "logits"


@dataclass(frozen=True)
class Pairs:
    """All equations of two numbers, a and b counting up from 0."""

    logits: Floats  # (p, p, V)
    units: tuple[Floats, ...]  # (p, p, F) of each layer: the MLP's hidden units, or the states of an LSTM
    results: NDArray[np.int64]  # (p, p)
    trained: NDArray[np.bool_]  # (p, p) which the run was trained on
    sign: int  # of b in the result


def adds(task: object) -> bool:
    """Whether numbers of this task add on circles: a + b or a − b modulo an odd p, among its equations."""
    return isinstance(task, Arithmetic) and task.operator in "+-" and task.p % 2 == 1 and 2 in task.orders


def over_pairs(loaded: Loaded) -> Pairs | None:
    """What the model makes of every pair; None where numbers do not add."""
    task = loaded.run.settings.task
    if not isinstance(task, Arithmetic) or not adds(task):
        return None
    p, whole = task.p, table(task)
    rows = np.flatnonzero(whole.order == 2)  # in the order of a and b, b fastest
    places = "blocks.*.mlp.post" if isinstance(loaded.model, Stream) else "lstm.*.out"
    values = tap_values(loaded.model, torch.from_numpy(whole.tokens[rows, :5])[None], places, OUTPUT)
    by_pair = {name: value[0, :, -1].reshape(p, p, -1).double().numpy() for name, value in values.items()}
    return Pairs(
        logits=by_pair.pop(OUTPUT),
        units=tuple(by_pair.values()),
        results=whole.tokens[rows, 5].reshape(p, p),
        trained=np.isin(rows, split(task, loaded.run.seed)[0]).reshape(p, p),
        sign=1 if task.operator == "+" else -1,
    )
