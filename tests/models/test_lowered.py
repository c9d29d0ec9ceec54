"""In 16 bits the stream between the blocks is in 16 bits too, and the model is still the same function."""

from __future__ import annotations

import pytest
import torch

from seedbed.models.build import build_pack
from seedbed.models.taps import Taps
from seedbed.settings import DataFacts, Settings

GPT = {"task.kind": "text", "model.mlp_bias": True, "model.final_norm": True}
ENCODER = {"task.kind": "labels", "model.kind": "encoder", "model.positions": "learned"}


@pytest.mark.parametrize("n_runs", [1, 3])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("dials", [GPT, ENCODER], ids=["gpt", "encoder"])
def test_in_16_bits_the_stream_is_too(dials, norm, n_runs):
    facts = DataFacts(vocabulary=19, context=7, n_train=50, padding=0, classes=3 if dials is ENCODER else None)
    shape = {"model.dim": 48, "model.heads": 4, "model.layers": 3, "model.norm": norm}
    settings, step = [Settings.of(dials | shape)] * n_runs, torch.zeros(1, dtype=torch.int64)
    model, bank = build_pack(settings, range(n_runs), step, torch.float64, facts)
    tokens = torch.randint(19, (n_runs, 4, 7), generator=torch.Generator().manual_seed(1))
    exact = model(tokens)
    exact_gradients = bank.take_gradients(exact.logsumexp(-1).sum()).clone()

    model, bank = build_pack(settings, range(n_runs), step, torch.float32, facts)
    taps = Taps("embed", "blocks.*.mid", "blocks.*.out")
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(tokens, taps=taps)
    gradients = bank.take_gradients(logits.float().logsumexp(-1).sum())

    assert {value.dtype for value in taps.read.values()} == {torch.bfloat16}
    assert gradients.dtype == torch.float32
    assert off(logits, exact) < 2e-2  # the unit of bfloat16 is 2⁻⁸
    assert off(gradients, exact_gradients) < 5e-2


def off(ours: torch.Tensor, exact: torch.Tensor) -> float:
    return float((ours.detach().double() - exact.detach()).norm() / exact.detach().norm())
