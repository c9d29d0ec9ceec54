"""Numbers of attention heads, from maps alone: how wide they look, how far, at which tokens; pure functions.

    numbers = head_numbers(weights, tokens, seen, words)     # name → (B, ...) means over each input's queries
    even = head_numbers(even_weights(seen, causal), tokens, seen, words)      # what a head without a taste would have

Axes: B inputs, then any others (layers, heads), T queries, S sources. `seen` (B, T) tells real tokens from padding;
padding asks nothing, but it can be looked at. `words` (B, T) numbers the words that tokens are parts of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class HeadStatistic:
    """What a number means, and its unit."""

    description: str
    unit: str


HEAD_STATISTICS: dict[str, HeadStatistic] = {
    "entropy": HeadStatistic("how evenly a query looks: 0 at one token, ln n at n alike", "nats"),
    "distance": HeadStatistic("mean distance between a query and what it looks at", "tokens"),
    "near": HeadStatistic("share on tokens at most two places away, itself too", "share"),
    "place": HeadStatistic(
        "where in the text so far a query looks: 0 its first token, 1 its last", "share of the text"
    ),
    "first": HeadStatistic("share on the first token", "share"),
    "previous": HeadStatistic("share on the token before", "share"),
    "most_previous": HeadStatistic("share of queries that look at the token before more than at any other", "share"),
    "own": HeadStatistic("share on the token itself", "share"),
    "own_word": HeadStatistic("share on the query's own word", "share"),
    "ahead": HeadStatistic("share on later tokens, which a causal mask hides", "share"),
    "induction": HeadStatistic("share on tokens that followed an earlier copy of the query", "share"),
    "top": HeadStatistic("share on the one token that all queries together look at most", "share"),
    "apart": HeadStatistic("total variation between its maps and those of the layer's other heads: 0 alike", "share"),
}
NEAR_DISTANCE_TOKENS = 2  # places away


def attention_entropy(weights: Floats) -> Floats:
    """−Σ w ln w of each row, in nats."""
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    return -(weights * logs).sum(-1)  # type: ignore[no-any-return]


def attention_distance(weights: Floats) -> Floats:
    """Σ w |t − s| of each row, in tokens."""
    n_queries, n_sources = weights.shape[-2:]
    apart = np.abs(np.arange(n_queries)[:, None] - np.arange(n_sources))
    return (weights * apart).sum(-1)  # type: ignore[no-any-return]


def attention_share(weights: Floats, source_mask: Bools) -> Floats:
    """What each row gives to the sources that are marked: (B, S), or (B, T, S) where it depends on the query."""
    marked = source_mask[:, None] if source_mask.ndim == 2 else source_mask
    between = tuple(range(1, weights.ndim - 2))
    return (weights * np.expand_dims(marked, between)).sum(-1)  # type: ignore[no-any-return]


def mean_over_queries(values: Floats, query_mask: Bools) -> Floats:
    """The mean of (B, …, T) over the queries that count in each input; NaN where none does."""
    counts = np.expand_dims(query_mask, tuple(range(1, values.ndim - 1)))
    n = counts.sum(-1)
    total = np.where(counts, values, 0).sum(-1)
    return np.divide(total, n, out=np.full(total.shape, np.nan), where=n > 0)  # type: ignore[no-any-return]


def induction_mask(tokens: Ints) -> Bools:
    """(B, T, S): whether token s − 1 is an earlier copy of token t, so that s shows what came after it.

    Olsson et al., "In-context Learning and Induction Heads" (2022), on real inputs instead of repeated random ones.
    """
    n = tokens.shape[-1]
    copies = tokens[:, :, None] == tokens[:, None, :]
    earlier = copies & np.tri(n, k=-1, dtype=bool)
    return np.pad(earlier, ((0, 0), (0, 0), (1, 0)))[:, :, :n]


def head_statistics(
    weights: Floats, tokens: Ints, token_mask: Bools, word_ids: Ints | None = None
) -> dict[str, Floats]:
    """Every number of NUMBERS by name, (B, …) each: means over an input's queries; NaN where it means nothing."""
    places = np.arange(tokens.shape[-1])
    away = places[:, None] - places
    after_copy = induction_mask(tokens)
    later = token_mask & (places > 0)
    own = mean_over_queries(np.diagonal(weights, axis1=-2, axis2=-1), token_mask)
    return {
        "entropy": mean_over_queries(attention_entropy(weights), token_mask),
        "distance": mean_over_queries(attention_distance(weights), token_mask),
        "near": mean_over_queries(
            attention_share(weights, _broadcast_mask(abs(away) <= NEAR_DISTANCE_TOKENS, token_mask)), token_mask
        ),
        "place": mean_over_queries(relative_position(weights, token_mask), later),
        "first": mean_over_queries(weights[..., 0], token_mask),
        "previous": mean_over_queries(attention_share(weights, _broadcast_mask(away == 1, token_mask)), later),
        "most_previous": mean_over_queries((weights.argmax(-1) == places - 1).astype(float), later),
        "own": own,
        "own_word": own * np.nan
        if word_ids is None
        else mean_over_queries(attention_share(weights, _same_word_mask(word_ids)), token_mask),
        "ahead": mean_over_queries(attention_share(weights, _broadcast_mask(away < 0, token_mask)), token_mask),
        "induction": mean_over_queries(attention_share(weights, after_copy), token_mask & after_copy.any(-1)),
        "top": _mean_attention_received(weights, token_mask).max(-1),
        "apart": mean_over_queries(head_distance(weights), token_mask),
    }


