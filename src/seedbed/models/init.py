"""How weights start: one run's initial arrays, drawn from its own named streams.

Each parameter has the stream `init/<its name>`, so two runs of equal seed start alike wherever their shapes agree.
Xavier and orthogonal starts are for every matrix, tables included; of maps that lie side by side (queries, keys and
values; gates) each is taken by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import nn

from seedbed.draws import generator
from seedbed.models.layers import BatchNorm, Embedding, LayerNorm, Linear, Output, PositionTable
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
    if isinstance(module, LayerNorm | BatchNorm):
        return _constant(1.0 if leaf == "weight" else 0.0)
    if dials.init != "library":
        parts = module.parts if isinstance(module, Linear) else 1
        return _constant(0.0) if leaf == "bias" else _by_part(MATRICES[dials.init], parts)
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
        if isinstance(module, Embedding) and module.padding is not None and f"{name}.weight" in weights:
            weights[f"{name}.weight"][module.padding] = 0


def _constant(value: float) -> Draw:
    return lambda _, shape: np.full(shape, value)


def _normal(std: float) -> Draw:
    return lambda draw, shape: std * draw.standard_normal(shape)


def _uniform(bound: float) -> Draw:
    return lambda draw, shape: draw.uniform(-bound, bound, shape)


def _by_part(rule: Draw, n_parts: int) -> Draw:
    """The rule for each of several maps that lie one below the other."""

    def draw_parts(draw: np.random.Generator, shape: tuple[int, ...]) -> Array:
        rows, columns = shape
        return np.concatenate([rule(draw, (rows // n_parts, columns)) for _ in range(n_parts)])

    return draw_parts


def _xavier_normal(draw: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Standard deviation √(2 / (fan_in + fan_out)) (Glorot and Bengio 2010, eq. 16)."""
    return _normal(sqrt(2 / sum(shape)))(draw, shape)


def _xavier_uniform(draw: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """The same spread, uniform."""
    return _uniform(sqrt(6 / sum(shape)))(draw, shape)


def _orthogonal(draw: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Orthonormal rows or columns, whichever are fewer, uniform over all such matrices (Saxe et al. 2013)."""
    tall = draw.standard_normal((max(shape), min(shape)))
    q, r = np.linalg.qr(tall)
    q *= np.sign(np.diag(r))  # makes the factorisation, and with it the distribution, unique
    return np.ascontiguousarray(q if shape[0] >= shape[1] else q.T)


MATRICES: dict[str, Draw] = {
    "normal-0.02": _normal(0.02),
    "xavier-normal": _xavier_normal,
    "xavier-uniform": _xavier_uniform,
    "orthogonal": _orthogonal,
}
