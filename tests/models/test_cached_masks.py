"""What is kept once for a GPU is what would be made anew there."""

from __future__ import annotations

import pytest
import torch

from seedbed.models import layers
from seedbed.models.layers import causal_mask, one_hot

CPU = torch.device("cpu")


@pytest.mark.parametrize("n_past", [0, 2])
@pytest.mark.parametrize("at", [None, slice(-2, None), slice(1, 4, 2)], ids=str)
def test_what_is_seen(at, n_past, monkeypatch):
    expected = causal_mask(at, 5, CPU, n_past)
    monkeypatch.setattr(layers, "should_cache", lambda _: True)
    kept = causal_mask(at, 5, CPU, n_past)
    assert torch.equal(kept, expected)
    assert causal_mask(at, 5, CPU, n_past) is kept


def test_what_a_text_asked_for_first_serves_training_too(monkeypatch):
    monkeypatch.setattr(layers, "should_cache", lambda _: True)
    with torch.inference_mode():
        seen = causal_mask(slice(2, 7), 11, CPU)
    assert not seen.is_inference()


def test_what_is_picked(monkeypatch):
    index = torch.tensor([[3, 0], [1, 1]])
    expected = one_hot(index, 5, torch.float64)
    monkeypatch.setattr(layers, "should_cache", lambda _: True)
    assert torch.equal(one_hot(index, 5, torch.float64), expected)
    assert expected.tolist()[0] == [[0, 0, 0, 1, 0], [1, 0, 0, 0, 0]]
