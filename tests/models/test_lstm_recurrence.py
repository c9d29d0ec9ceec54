"""The recurrence written by hand is autograd's over the formulas of a cell."""

from __future__ import annotations

import torch
from torch import Tensor

from seedbed.models.lstm_recurrence import run_lstm_recurrence


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64).requires_grad_()


def plain(from_input: Tensor, weight: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    states = []
    for gates in from_input.unbind(2):
        i, f, g, o = (gates + h @ weight.mT).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        states.append(h)
    return torch.stack(states, dim=2), (h, c)


def test_recurrence_has_the_states_and_gradients_of_cells_one_after_another():
    torch.manual_seed(1)
    given = drawn(3, 4, 5, 24), drawn(3, 24, 6), drawn(3, 4, 6), drawn(3, 4, 6)
    wanted = [torch.randn(3, 4, 5, 6), torch.randn(3, 4, 6), torch.randn(3, 4, 6)]
    found = []
    for way in (run_lstm_recurrence, plain):
        states, (h, c) = way(*given)
        outputs = [states, h, c]
        loss = sum((x * weight).sum() for x, weight in zip(outputs, wanted, strict=True))
        found.append([*outputs, *torch.autograd.grad(loss, given)])
    for ours, theirs in zip(*found, strict=True):
        assert (ours - theirs).abs().max() < 1e-12


def test_recurrence_over_one_position_has_all_its_gradients():
    given = drawn(2, 3, 1, 8), drawn(2, 8, 2), drawn(2, 3, 2), drawn(2, 3, 2)
    assert torch.autograd.gradcheck(lambda *x: run_lstm_recurrence(*x)[0], given)


def test_products_of_lower_precision_leave_states_and_gradients_near():
    torch.manual_seed(2)
    given = [drawn(2, 3, 6, 16).detach().float(), drawn(2, 16, 4).detach().float(), *drawn(2, 2, 3, 4).detach().float()]
    given = [x.requires_grad_() for x in given]
    exact = plain(*(x.double() for x in given))[0]
    found = run_lstm_recurrence(given[0], given[1].to(torch.bfloat16), *given[2:])[0]
    assert found.dtype == torch.float32
    grads = [torch.autograd.grad(states.square().sum(), given) for states in (found, exact)]
    assert 0 < (found - exact).norm() / exact.norm() < 1e-2
    for ours, theirs in zip(*grads, strict=True):
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm() / theirs.norm() < 2e-2
