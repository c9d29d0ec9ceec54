"""What the heads of a run do on a sample of inputs, and what the gates of an LSTM do: arrays, averaged elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seedbed.interp.analysis_inputs import AnalysisInputs
from seedbed.models.hooks import attention_patterns, get_activations
from seedbed.sampling.loaded_run import LoadedRun

Floats = NDArray[np.float64]
GATE_SATURATION_MARGIN = 0.1  # a gate is shut below this and open above 1 minus this
MAX_ATTENTION_WEIGHTS_PER_CHUNK = 1 << 24  # numbers of attention that are held at a time

Key = TypeVar("Key")


@dataclass(frozen=True)
class GateStatistics:
    """One layer of an LSTM over all inputs and positions; shares are of units × positions."""

    layer: int
    means: dict[str, float]  # of the gates i, f, o in [0, 1], and of g in [−1, 1]
    shut: dict[str, float]  # share of values below SATURATED
    open: dict[str, float]  # share above 1 − SATURATED
    cell: float  # mean |c|
    cell_saturated: float  # share of |tanh c| above 1 − SATURATED


def iter_attention(loaded: LoadedRun, inputs: AnalysisInputs) -> Iterator[tuple[slice, Floats]]:
    """The inputs' attention, some inputs at a time: which, and their (b, L, H, T, T) weights."""
    model = loaded.model
    dials = loaded.run.settings.model
    layers, heads = getattr(dials, "layers", 1), getattr(dials, "heads", 1)
    size = max(1, MAX_ATTENTION_WEIGHTS_PER_CHUNK // (layers * heads * inputs.tokens.shape[1] ** 2))
    for start in range(0, inputs.n_inputs, size):
        which = slice(start, start + size)
        patterns = attention_patterns(model, _with_run_axis(inputs.tokens[which]))
        yield which, torch.stack([pattern[0] for pattern in patterns], dim=1).double().numpy()


def map_attention(
    loaded: LoadedRun, inputs: AnalysisInputs, function: Callable[[Floats, slice], dict[Key, Floats]]
) -> dict[Key, Floats]:
    """A measure of attention, (B, …) by name, put together from all inputs."""
    parts = [function(weights, which) for which, weights in iter_attention(loaded, inputs)]
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: np.concatenate([part[name] for part in parts if name in part]) for name in names}


def compute_gate_statistics(loaded: LoadedRun, inputs: AnalysisInputs) -> list[GateStatistics]:
    """The gates of each layer on these inputs; padding is left out."""
    seen = torch.from_numpy(inputs.non_padding)
    values = get_activations(loaded.model, _with_run_axis(inputs.tokens), "lstm.*")
    layers = sorted({int(name.split(".")[1]) for name in values})
    return [
        _layer_gate_statistics(
            layer, {name: values[f"lstm.{layer}.{name}"][0][seen] for name in ("i", "f", "g", "o", "cell")}
        )
        for layer in layers
    ]


def _layer_gate_statistics(layer: int, values: dict[str, Tensor]) -> GateStatistics:
    gates = {name: values[name] for name in ("i", "f", "o")}
    return GateStatistics(
        layer=layer,
        means={name: float(values[name].mean()) for name in ("i", "f", "g", "o")},
        shut={name: float((gate < GATE_SATURATION_MARGIN).double().mean()) for name, gate in gates.items()},
        open={name: float((gate > 1 - GATE_SATURATION_MARGIN).double().mean()) for name, gate in gates.items()},
        cell=float(values["cell"].abs().mean()),
        cell_saturated=float((values["cell"].tanh().abs() > 1 - GATE_SATURATION_MARGIN).double().mean()),
    )


def _with_run_axis(tokens: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(tokens)[None]
