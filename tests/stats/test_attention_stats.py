"""Head numbers against maps whose answer is known by hand: uniform, diagonal, shifted, inductive, padded."""

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
SEEN = np.ones((1, N), dtype=bool)
TOKENS = np.arange(N)[None]


def causal_uniform(n=N):
    return np.tri(n) / np.arange(1, n + 1)[:, None]


def of_heads(*maps):
    """(1, L=1, H, T, T)."""
    return np.stack(maps)[None, None]


def test_a_head_that_looks_evenly_has_the_entropy_of_the_number_of_tokens_it_sees():
    np.testing.assert_allclose(attention_entropy(causal_uniform()), np.log(np.arange(1, N + 1)), atol=1e-12)
    assert attention_entropy(np.eye(N)).tolist() == [0] * N


def test_distance_counts_tokens_in_both_directions():
    ahead = np.roll(np.eye(N), 2, axis=1)
    assert attention_distance(ahead).tolist() == [2, 2, 2, 3, 3]


def test_previous_own_and_first_are_told_apart():
    previous = np.eye(N, k=-1)
    previous[0, 0] = 1
    first = np.zeros((N, N))
    first[:, 0] = 1
    found = head_statistics(of_heads(previous, np.eye(N), first), TOKENS, SEEN)
    assert found["previous"][0, 0].tolist() == [1, 0, pytest.approx(1 / 4)]
    assert found["own"][0, 0].tolist() == [pytest.approx(1 / N), 1, pytest.approx(1 / N)]
    assert found["first"][0, 0].tolist() == [pytest.approx(2 / N), pytest.approx(1 / N), 1]


def test_induction_is_the_share_on_what_followed_an_earlier_copy():
    tokens = np.array([[7, 8, 9, 7, 8]])
    marked = np.argwhere(induction_mask(tokens)[0]).tolist()
    assert marked == [[3, 1], [4, 2]]
    inductive = np.eye(N)
    inductive[3], inductive[4] = np.eye(N)[1], np.eye(N)[2]
    found = head_statistics(of_heads(inductive, np.eye(N)), tokens, np.ones((1, N), dtype=bool))
    assert found["induction"][0, 0].tolist() == [1, 0]


def test_induction_is_unknown_where_no_token_comes_twice():
    assert np.isnan(head_statistics(of_heads(np.eye(N)), TOKENS, SEEN)["induction"]).all()


def test_padding_asks_nothing_but_can_be_looked_at():
    seen = np.array([[True, True, False, False, False]])
    weights = np.tile(np.array([0.1, 0.3, 0.2, 0.2, 0.2]), (N, 1))
    weights[2:] = np.eye(N)[0]
    shares = attention_by_token_kind(of_heads(weights), {"padding": ~seen}, seen)
    assert shares["padding", "all"][0, 0, 0] == pytest.approx(0.6)
    assert ("padding", "padding") not in shares
    assert attention_received(of_heads(weights), seen)[0, 0, 0] == pytest.approx([0.1, 0.3, 0.2, 0.2, 0.2])


def test_what_a_token_receives_is_averaged_over_those_who_could_look():
    got = attention_received(of_heads(causal_uniform(3)), np.ones((1, 3), dtype=bool))[0, 0, 0]
    assert got == pytest.approx([(1 + 1 / 2 + 1 / 3) / 3, (1 / 2 + 1 / 3) / 2, 1 / 3])


@given(st.integers(1, 4), st.integers(1, 3), st.integers(2, 6), st.integers(0, 99))
def test_shares_of_kinds_that_cover_all_tokens_sum_to_one(n_inputs, n_heads, n, seed):
    drawn = np.random.default_rng(seed)
    weights = drawn.dirichlet(np.ones(n), size=(n_inputs, 2, n_heads, n))
    some = drawn.random((n_inputs, n)) < 0.5
    total = attention_share(weights, some) + attention_share(weights, ~some)
    np.testing.assert_allclose(total, 1)
    by_input = mean_over_queries(total, np.ones((n_inputs, n), dtype=bool))
    assert by_input.shape == (n_inputs, 2, n_heads)


def test_every_number_is_explained():
    assert head_statistics(of_heads(np.eye(N)), TOKENS, SEEN).keys() == HEAD_STATISTICS.keys()


def test_where_a_query_looks_is_told_from_the_first_token_to_the_last_it_may_see():
    first, last = np.zeros((N, N)), np.eye(N)
    first[:, 0] = 1
    found = head_statistics(of_heads(first, last, causal_uniform()), TOKENS, SEEN)
    assert found["place"][0, 0] == pytest.approx([0, 1, 0.5])
    both_ways = head_statistics(of_heads(np.full((N, N), 1 / N)), TOKENS, SEEN)
    assert both_ways["place"].item() == pytest.approx(0.5)
    assert both_ways["ahead"].item() == pytest.approx(2 / N)  # 4 + 3 + 2 + 1 of 25 cells


def test_near_is_a_band_and_the_token_before_can_be_looked_at_most():
    back = np.eye(N, k=-3) + np.diag([1.0, 1, 1, 0, 0])
    before = 0.6 * np.eye(N, k=-1) + 0.4 * np.eye(N)
    before[0] = np.eye(N)[0]
    found = head_statistics(of_heads(back, before), TOKENS, SEEN)
    assert found["near"][0, 0] == pytest.approx([3 / 5, 1])
    assert found["most_previous"][0, 0] == pytest.approx([0, 1])


def test_the_most_looked_at_token_is_one_for_all_queries():
    column = np.full((N, N), 0.1 / (N - 1))
    column[:, 3] = 0.9
    found = head_statistics(of_heads(column, np.eye(N)), TOKENS, SEEN)
    assert found["top"][0, 0] == pytest.approx([0.9, 1 / N])


def test_heads_that_look_alike_are_not_apart_and_heads_that_share_nothing_are():
    shifted = np.roll(np.eye(N), 1, axis=1)
    assert head_distance(of_heads(np.eye(N), np.eye(N)))[0, 0].tolist() == [[0] * N] * 2
    assert head_distance(of_heads(np.eye(N), np.eye(N), shifted))[0, 0, :, 0].tolist() == [0.5, 0.5, 1]
    layers = np.stack([np.eye(N), shifted])[None, :, None]
    assert layer_distances(layers, SEEN)[0].tolist() == [[0, 1], [1, 0]]


def test_own_word_takes_all_parts_of_it():
    words = np.array([[0, 0, 0, 1, 1]])
    found = head_statistics(of_heads(causal_uniform()), TOKENS, SEEN, words)
    assert found["own_word"].item() == pytest.approx((1 + 1 + 1 + 1 / 4 + 2 / 5) / 5)


def test_even_weights_look_at_all_that_may_be_seen():
    np.testing.assert_allclose(uniform_attention(SEEN, causal=True)[0, 0, 0], causal_uniform())
    assert (uniform_attention(SEEN, causal=False) == 1 / N).all()
