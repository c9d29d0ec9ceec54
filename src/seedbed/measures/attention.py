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
class HeadNumber:
    """What a number means, and its unit."""

    words: str
    unit: str


NUMBERS: dict[str, HeadNumber] = {
    "entropy": HeadNumber("how evenly a query looks: 0 at one token, ln n at n alike", "nats"),
    "distance": HeadNumber("mean distance between a query and what it looks at", "tokens"),
    "near": HeadNumber("share on tokens at most two places away, itself too", "share"),
    "place": HeadNumber("where in the text so far a query looks: 0 its first token, 1 its last", "share of the text"),
    "first": HeadNumber("share on the first token", "share"),
    "previous": HeadNumber("share on the token before", "share"),
    "most_previous": HeadNumber("share of queries that look at the token before more than at any other", "share"),
    "own": HeadNumber("share on the token itself", "share"),
    "own_word": HeadNumber("share on the query's own word", "share"),
    "ahead": HeadNumber("share on later tokens, which a causal mask hides", "share"),
    "induction": HeadNumber("share on tokens that followed an earlier copy of the query", "share"),
    "top": HeadNumber("share on the one token that all queries together look at most", "share"),
    "apart": HeadNumber("total variation between its maps and those of the layer's other heads: 0 alike", "share"),
}
NEAR = 2  # places away


def entropy(weights: Floats) -> Floats:
    """−Σ w ln w of each row, in nats."""
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    return -(weights * logs).sum(-1)  # type: ignore[no-any-return]


def distance(weights: Floats) -> Floats:
    """Σ w |t − s| of each row, in tokens."""
    n_queries, n_sources = weights.shape[-2:]
    apart = np.abs(np.arange(n_queries)[:, None] - np.arange(n_sources))
    return (weights * apart).sum(-1)  # type: ignore[no-any-return]


def share_on(weights: Floats, sources: Bools) -> Floats:
    """What each row gives to the sources that are marked: (B, S), or (B, T, S) where it depends on the query."""
    marked = sources[:, None] if sources.ndim == 2 else sources
    between = tuple(range(1, weights.ndim - 2))
    return (weights * np.expand_dims(marked, between)).sum(-1)  # type: ignore[no-any-return]


def over_queries(values: Floats, counted: Bools) -> Floats:
    """The mean of (B, …, T) over the queries that count in each input; NaN where none does."""
    counts = np.expand_dims(counted, tuple(range(1, values.ndim - 1)))
    n = counts.sum(-1)
    total = np.where(counts, values, 0).sum(-1)
    return np.divide(total, n, out=np.full(total.shape, np.nan), where=n > 0)  # type: ignore[no-any-return]


def followers(tokens: Ints) -> Bools:
    """(B, T, S): whether token s − 1 is an earlier copy of token t, so that s shows what came after it.

    Olsson et al., "In-context Learning and Induction Heads" (2022), on real inputs instead of repeated random ones.
    """
    n = tokens.shape[-1]
    copies = tokens[:, :, None] == tokens[:, None, :]
    earlier = copies & np.tri(n, k=-1, dtype=bool)
    return np.pad(earlier, ((0, 0), (0, 0), (1, 0)))[:, :, :n]


def head_numbers(weights: Floats, tokens: Ints, seen: Bools, words: Ints | None = None) -> dict[str, Floats]:
    """Every number of NUMBERS by name, (B, …) each: means over an input's queries; NaN where it means nothing."""
    places = np.arange(tokens.shape[-1])
    away = places[:, None] - places
    after_copy = followers(tokens)
    later = seen & (places > 0)
    own = over_queries(np.diagonal(weights, axis1=-2, axis2=-1), seen)
    return {
        "entropy": over_queries(entropy(weights), seen),
        "distance": over_queries(distance(weights), seen),
        "near": over_queries(share_on(weights, _everywhere(abs(away) <= NEAR, seen)), seen),
        "place": over_queries(place(weights, seen), later),
        "first": over_queries(weights[..., 0], seen),
        "previous": over_queries(share_on(weights, _everywhere(away == 1, seen)), later),
        "most_previous": over_queries((weights.argmax(-1) == places - 1).astype(float), later),
        "own": own,
        "own_word": own * np.nan if words is None else over_queries(share_on(weights, _same(words)), seen),
        "ahead": over_queries(share_on(weights, _everywhere(away < 0, seen)), seen),
        "induction": over_queries(share_on(weights, after_copy), seen & after_copy.any(-1)),
        "top": _looked_at(weights, seen).max(-1),
        "apart": over_queries(apart(weights), seen),
    }


