"""Stacked LSTM written from cells: token table, cells, output.

    i, f, o = σ(…),  g = tanh(…),  c = f ⊙ c + i ⊙ g,  h = o ⊙ tanh c       from zero state

The four gates are one map of the input (all positions at once) and one of the state (position by position), in the
order i, f, g, o of the library's LSTM.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seedbed.models.layers import Dropout, Embedding, Linear, Output, Positions, take
from seedbed.models.taps import NO_TAPS, Taps
from seedbed.settings import LSTM as LSTMSettings


class Cell(nn.Module):
    def __init__(self, d_in: int, hidden: int, biases: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.input = Linear(d_in, 4 * hidden, bias=biases >= 1)
        self.state = Linear(hidden, 4 * hidden, bias=biases == 2)

    def forward(self, x: Tensor, taps: Taps, name: str) -> Tensor:
        from_input = self.input(x)
        h = c = x.new_zeros(*x.shape[:-2], self.hidden)
        states, cells = [], []
        for t in range(x.shape[-2]):
            i, f, g, o = (from_input[..., t, :] + self.state(h)).chunk(4, dim=-1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            states.append(h)
            cells.append(c)
        if taps.wants(f"{name}.cell"):
            taps(f"{name}.cell", torch.stack(cells, dim=-2))
        return taps(f"{name}.out", torch.stack(states, dim=-2))


class LSTM(nn.Module):
    def __init__(self, dials: LSTMSettings, vocabulary: int, padding: int | None) -> None:
        super().__init__()
        self.embed = Embedding(vocabulary, dials.dim, padding)
        inputs = [dials.dim] + [dials.width] * (dials.layers - 1)
        self.cells = nn.ModuleList(Cell(d_in, dials.width, dials.gate_biases) for d_in in inputs)
        self.dropouts = nn.ModuleList(Dropout() for _ in inputs[1:])
        self.output = Output(dials.width, vocabulary, dials.output_bias, self.embed if dials.tied else None)

    def forward(self, tokens: Tensor, at: Positions = None, taps: Taps = NO_TAPS) -> Tensor:
        """Logits of the next token at the wanted positions."""
        x = taps("embed", self.embed(tokens))
        for i, cell in enumerate(self.cells):
            x = cell(self.dropouts[i - 1](x) if i else x, taps, f"lstm.{i}")
        return taps("logits", self.output(take(x, at)))
