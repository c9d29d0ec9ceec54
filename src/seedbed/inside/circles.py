"""Hidden units over all pairs of numbers, at the token `=` where the result must be known; of a + b and a − b."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from seedbed.data.arithmetic import vocabulary
from seedbed.generate.load import Loaded
from seedbed.models.gpt import Stream
from seedbed.models.taps import tap_values
from seedbed.settings import Arithmetic

Floats = NDArray[np.float64]


def units_over_pairs(loaded: Loaded) -> list[Floats]:
    """(p, p, F) of each layer: the MLP's hidden units, or the states of an LSTM; none where numbers do not add."""
    task = loaded.run.settings.task
    if not isinstance(task, Arithmetic) or task.operator not in "+-" or task.p % 2 == 0 or 2 not in task.orders:
        return []
    pattern = "blocks.*.mlp.post" if isinstance(loaded.model, Stream) else "lstm.*.out"
    values = tap_values(loaded.model, torch.from_numpy(_pairs(task))[None], pattern)
    return [value[0, :, -1].reshape(task.p, task.p, -1).double().numpy() for value in values.values()]


def _pairs(task: Arithmetic) -> NDArray[np.int64]:
    """`BOS a + b =` for all a and b, b fastest: (p², 5)."""
    words = vocabulary(task)
    a, b = np.divmod(np.arange(task.p**2), task.p)
    rows = np.empty((task.p**2, 5), dtype=np.int64)
    rows[:, 0], rows[:, 2], rows[:, 4] = words.index("BOS"), words.index(task.operator), words.index("=")
    rows[:, 1], rows[:, 3] = a, b
    return rows
