"""The recurrence of an LSTM layer for all runs: one matmul and one fused cell per position, forward and backward.

    states, (h, c) = run_lstm_recurrence(input_gates, weight, h, c)

Autograd would accumulate the gradient of the recurrent weight position by position; here it is one matmul over all of
them. The cell is torch's fused kernel on a GPU, and the same formulas elsewhere (tested against autograd).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from seedbed.models.bitwise import sigmoid

CellOutput: TypeAlias = tuple[Tensor, Tensor, Tensor]  # h, c, gates


def run_lstm_recurrence(
    input_gates: Float[Tensor, "R B T 4H"], weight: Float[Tensor, "R 4H H"], h: Tensor, c: Tensor
) -> tuple[Float[Tensor, "R B T H"], tuple[Float[Tensor, "R B H"], Float[Tensor, "R B H"]]]:
    """All hidden states, and the final (h, c), from the input's part of the gates.

    Matmuls are in the weight's dtype, which may be lower than that of h and c.
    """
    states, c = _LSTMRecurrence.apply(input_gates, weight, h.to(input_gates.dtype), c.to(input_gates.dtype))
    return states, (states[:, :, -1], c)


class _LSTMRecurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input_gates: Tensor, weight: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        states, cells, all_gates = [h], [c], []
        for gates in input_gates.unbind(2):
            h, c, gates = _cell_forward(gates, _matmul_in_weight_dtype(h, weight.mT), c)
            states.append(h)
            cells.append(c)
            all_gates.append(gates)
        ctx.save_for_backward(weight, torch.stack(states[:-1], dim=2), *cells, *all_gates)
        return torch.stack(states[1:], dim=2), c

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        weight, previous_states, *saved = ctx.saved_tensors
        n = len(saved) // 2
        cells, all_gates = saved[: n + 1], saved[n + 1 :]
        (grad_states, grad_c), grad_by_time = grads, [weight] * n
        grad_h = grad_states[:, :, -1]
        for time in reversed(range(n)):
            grad_by_time[time], grad_c = _cell_backward(grad_h, grad_c, cells[time], cells[time + 1], all_gates[time])
            if time:
                grad_h = grad_states[:, :, time - 1] + _matmul_in_weight_dtype(grad_by_time[time], weight)
        grad_gates = torch.stack(grad_by_time, dim=2)
        inputs = previous_states.flatten(1, 2).to(weight.dtype)
        grad_weight = _matmul_in_weight_dtype(grad_gates.flatten(1, 2).mT, inputs)
        return grad_gates, grad_weight.to(weight.dtype), _matmul_in_weight_dtype(grad_by_time[0], weight), grad_c


def _matmul_in_weight_dtype(x: Tensor, weight: Tensor) -> Tensor:
    return torch.bmm(x.to(weight.dtype), weight).to(x.dtype)


def _cell_forward(input_gates: Tensor, state_gates: Tensor, c: Tensor) -> CellOutput:
    """h and c after one position, and the activated gates i, f, g, o for the backward pass."""
    if input_gates.is_cuda:
        flat = (x.flatten(0, 1) for x in (input_gates, state_gates, c))
        h, new_c, gates = torch.ops.aten._thnn_fused_lstm_cell(*flat, None, None)
        return h.view_as(c), new_c.view_as(c), gates
    i, f, g, o = (input_gates + state_gates).chunk(4, dim=-1)
    gates = torch.cat([sigmoid(i), sigmoid(f), g.tanh(), sigmoid(o)], dim=-1)
    i, f, g, o = gates.chunk(4, dim=-1)
    new_c = f * c + i * g
    return o * new_c.tanh(), new_c, gates


def _cell_backward(grad_h: Tensor, grad_c: Tensor, c: Tensor, new_c: Tensor, gates: Tensor) -> tuple[Tensor, ...]:
    """Gradients of the gates' pre-activations and of the previous c."""
    if grad_h.is_cuda:
        flat = (x.flatten(0, 1) for x in (grad_h, grad_c, c, new_c))
        grad_gates, grad_previous_c, _ = torch.ops.aten._thnn_fused_lstm_cell_backward_impl(*flat, gates, False)
        return grad_gates.view(*grad_h.shape[:2], -1), grad_previous_c.view_as(grad_c)
    i, f, g, o = gates.chunk(4, dim=-1)
    tanh_c = new_c.tanh()
    grad_c = grad_c + grad_h * o * (1 - tanh_c.square())
    parts = (
        grad_c * g * i * (1 - i), grad_c * c * f * (1 - f), grad_c * i * (1 - g.square()),
        grad_h * tanh_c * o * (1 - o),
    )  # fmt: skip
    return torch.cat(parts, dim=-1), grad_c * f
