"""Activations of trained runs: recurrent gates on a sample of inputs, and units over all pairs of operands.

    gates = compute_gate_statistics(loaded, loaded.analysis_inputs(64), family.gate_hooks)
    pairs = compute_pair_activations(loaded)   # None where the task is not modular arithmetic
    pairs.logits                               # (n, n, V), for every a and b in the cyclic order of the task

Fourier analysis of these arrays is left to `stats.fourier`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seedbed.models.families.base import GateHooks
from seedbed.models.hooks import get_activations
from seedbed.sampling.loaded_run import LoadedRun
from seedbed.tasks.base import AnalysisInputs, OperandPairs

Floats = NDArray[np.float64]
GATE_SATURATION_MARGIN = 0.1  # a gate is closed below this and open above 1 minus this
LOGITS_HOOK = "logits"


@dataclass(frozen=True)
class GateStatistics:
    """Gates of one recurrent layer over all inputs and positions; shares are of units × positions."""

    layer: int
    means: dict[str, float]  # of the gates in [0, 1], and of the candidate in [−1, 1]
    shut: dict[str, float]  # share of values below GATE_SATURATION_MARGIN
    open: dict[str, float]  # share above 1 − GATE_SATURATION_MARGIN
    cell: float  # mean |c| of the cell state; of the hidden state where that is all a layer carries
    cell_saturated: float  # share of |tanh c| above 1 − GATE_SATURATION_MARGIN
    state_symbol: str = "c"


def compute_gate_statistics(loaded: LoadedRun, inputs: AnalysisInputs, hooks: GateHooks) -> list[GateStatistics]:
    """Gate statistics of each layer on these inputs, without padding."""
    non_padding = torch.from_numpy(inputs.non_padding)
    values = get_activations(loaded.model, torch.from_numpy(inputs.tokens)[None], f"{hooks.layers}.*")
    layers = sorted({int(name.split(".")[1]) for name in values})
    return [
        _layer_gate_statistics(
            layer,
            {name: values[f"{hooks.layers}.{layer}.{name}"][0][non_padding] for name in (*hooks.units, hooks.state)},
            hooks,
        )
        for layer in layers
    ]


def _layer_gate_statistics(layer: int, values: dict[str, Tensor], hooks: GateHooks) -> GateStatistics:
    gates, state = {name: values[name] for name in hooks.gates}, values[hooks.state]
    return GateStatistics(
        layer=layer,
        means={name: float(values[name].mean()) for name in hooks.units},
        shut={name: float((gate < GATE_SATURATION_MARGIN).double().mean()) for name, gate in gates.items()},
        open={name: float((gate > 1 - GATE_SATURATION_MARGIN).double().mean()) for name, gate in gates.items()},
        cell=float(state.abs().mean()),
        cell_saturated=float((state.tanh().abs() > 1 - GATE_SATURATION_MARGIN).double().mean()),
        state_symbol=hooks.state_symbol,
    )


# ---- all pairs of operands ----


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
