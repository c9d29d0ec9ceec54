"""Head statistics of maps with known values: uniform, diagonal, shifted, inductive, padded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.stats.attention_stats import (
    HEAD_STATISTICS,
    attention_by_token_kind,
    attention_distance,
    attention_entropy,
    attention_received,
    attention_share,
    head_distance,
    head_statistics,
    induction_mask,
    layer_distances,
    mean_over_queries,
    uniform_attention,
)

N = 5
TOKEN_MASK = np.ones((1, N), dtype=bool)
TOKENS = np.arange(N)[None]


def causal_uniform(n=N):
    return np.tri(n) / np.arange(1, n + 1)[:, None]


def stack_heads(*maps):
    """(1, L=1, H, T, T)."""
    return np.stack(maps)[None, None]


def test_uniform_attention_has_the_entropy_of_the_number_of_visible_tokens():
    np.testing.assert_allclose(attention_entropy(causal_uniform()), np.log(np.arange(1, N + 1)), atol=1e-12)
    assert attention_entropy(np.eye(N)).tolist() == [0] * N


def test_distance_counts_tokens_in_both_directions():
    ahead = np.roll(np.eye(N), 2, axis=1)
    assert attention_distance(ahead).tolist() == [2, 2, 2, 3, 3]


def test_previous_own_and_first_are_distinguished():
    previous = np.eye(N, k=-1)
    previous[0, 0] = 1
    first = np.zeros((N, N))
    first[:, 0] = 1
    statistics = head_statistics(stack_heads(previous, np.eye(N), first), TOKENS, TOKEN_MASK)
    assert statistics["previous"][0, 0].tolist() == [1, 0, pytest.approx(1 / 4)]
    assert statistics["own"][0, 0].tolist() == [pytest.approx(1 / N), 1, pytest.approx(1 / N)]
    assert statistics["first"][0, 0].tolist() == [pytest.approx(2 / N), pytest.approx(1 / N), 1]


def test_induction_is_the_share_on_tokens_that_followed_an_earlier_occurrence():
    tokens = np.array([[7, 8, 9, 7, 8]])
    pairs = np.argwhere(induction_mask(tokens)[0]).tolist()
    assert pairs == [[3, 1], [4, 2]]
    inductive = np.eye(N)
    inductive[3], inductive[4] = np.eye(N)[1], np.eye(N)[2]
    statistics = head_statistics(stack_heads(inductive, np.eye(N)), tokens, np.ones((1, N), dtype=bool))
    assert statistics["induction"][0, 0].tolist() == [1, 0]


def test_induction_is_undefined_without_repeated_tokens():
    assert np.isnan(head_statistics(stack_heads(np.eye(N)), TOKENS, TOKEN_MASK)["induction"]).all()


def test_padding_is_never_a_query_but_can_be_attended_to():
    token_mask = np.array([[True, True, False, False, False]])
    weights = np.tile(np.array([0.1, 0.3, 0.2, 0.2, 0.2]), (N, 1))
    weights[2:] = np.eye(N)[0]
    shares = attention_by_token_kind(stack_heads(weights), {"padding": ~token_mask}, token_mask)
    assert shares["padding", "all"][0, 0, 0] == pytest.approx(0.6)
    assert ("padding", "padding") not in shares
    assert attention_received(stack_heads(weights), token_mask)[0, 0, 0] == pytest.approx([0.1, 0.3, 0.2, 0.2, 0.2])


def test_attention_received_is_averaged_over_queries_that_can_see_the_token():
    received = attention_received(stack_heads(causal_uniform(3)), np.ones((1, 3), dtype=bool))[0, 0, 0]
    assert received == pytest.approx([(1 + 1 / 2 + 1 / 3) / 3, (1 / 2 + 1 / 3) / 2, 1 / 3])


@given(st.integers(1, 4), st.integers(1, 3), st.integers(2, 6), st.integers(0, 99))
def test_shares_of_kinds_that_cover_all_tokens_sum_to_one(n_inputs, n_heads, n, seed):
    drawn = np.random.default_rng(seed)
    weights = drawn.dirichlet(np.ones(n), size=(n_inputs, 2, n_heads, n))
    some = drawn.random((n_inputs, n)) < 0.5
    total = attention_share(weights, some) + attention_share(weights, ~some)
    np.testing.assert_allclose(total, 1)
    by_input = mean_over_queries(total, np.ones((n_inputs, n), dtype=bool))
    assert by_input.shape == (n_inputs, 2, n_heads)


def test_every_statistic_is_described():
    assert head_statistics(stack_heads(np.eye(N)), TOKENS, TOKEN_MASK).keys() == HEAD_STATISTICS.keys()


def test_relative_position_runs_from_the_first_to_the_last_visible_token():
    first, last = np.zeros((N, N)), np.eye(N)
    first[:, 0] = 1
    statistics = head_statistics(stack_heads(first, last, causal_uniform()), TOKENS, TOKEN_MASK)
    assert statistics["place"][0, 0] == pytest.approx([0, 1, 0.5])
    both_ways = head_statistics(stack_heads(np.full((N, N), 1 / N)), TOKENS, TOKEN_MASK)
    assert both_ways["place"].item() == pytest.approx(0.5)
    assert both_ways["ahead"].item() == pytest.approx(2 / N)  # 4 + 3 + 2 + 1 of 25 cells


def test_near_is_a_band_and_most_previous_counts_argmax_queries():
    back = np.eye(N, k=-3) + np.diag([1.0, 1, 1, 0, 0])
    before = 0.6 * np.eye(N, k=-1) + 0.4 * np.eye(N)
    before[0] = np.eye(N)[0]
    statistics = head_statistics(stack_heads(back, before), TOKENS, TOKEN_MASK)
    assert statistics["near"][0, 0] == pytest.approx([3 / 5, 1])
    assert statistics["most_previous"][0, 0] == pytest.approx([0, 1])


def test_the_most_attended_token_is_one_for_all_queries():
    column = np.full((N, N), 0.1 / (N - 1))
    column[:, 3] = 0.9
    statistics = head_statistics(stack_heads(column, np.eye(N)), TOKENS, TOKEN_MASK)
    assert statistics["top"][0, 0] == pytest.approx([0.9, 1 / N])


def test_equal_heads_have_distance_zero_and_disjoint_heads_distance_one():
    shifted = np.roll(np.eye(N), 1, axis=1)
    assert head_distance(stack_heads(np.eye(N), np.eye(N)))[0, 0].tolist() == [[0] * N] * 2
    assert head_distance(stack_heads(np.eye(N), np.eye(N), shifted))[0, 0, :, 0].tolist() == [0.5, 0.5, 1]
    layers = np.stack([np.eye(N), shifted])[None, :, None]
    assert layer_distances(layers, TOKEN_MASK)[0].tolist() == [[0, 1], [1, 0]]


def test_own_word_includes_all_its_tokens():
    words = np.array([[0, 0, 0, 1, 1]])
    statistics = head_statistics(stack_heads(causal_uniform()), TOKENS, TOKEN_MASK, words)
    assert statistics["own_word"].item() == pytest.approx((1 + 1 + 1 + 1 / 4 + 2 / 5) / 5)


def test_uniform_attention_covers_all_visible_tokens():
    np.testing.assert_allclose(uniform_attention(TOKEN_MASK, causal=True)[0, 0, 0], causal_uniform())
    assert (uniform_attention(TOKEN_MASK, causal=False) == 1 / N).all()
