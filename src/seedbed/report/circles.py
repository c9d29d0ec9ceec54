"""The circles of modular arithmetic in one run: how far its numbers, hidden units and logits lie on them, step by step.

Key frequencies are those of the run's last kept step, so that one thing is followed over training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from seedbed.inside.looks import Plane, Seen
from seedbed.measures.fourier import (
    in_plane,
    key_frequencies,
    mean_loss,
    n_frequencies,
    neuron_shares,
    part_on_circles,
    power,
    share_in,
)
from seedbed.records import Arrays

if TYPE_CHECKING:
    from seedbed.generate.load import Loaded
    from seedbed.inside.circles import Pairs

Floats = NDArray[np.float64]
TUNED = 0.85  # of its variance; Nanda et al. 2023 call a neuron of one frequency so
MOST_PLANES = 3


@dataclass(frozen=True)
class Neurons:
    """The hidden units of one layer at `=`, over all pairs of numbers."""

    layer: int
    share: float  # of a unit's variance that its best frequency explains, on average
    tuned: float  # share of units of which it explains at least TUNED


@dataclass(frozen=True)
class Circles:
    """Modular arithmetic at one step; losses are NaN where numbers do not add."""

    step: int
    frequencies: tuple[int, ...]  # the key ones, strongest first
    share: float  # of the number table's power in them
    n_frequencies: float  # that would hold as much if all of them were alike
    restricted: float  # validation loss of the logits' part on the key circles alone
    excluded: float  # training loss without that part
    neurons: tuple[Neurons, ...]
    planes: tuple[Plane, ...]


def key_of(weights: Arrays, p: int) -> list[int]:
    """The key frequencies of these weights."""
    return key_frequencies(power(_numbers(weights, p)))


def circles_of(loaded: Loaded, weights: Arrays, p: int, key: Sequence[int]) -> Circles:
    """The circles of one run at the step of these weights."""
    from seedbed.inside.circles import over_pairs

    vectors, pairs = _numbers(weights, p), over_pairs(loaded)
    shares = power(vectors)
    restricted, excluded = (nan, nan) if pairs is None else _losses(pairs, key)
    return Circles(
        step=loaded.step,
        frequencies=tuple(key),
        share=share_in(shares, key),
        n_frequencies=n_frequencies(shares),
        restricted=restricted,
        excluded=excluded,
        neurons=() if pairs is None else tuple(_neurons(layer, units) for layer, units in enumerate(pairs.units)),
        planes=tuple(Plane(k, float(shares[k - 1]), in_plane(vectors, k)) for k in key[:MOST_PLANES]),
    )


def circle_readings(circles: Circles) -> dict[str, Seen]:
    """The numbers as readings."""
    found = {
        "circle_share": circles.share,
        "circle_frequencies": circles.n_frequencies,
        "circle_restricted_loss": circles.restricted,
        "circle_excluded_loss": circles.excluded,
    }
    for neurons in circles.neurons:
        found[f"circle_units[layer={neurons.layer + 1}]"] = neurons.share
        found[f"circle_tuned_units[layer={neurons.layer + 1}]"] = neurons.tuned
    return {name: Seen(value) for name, value in found.items()}


def _numbers(weights: Arrays, p: int) -> Floats:
    return np.asarray(weights["embed.weight"][:p], dtype=np.float64)


def _losses(pairs: Pairs, key: Sequence[int]) -> tuple[float, float]:
    """Restricted to the circles on validation pairs, and with them taken out on training pairs."""
    part = part_on_circles(pairs.logits, key, pairs.sign)
    alone = part + pairs.logits.mean((0, 1))
    restricted = mean_loss(alone, pairs.results, ~pairs.trained)
    return restricted, mean_loss(pairs.logits - part, pairs.results, pairs.trained)


def _neurons(layer: int, units: Floats) -> Neurons:
    best = np.nan_to_num(neuron_shares(units)).max(0)
    return Neurons(layer, float(best.mean()), float((best >= TUNED).mean()))
