"""Weight initialisation: one run's initial arrays, drawn from its own named random streams.

Each parameter has the stream `init/<its name>`, so two runs with equal seeds start alike wherever their shapes agree.
Xavier and orthogonal initialisation apply to every matrix, embeddings included; concatenated matrices (queries, keys
and values; LSTM gates) are initialised separately.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from seedbed.models.families.base import Family
from seedbed.models.layers import Embedding
from seedbed.models.sequence_model import SequenceModel
from seedbed.random_streams import make_generator

FloatArray: TypeAlias = NDArray[np.float64]
Initializer: TypeAlias = Callable[[np.random.Generator, tuple[int, ...]], FloatArray]


def initial_weights(model: SequenceModel, settings: Family, seed: int) -> dict[str, FloatArray]:
    """Initial parameters of one run by name, without the run axis."""
    initializers = _parameter_initializers(model, settings)
    weights = {}
    for name, parameter in model.named_parameters():
        shape = tuple(parameter.shape[1:])
        scale = settings.init_scale if len(shape) > 1 else 1.0
        weights[name] = scale * initializers[name](make_generator(seed, f"init/{name}"), shape)
    _zero_padding_rows(model, weights)
    return weights


def _parameter_initializers(model: SequenceModel, settings: Family) -> dict[str, Initializer]:
    """Initializer of each parameter: by its layer's role, unless the family has its own."""
    initializers = {
        f"{name}.{leaf}": _module_initializer(module, leaf, settings)
        for name, module in model.named_modules()
        for leaf, _ in module.named_parameters(recurse=False)
    }
    return initializers | dict(settings.initializers(model))


def _module_initializer(module: nn.Module, leaf: str, settings: Family) -> Initializer:
    if module.weight_role == "norm":
        return constant(1.0 if leaf == "weight" else 0.0)
    if settings.init != "library":
        n_parts = getattr(module, "n_parts", 1)
        return constant(0.0) if leaf == "bias" else _init_parts_separately(MATRIX_INITIALIZERS[settings.init], n_parts)
    if module.weight_role == "embedding":
        return normal(1.0)
    return uniform(1 / sqrt(cast(int, module.d_in)))  # as torch.nn.Linear: Kaiming with a = √5, so ±1/√fan_in


def _zero_padding_rows(model: nn.Module, weights: dict[str, FloatArray]) -> None:
    for name, module in model.named_modules():
        if isinstance(module, Embedding) and module.padding_idx is not None and f"{name}.weight" in weights:
            weights[f"{name}.weight"][module.padding_idx] = 0


def constant(value: float) -> Initializer:
    return lambda _, shape: np.full(shape, value)


def normal(std: float) -> Initializer:
    return lambda rng, shape: std * rng.standard_normal(shape)


def uniform(bound: float) -> Initializer:
    return lambda rng, shape: rng.uniform(-bound, bound, shape)


def _init_parts_separately(initializer: Initializer, n_parts: int) -> Initializer:
    """Applies the initializer to each of n_parts matrices that are concatenated along the rows."""

    def init_parts(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
        rows, columns = shape
        return np.concatenate([initializer(rng, (rows // n_parts, columns)) for _ in range(n_parts)])

    return init_parts


def _xavier_normal(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    """Normal with standard deviation √(2 / (fan_in + fan_out)) (Glorot and Bengio 2010, eq. 12)."""
    return normal(sqrt(2 / sum(shape)))(rng, shape)


def _xavier_uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    """Uniform with the same standard deviation (Glorot and Bengio 2010, eq. 16)."""
    return uniform(sqrt(6 / sum(shape)))(rng, shape)


def _orthogonal(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    """Orthonormal rows or columns, whichever are fewer, Haar-distributed (Saxe et al. 2013)."""
    tall = rng.standard_normal((max(shape), min(shape)))
    q, r = np.linalg.qr(tall)
    q *= np.sign(np.diag(r))  # makes the QR factorisation unique, without which q is not Haar-distributed
    return np.ascontiguousarray(q if shape[0] >= shape[1] else q.T)


MATRIX_INITIALIZERS: dict[str, Initializer] = {
    "normal-0.02": normal(0.02),
    "xavier-normal": _xavier_normal,
    "xavier-uniform": _xavier_uniform,
    "orthogonal": _orthogonal,
}
