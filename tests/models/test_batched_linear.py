"""Batched linear layers, and models in 16 bits, compute the same functions; `test_kernels.py` tests them on a GPU."""

from __future__ import annotations

import pytest
import torch

from seedbed.models.build import build_pack
from seedbed.models.fast.linear import batched_linear
from seedbed.models.hooks import Hooks
from seedbed.settings import DatasetInfo, Settings

GPT = {"task.kind": "text", "model.mlp_bias": True, "model.final_norm": True}
ENCODER = {"task.kind": "labels", "model.kind": "encoder", "model.positions": "learned"}


@pytest.mark.parametrize(("n_runs", "n"), [(1, 7), (3, 7), (2, 4096)])
def test_batched_linear_equals_a_matmul_per_run(n_runs, n):
    """With two runs and many rows, weight gradients are summed in several splits."""
    tensors = [torch.randn(shape, dtype=torch.float64) for shape in ((n_runs, n, 5), (n_runs, 6, 5), (n_runs, n, 6))]
    ours, theirs = ([one.clone().requires_grad_() for one in tensors[:2]] for _ in range(2))
    out, expected = batched_linear(*ours), theirs[0] @ theirs[1].mT
    out.backward(tensors[2])
    expected.backward(tensors[2])
    torch.testing.assert_close(out, expected)
    for our_input, their_input in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our_input.grad, their_input.grad)
    assert ours[1].grad.is_contiguous()


def test_batched_linear_is_twice_differentiable():
    tensors = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 4, 3), (2, 5, 3)))
    assert torch.autograd.gradgradcheck(batched_linear, tuple(tensors))


@pytest.mark.parametrize("n_runs", [1, 3])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("overrides", [GPT, ENCODER], ids=["gpt", "encoder"])
def test_under_autocast_the_residual_stream_is_in_16_bits(overrides, norm, n_runs):
    dataset_info = DatasetInfo(
        vocab_size=19, context_length=7, n_train=50, padding_id=0, n_classes=3 if overrides is ENCODER else None
    )
    shape = {"model.dim": 48, "model.heads": 4, "model.layers": 3, "model.norm": norm}
    settings, step = [Settings.from_flat(overrides | shape)] * n_runs, torch.zeros(1, dtype=torch.int64)
    model, parameters = build_pack(settings, range(n_runs), step, torch.float64, dataset_info)
    tokens = torch.randint(19, (n_runs, 4, 7), generator=torch.Generator().manual_seed(1))
    exact = model(tokens)
    exact_gradients = parameters.compute_gradients(exact.logsumexp(-1).sum()).clone()

    model, parameters = build_pack(settings, range(n_runs), step, torch.float32, dataset_info)
    hooks = Hooks("embed", "blocks.*.mid", "blocks.*.out")
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(tokens, hooks=hooks)
    gradients = parameters.compute_gradients(logits.float().logsumexp(-1).sum())

    assert {value.dtype for value in hooks.activations.values()} == {torch.bfloat16}
    assert gradients.dtype == torch.float32
    assert relative_error(logits, exact) < 2e-2  # bfloat16's machine epsilon is 2⁻⁸
    assert relative_error(gradients, exact_gradients) < 5e-2


def relative_error(ours: torch.Tensor, exact: torch.Tensor) -> float:
    return float((ours.detach().double() - exact.detach()).norm() / exact.detach().norm())
