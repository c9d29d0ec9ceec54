"""Cached constants equal freshly computed ones."""

from __future__ import annotations

import pytest
import torch

from seedbed.models import layers
from seedbed.models.layers import causal_mask, one_hot

CPU = torch.device("cpu")


@pytest.mark.parametrize("n_past", [0, 2])
@pytest.mark.parametrize("positions", [None, slice(-2, None), slice(1, 4, 2)], ids=str)
def test_cached_causal_mask_equals_a_fresh_one_and_is_reused(positions, n_past, monkeypatch):
    expected = causal_mask(positions, 5, CPU, n_past)
    monkeypatch.setattr(layers, "should_cache", lambda _: True)
    cached = causal_mask(positions, 5, CPU, n_past)
    assert torch.equal(cached, expected)
    assert causal_mask(positions, 5, CPU, n_past) is cached


def test_masks_cached_in_inference_mode_can_be_used_in_training(monkeypatch):
    monkeypatch.setattr(layers, "should_cache", lambda _: True)
    with torch.inference_mode():
        mask = causal_mask(slice(2, 7), 11, CPU)
    assert not mask.is_inference()


def test_one_hot_from_the_cached_identity_equals_a_fresh_one(monkeypatch):
    index = torch.tensor([[3, 0], [1, 1]])
    expected = one_hot(index, 5, torch.float64)
    monkeypatch.setattr(layers, "should_cache", lambda _: True)
    assert torch.equal(one_hot(index, 5, torch.float64), expected)
    assert expected.tolist()[0] == [[0, 0, 0, 1, 0], [1, 0, 0, 0, 0]]
