"""Stacked LSTM (Hochreiter and Schmidhuber 1997, with forget gates).

    i, f, o = σ(…),  g = tanh(…),  c = f ⊙ c + i ⊙ g,  h = o ⊙ tanh c       from zero state

The four gates are one projection of the input (all positions at once) and one of the state (one position at a time), in
torch.nn.LSTM's order i, f, g, o. `fast/` has faster cells, which equal this one by test.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seedbed.models.hooks import Hooks
from seedbed.models.layers import Linear
from seedbed.models.recurrent import RecurrentModel
from seedbed.models.sequence_model import LayerCache


class LSTMCell(nn.Module):
    def __init__(self, d_in: int, hidden: int, n_biases: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.input = Linear(d_in, 4 * hidden, bias=n_biases >= 1, n_parts=4)
        self.state = Linear(hidden, 4 * hidden, bias=n_biases == 2, n_parts=4)

    def forward(self, x: Tensor, past: LayerCache | None, hooks: Hooks, name: str) -> tuple[Tensor, LayerCache]:
        """Hidden states at all positions, and the final (h, c)."""
        h, c = self.initial_state(x) if past is None else past
        states = []
        for time, gates in enumerate(self.input(x).unbind(-2)):
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

    def initial_state(self, x: Tensor) -> LayerCache:
        """Zero (h, c) for these inputs."""
        return (x.new_zeros(*x.shape[:-2], self.hidden),) * 2


class LSTM(RecurrentModel):
    def make_cell(self, d_in: int, hidden: int, n_biases: int) -> LSTMCell:
        return LSTMCell(d_in, hidden, n_biases)
