"""Attention of a run on a sample of inputs, and statistics of recurrent gates; averaging over heads is for `stats`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seedbed.models.families.base import GateHooks
from seedbed.models.hooks import attention_patterns, get_activations
from seedbed.sampling.loaded_run import LoadedRun
from seedbed.tasks.base import AnalysisInputs

Floats = NDArray[np.float64]
GATE_SATURATION_MARGIN = 0.1  # a gate is closed below this and open above 1 minus this
MAX_ATTENTION_WEIGHTS_PER_CHUNK = 1 << 24  # bounds the memory of one forward pass

Key = TypeVar("Key")


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


def iter_attention(loaded: LoadedRun, inputs: AnalysisInputs) -> Iterator[tuple[slice, Floats]]:
    """Yields chunks of inputs as a slice and their (b, L, H, T, T) attention weights."""
    settings = loaded.run.settings.model
    layers, heads = getattr(settings, "layers", 1), getattr(settings, "heads", 1)
    chunk_size = max(1, MAX_ATTENTION_WEIGHTS_PER_CHUNK // (layers * heads * inputs.tokens.shape[1] ** 2))
    for start in range(0, inputs.n_inputs, chunk_size):
        chunk = slice(start, start + chunk_size)
        patterns = attention_patterns(loaded.model, _with_run_axis(inputs.tokens[chunk]))
        yield chunk, torch.stack([pattern[0] for pattern in patterns], dim=1).double().numpy()


def map_attention(
    loaded: LoadedRun, inputs: AnalysisInputs, function: Callable[[Floats, slice], dict[Key, Floats]]
) -> dict[Key, Floats]:
    """Applies a function of the attention weights to chunks of inputs and concatenates its (B, …) results by key."""
    results = [function(weights, chunk) for chunk, weights in iter_attention(loaded, inputs)]
    keys = dict.fromkeys(key for result in results for key in result)
    return {key: np.concatenate([result[key] for result in results if key in result]) for key in keys}


def compute_gate_statistics(loaded: LoadedRun, inputs: AnalysisInputs, hooks: GateHooks) -> list[GateStatistics]:
    """Gate statistics of each layer on these inputs, without padding."""
    non_padding = torch.from_numpy(inputs.non_padding)
    values = get_activations(loaded.model, _with_run_axis(inputs.tokens), f"{hooks.layers}.*")
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


def _with_run_axis(tokens: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(tokens)[None]
