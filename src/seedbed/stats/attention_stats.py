"""Statistics of attention heads, computed from attention maps: entropy, distance, share on kinds of tokens.

    statistics = head_statistics(weights, tokens, token_mask, word_ids)  # name → (B, ...), mean over an input's queries
    baseline = head_statistics(uniform_attention(token_mask, causal), tokens, token_mask, word_ids)

Axes: B inputs, then any others (layers, heads), T queries, S sources. `token_mask` (B, T) is False at padding, which
never counts as a query but may be attended to. `word_ids` (B, T) is the index of each token's word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class HeadStatistic:
    """The meaning of a head statistic, its unit, and its label as the metric `attention_NAME`; empty: that name."""

    description: str
    unit: str
    label: str = ""


HEAD_STATISTICS: dict[str, HeadStatistic] = {
    "entropy": HeadStatistic("entropy of a query's attention: 0 on one token, ln n if uniform over n", "nats"),
    "distance": HeadStatistic("mean distance between a query and the tokens it attends to", "tokens"),
    "near": HeadStatistic(
        "share on tokens at most two positions away, itself included", "share", "attention on nearby tokens"
    ),
    "place": HeadStatistic(
        "mean relative position attended to in the text so far: 0 first token, 1 last",
        "share of the text",
        "relative position attended to",
    ),
    "first": HeadStatistic("share on the first token", "share", "attention on the first token"),
    "previous": HeadStatistic("share on the token before", "share", "attention on the previous token"),
    "most_previous": HeadStatistic(
        "share of queries that attend most to the token before",
        "share",
        "share of tokens that attend most to the previous one",
    ),
    "own": HeadStatistic("share on the token itself", "share", "attention on the token itself"),
    "own_word": HeadStatistic("share on the query's own word", "share", "attention on the token's own word"),
    "ahead": HeadStatistic("share on later tokens; 0 with a causal mask", "share", "attention on later tokens"),
    "induction": HeadStatistic(
        "share on tokens that followed an earlier occurrence of the query token",
        "share",
        "attention on what followed the same token before",
    ),
    "top": HeadStatistic(
        "share on the most attended token, averaged over all queries", "share", "attention on the most attended token"
    ),
    "apart": HeadStatistic(
        "total variation distance to the maps of the layer's other heads: 0 if equal",
        "share",
        "difference between heads",
    ),
}
NEAR_DISTANCE_TOKENS = 2


def describe_head_statistics(names: Sequence[str]) -> str:
    """A sentence that says what these statistics mean, with their units."""
    described = ((name, HEAD_STATISTICS[name]) for name in names)
    return "; ".join(f"{name}: {one.description} ({one.unit})" for name, one in described) + "."


def attention_entropy(weights: Floats) -> Floats:
    """Entropy −Σ w ln w of each row, in nats."""
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    return -(weights * logs).sum(-1)  # type: ignore[no-any-return]


def attention_distance(weights: Floats) -> Floats:
    """Mean distance Σ w |t − s| of each row, in tokens."""
    n_queries, n_sources = weights.shape[-2:]
    distances = np.abs(np.arange(n_queries)[:, None] - np.arange(n_sources))
    return (weights * distances).sum(-1)  # type: ignore[no-any-return]


def attention_share(weights: Floats, source_mask: Bools) -> Floats:
    """Attention of each row to the masked sources; the mask is (B, S), or (B, T, S) if it depends on the query."""
    mask = source_mask[:, None] if source_mask.ndim == 2 else source_mask
    inner_axes = tuple(range(1, weights.ndim - 2))
    return (weights * np.expand_dims(mask, inner_axes)).sum(-1)  # type: ignore[no-any-return]


def mean_over_queries(values: Floats, query_mask: Bools) -> Floats:
    """Mean of (B, …, T) over each input's masked queries; NaN if there are none."""
    mask = np.expand_dims(query_mask, tuple(range(1, values.ndim - 1)))
    n = mask.sum(-1)
    total = np.where(mask, values, 0).sum(-1)
    return np.divide(total, n, out=np.full(total.shape, np.nan), where=n > 0)  # type: ignore[no-any-return]


def induction_mask(tokens: Ints) -> Bools:
    """(B, T, S): True where token s − 1 is an earlier occurrence of token t, so that s is the token that followed it.

    Olsson et al., "In-context Learning and Induction Heads" (2022), on real inputs instead of repeated random ones.
    """
    n = tokens.shape[-1]
    same = tokens[:, :, None] == tokens[:, None, :]
    earlier = same & np.tri(n, k=-1, dtype=bool)
    return np.pad(earlier, ((0, 0), (0, 0), (1, 0)))[:, :, :n]


