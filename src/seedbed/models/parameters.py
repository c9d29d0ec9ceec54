"""All parameters of all runs of a pack in one flat tensor.

The model's parameters are views of it, so that clipping, optimizer steps and norms work on whole rows (decision 1).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from seedbed.models.layers import Linear, Role
from seedbed.records import Arrays

ALIGNMENT_ELEMENTS = 16  # parameters start at multiples of 64 bytes (float32), as vectorised kernels need


@dataclass(frozen=True)
class Param:
    """One parameter in all runs of a pack, as an optimizer sees it: views of the flat weights and gradients."""

    name: str
    role: Role
    n_parts: int  # matrices concatenated along the rows: 3 for queries, keys and values, 4 for LSTM gates, else 1
    weight: Float[Tensor, "R *shape"]
    gradient: Float[Tensor, "R *shape"]


class FlatParameters:
    """One (R, P) tensor of weights and one of gradients, one row per run."""

    def __init__(self, model: nn.Module, n_runs: int, device: torch.device, dtype: torch.dtype) -> None:
        self.shapes = {name: tuple(p.shape[1:]) for name, p in model.named_parameters()}
        self._owners = {name: model.get_submodule(name.rpartition(".")[0]) for name in self.shapes}
        self._spans: dict[str, tuple[int, int]] = {}
        end = 0
        for name, shape in self.shapes.items():
            self._spans[name] = (end, end + prod(shape))
            end = -(-(end + prod(shape)) // ALIGNMENT_ELEMENTS) * ALIGNMENT_ELEMENTS
        self.weights = torch.zeros(n_runs, end, device=device, dtype=dtype)
        self.gradients = torch.zeros_like(self.weights)
        self._gradient_views = list(self.views(self.gradients).values())
        spans = [*self._spans.values(), (end, end)]
        self._padding = [self.weights.new_zeros(n_runs, start - stop) for (_, stop), (start, _) in pairwise(spans)]
        self.parameters = self._replace_with_views(model)
        self._bf16_weights: Tensor | None = None

    def add_bf16_copy(self, model: nn.Module, dtype: torch.dtype) -> None:
        """Allocates a 16-bit copy of all weights for the model's linear layers; `sync_bf16` fills it."""
        self._bf16_weights = torch.zeros_like(self.weights, dtype=dtype)
        for name, view in self.views(self._bf16_weights).items():
            owner, _, leaf = name.rpartition(".")
            module = model.get_submodule(owner)
            if isinstance(module, Linear) and leaf == "weight":
                module.bf16_weight = view

    def sync_bf16(self) -> None:
        """Copies the current weights into the 16-bit copy, if there is one."""
        if self._bf16_weights is not None:
            self._bf16_weights.copy_(self.weights)

    def views(self, flat: Float[Tensor, "R P"]) -> dict[str, Tensor]:
        """Views of a flat tensor by parameter name, (R, *shape) each."""
        return {
            name: flat[:, start:stop].view(len(flat), *self.shapes[name]) for name, (start, stop) in self._spans.items()
        }

    def params(self) -> list[Param]:
        """Every parameter with its role, as views of the flat weights and gradients."""
        weights, gradients = self.views(self.weights), self.views(self.gradients)
        found = []
        for name, owner in self._owners.items():
            role = _parameter_role(owner, len(self.shapes[name]))
            n_parts = getattr(owner, "n_parts", 1) if role == "matrix" else 1
            found.append(Param(name, role, n_parts, weights[name], gradients[name]))
        return found

    def columns(self, names: Collection[str]) -> list[slice]:
        """Columns of the flat tensors that hold these parameters; neighbours and their padding are one slice."""
        found: list[slice] = []
        previous_name = ""
        for name, (start, stop) in self._spans.items():
            if name in names and previous_name in names:
                found[-1] = slice(found[-1].start, stop)
            elif name in names:
                found.append(slice(start, stop))
            previous_name = name
        return found

    def _replace_with_views(self, model: nn.Module) -> list[nn.Parameter]:
        """Replaces the model's parameters by views of the flat weights."""
        parameters = []
        for name, view in self.views(self.weights).items():
            owner, _, leaf = name.rpartition(".")
            parameter = nn.Parameter(view)
            model.get_submodule(owner).register_parameter(leaf, parameter)
            parameters.append(parameter)
        return parameters

    def compute_gradients(self, loss: Tensor) -> Float[Tensor, "R P"]:
        """Flat gradients of a loss summed over runs; the buffer is reused by the next call, and padding stays 0."""
        gradients = torch.autograd.grad(loss, self.parameters)
        if self.weights.is_cuda and len(self.weights) > 1:
            return self.concatenate_gradients(gradients)
        if len(self.weights) == 1:  # _foreach_copy_ is a single kernel only if all tensors are contiguous
            gradients = tuple(one.contiguous() for one in gradients)
        torch._foreach_copy_(self._gradient_views, gradients)
        return self.gradients

    def concatenate_gradients(self, gradients: Sequence[Tensor]) -> Float[Tensor, "R P"]:
        """Flat gradients of several runs by one torch.cat, where copying each view would launch its own kernel."""
        parts = [part for one, pad in zip(gradients, self._padding, strict=True) for part in (one.flatten(1), pad)]
        return torch.cat([part for part in parts if part.numel()], dim=1, out=self.gradients)

    def load_arrays(self, slot: int, arrays: Arrays) -> None:
        """Sets one run's parameters."""
        if arrays.keys() != self.shapes.keys():
            raise ValueError(f"parameters differ: {sorted(arrays.keys() ^ self.shapes.keys())}")
        for name, view in self.views(self.weights).items():
            view[slot].copy_(torch.from_numpy(np.ascontiguousarray(arrays[name])))

    def get_arrays(self, slot: int) -> Arrays:
        """Copies of one run's parameters by name, without the run axis."""
        return self.unflatten(self.weights[slot].detach().cpu().numpy())

    def unflatten(self, row: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Arrays:
        """Copies of one run's parameters by name, from its row of the flat weights."""
        return {name: row[start:stop].reshape(self.shapes[name]).copy() for name, (start, stop) in self._spans.items()}

    def weight_norms(self) -> Float[Tensor, "R"]:
        """L2 norm of all parameters of each run."""
        return self.weights.detach().double().norm(dim=1)


def _parameter_role(owner: nn.Module, ndim: int) -> Role:
    """Role of a layer's parameter: as the layer declares for its weight; other vectors are biases."""
    role: Role | None = getattr(owner, "weight_role", None)
    if role == "norm":
        return role
    if ndim == 1:
        return "bias"
    if role is None:
        raise TypeError(f"{type(owner).__name__} has a matrix, but no weight_role: optimizers need its role")
    return role
