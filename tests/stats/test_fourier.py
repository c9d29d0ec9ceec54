"""Fourier analysis of modular arithmetic, on vectors made of known circles."""

from __future__ import annotations

import numpy as np
import pytest

from seedbed.report.fourier_analysis import find_key_frequencies
from seedbed.stats.fourier import (
    effective_n_frequencies,
    frequency_power,
    key_frequencies,
    mean_cross_entropy,
    neuron_variance_explained,
    power_at,
    project_logits_to_frequencies,
    project_to_frequency_plane,
    top_frequencies,
)
from seedbed.tasks.arithmetic import ArithmeticSettings

P = 23


def circle(k, p=P, size=1.0):
    angles = 2 * np.pi * k * np.arange(p) / p
    return size * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def test_power_is_that_of_the_circles_in_any_basis():
    mixing = np.random.default_rng(0).standard_normal((4, 4))
    vectors = np.hstack([circle(3, size=2.0), circle(7)]) @ np.linalg.qr(mixing)[0] + 5.0
    shares = frequency_power(vectors)
    assert shares[[2, 6]] == pytest.approx([0.8, 0.2])
    assert top_frequencies(shares, 2) == [3, 7]
    assert np.sort(shares)[-2:].sum() == pytest.approx(1)


@pytest.mark.parametrize("p", [22, 23])
def test_shares_sum_to_one_and_are_uniform_for_noise(p):
    shares = frequency_power(np.random.default_rng(0).standard_normal((p, 5_000)))
    assert shares.sum() == pytest.approx(1)
    assert np.sort(shares)[-5:].sum() == pytest.approx(5 / (p / 2 if p % 2 == 0 else p // 2), rel=0.1)


def test_equal_vectors_have_undefined_power():
    assert np.isnan(frequency_power(np.ones((P, 3)))).all()


def test_a_tuned_neuron_has_all_its_variance_in_one_frequency_and_a_mixed_one_is_split():
    a, b = np.meshgrid(np.arange(P), np.arange(P), indexing="ij")
    w = 2 * np.pi / P
    pure = np.cos(4 * w * a) + np.sin(4 * w * b) + np.cos(4 * w * a) * np.sin(4 * w * b) + 7
    mixed = np.cos(4 * w * (a + b)) + np.cos(9 * w * (a - b))
    shares = neuron_variance_explained(np.stack([pure, mixed, np.ones_like(pure)], axis=-1))
    assert shares[3, 0] == pytest.approx(1)
    assert shares[[3, 8], 1] == pytest.approx([0.5, 0.5])
    assert np.isnan(shares[:, 2]).all()


def test_an_exact_circle_has_all_power_and_noise_a_uniform_share():
    exact = frequency_power(circle(5))
    assert key_frequencies(exact) == [5]
    assert (power_at(exact, [5]), effective_n_frequencies(exact)) == (pytest.approx(1), pytest.approx(1))
    noise = frequency_power(np.random.default_rng(1).standard_normal((P, 5_000)))
    assert power_at(noise, [2, 5, 9]) == pytest.approx(3 / 11, rel=0.05)
    assert effective_n_frequencies(noise) == pytest.approx(11, rel=0.01)


def test_power_rises_while_vectors_move_from_noise_to_a_circle():
    noise = np.random.default_rng(2).standard_normal((P, 60))
    ring = np.pad(circle(5, size=4.0), ((0, 0), (0, 58)))
    shares = [frequency_power((1 - t) * noise + t * ring) for t in np.linspace(0, 1, 9)]
    followed = [power_at(one, [5]) for one in shares]
    assert followed == sorted(followed)
    assert followed[0] < 0.3
    assert followed[-1] == pytest.approx(1)
    assert effective_n_frequencies(shares[0]) > 5 > effective_n_frequencies(shares[-1])


def test_projection_to_the_plane_of_a_frequency_recovers_the_circle():
    mixing = np.linalg.qr(np.random.default_rng(3).standard_normal((6, 6)))[0]
    vectors = np.hstack([circle(4, size=3.0), circle(7), circle(9)]) @ mixing + 2.0
    coordinates = project_to_frequency_plane(vectors, 4)
    np.testing.assert_allclose(coordinates, circle(4, size=3.0), atol=1e-12)


@pytest.mark.parametrize("sign", [1, -1])
def test_projected_logits_depend_on_the_sum_through_these_frequencies_only(sign):
    a, b, c = np.meshgrid(np.arange(P), np.arange(P), np.arange(P), indexing="ij")
    w = 2 * np.pi / P
    wanted = np.cos(3 * w * (a + sign * b - c)) + 0.5 * np.sin(6 * w * (a + sign * b) + c)
    rest = 7.0 * c + np.cos(3 * w * a) + np.cos(3 * w * (a - sign * b)) + np.cos(5 * w * (a + sign * b - c))
    np.testing.assert_allclose(project_logits_to_frequencies(wanted + rest, [3, 6], sign), wanted, atol=1e-10)


def test_restricted_loss_is_low_and_excluded_loss_high_only_if_circles_solve_the_task():
    a, b, c = np.meshgrid(np.arange(P), np.arange(P), np.arange(P), indexing="ij")
    results, all_pairs = (a + b)[..., 0] % P, np.ones((P, P), dtype=bool)
    circles = sum(20 * np.cos(2 * np.pi * k * (a + b - c) / P) for k in (2, 3, 7))
    memorised = 20.0 * (c == ((a + b) % P)) * (np.random.default_rng(4).random((P, P, 1)) < 0.5)
    losses = {}
    for name, logits in (("circles", circles), ("memorised", memorised)):
        part = project_logits_to_frequencies(logits, [2, 3, 7])
        losses[name] = (
            mean_cross_entropy(part, results, all_pairs),
            mean_cross_entropy(logits - part, results, all_pairs),
        )
    assert losses["circles"][0] < 0.01
    assert losses["circles"][1] == pytest.approx(np.log(P))
    assert losses["memorised"][0] > 1


def test_a_loss_over_no_pairs_is_nan():
    assert np.isnan(
        mean_cross_entropy(np.zeros((2, 2, 3)), np.zeros((2, 2), dtype=np.int64), np.zeros((2, 2), dtype=bool))
    )


# ---- products ----


def test_embeddings_on_circles_of_the_logarithm_are_found_for_products_only():
    """Rows of the numbers 1 … 22 stand at angles of three times their discrete logarithm to base 5."""
    logarithm = {pow(5, k, P): k for k in range(P - 1)}
    angles = 2 * np.pi * 3 * np.array([logarithm[number] for number in range(1, P)]) / (P - 1)
    table = np.vstack([np.zeros(2), np.stack([np.cos(angles), np.sin(angles)], axis=1), np.ones((5, 2))])
    by_operator = {operator: ArithmeticSettings(p=P, operator=operator).cyclic_order() for operator in "+*/"}
    assert find_key_frequencies({"embed.weight": table}, by_operator["*"]) == [3]
    assert by_operator["/"] == by_operator["*"]
    assert len(find_key_frequencies({"embed.weight": table}, by_operator["+"])) > 3


@pytest.mark.parametrize("n", [22, 23])
def test_a_wave_is_explained_by_its_frequency_also_for_an_even_number_of_positions(n):
    a, b = np.meshgrid(np.arange(n), np.arange(n), indexing="ij")
    for k in (1, n // 2):
        shares = neuron_variance_explained(np.cos(2 * np.pi * k * (a + b) / n)[..., None])[:, 0]
        assert shares[k - 1] == pytest.approx(1)
        assert shares.sum() == pytest.approx(1)


def test_logits_of_the_highest_frequency_of_an_even_number_are_kept():
    n, rng = 10, np.random.default_rng(0)
    sums = np.add.outer(np.arange(n), np.arange(n)) % n
    logits = np.cos(np.pi * sums)[..., None] * rng.normal(size=3)
    np.testing.assert_allclose(project_logits_to_frequencies(logits, [n // 2]), logits, atol=1e-12)
    np.testing.assert_allclose(project_logits_to_frequencies(logits, [1]), 0, atol=1e-12)
