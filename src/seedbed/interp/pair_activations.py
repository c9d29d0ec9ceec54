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

from seedbed.data.arithmetic import build_equation_table, split_equations
from seedbed.models.gpt import TransformerBackbone
from seedbed.models.hooks import get_activations
from seedbed.sampling.loaded_run import LoadedRun
from seedbed.settings import ArithmeticSettings

Floats = NDArray[np.float64]
LOGITS_HOOK = "logits"


@dataclass(frozen=True)
class PairActivations:
    """All equations of two numbers, a and b counting up from 0."""

    logits: Floats  # (p, p, V)
    hidden_units: tuple[Floats, ...]  # (p, p, F) of each layer: the MLP's hidden units, or the states of an LSTM
    results: NDArray[np.int64]  # (p, p)
    in_training_set: NDArray[np.bool_]  # (p, p) which the run was trained on
    b_sign: int  # of b in the result


def is_modular_addition(task: object) -> bool:
    """Whether numbers of this task add on circles: a + b or a − b modulo an odd p, among its equations."""
    return isinstance(task, ArithmeticSettings) and task.operator in "+-" and task.p % 2 == 1 and 2 in task.orders


def compute_pair_activations(loaded: LoadedRun) -> PairActivations | None:
    """What the model makes of every pair; None where numbers do not add."""
    task = loaded.run.settings.task
    if not isinstance(task, ArithmeticSettings) or not is_modular_addition(task):
        return None
    p, whole = task.p, build_equation_table(task)
    rows = np.flatnonzero(whole.n_operands == 2)  # in the order of a and b, b fastest
    places = "blocks.*.mlp.post" if isinstance(loaded.model, TransformerBackbone) else "lstm.*.out"
    values = get_activations(loaded.model, torch.from_numpy(whole.tokens[rows, :5])[None], places, LOGITS_HOOK)
    by_pair = {name: value[0, :, -1].reshape(p, p, -1).double().numpy() for name, value in values.items()}
    return PairActivations(
        logits=by_pair.pop(LOGITS_HOOK),
        hidden_units=tuple(by_pair.values()),
        results=whole.tokens[rows, 5].reshape(p, p),
        in_training_set=np.isin(rows, split_equations(task, loaded.run.seed)[0]).reshape(p, p),
        b_sign=1 if task.operator == "+" else -1,
    )
