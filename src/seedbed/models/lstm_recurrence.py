"""The recurrence of an LSTM layer, all runs at once: one product and one fused cell a position, forward and backward.

    states, (h, c) = recur(from_input, weight, h, c)

Autograd over the positions would add up the gradient of the state's map position by position; here it is one product
over all of them. The cell is the library's on a GPU; elsewhere its formulas, which the tests compare with autograd's.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

CellOutput: TypeAlias = tuple[Tensor, Tensor, Tensor]


def run_lstm_recurrence(
    input_gates: Float[Tensor, "R B T 4H"], weight: Float[Tensor, "R 4H H"], h: Tensor, c: Tensor
) -> tuple[Float[Tensor, "R B T H"], tuple[Float[Tensor, "R B H"], Float[Tensor, "R B H"]]]:
    """States at all positions, and the last state and cell, from the gates' part that is known beforehand.

    Products are done in the weight's precision, which may be lower than that of states and cells.
    """
    states, c = _LSTMRecurrence.apply(input_gates, weight, h.to(input_gates.dtype), c.to(input_gates.dtype))
    return states, (states[:, :, -1], c)


class _LSTMRecurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, from_input: Tensor, weight: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        states, cells, kept = [h], [c], []
        for gates in from_input.unbind(2):
            h, c, gates = _cell_forward(gates, _matmul_in_weight_dtype(h, weight.mT), c)
            states.append(h)
            cells.append(c)
            kept.append(gates)
        ctx.save_for_backward(weight, torch.stack(states[:-1], dim=2), *cells, *kept)
        return torch.stack(states[1:], dim=2), c

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        weight, before, *saved = ctx.saved_tensors
        n = len(saved) // 2
        cells, kept = saved[: n + 1], saved[n + 1 :]
        (grad_states, grad_c), found = grads, [weight] * n
        grad_h = grad_states[:, :, -1]
        for time in reversed(range(n)):
            found[time], grad_c = _cell_backward(grad_h, grad_c, cells[time], cells[time + 1], kept[time])
            if time:
                grad_h = grad_states[:, :, time - 1] + _matmul_in_weight_dtype(found[time], weight)
        grad_gates = torch.stack(found, dim=2)
        grad_weight = _matmul_in_weight_dtype(grad_gates.flatten(1, 2).mT, before.flatten(1, 2).to(weight.dtype))
        return grad_gates, grad_weight.to(weight.dtype), _matmul_in_weight_dtype(found[0], weight), grad_c


def _matmul_in_weight_dtype(x: Tensor, weight: Tensor) -> Tensor:
    return torch.bmm(x.to(weight.dtype), weight).to(x.dtype)


def _cell_forward(from_input: Tensor, from_state: Tensor, c: Tensor) -> CellOutput:
    """State and cell after a position, and the gates i, f, g, o that its gradient needs."""
    if from_input.is_cuda:
        flat = (x.flatten(0, 1) for x in (from_input, from_state, c))
        h, after, gates = torch.ops.aten._thnn_fused_lstm_cell(*flat, None, None)
        return h.view_as(c), after.view_as(c), gates
    i, f, g, o = (from_input + from_state).chunk(4, dim=-1)
    gates = torch.cat([i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()], dim=-1)
    i, f, g, o = gates.chunk(4, dim=-1)
    after = f * c + i * g
    return o * after.tanh(), after, gates


def _cell_backward(grad_h: Tensor, grad_c: Tensor, before: Tensor, after: Tensor, gates: Tensor) -> tuple[Tensor, ...]:
    """Gradients of what the gates are made of, and of the cell before."""
    if grad_h.is_cuda:
        flat = (x.flatten(0, 1) for x in (grad_h, grad_c, before, after))
        of_gates, of_cell, _ = torch.ops.aten._thnn_fused_lstm_cell_backward_impl(*flat, gates, False)
        return of_gates.view(*grad_h.shape[:2], -1), of_cell.view_as(grad_c)
    i, f, g, o = gates.chunk(4, dim=-1)
    bent = after.tanh()
    grad_c = grad_c + grad_h * o * (1 - bent.square())
    parts = (
        grad_c * g * i * (1 - i), grad_c * before * f * (1 - f), grad_c * i * (1 - g.square()),
        grad_h * bent * o * (1 - o),
    )  # fmt: skip
    return torch.cat(parts, dim=-1), grad_c * f
