"""The circles of modular arithmetic, on vectors that are made of known ones."""

from __future__ import annotations

import numpy as np
import pytest

from seedbed.measures.fourier import neuron_shares, power, strongest, top_share

P = 23


def circle(k, p=P, size=1.0):
    turn = 2 * np.pi * k * np.arange(p) / p
    return size * np.stack([np.cos(turn), np.sin(turn)], axis=1)


def test_power_tells_circles_by_their_size_whatever_the_basis():
    mixing = np.random.default_rng(0).standard_normal((4, 4))
    vectors = np.hstack([circle(3, size=2.0), circle(7)]) @ np.linalg.qr(mixing)[0] + 5.0
    shares = power(vectors)
    assert shares[[2, 6]] == pytest.approx([0.8, 0.2])
    assert strongest(shares, 2) == [3, 7]
    assert top_share(shares, 2) == pytest.approx(1)


@pytest.mark.parametrize("p", [22, 23])
def test_shares_sum_to_one_and_are_even_for_noise(p):
    shares = power(np.random.default_rng(0).standard_normal((p, 5_000)))
    assert shares.sum() == pytest.approx(1)
    assert top_share(shares, 5) == pytest.approx(5 / (p / 2 if p % 2 == 0 else p // 2), rel=0.1)


def test_equal_vectors_have_no_frequency():
    assert np.isnan(power(np.ones((P, 3)))).all()


def test_a_neuron_of_one_circle_has_all_its_variance_there_and_a_mixed_one_is_split():
    a, b = np.meshgrid(np.arange(P), np.arange(P), indexing="ij")
    w = 2 * np.pi / P
    pure = np.cos(4 * w * a) + np.sin(4 * w * b) + np.cos(4 * w * a) * np.sin(4 * w * b) + 7
    mixed = np.cos(4 * w * (a + b)) + np.cos(9 * w * (a - b))
    shares = neuron_shares(np.stack([pure, mixed, np.ones_like(pure)], axis=-1))
    assert shares[3, 0] == pytest.approx(1)
    assert shares[[3, 8], 1] == pytest.approx([0.5, 0.5])
    assert np.isnan(shares[:, 2]).all()
