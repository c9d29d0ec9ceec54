"""Numbers of attention heads, from maps alone: how wide they look, how far, at which tokens; pure functions.

    numbers = head_numbers(weights, tokens, seen, kinds)     # name → (B, ...) means over each input's queries

Axes: B inputs, then any others (layers, heads), T queries, S sources. `seen` (B, T) tells real tokens from padding;
padding asks nothing, but it can be looked at.
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
    "first": HeadNumber("share on the first token", "share"),
    "previous": HeadNumber("share on the token before", "share"),
    "own": HeadNumber("share on the token itself", "share"),
    "induction": HeadNumber("share on tokens that followed an earlier copy of the query", "share"),
}


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


def head_numbers(weights: Floats, tokens: Ints, seen: Bools) -> dict[str, Floats]:
    """Every number of NUMBERS by name, (B, …) each: means over an input's queries."""
    n = tokens.shape[-1]
    same = np.broadcast_to(np.eye(n, dtype=bool), (len(tokens), n, n))
    before = np.broadcast_to(np.eye(n, k=-1, dtype=bool), same.shape)
    first = np.zeros_like(seen)
    first[:, 0] = True
    after_copy = followers(tokens)
    later = seen & (np.arange(n) > 0)
    return {
        "entropy": over_queries(entropy(weights), seen),
        "distance": over_queries(distance(weights), seen),
        "first": over_queries(share_on(weights, first), seen),
        "previous": over_queries(share_on(weights, before), later),
        "own": over_queries(share_on(weights, same), seen),
        "induction": over_queries(share_on(weights, after_copy), seen & after_copy.any(-1)),
    }


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
