"""Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon): momentum, orthogonalised matrix by matrix.

    M ← μ M + (1 − μ) G,    W ← (1 − η λ) W − η s · orthogonalize((1 − μ) G + μ M)

as in torch.optim.Muon, for the weights of hidden layers. Matrices that are joined in one parameter (queries, keys and
values; LSTM gates) are orthogonalised one by one. Embeddings, output layer, norms and biases are updated by AdamW, with
the same learning rate and weight decay: with s = 0.2 √max(rows, columns) both updates have the same root mean square
(Liu et al. 2025, "Muon is Scalable for LLM Training", eq. 4); `train.muon_scale` can choose Jordan's scale instead.

Newton–Schulz runs in the dtype of the weights: in float64, or in float32, with TF32 products on a GPU unless
`train.precision = "fp32"`. torch.optim.Muon rounds to bfloat16 instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod, sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from seedbed.models.bitwise import is_aligned
from seedbed.models.parameters import FlatParameters, Param
from seedbed.settings import TrainSettings
from seedbed.training.optimizers.adam import AdamW
from seedbed.training.optimizers.base import Optimizer

NEWTON_SCHULZ_COEFFICIENTS = 3.4445, -4.7750, 2.0315  # as in torch.optim.Muon
MIN_NORM = 1e-7  # of a matrix when it is normalised, so that zero stays zero
UPDATE_SCALES: dict[str, Callable[[int, int], float]] = {
    "match_rms_adamw": lambda rows, columns: 0.2 * sqrt(max(rows, columns)),
    "original": lambda rows, columns: sqrt(max(1, rows / columns)),
}


@dataclass(frozen=True)
class MatrixGroup:
    """Parameters whose matrices have equal shapes: M of them in all, orthogonalised by one batched product."""

    params: Sequence[Param]
    momentum: Float[Tensor, "R M rows columns"]
    scale: float


class Muon(Optimizer):
    def __init__(self, train_settings: Sequence[TrainSettings], parameters: FlatParameters) -> None:
        super().__init__(train_settings, parameters)
        params, dtype = parameters.params(), parameters.weights.dtype
        other_columns = parameters.columns([param.name for param in params if param.role != "matrix"])
        self.adamw = AdamW(train_settings, parameters, other_columns)
        self.adamw.n_updates = self.n_updates
        self.n_iterations = train_settings[0].muon_iterations
        momentum_factors = self.per_run(lambda t: t.muon_momentum)[..., None, None]
        self._momentum_factors, self._gradient_factors = momentum_factors.to(dtype), (1 - momentum_factors).to(dtype)
        self._orthogonalize = orthogonalize  # a compiled version replaces it

        matrices = sorted((param for param in params if param.role == "matrix"), key=_matrix_shape)
        sizes = [param.weight[0].numel() for param in matrices]
        self.momentum = parameters.weights.new_zeros(len(parameters.weights), sum(sizes))
        self.groups = []
        start, scale = 0, UPDATE_SCALES[train_settings[0].muon_scale]
        for shape, group in groupby(matrices, _matrix_shape):
            members = list(group)
            n_matrices = sum(param.n_parts for param in members)
            stop = start + n_matrices * prod(shape)
            momentum = self.momentum[:, start:stop].view(-1, n_matrices, *shape)
            self.groups.append(MatrixGroup(members, momentum, scale(*shape)))
            start = stop

    def hyperparameters(self, lr: Float[Tensor, "R 1"]) -> tuple[Float[Tensor, "R 1"], ...]:
        """Learning rate and decay factor of matrices, then what AdamW needs."""
        dtype = self.parameters.weights.dtype
        return lr.to(dtype), (1 - lr * self.weight_decay).to(dtype), *self.adamw.hyperparameters(lr)

    def step(self, *hyperparameters: Float[Tensor, "R 1"]) -> None:
        lr, decay_factor, *adamw_hyperparameters = hyperparameters
        lr, decay_factor = lr[..., None, None], decay_factor[..., None, None]
        for group in self.groups:
            gradients = torch.cat([split_parts(param.gradient, param.n_parts) for param in group.params], dim=1)
            group.momentum.lerp_(gradients, self._gradient_factors)
            nesterov = gradients.lerp_(group.momentum, self._momentum_factors)
            updates = self._orthogonalize_runs(nesterov).mul_(group.scale * lr)
            for param, update in zip(
                group.params, updates.split([param.n_parts for param in group.params], dim=1), strict=True
            ):
                split_parts(param.weight, param.n_parts).mul_(decay_factor).sub_(update)
        self.adamw.step(*adamw_hyperparameters)

    def _orthogonalize_runs(self, matrices: Float[Tensor, "R M rows columns"]) -> Float[Tensor, "R M rows columns"]:
        """All runs at once, or on a CPU one by one where their products would not be aligned."""
        n_runs, n_matrices, n_rows, n_columns = matrices.shape
        sizes = n_matrices * n_rows * n_columns, n_matrices * min(n_rows, n_columns) ** 2
        if n_runs == 1 or matrices.is_cuda or is_aligned(*sizes):
            return self._orthogonalize(matrices, self.n_iterations)
        return torch.cat([self._orthogonalize(one.clone(), self.n_iterations) for one in matrices.split(1)])

    def compile(self) -> None:
        self._orthogonalize = torch.compile(orthogonalize, dynamic=False)

    def state(self) -> dict[str, Tensor]:
        return self.adamw.state() | {"momentum": self.momentum}


def orthogonalize(matrices: Float[Tensor, "*n rows columns"], n_iterations: int) -> Float[Tensor, "*n rows columns"]:
    """Approximates U Vᵀ of each matrix U Σ Vᵀ by a quintic Newton–Schulz iteration; singular values end near 1."""
    a, b, c = NEWTON_SCHULZ_COEFFICIENTS
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = (matrices.mT if is_tall else matrices).flatten(0, -3)
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=MIN_NORM)  # no singular value exceeds the norm
    for _ in range(n_iterations):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if is_tall else x).unflatten(0, matrices.shape[:-2])


def split_parts(joined: Float[Tensor, "R rows columns"], n_parts: int) -> Float[Tensor, "R n part_rows columns"]:
    """A view of a joined parameter as its matrices."""
    return joined.unflatten(1, (n_parts, -1))


def _matrix_shape(param: Param) -> tuple[int, int]:
    """Shape of each of a parameter's matrices."""
    _, rows, columns = param.weight.shape
    return rows // param.n_parts, columns
