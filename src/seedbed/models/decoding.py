"""Incremental decoding: the contract, and the decoders that call the model's own forward.

    decoder = model.family.make_decoder(model, n_runs=1, n_samples=4, capacity=128)
    decoder.prefill(prompt)               # (R, b, T): b is 1 if all samples share the prompt
    logits = decoder.step(tokens)         # (R, B) → (R, B, V)

A step returns the logits of `model(tokens)` at the last position, without dropout. Faster decoders are in `fast/`;
choosing the next token is left to `sampling/`.
"""

from __future__ import annotations

from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seedbed.models.recurrent import RecurrentModel
from seedbed.models.sequence_model import LayerCache, SequenceModel, eval_mode


class Decoder(Protocol):
    """A model together with its cache of the tokens so far."""

    def prefill(self, tokens: Int[Tensor, "R b T"]) -> None:
        """Resets the cache and fills it with these tokens (possibly none)."""
        ...

    def step(self, tokens: Int[Tensor, "R B"]) -> Float[Tensor, "R B V"]:
        """Appends one token to every sample and returns the logits of the next token."""
        ...


def prefill_cache(model: SequenceModel, tokens: Int[Tensor, "R b T"]) -> list[LayerCache]:
    """The cache of each layer after these tokens, without dropout; empty for no tokens."""
    if not tokens.shape[-1]:
        return []
    with eval_mode(model):
        return model.prefill(tokens)


class RecomputingDecoder:
    """Runs the model's own forward over all tokens at each step: slow, and right for any model."""

    def __init__(self, model: SequenceModel, n_samples: int) -> None:
        self.model, self.n_samples = model, n_samples
        self._tokens = torch.empty(0, dtype=torch.int64)

    def prefill(self, tokens: Int[Tensor, "R b T"]) -> None:
        self._tokens = tokens.expand(-1, self.n_samples, -1)

    def step(self, tokens: Int[Tensor, "R B"]) -> Float[Tensor, "R B V"]:
        self._tokens = torch.cat([self._tokens, tokens[..., None]], dim=-1)
        with eval_mode(self.model):
            return self.model(self._tokens, slice(-1, None))[..., 0, :]


class StatefulDecoder:
    """Carries the state of a recurrent model from token to token."""

    def __init__(self, model: RecurrentModel, n_samples: int) -> None:
        self.model, self.n_samples = model, n_samples
        self._states: list[LayerCache] = []

    def prefill(self, tokens: Int[Tensor, "R b T"]) -> None:
        self._states = [
            tuple(state.expand(-1, self.n_samples, -1) for state in layer)
            for layer in prefill_cache(self.model, tokens)
        ]

    def step(self, tokens: Int[Tensor, "R B"]) -> Float[Tensor, "R B V"]:
        logits, self._states = self.model.step(tokens[..., None], self._states or None)
        return logits[..., 0, :]


class StaticStatefulDecoder:
    """A recurrent decoder whose states stay in place, so that it can be captured as a CUDA graph."""

    def __init__(self, model: RecurrentModel, n_runs: int, n_samples: int) -> None:
        self.model = model
        any_tokens = torch.zeros(n_runs, n_samples, 1, dtype=torch.int64, device=model.embed.weight.device)
        self._states = [tuple(torch.zeros_like(state) for state in layer) for layer in prefill_cache(model, any_tokens)]

    def prefill(self, tokens: Int[Tensor, "R b T"]) -> None:
        computed = prefill_cache(self.model, tokens)
        for i, layer in enumerate(self._states):
            for j, state in enumerate(layer):
                if computed:
                    state.copy_(computed[i][j])
                else:
                    state.zero_()

    def step(self, tokens: Int[Tensor, "R B"]) -> Float[Tensor, "R B V"]:
        logits, states = self.model.step(tokens[..., None], self._states)
        for layer, new_layer in zip(self._states, states, strict=True):
            for state, new_state in zip(layer, new_layer, strict=True):
                state.copy_(new_state)
        return logits[..., 0, :]
