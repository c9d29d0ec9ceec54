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

from seedbed.models.layers import BatchNorm, Embedding, LayerNorm, Linear, OutputLayer, PositionEmbedding
from seedbed.models.lstm import LSTMCell
from seedbed.rng import make_generator
from seedbed.settings import LSTMSettings, ModelSettings

FloatArray: TypeAlias = NDArray[np.float64]
Initializer: TypeAlias = Callable[[np.random.Generator, tuple[int, ...]], FloatArray]


def initial_weights(model: nn.Module, settings: ModelSettings, seed: int) -> dict[str, FloatArray]:
    """Every parameter of one run by name, without the run axis."""
    draws = _parameter_initializers(model, settings)
    weights = {}
    for name, parameter in model.named_parameters():
        shape = tuple(parameter.shape[1:])
        scale = settings.init_scale if len(shape) > 1 else 1.0
        weights[name] = scale * draws[name](make_generator(seed, f"init/{name}"), shape)
    _zero_padding_rows(model, weights)
    return weights


def _parameter_initializers(model: nn.Module, dials: ModelSettings) -> dict[str, Initializer]:
    """What each parameter is drawn from; a part's own rule wins over that of the whole it belongs to."""
    draws: dict[str, Initializer] = {}
    for name, module in model.named_modules():
        if isinstance(module, LSTMCell):
            continue
        for leaf, _ in module.named_parameters(recurse=False):
            draws[f"{name}.{leaf}"] = _module_initializer(module, leaf, dials)
    if isinstance(dials, LSTMSettings) and dials.init == "library":
        for name, module in model.named_modules():
            if isinstance(module, LSTMCell):
                draws |= {
                    f"{name}.{leaf}": _gate_initializer(module, leaf, dials) for leaf, _ in module.named_parameters()
                }
    return draws


def _module_initializer(module: nn.Module, leaf: str, dials: ModelSettings) -> Initializer:
    if isinstance(module, LayerNorm | BatchNorm):
        return _constant(1.0 if leaf == "weight" else 0.0)
    if dials.init != "library":
        parts = module.n_parts if isinstance(module, Linear) else 1
        return _constant(0.0) if leaf == "bias" else _init_parts_separately(MATRIX_INITIALIZERS[dials.init], parts)
    if isinstance(module, Embedding | PositionEmbedding):
        return _normal(1.0)
    assert isinstance(module, Linear | OutputLayer)
    return _uniform(1 / sqrt(module.d_in))  # what torch.nn.Linear does: Kaiming with a = √5, so ±1/√fan_in


def _gate_initializer(cell: LSTMCell, leaf: str, dials: LSTMSettings) -> Initializer:
    """Xavier of each gate as one map of [x; h] with zero biases, or ±1/√hidden as torch.nn.LSTM."""
    if dials.gate_init == "library":
        return _uniform(1 / sqrt(cell.hidden))
    if leaf.endswith("bias"):
        return _constant(0.0)
    return _uniform(sqrt(6 / (cell.input.d_in + cell.hidden + cell.hidden)))


def _zero_padding_rows(model: nn.Module, weights: dict[str, FloatArray]) -> None:
    for name, module in model.named_modules():
        if isinstance(module, Embedding) and module.padding_idx is not None and f"{name}.weight" in weights:
            weights[f"{name}.weight"][module.padding_idx] = 0


def _constant(value: float) -> Initializer:
    return lambda _, shape: np.full(shape, value)


def _normal(std: float) -> Initializer:
    return lambda draw, shape: std * draw.standard_normal(shape)


def _uniform(bound: float) -> Initializer:
    return lambda draw, shape: draw.uniform(-bound, bound, shape)


def _init_parts_separately(rule: Initializer, n_parts: int) -> Initializer:
    """The rule for each of several maps that lie one below the other."""

    def draw_parts(draw: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
        rows, columns = shape
        return np.concatenate([rule(draw, (rows // n_parts, columns)) for _ in range(n_parts)])

    return draw_parts


def _xavier_normal(draw: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    """Standard deviation √(2 / (fan_in + fan_out)) (Glorot and Bengio 2010, eq. 16)."""
    return _normal(sqrt(2 / sum(shape)))(draw, shape)


def _xavier_uniform(draw: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    """The same spread, uniform."""
    return _uniform(sqrt(6 / sum(shape)))(draw, shape)


def _orthogonal(draw: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    """Orthonormal rows or columns, whichever are fewer, uniform over all such matrices (Saxe et al. 2013)."""
    tall = draw.standard_normal((max(shape), min(shape)))
    q, r = np.linalg.qr(tall)
    q *= np.sign(np.diag(r))  # makes the factorisation, and with it the distribution, unique
    return np.ascontiguousarray(q if shape[0] >= shape[1] else q.T)


MATRIX_INITIALIZERS: dict[str, Initializer] = {
    "normal-0.02": _normal(0.02),
    "xavier-normal": _xavier_normal,
    "xavier-uniform": _xavier_uniform,
    "orthogonal": _orthogonal,
}
