"""Stacked LSTM: token embedding, cells, output layer.

    i, f, o = σ(…),  g = tanh(…),  c = f ⊙ c + i ⊙ g,  h = o ⊙ tanh c       from zero state

The four gates are one projection of the input (all positions at once) and one of the state (one position at a time), in
torch.nn.LSTM's order i, f, g, o. torch's own LSTM kernel replaces the loop where it is faster and no hook is active.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from seedbed.kind_settings import LSTMSettings
from seedbed.models.fused_ops import fused_lstm, should_use_fused_lstm, should_use_torch_lstm, torch_lstm
from seedbed.models.hooks import NO_HOOKS, Hooks
from seedbed.models.layers import (
    ACTIVATIONS,
    Dropout,
    Embedding,
    Linear,
    OutputLayer,
    Positions,
    select_positions,
)

LSTMState: TypeAlias = tuple[Tensor, Tensor]  # hidden state h and cell state c of one layer, (R, B, H) each


class LSTMCell(nn.Module):
    def __init__(self, d_in: int, hidden: int, n_biases: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.input = Linear(d_in, 4 * hidden, bias=n_biases >= 1, n_parts=4)
        self.state = Linear(hidden, 4 * hidden, bias=n_biases == 2, n_parts=4)

    def forward(self, x: Tensor, past: LSTMState | None, hooks: Hooks, name: str) -> tuple[Tensor, LSTMState]:
        """Hidden states at all positions, and the final (h, c)."""
        h, c = (x.new_zeros(*x.shape[:-2], self.hidden),) * 2 if past is None else past
        if not hooks.active and should_use_torch_lstm(x):
            return torch_lstm(x, (h, c), self.input, self.state)
        input_gates = self.input(x)
        if not hooks.active and should_use_fused_lstm(x):
            return fused_lstm(input_gates, (h, c), self.state)
        states = []
        for time, gates in enumerate(input_gates.unbind(-2)):
            i, f, g, o = (gates + self.state(h)).chunk(4, dim=-1)
            i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
            if hooks.active:  # formatting the names at every position would cost time
                i, f, g, o = (
                    hooks.call_at_position(f"{name}.{gate}", time, value)
                    for gate, value in zip("ifgo", (i, f, g, o), strict=True)
                )
            c = f * c + i * g
            if hooks.active:
                c = hooks.call_at_position(f"{name}.cell", time, c)
            h = o * c.tanh()
            states.append(h)
        return hooks(f"{name}.out", torch.stack(states, dim=-2)), (h, c)


class LSTM(nn.Module):
    def __init__(self, settings: LSTMSettings, vocabulary: int, padding_idx: int | None) -> None:
        super().__init__()
        self.embed = Embedding(vocabulary, settings.dim, padding_idx, frozen=settings.embeddings is not None)
        self.embed_dropout = Dropout("embedding_dropout")
        inputs = [settings.dim] + [settings.hidden_width] * (settings.layers - 1)
        self.cells = nn.ModuleList(LSTMCell(d_in, settings.hidden_width, settings.gate_biases) for d_in in inputs)
        self.dropouts = nn.ModuleList(Dropout() for _ in inputs[1:])
        self.projection = None if settings.projection is None else Linear(settings.hidden_width, settings.projection)
        self.activation = ACTIVATIONS[settings.activation]
        tied_embedding = self.embed if settings.tied else None
        self.output = OutputLayer(settings.output_width, vocabulary, settings.output_bias, tied_embedding)

    def forward(
        self,
        tokens: Tensor,
        positions: Positions = None,
        hooks: Hooks = NO_HOOKS,
        past: Sequence[LSTMState] | None = None,
    ) -> Tensor:
        """Next-token logits at the requested positions; `past` is the state after the preceding tokens (`prefill`)."""
        states, _ = self._run_cells(tokens, past, hooks)
        return hooks("logits", self.output(self._project(select_positions(states, positions), hooks)))

    def prefill(self, tokens: Tensor) -> list[LSTMState]:
        """Final (h, c) of each layer after these tokens."""
        return self._run_cells(tokens, None, NO_HOOKS)[1]

    def _project(self, states: Tensor, hooks: Hooks) -> Tensor:
        if self.projection is None:
            return states
        return hooks("projection", self.activation(self.projection(states)))

    def _run_cells(
        self, tokens: Tensor, past: Sequence[LSTMState] | None, hooks: Hooks
    ) -> tuple[Tensor, list[LSTMState]]:
        x, final_states = hooks("embed", self.embed_dropout(self.embed(tokens))), []
        for i, cell in enumerate(self.cells):
            inputs = self.dropouts[i - 1](x) if i else x
            x, state = cell(inputs, None if past is None else past[i], hooks, f"lstm.{i}")
            final_states.append(state)
        return x, final_states
