"""Dropout: rates, scales, streams; and attention with dropped weights against attention without."""

from __future__ import annotations

import pytest
import torch

from seedbed.models.layers import Dropout, attention, attention_with_dropout

STEP = torch.tensor([3])


def dropout(*rates: float, seeds: tuple[int, ...] | None = None, stream: str = "dropout/x") -> Dropout:
    made = Dropout()
    made.configure(rates, seeds or tuple(range(len(rates))), stream, STEP)
    return made.train()


@pytest.mark.parametrize("rate", [0.001, 0.2, 0.5, 0.97])
def test_a_run_drops_its_share_and_scales_the_rest_by_what_is_missing(rate):
    n = 400_000
    out = dropout(0.0, rate)(torch.ones(2, n))
    assert (out[0] == 1).all()
    assert abs((out[1] == 0).double().mean() - rate) < 5 * (rate * (1 - rate) / n) ** 0.5
    kept = 1 - round(rate * 65_536) / 65_536
    torch.testing.assert_close(out[1][out[1] != 0].unique(), torch.tensor([1 / kept]))


def test_a_rate_next_to_one_keeps_something_finite():
    assert dropout(1 - 1e-9)(torch.ones(1, 300_000)).isfinite().all()


def test_masks_follow_seed_stream_and_step_and_nothing_else():
    x = torch.ones(1, 1000)
    mask = dropout(0.5, seeds=(4,))(x)
    assert torch.equal(mask[0], dropout(0.5, 0.5, seeds=(1, 4))(torch.ones(2, 1000))[1])
    assert not torch.equal(mask, dropout(0.5, seeds=(5,))(x))
    assert not torch.equal(mask, dropout(0.5, seeds=(4,), stream="dropout/y")(x))
    later = dropout(0.5, seeds=(4,))
    later.step = torch.tensor([4])
    assert not torch.equal(mask, later(x))


def test_entries_after_others_go_on_in_the_same_mask():
    drop, x = dropout(0.5, 0.5), torch.ones(2, 1001)
    whole = drop(x)
    assert torch.equal(drop(x[:, 600:], offset=600), whole[:, 600:])
    assert torch.equal(drop(x[:, 600:], offset=599), whole[:, 600:])  # from the next even one on


@pytest.mark.parametrize("length", [5, 17, 24])
@pytest.mark.parametrize("biased", [False, True])
def test_attention_in_two_halves_is_attention(length, biased):
    """In evaluation nothing is dropped, so what is left of `attend_through` must be `attend`."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, length, 3, 8, dtype=torch.float64)
    seen = torch.ones(length, length, dtype=torch.bool).tril()
    bias = torch.randn(length, length, 3, dtype=torch.float64) if biased else None
    found = attention_with_dropout(query, key, value, seen, bias, True, dropout(0.5, 0.5).eval())
    torch.testing.assert_close(found, attention(query, key, value, seen, bias), rtol=1e-12, atol=1e-12)


def test_dropped_attention_weights_are_zero_or_scaled_ones():
    """With values that count positions, each output is the sum of the weights that stay."""
    length, drop = 24, dropout(0.5)
    query = key = torch.zeros(1, 50, length, 1, 4)
    value = torch.eye(length).expand(1, 50, length, length)[:, :, :, None]
    seen = torch.ones(length, length, dtype=torch.bool).tril()
    weights = attention_with_dropout(query, key, value, seen, None, True, drop)[0, :, :, 0]
    uniform = seen / torch.arange(1, length + 1)[:, None]
    assert (((weights - 2 * uniform).abs() < 1e-6) | (weights == 0)).all()
    share = (weights[:, seen] == 0).double().mean()
    assert abs(share - 0.5) < 0.02
