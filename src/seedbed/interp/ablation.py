"""Ablations: change in loss when a head, a sublayer or a layer is removed, and the logit lens.

    ablation = ablate(loaded, inputs)
    ablation.heads[0, 2]                  # increase in loss when head 3 of layer 1 is zeroed

A head is removed by zeroing its output before the output projection (`attention.z`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from seedbed.errors import UsageError
from seedbed.models.hooks import NO_HOOKS, Hooks
from seedbed.models.sequence_model import eval_mode
from seedbed.sampling.loaded_run import LoadedRun
from seedbed.tasks.base import AnalysisInputs

if TYPE_CHECKING:
    from seedbed.models.gpt import TransformerBackbone

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Ablation:
    """Losses in nats; changes are ablated minus original loss, so useful components are positive."""

    loss: float
    heads: Floats  # (L, H) change without this head
    attention: Floats  # (L,) change without the layer's attention
    mlp: Floats  # (L,) change without the layer's MLP
    layers: Floats  # (L,) change when the layer is skipped
    lens: Floats  # (L,) logit lens: loss when the residual stream after the layer is unembedded


def ablate(loaded: LoadedRun, inputs: AnalysisInputs) -> Ablation:
    """Removes every head, sublayer and layer in turn."""
    model = _require_blocks(loaded)
    n_layers, n_heads = len(model.blocks), loaded.run.settings.model.heads
    original = compute_loss(loaded, inputs)

    def change(name: str, replacement: Callable[[Tensor], Tensor]) -> float:
        return compute_loss(loaded, inputs, Hooks(replace={name: replacement})) - original

    return Ablation(
        loss=original,
        heads=np.array(
            [[change(f"blocks.{i}.attention.z", _zero_head(h)) for h in range(n_heads)] for i in range(n_layers)]
        ),
        attention=np.array([change(f"blocks.{i}.attention.out", torch.zeros_like) for i in range(n_layers)]),
        mlp=np.array([change(f"blocks.{i}.mlp.out", torch.zeros_like) for i in range(n_layers)]),
        layers=np.array([compute_loss(loaded, inputs, _skip_layer(i)) - original for i in range(n_layers)]),
        lens=logit_lens(loaded, inputs),
    )


def _zero_head(head: int) -> Callable[[Tensor], Tensor]:
    """A replacement that zeroes one head of (…, H, K)."""

    def zero_head(z: Tensor) -> Tensor:
        mask = torch.ones(z.shape[-2], dtype=z.dtype)
        mask[head] = 0
        return z * mask[:, None]

    return zero_head


def _skip_layer(layer: int) -> Hooks:
    """Hooks that replace the output of a layer by its input."""
    layer_inputs: list[Tensor] = []

    def record(value: Tensor) -> Tensor:
        layer_inputs.append(value)
        return value

    return Hooks(replace={f"blocks.{layer}.in": record, f"blocks.{layer}.out": lambda _: layer_inputs[-1]})


def compute_loss(loaded: LoadedRun, inputs: AnalysisInputs, hooks: Hooks = NO_HOOKS) -> float:
    """Mean loss over the scored targets, in nats."""
    with eval_mode(loaded.model):
        return _mean_scored_loss(loaded.model(torch.from_numpy(inputs.tokens)[None], hooks=hooks)[0], inputs)


def logit_lens(loaded: LoadedRun, inputs: AnalysisInputs) -> Floats:
    """Loss when the final norm and the output layer are applied after each layer (nostalgebraist 2020)."""
    model, hooks = _require_blocks(loaded), Hooks("blocks.*.out")
    with eval_mode(model):
        model(torch.from_numpy(inputs.tokens)[None], hooks=hooks)
        residuals = [hooks.activations[f"blocks.{i}.out"] for i in range(len(model.blocks))]
        return np.array([_mean_scored_loss(model.unembed(residual)[0], inputs) for residual in residuals])


def _mean_scored_loss(logits: Tensor, inputs: AnalysisInputs) -> float:
    scored = torch.from_numpy(inputs.scored)
    return float(F.cross_entropy(logits[scored].double(), torch.from_numpy(inputs.targets)[scored]))


def _require_blocks(loaded: LoadedRun) -> TransformerBackbone:
    if not loaded.run.settings.model.has_attention:
        raise UsageError(f"run {loaded.run.id} is an {loaded.run.settings.model.kind} and has no heads to ablate")
    return cast("TransformerBackbone", loaded.model)
