"""Maps of several runs, and models in 16 bits, are the same functions; here on a CPU, in `test_kernels.py` on a GPU."""

from __future__ import annotations

import pytest
import torch

from seedbed.models.batched_linear import batched_linear
from seedbed.models.build import build_pack
from seedbed.models.hooks import Hooks
from seedbed.settings import DatasetInfo, Settings

GPT = {"task.kind": "text", "model.mlp_bias": True, "model.final_norm": True}
ENCODER = {"task.kind": "labels", "model.kind": "encoder", "model.positions": "learned"}


@pytest.mark.parametrize(("n_runs", "n"), [(1, 7), (3, 7), (2, 4096)])
def test_a_map_of_several_runs_is_their_products(n_runs, n):
    """Of two runs with many rows, the gradients of weights are summed in parts."""
    given = [torch.randn(shape, dtype=torch.float64) for shape in ((n_runs, n, 5), (n_runs, 6, 5), (n_runs, n, 6))]
    ours, theirs = ([one.clone().requires_grad_() for one in given[:2]] for _ in range(2))
    mapped, expected = batched_linear(*ours), theirs[0] @ theirs[1].mT
    mapped.backward(given[2])
    expected.backward(given[2])
    torch.testing.assert_close(mapped, expected)
    for mine, exact in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, exact.grad)
    assert ours[1].grad.is_contiguous()


def test_a_map_of_several_runs_has_gradients_of_its_gradients():
    given = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 4, 3), (2, 5, 3)))
    assert torch.autograd.gradgradcheck(batched_linear, tuple(given))


@pytest.mark.parametrize("n_runs", [1, 3])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("overrides", [GPT, ENCODER], ids=["gpt", "encoder"])
def test_in_16_bits_the_stream_is_too(overrides, norm, n_runs):
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
    assert off(logits, exact) < 2e-2  # the unit of bfloat16 is 2⁻⁸
    assert off(gradients, exact_gradients) < 5e-2


def off(ours: torch.Tensor, exact: torch.Tensor) -> float:
    return float((ours.detach().double() - exact.detach()).norm() / exact.detach().norm())