def _same_word_mask(word_ids: Ints) -> Bools:
    return word_ids[:, :, None] == word_ids[:, None, :]  # type: ignore[no-any-return]


def _broadcast_mask(mask: Bools, token_mask: Bools) -> Bools:
    """(T, S) marks as those of every input."""
    return np.broadcast_to(mask, (len(token_mask), *mask.shape))


def uniform_attention(token_mask: Bools, causal: bool) -> Floats:
    """What a head would do that looks at all that it may see alike: (B, 1, 1, T, T), as if of one layer and head."""
    n = token_mask.shape[-1]
    may = np.tri(n) if causal else np.ones((n, n))
    return np.broadcast_to(may / may.sum(-1, keepdims=True), (len(token_mask), 1, 1, n, n))


def relative_position(weights: Floats, token_mask: Bools) -> Floats:
    """Σ w s / Σ w over the real tokens of each row, as a share of the last of them that it may see."""
    n = weights.shape[-1]
    causal = not np.triu(weights, 1).any()
    real = weights * np.expand_dims(token_mask, tuple(range(1, weights.ndim - 1)))
    last = np.expand_dims(token_mask.sum(-1) - 1, tuple(range(1, weights.ndim - 1)))
    reach = np.minimum(np.arange(n), last) if causal else np.broadcast_to(last, (*last.shape[:-1], n))
    total = real.sum(-1) * np.maximum(reach, 1)
    return np.divide((real * np.arange(n)).sum(-1), total, out=np.zeros_like(total), where=total > 0)  # type: ignore[no-any-return]


def head_distance(weights: Floats) -> Floats:
    """How far each head's rows are from those of the other heads (axis −3) on average: ½ Σ |w − w′|, in [0, 1]."""
    n_heads = weights.shape[-3]
    if n_heads == 1:
        return np.full(weights.shape[:-1], np.nan)
    found = np.zeros(weights.shape[:-1])
    for head in range(n_heads):
        found[..., head, :] = np.abs(weights - weights[..., head : head + 1, :, :]).sum((-3, -1)) / 2
    return found / (n_heads - 1)  # type: ignore[no-any-return]


def layer_distances(weights: Floats, token_mask: Bools) -> Floats:
    """Total variation between the maps of every two layers, each the mean of its heads: (B, L, L)."""
    layers = weights.mean(-3)  # (B, L, T, S)
    pairs = [np.abs(layers - layers[:, one : one + 1]).sum(-1) / 2 for one in range(layers.shape[1])]
    return mean_over_queries(np.stack(pairs, axis=1), token_mask)


def _mean_attention_received(weights: Floats, token_mask: Bools) -> Floats:
    """What each source gets from an input's real queries on average, those included that cannot see it: (B, …, S)."""
    asked = np.expand_dims(token_mask, (*range(1, weights.ndim - 2), weights.ndim - 1))
    return np.where(asked, weights, 0).sum(-2) / np.maximum(asked.sum(-2), 1)  # type: ignore[no-any-return]


def attention_by_token_kind(
    weights: Floats, kind_masks: Mapping[str, Bools], token_mask: Bools
) -> dict[tuple[str, str], Floats]:
    """What queries of one kind give to sources of another, by (source, query); query "all" is every real token."""
    queries = {"all": token_mask} | {name: where & token_mask for name, where in kind_masks.items()}
    found: dict[tuple[str, str], Floats] = {}
    for source, marked in kind_masks.items():
        shares = attention_share(weights, marked)
        found |= {(source, query): mean_over_queries(shares, counted) for query, counted in queries.items()}
    return {pair: values for pair, values in found.items() if np.isfinite(values).any()}


def attention_received(weights: Floats, token_mask: Bools) -> Floats:
    """What each source gets from a real query that could look at it, on average: (B, …, S); NaN where none could."""
    asked = np.expand_dims(token_mask, (*range(1, weights.ndim - 2), weights.ndim - 1))
    reachable = asked & (weights > 0)
    n = reachable.sum(-2)
    total = np.where(reachable, weights, 0).sum(-2)
    return np.divide(total, n, out=np.full(total.shape, np.nan), where=n > 0)  # type: ignore[no-any-return]
