"""Dropout rates, scales and random streams; attention with dropout against attention without."""

from __future__ import annotations

import pytest
import torch

from seedbed.models.layers import Dropout, attention, attention_with_dropout

STEP = torch.tensor([3])


def dropout(*rates: float, seeds: tuple[int, ...] | None = None, stream: str = "dropout/x") -> Dropout:
    layer = Dropout()
    layer.configure(rates, seeds or tuple(range(len(rates))), stream, STEP)
    return layer.train()


@pytest.mark.parametrize("rate", [0.001, 0.2, 0.5, 0.97])
def test_each_run_has_its_dropout_rate_and_scales_by_the_rounded_keep_probability(rate):
    n = 400_000
    out = dropout(0.0, rate)(torch.ones(2, n))
    assert (out[0] == 1).all()
    assert abs((out[1] == 0).double().mean() - rate) < 5 * (rate * (1 - rate) / n) ** 0.5
    keep_probability = 1 - round(rate * 65_536) / 65_536
    torch.testing.assert_close(out[1][out[1] != 0].unique(), torch.tensor([1 / keep_probability]))


def test_a_rate_close_to_one_stays_finite():
    assert dropout(1 - 1e-9)(torch.ones(1, 300_000)).isfinite().all()


def test_masks_depend_on_seed_stream_and_step_only():
    x = torch.ones(1, 1000)
    mask = dropout(0.5, seeds=(4,))(x)
    assert torch.equal(mask[0], dropout(0.5, 0.5, seeds=(1, 4))(torch.ones(2, 1000))[1])
    assert not torch.equal(mask, dropout(0.5, seeds=(5,))(x))
    assert not torch.equal(mask, dropout(0.5, seeds=(4,), stream="dropout/y")(x))
    later = dropout(0.5, seeds=(4,))
    later.step = torch.tensor([4])
    assert not torch.equal(mask, later(x))


def test_an_offset_continues_the_same_mask():
    drop, x = dropout(0.5, 0.5), torch.ones(2, 1001)
    whole = drop(x)
    assert torch.equal(drop(x[:, 600:], offset=600), whole[:, 600:])
    assert torch.equal(drop(x[:, 600:], offset=599), whole[:, 600:])  # rounded up to even


@pytest.mark.parametrize("length", [5, 17, 24])
@pytest.mark.parametrize("with_bias", [False, True])
def test_attention_computed_in_two_halves_equals_attention(length, with_bias):
    """In evaluation mode, `attention_with_dropout` must equal `attention`."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, length, 3, 8, dtype=torch.float64)
    mask = torch.ones(length, length, dtype=torch.bool).tril()
    bias = torch.randn(length, length, 3, dtype=torch.float64) if with_bias else None
    out = attention_with_dropout(query, key, value, mask, bias, True, dropout(0.5, 0.5).eval())
    torch.testing.assert_close(out, attention(query, key, value, mask, bias), rtol=1e-12, atol=1e-12)


def test_attention_weights_are_dropped_or_scaled():
    """With one-hot values, the output is the attention weights after dropout."""
    length, drop = 24, dropout(0.5)
    query = key = torch.zeros(1, 50, length, 1, 4)
    value = torch.eye(length).expand(1, 50, length, length)[:, :, :, None]
    mask = torch.ones(length, length, dtype=torch.bool).tril()
    weights = attention_with_dropout(query, key, value, mask, None, True, drop)[0, :, :, 0]
    uniform = mask / torch.arange(1, length + 1)[:, None]
    assert (((weights - 2 * uniform).abs() < 1e-6) | (weights == 0)).all()
    dropped = (weights[:, mask] == 0).double().mean()
    assert abs(dropped - 0.5) < 0.02
