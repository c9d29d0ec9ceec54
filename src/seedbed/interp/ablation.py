"""What a loss rests on: the change when a head or a layer's part is taken out, and the loss after each layer.

    without = ablate(loaded, inputs)
    without.heads[0, 2]                   # by how much the loss grows when head 3 of layer 1 writes nothing

A head is taken out by setting what it reads (`attention.z`) to 0, so that its block goes on without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from seedbed.errors import UsageError
from seedbed.interp.analysis_inputs import AnalysisInputs
from seedbed.models.encoder import Encoder
from seedbed.models.gpt import GPT, TransformerBackbone
from seedbed.models.hooks import NO_HOOKS, Hooks
from seedbed.sampling.kv_cache import eval_mode
from seedbed.sampling.loaded_run import LoadedRun

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Ablation:
    """Losses in nats; changes are loss without minus loss with, so what helps is positive."""

    loss: float
    heads: Floats  # (L, H) change without each head
    attention: Floats  # (L,) change without a layer's attention
    mlp: Floats  # (L,) change without a layer's MLP
    layers: Floats  # (L,) change when a layer hands on what it gets
    lens: Floats  # (L,) loss when the output reads the stream after each layer


def ablate(loaded: LoadedRun, inputs: AnalysisInputs) -> Ablation:
    """Every head and part of the model taken out by itself."""
    model = _require_transformer(loaded)
    n_layers, n_heads = len(model.blocks), loaded.run.settings.model.heads  # type: ignore[union-attr]
    whole = compute_loss(loaded, inputs)

    def change(name: str, without: Callable[[Tensor], Tensor]) -> float:
        return compute_loss(loaded, inputs, Hooks(replace={name: without})) - whole

    return Ablation(
        loss=whole,
        heads=np.array(
            [[change(f"blocks.{i}.attention.z", _zero_head(h)) for h in range(n_heads)] for i in range(n_layers)]
        ),
        attention=np.array([change(f"blocks.{i}.attention.out", torch.zeros_like) for i in range(n_layers)]),
        mlp=np.array([change(f"blocks.{i}.mlp.out", torch.zeros_like) for i in range(n_layers)]),
        layers=np.array([compute_loss(loaded, inputs, _skip_layer(i)) - whole for i in range(n_layers)]),
        lens=logit_lens(loaded, inputs),
    )


def _zero_head(head: int) -> Callable[[Tensor], Tensor]:
    """What the heads read, (…, H, K), but for one."""

    def zeroed(z: Tensor) -> Tensor:
        kept = torch.ones(z.shape[-2], dtype=z.dtype)
        kept[head] = 0
        return z * kept[:, None]

    return zeroed


def _skip_layer(layer: int) -> Hooks:
    """A layer that hands on what it gets, as if it were not there."""
    given: list[Tensor] = []

    def kept(value: Tensor) -> Tensor:
        given.append(value)
        return value

    return Hooks(replace={f"blocks.{layer}.in": kept, f"blocks.{layer}.out": lambda _: given[-1]})


def compute_loss(loaded: LoadedRun, inputs: AnalysisInputs, taps: Hooks = NO_HOOKS) -> float:
    """The mean loss of the scored targets in nats."""
    with eval_mode(loaded.model):
        return _mean_scored_loss(loaded.model(torch.from_numpy(inputs.tokens)[None], taps=taps)[0], inputs)


def logit_lens(loaded: LoadedRun, inputs: AnalysisInputs) -> Floats:
    """The loss when the final norm and the output read the stream after each layer (nostalgebraist 2020)."""
    model, taps = _require_transformer(loaded), Hooks("blocks.*.out")
    with eval_mode(model):
        model(torch.from_numpy(inputs.tokens)[None], taps=taps)
        streams = [taps.activations[f"blocks.{i}.out"] for i in range(len(model.blocks))]
        return np.array([_mean_scored_loss(_unembed(model, stream)[0], inputs) for stream in streams])


def _unembed(model: TransformerBackbone, x: Tensor) -> Tensor:
    x = x if model.final_norm is None else model.final_norm(x)
    if isinstance(model, Encoder):
        return model.classifier(x.mean(-2, keepdim=True), None, NO_HOOKS)  # type: ignore[no-any-return]
    assert isinstance(model, GPT)
    return model.output(x)  # type: ignore[no-any-return]


def _mean_scored_loss(logits: Tensor, inputs: AnalysisInputs) -> float:
    scored = torch.from_numpy(inputs.scored)
    return float(F.cross_entropy(logits[scored].double(), torch.from_numpy(inputs.targets)[scored]))


def _require_transformer(loaded: LoadedRun) -> TransformerBackbone:
    if not isinstance(loaded.model, TransformerBackbone):
        raise UsageError(f"run {loaded.run.id} is an {loaded.run.settings.model.kind} and has no heads to take out")
    return loaded.model
