"""All parameters of all runs of a pack, in one tensor.

A model's parameters are views of it, so that clipping, updating and norms are operations on rows (decision 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from seedbed.models.layers import Linear
from seedbed.records import Arrays

ALIGNMENT_ELEMENTS = 16  # numbers; parameters start at multiples of 64 bytes so that vectorised kernels apply


class FlatParameters:
    """One (R, P) tensor of weights and one of gradients."""

    def __init__(self, model: nn.Module, n_runs: int, device: torch.device, dtype: torch.dtype) -> None:
        self.shapes = {name: tuple(p.shape[1:]) for name, p in model.named_parameters()}
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
        """Keeps all weights in 16 bits too, and gives them to the model's maps; `follow` sets them."""
        self._bf16_weights = torch.zeros_like(self.weights, dtype=dtype)
        for name, view in self.views(self._bf16_weights).items():
            owner, _, leaf = name.rpartition(".")
            part = model.get_submodule(owner)
            if isinstance(part, Linear) and leaf == "weight":
                part.bf16_weight = view

    def sync_bf16(self) -> None:
        """Sets the 16-bit weights, if they are kept, to what the weights are now."""
        if self._bf16_weights is not None:
            self._bf16_weights.copy_(self.weights)

    def views(self, flat: Float[Tensor, "R P"]) -> dict[str, Tensor]:
        """Parameters by name, as parts of a tensor that holds all of them."""
        return {
            name: flat[:, start:stop].view(len(flat), *self.shapes[name]) for name, (start, stop) in self._spans.items()
        }

    def _replace_with_views(self, model: nn.Module) -> list[nn.Parameter]:
        """Replaces the model's parameters by views of the weights."""
        adopted = []
        for name, view in self.views(self.weights).items():
            owner, _, leaf = name.rpartition(".")
            held = nn.Parameter(view)
            model.get_submodule(owner).register_parameter(leaf, held)
            adopted.append(held)
        return adopted

    def compute_gradients(self, loss: Tensor) -> Float[Tensor, "R P"]:
        """The gradients of a loss summed over runs, held until the next; entries between parameters stay 0."""
        found = torch.autograd.grad(loss, self.parameters)
        if self.weights.is_cuda and len(self.weights) > 1:
            return self.concatenate_gradients(found)
        if len(self.weights) == 1:  # then it is one copy of many, if all of them are whole
            found = tuple(one.contiguous() for one in found)
        torch._foreach_copy_(self._gradient_views, found)
        return self.gradients

    def concatenate_gradients(self, gradients: Sequence[Tensor]) -> Float[Tensor, "R P"]:
        """The same for several runs in one pass, where each copy would be a kernel of its own."""
        parts = [part for one, gap in zip(gradients, self._padding, strict=True) for part in (one.flatten(1), gap)]
        return torch.cat([part for part in parts if part.numel()], dim=1, out=self.gradients)

    def load_arrays(self, slot: int, arrays: Arrays) -> None:
        """Sets one run's parameters."""
        if arrays.keys() != self.shapes.keys():
            raise ValueError(f"parameters differ: {sorted(arrays.keys() ^ self.shapes.keys())}")
        for name, view in self.views(self.weights).items():
            view[slot].copy_(torch.from_numpy(np.ascontiguousarray(arrays[name])))

    def get_arrays(self, slot: int) -> Arrays:
        """A copy of one run's parameters by name, without the run axis."""
        return self.unflatten(self.weights[slot].detach().cpu().numpy())

    def unflatten(self, row: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Arrays:
        """A copy of one run's parameters by name, from its row of all weights."""
        return {name: row[start:stop].reshape(self.shapes[name]).copy() for name, (start, stop) in self._spans.items()}

    def weight_norms(self) -> Float[Tensor, "R"]:
        """‖θ‖₂ of every run, all parameters included."""
        return self.weights.detach().double().norm(dim=1)
