"""Logits and hidden units of modular arithmetic for all pairs of operands, at the token `=`.

    pairs = compute_pair_activations(loaded)   # None for other tasks
    pairs.logits                               # (n, n, V), for every a and b in the cyclic order of the task

Fourier analysis of these arrays is left to `stats.fourier`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from seedbed.models.hooks import get_activations
from seedbed.sampling.loaded_run import LoadedRun
from seedbed.tasks.base import OperandPairs

Floats = NDArray[np.float64]
LOGITS_HOOK = "logits"


@dataclass(frozen=True)
class PairActivations:
    """Activations of all equations with two operands, indexed by the positions of a and b in the cyclic order."""

    logits: Floats  # (n, n, V)
    hidden_units: tuple[Floats, ...]  # (n, n, F) per layer: MLP hidden units, or outputs of recurrent layers
    results: NDArray[np.int64]  # (n, n)
    in_training_set: NDArray[np.bool_]  # (n, n)
    b_sign: int  # 1: positions are added, −1: subtracted


def compute_pair_activations(loaded: LoadedRun) -> PairActivations | None:
    """Activations for every pair of operands; None if the task has no such pairs."""
    pairs: OperandPairs | None = loaded.run.settings.task.operand_pairs(loaded.run.seed)
    if pairs is None:
        return None
    n = len(pairs.results)
    hidden_hooks = loaded.run.settings.model.hidden_hooks
    values = get_activations(loaded.model, torch.from_numpy(pairs.prompts)[None], hidden_hooks, LOGITS_HOOK)
    by_pair = {name: value[0, :, -1].reshape(n, n, -1).double().numpy() for name, value in values.items()}
    return PairActivations(
        logits=by_pair.pop(LOGITS_HOOK),
        hidden_units=tuple(by_pair.values()),
        results=pairs.results,
        in_training_set=pairs.in_training_set,
        b_sign=pairs.b_sign,
    )