def _same(words: Ints) -> Bools:
    return words[:, :, None] == words[:, None, :]  # type: ignore[no-any-return]


def _everywhere(pairs: Bools, seen: Bools) -> Bools:
    """(T, S) marks as those of every input."""
    return np.broadcast_to(pairs, (len(seen), *pairs.shape))


def even_weights(seen: Bools, causal: bool) -> Floats:
    """What a head would do that looks at all that it may see alike: (B, 1, 1, T, T), as if of one layer and head."""
    n = seen.shape[-1]
    may = np.tri(n) if causal else np.ones((n, n))
    return np.broadcast_to(may / may.sum(-1, keepdims=True), (len(seen), 1, 1, n, n))


def place(weights: Floats, seen: Bools) -> Floats:
    """Σ w s / Σ w over the real tokens of each row, as a share of the last of them that it may see."""
    n = weights.shape[-1]
    causal = not np.triu(weights, 1).any()
    real = weights * np.expand_dims(seen, tuple(range(1, weights.ndim - 1)))
    last = np.expand_dims(seen.sum(-1) - 1, tuple(range(1, weights.ndim - 1)))
    reach = np.minimum(np.arange(n), last) if causal else np.broadcast_to(last, (*last.shape[:-1], n))
    total = real.sum(-1) * np.maximum(reach, 1)
    return np.divide((real * np.arange(n)).sum(-1), total, out=np.zeros_like(total), where=total > 0)  # type: ignore[no-any-return]


def apart(weights: Floats) -> Floats:
    """How far each head's rows are from those of the other heads (axis −3) on average: ½ Σ |w − w′|, in [0, 1]."""
    n_heads = weights.shape[-3]
    if n_heads == 1:
        return np.full(weights.shape[:-1], np.nan)
    found = np.zeros(weights.shape[:-1])
    for head in range(n_heads):
        found[..., head, :] = np.abs(weights - weights[..., head : head + 1, :, :]).sum((-3, -1)) / 2
    return found / (n_heads - 1)  # type: ignore[no-any-return]


def layers_apart(weights: Floats, seen: Bools) -> Floats:
    """Total variation between the maps of every two layers, each the mean of its heads: (B, L, L)."""
    layers = weights.mean(-3)  # (B, L, T, S)
    pairs = [np.abs(layers - layers[:, one : one + 1]).sum(-1) / 2 for one in range(layers.shape[1])]
    return over_queries(np.stack(pairs, axis=1), seen)


def _looked_at(weights: Floats, seen: Bools) -> Floats:
    """What each source gets from an input's real queries on average, those included that cannot see it: (B, …, S)."""
    asked = np.expand_dims(seen, (*range(1, weights.ndim - 2), weights.ndim - 1))
    return np.where(asked, weights, 0).sum(-2) / np.maximum(asked.sum(-2), 1)  # type: ignore[no-any-return]


def shares_by_kind(weights: Floats, kinds: Mapping[str, Bools], seen: Bools) -> dict[tuple[str, str], Floats]:
    """What queries of one kind give to sources of another, by (source, query); query "all" is every real token."""
    queries = {"all": seen} | {name: where & seen for name, where in kinds.items()}
    found: dict[tuple[str, str], Floats] = {}
    for source, marked in kinds.items():
        shares = share_on(weights, marked)
        found |= {(source, query): over_queries(shares, counted) for query, counted in queries.items()}
    return {pair: values for pair, values in found.items() if np.isfinite(values).any()}


def received(weights: Floats, seen: Bools) -> Floats:
    """What each source gets from a real query that could look at it, on average: (B, …, S); NaN where none could."""
    asked = np.expand_dims(seen, (*range(1, weights.ndim - 2), weights.ndim - 1))
    reachable = asked & (weights > 0)
    n = reachable.sum(-2)
    total = np.where(reachable, weights, 0).sum(-2)
    return np.divide(total, n, out=np.full(total.shape, np.nan), where=n > 0)  # type: ignore[no-any-return]
