"""How weights start: one run's initial arrays, drawn from its own named streams.

Each parameter has the stream `init/<its name>`, so two runs of equal seed start alike wherever their shapes agree.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import nn

from seedbed.draws import generator
from seedbed.models.layers import Embedding, LayerNorm, Linear, Output, PositionTable
from seedbed.models.lstm import Cell
from seedbed.settings import LSTM, Model

Array: TypeAlias = NDArray[np.float64]
Draw: TypeAlias = Callable[[np.random.Generator, tuple[int, ...]], Array]


def initial_weights(model: nn.Module, dials: Model, seed: int) -> dict[str, Array]:
    """Every parameter of one run by name, without the run axis."""
    draws = _draws(model, dials)
    weights = {}
    for name, parameter in model.named_parameters():
        shape = tuple(parameter.shape[1:])
        scale = dials.init_scale if len(shape) > 1 else 1.0
        weights[name] = scale * draws[name](generator(seed, f"init/{name}"), shape)
    _clear_padding(model, weights)
    return weights


def _draws(model: nn.Module, dials: Model) -> dict[str, Draw]:
    """What each parameter is drawn from; a part's own rule wins over that of the whole it belongs to."""
    draws: dict[str, Draw] = {}
    for name, module in model.named_modules():
        if isinstance(module, Cell):
            continue
        for leaf, _ in module.named_parameters(recurse=False):
            draws[f"{name}.{leaf}"] = _rule(module, leaf, dials)
    if isinstance(dials, LSTM) and dials.init == "library":
        for name, module in model.named_modules():
            if isinstance(module, Cell):
                draws |= {f"{name}.{leaf}": _gate_rule(module, leaf, dials) for leaf, _ in module.named_parameters()}
    return draws


def _rule(module: nn.Module, leaf: str, dials: Model) -> Draw:
    if isinstance(module, LayerNorm):
        return _constant(1.0 if leaf == "weight" else 0.0)
    if dials.init == "normal-0.02":
        return _constant(0.0) if leaf == "bias" else _normal(0.02)
    if isinstance(module, Embedding | PositionTable):
        return _normal(1.0)
    assert isinstance(module, Linear | Output)
    return _uniform(1 / sqrt(module.d_in))  # what torch.nn.Linear does: Kaiming with a = √5, so ±1/√fan_in


def _gate_rule(cell: Cell, leaf: str, dials: LSTM) -> Draw:
    """Xavier of each gate as one map of [x; h] with zero biases, or ±1/√hidden as torch.nn.LSTM."""
    if dials.gate_init == "library":
        return _uniform(1 / sqrt(cell.hidden))
    if leaf.endswith("bias"):
        return _constant(0.0)
    return _uniform(sqrt(6 / (cell.input.d_in + cell.hidden + cell.hidden)))


def _clear_padding(model: nn.Module, weights: dict[str, Array]) -> None:
    for name, module in model.named_modules():
        if isinstance(module, Embedding) and module.padding is not None:
            weights[f"{name}.weight"][module.padding] = 0


def _constant(value: float) -> Draw:
    return lambda _, shape: np.full(shape, value)


def _normal(std: float) -> Draw:
    return lambda draw, shape: std * draw.standard_normal(shape)


def _uniform(bound: float) -> Draw:
    return lambda draw, shape: draw.uniform(-bound, bound, shape)
