"""Stacked gated recurrent unit (GRU; Cho et al. 2014), in the variant of torch.nn.GRU and cuDNN.

    r, z = σ(…),  n = tanh(W x + b + r ⊙ (U h + b')),  h = (1 − z) ⊙ n + z ⊙ h       from zero state

The reset gate r multiplies the state's part of the candidate n after the matrix product, not the state before it as in
the paper. All gates are one projection of the input (all positions at once) and one of the state (one position at a
time), in torch.nn.GRU's order r, z, n.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seedbed.models.bitwise import sigmoid
from seedbed.models.hooks import Hooks
from seedbed.models.layers import Linear
from seedbed.models.recurrent import RecurrentModel
from seedbed.models.sequence_model import LayerCache


class GRUCell(nn.Module):
    def __init__(self, d_in: int, hidden: int, n_biases: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.input = Linear(d_in, 3 * hidden, bias=n_biases >= 1, n_parts=3)
        self.state = Linear(hidden, 3 * hidden, bias=n_biases == 2, n_parts=3)

    def forward(self, x: Tensor, past: LayerCache | None, hooks: Hooks, name: str) -> tuple[Tensor, LayerCache]:
        """Hidden states at all positions, and the final one."""
        h = x.new_zeros(*x.shape[:-2], self.hidden) if past is None else past[0]
        states, sizes = [], (2 * self.hidden, self.hidden)
        for time, gates in enumerate(self.input(x).unbind(-2)):
            input_rz, input_n = gates.split(sizes, -1)
            state_rz, state_n = self.state(h).split(sizes, -1)
            r, z = sigmoid(input_rz + state_rz).chunk(2, -1)
            if hooks.active:  # formatting the names at every position would cost time
                r = hooks.call_at_position(f"{name}.r", time, r)
                z = hooks.call_at_position(f"{name}.z", time, z)
            n = (input_n + r * state_n).tanh()
            if hooks.active:
                n = hooks.call_at_position(f"{name}.n", time, n)
            h = (1 - z) * n + z * h
            states.append(h)
        return hooks(f"{name}.out", torch.stack(states, dim=-2)), (h,)


class GRU(RecurrentModel):
    def make_cell(self, d_in: int, hidden: int, n_biases: int) -> GRUCell:
        return GRUCell(d_in, hidden, n_biases)
