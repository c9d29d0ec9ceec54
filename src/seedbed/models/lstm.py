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

from seedbed.models.fused import fused_cells, has_fused_cells, has_library_lstm, library_lstm
from seedbed.models.layers import (
    ACTIVATIONS,
    Dropout,
    Embedding,
    Linear,
    Output,
    Positions,
    take,
)
from seedbed.models.taps import NO_TAPS, Taps
from seedbed.settings import LSTM as LSTMSettings

Memory: TypeAlias = tuple[Tensor, Tensor]  # state and cell of one layer


class Cell(nn.Module):
    def __init__(self, d_in: int, hidden: int, biases: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.input = Linear(d_in, 4 * hidden, bias=biases >= 1, parts=4)
        self.state = Linear(hidden, 4 * hidden, bias=biases == 2, parts=4)

    def forward(self, x: Tensor, past: Memory | None, taps: Taps, name: str) -> tuple[Tensor, Memory]:
        """The states at all positions, and what the last one leaves behind."""
        h, c = (x.new_zeros(*x.shape[:-2], self.hidden),) * 2 if past is None else past
        if not taps.active and has_library_lstm(x):
            return library_lstm(x, (h, c), self.input, self.state)
        from_input = self.input(x)
        if not taps.active and has_fused_cells(x):
            return fused_cells(from_input, (h, c), self.state)
        states = []
        for time, gates in enumerate(from_input.unbind(-2)):
            i, f, g, o = (gates + self.state(h)).chunk(4, dim=-1)
            i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
            if taps.active:  # names cost time, and here they are made at every position
                i, f, g, o = (
                    taps.each(f"{name}.{gate}", time, x) for gate, x in zip("ifgo", (i, f, g, o), strict=True)
                )
            c = f * c + i * g
            if taps.active:
                c = taps.each(f"{name}.cell", time, c)
            h = o * c.tanh()
            states.append(h)
        return taps(f"{name}.out", torch.stack(states, dim=-2)), (h, c)


class LSTM(nn.Module):
    def __init__(self, dials: LSTMSettings, vocabulary: int, padding: int | None) -> None:
        super().__init__()
        self.embed = Embedding(vocabulary, dials.dim, padding, frozen=dials.embeddings is not None)
        self.embed_dropout = Dropout("embedding_dropout")
        inputs = [dials.dim] + [dials.width] * (dials.layers - 1)
        self.cells = nn.ModuleList(Cell(d_in, dials.width, dials.gate_biases) for d_in in inputs)
        self.dropouts = nn.ModuleList(Dropout() for _ in inputs[1:])
        self.projection = None if dials.projection is None else Linear(dials.width, dials.projection)
        self.activation = ACTIVATIONS[dials.activation]
        self.output = Output(dials.output_width, vocabulary, dials.output_bias, self.embed if dials.tied else None)

    def forward(
        self, tokens: Tensor, at: Positions = None, taps: Taps = NO_TAPS, past: Sequence[Memory] | None = None
    ) -> Tensor:
        """Logits of the next token at the wanted positions; `past` is what was remembered of the tokens before."""
        states, _ = self._run(tokens, past, taps)
        return taps("logits", self.output(self._projected(take(states, at), taps)))

    def remember(self, tokens: Tensor) -> list[Memory]:
        """What later tokens need of these: each cell's last state."""
        return self._run(tokens, None, NO_TAPS)[1]

    def _projected(self, states: Tensor, taps: Taps) -> Tensor:
        if self.projection is None:
            return states
        return taps("projection", self.activation(self.projection(states)))

    def _run(self, tokens: Tensor, past: Sequence[Memory] | None, taps: Taps) -> tuple[Tensor, list[Memory]]:
        x, memories = taps("embed", self.embed_dropout(self.embed(tokens))), []
        for i, cell in enumerate(self.cells):
            inputs = self.dropouts[i - 1](x) if i else x
            x, memory = cell(inputs, None if past is None else past[i], taps, f"lstm.{i}")
            memories.append(memory)
        return x, memories