def head_statistics(
    weights: Floats, tokens: Ints, token_mask: Bools, word_ids: Ints | None = None
) -> dict[str, Floats]:
    """All HEAD_STATISTICS by name, (B, …) each: means over an input's queries; NaN if undefined."""
    positions = np.arange(tokens.shape[-1])
    offsets = positions[:, None] - positions  # query − source
    followers = induction_mask(tokens)
    later = token_mask & (positions > 0)  # the first token has no token before it
    own = mean_over_queries(np.diagonal(weights, axis1=-2, axis2=-1), token_mask)
    return {
        "entropy": mean_over_queries(attention_entropy(weights), token_mask),
        "distance": mean_over_queries(attention_distance(weights), token_mask),
        "near": mean_over_queries(
            attention_share(weights, _broadcast_mask(abs(offsets) <= NEAR_DISTANCE_TOKENS, token_mask)), token_mask
        ),
        "place": mean_over_queries(relative_position(weights, token_mask), later),
        "first": mean_over_queries(weights[..., 0], token_mask),
        "previous": mean_over_queries(attention_share(weights, _broadcast_mask(offsets == 1, token_mask)), later),
        "most_previous": mean_over_queries((weights.argmax(-1) == positions - 1).astype(float), later),
        "own": own,
        "own_word": own * np.nan
        if word_ids is None
        else mean_over_queries(attention_share(weights, _same_word_mask(word_ids)), token_mask),
        "ahead": mean_over_queries(attention_share(weights, _broadcast_mask(offsets < 0, token_mask)), token_mask),
        "induction": mean_over_queries(attention_share(weights, followers), token_mask & followers.any(-1)),
        "top": _mean_attention_received(weights, token_mask).max(-1),
        "apart": mean_over_queries(head_distance(weights), token_mask),
    }


def _same_word_mask(word_ids: Ints) -> Bools:
    return word_ids[:, :, None] == word_ids[:, None, :]  # type: ignore[no-any-return]


def _broadcast_mask(mask: Bools, token_mask: Bools) -> Bools:
    """A (T, S) mask repeated for every input: (B, T, S)."""
    return np.broadcast_to(mask, (len(token_mask), *mask.shape))


def uniform_attention(token_mask: Bools, causal: bool) -> Floats:
    """Attention maps of a head that attends equally to all visible tokens: (B, 1, 1, T, T), one layer and one head."""
    n = token_mask.shape[-1]
    visible = np.tri(n) if causal else np.ones((n, n))
    return np.broadcast_to(visible / visible.sum(-1, keepdims=True), (len(token_mask), 1, 1, n, n))


def relative_position(weights: Floats, token_mask: Bools) -> Floats:
    """Mean attended position Σ w s / Σ w over the real tokens of each row, relative to the last visible one."""
    n = weights.shape[-1]
    causal = not np.triu(weights, 1).any()  # inferred from the maps
    real = weights * np.expand_dims(token_mask, tuple(range(1, weights.ndim - 1)))
    last = np.expand_dims(token_mask.sum(-1) - 1, tuple(range(1, weights.ndim - 1)))
    last_visible = np.minimum(np.arange(n), last) if causal else np.broadcast_to(last, (*last.shape[:-1], n))
    total = real.sum(-1) * np.maximum(last_visible, 1)
    return np.divide((real * np.arange(n)).sum(-1), total, out=np.zeros_like(total), where=total > 0)  # type: ignore[no-any-return]


def head_distance(weights: Floats) -> Floats:
    """Mean total variation distance ½ Σ |w − w′| of each head's rows to those of the other heads (axis −3)."""
    n_heads = weights.shape[-3]
    if n_heads == 1:
        return np.full(weights.shape[:-1], np.nan)
    total = np.zeros(weights.shape[:-1])
    for head in range(n_heads):
        total[..., head, :] = np.abs(weights - weights[..., head : head + 1, :, :]).sum((-3, -1)) / 2
    return total / (n_heads - 1)  # type: ignore[no-any-return]


def layer_distances(weights: Floats, token_mask: Bools) -> Floats:
    """Total variation distance between the head-averaged maps of all pairs of layers: (B, L, L)."""
    layers = weights.mean(-3)  # (B, L, T, S)
    distances = [np.abs(layers - layers[:, i : i + 1]).sum(-1) / 2 for i in range(layers.shape[1])]
    return mean_over_queries(np.stack(distances, axis=1), token_mask)


def _mean_attention_received(weights: Floats, token_mask: Bools) -> Floats:
    """Mean attention each source receives from all real queries, also those that cannot see it: (B, …, S)."""
    queries = np.expand_dims(token_mask, (*range(1, weights.ndim - 2), weights.ndim - 1))
    return np.where(queries, weights, 0).sum(-2) / np.maximum(queries.sum(-2), 1)  # type: ignore[no-any-return]


def attention_by_token_kind(
    weights: Floats, kind_masks: Mapping[str, Bools], token_mask: Bools
) -> dict[tuple[str, str], Floats]:
    """Attention of queries of one kind to sources of another, by (source, query); query "all" is every real token."""
    queries = {"all": token_mask} | {name: mask & token_mask for name, mask in kind_masks.items()}
    by_pair: dict[tuple[str, str], Floats] = {}
    for source, source_mask in kind_masks.items():
        shares = attention_share(weights, source_mask)
        by_pair |= {(source, query): mean_over_queries(shares, mask) for query, mask in queries.items()}
    return {pair: values for pair, values in by_pair.items() if np.isfinite(values).any()}


def attention_received(weights: Floats, token_mask: Bools) -> Floats:
    """Mean attention each source receives from the real queries that can see it: (B, …, S); NaN if none can."""
    queries = np.expand_dims(token_mask, (*range(1, weights.ndim - 2), weights.ndim - 1))
    visible = queries & (weights > 0)
    n = visible.sum(-2)
    total = np.where(visible, weights, 0).sum(-2)
    return np.divide(total, n, out=np.full(total.shape, np.nan), where=n > 0)  # type: ignore[no-any-return]
