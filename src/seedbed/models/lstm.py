"""Stacked LSTM written from cells: token table, cells, output.

    i, f, o = σ(…),  g = tanh(…),  c = f ⊙ c + i ⊙ g,  h = o ⊙ tanh c       from zero state

The four gates are one map of the input (all positions at once) and one of the state (position by position), in the
order i, f, g, o of the library's LSTM, which takes over where nobody looks inside and it is the faster one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

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
from seedbed.settings import LSTMSettings as LSTMSettings

LSTMState: TypeAlias = tuple[Tensor, Tensor]  # state and cell of one layer


class LSTMCell(nn.Module):
    def __init__(self, d_in: int, hidden: int, biases: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.input = Linear(d_in, 4 * hidden, bias=biases >= 1, n_parts=4)
        self.state = Linear(hidden, 4 * hidden, bias=biases == 2, n_parts=4)

    def forward(self, x: Tensor, past: LSTMState | None, taps: Hooks, name: str) -> tuple[Tensor, LSTMState]:
        """The states at all positions, and what the last one leaves behind."""
        h, c = (x.new_zeros(*x.shape[:-2], self.hidden),) * 2 if past is None else past
        if not taps.active and should_use_torch_lstm(x):
            return torch_lstm(x, (h, c), self.input, self.state)
        from_input = self.input(x)
        if not taps.active and should_use_fused_lstm(x):
            return fused_lstm(from_input, (h, c), self.state)
        states = []
        for time, gates in enumerate(from_input.unbind(-2)):
            i, f, g, o = (gates + self.state(h)).chunk(4, dim=-1)
            i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
            if taps.active:  # names cost time, and here they are made at every position
                i, f, g, o = (
                    taps.call_at_position(f"{name}.{gate}", time, x)
                    for gate, x in zip("ifgo", (i, f, g, o), strict=True)
                )
            c = f * c + i * g
            if taps.active:
                c = taps.call_at_position(f"{name}.cell", time, c)
            h = o * c.tanh()
            states.append(h)
        return taps(f"{name}.out", torch.stack(states, dim=-2)), (h, c)


class LSTM(nn.Module):
    def __init__(self, dials: LSTMSettings, vocabulary: int, padding_idx: int | None) -> None:
        super().__init__()
        self.embed = Embedding(vocabulary, dials.dim, padding_idx, frozen=dials.embeddings is not None)
        self.embed_dropout = Dropout("embedding_dropout")
        inputs = [dials.dim] + [dials.hidden_width] * (dials.layers - 1)
        self.cells = nn.ModuleList(LSTMCell(d_in, dials.hidden_width, dials.gate_biases) for d_in in inputs)
        self.dropouts = nn.ModuleList(Dropout() for _ in inputs[1:])
        self.projection = None if dials.projection is None else Linear(dials.hidden_width, dials.projection)
        self.activation = ACTIVATIONS[dials.activation]
        self.output = OutputLayer(dials.output_width, vocabulary, dials.output_bias, self.embed if dials.tied else None)

    def forward(
        self, tokens: Tensor, at: Positions = None, taps: Hooks = NO_HOOKS, past: Sequence[LSTMState] | None = None
    ) -> Tensor:
        """Logits of the next token at the wanted positions; `past` is what was remembered of the tokens before."""
        states, _ = self._run_cells(tokens, past, taps)
        return taps("logits", self.output(self._project(select_positions(states, at), taps)))

    def prefill(self, tokens: Tensor) -> list[LSTMState]:
        """What later tokens need of these: each cell's last state."""
        return self._run_cells(tokens, None, NO_HOOKS)[1]

    def _project(self, states: Tensor, taps: Hooks) -> Tensor:
        if self.projection is None:
            return states
        return taps("projection", self.activation(self.projection(states)))

    def _run_cells(
        self, tokens: Tensor, past: Sequence[LSTMState] | None, taps: Hooks
    ) -> tuple[Tensor, list[LSTMState]]:
        x, memories = taps("embed", self.embed_dropout(self.embed(tokens))), []
        for i, cell in enumerate(self.cells):
            inputs = self.dropouts[i - 1](x) if i else x
            x, memory = cell(inputs, None if past is None else past[i], taps, f"lstm.{i}")
            memories.append(memory)
        return x, memories
