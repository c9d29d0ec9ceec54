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

from seedbed.interp.analysis import AnalysisValue, FrequencyPlane
from seedbed.records import Arrays
from seedbed.stats.fourier import (
    effective_n_frequencies,
    frequency_power,
    key_frequencies,
    mean_cross_entropy,
    neuron_variance_explained,
    power_at,
    project_logits_to_frequencies,
    project_to_frequency_plane,
)

if TYPE_CHECKING:
    from seedbed.interp.pair_activations import PairActivations
    from seedbed.sampling.loaded_run import LoadedRun

Floats = NDArray[np.float64]
MIN_TUNED_VARIANCE_SHARE = 0.85  # of its variance; Nanda et al. 2023 call a neuron of one frequency so
MAX_PLANES = 3


@dataclass(frozen=True)
class NeuronTuning:
    """The hidden units of one layer at `=`, over all pairs of numbers."""

    layer: int
    share: float  # of a unit's variance that its best frequency explains, on average
    tuned: float  # share of units of which it explains at least TUNED


@dataclass(frozen=True)
class FourierProgress:
    """Modular arithmetic at one step; losses are NaN where numbers do not add."""

    step: int
    frequencies: tuple[int, ...]  # the key ones, strongest first
    share: float  # of the number table's power in them
    n_frequencies: float  # that would hold as much if all of them were alike
    restricted: float  # validation loss of the logits' part on the key circles alone
    excluded: float  # training loss without that part
    neurons: tuple[NeuronTuning, ...]
    planes: tuple[FrequencyPlane, ...]


def find_key_frequencies(weights: Arrays, p: int) -> list[int]:
    """The key frequencies of these weights."""
    return key_frequencies(frequency_power(_number_embeddings(weights, p)))


def analyze_fourier(loaded: LoadedRun, weights: Arrays, p: int, frequencies: Sequence[int]) -> FourierProgress:
    """The circles of one run at the step of these weights."""
    from seedbed.interp.pair_activations import compute_pair_activations

    vectors, pairs = _number_embeddings(weights, p), compute_pair_activations(loaded)
    shares = frequency_power(vectors)
    restricted, excluded = (nan, nan) if pairs is None else _restricted_and_excluded_loss(pairs, frequencies)
    return FourierProgress(
        step=loaded.step,
        frequencies=tuple(frequencies),
        share=power_at(shares, frequencies),
        n_frequencies=effective_n_frequencies(shares),
        restricted=restricted,
        excluded=excluded,
        neurons=()
        if pairs is None
        else tuple(_neuron_tuning(layer, units) for layer, units in enumerate(pairs.hidden_units)),
        planes=tuple(
            FrequencyPlane(k, float(shares[k - 1]), project_to_frequency_plane(vectors, k))
            for k in frequencies[:MAX_PLANES]
        ),
    )


def fourier_metrics(progress: FourierProgress) -> dict[str, AnalysisValue]:
    """The numbers as readings."""
    found = {
        "circle_share": progress.share,
        "circle_frequencies": progress.n_frequencies,
        "circle_restricted_loss": progress.restricted,
        "circle_excluded_loss": progress.excluded,
    }
    for neurons in progress.neurons:
        found[f"circle_units[layer={neurons.layer + 1}]"] = neurons.share
        found[f"circle_tuned_units[layer={neurons.layer + 1}]"] = neurons.tuned
    return {name: AnalysisValue(value) for name, value in found.items()}


def _number_embeddings(weights: Arrays, p: int) -> Floats:
    return np.asarray(weights["embed.weight"][:p], dtype=np.float64)


def _restricted_and_excluded_loss(pairs: PairActivations, frequencies: Sequence[int]) -> tuple[float, float]:
    """Restricted to the circles on validation pairs, and with them taken out on training pairs."""
    part = project_logits_to_frequencies(pairs.logits, frequencies, pairs.b_sign)
    alone = part + pairs.logits.mean((0, 1))
    restricted = mean_cross_entropy(alone, pairs.results, ~pairs.in_training_set)
    return restricted, mean_cross_entropy(pairs.logits - part, pairs.results, pairs.in_training_set)


def _neuron_tuning(layer: int, units: Floats) -> NeuronTuning:
    best = np.nan_to_num(neuron_variance_explained(units)).max(0)
    return NeuronTuning(layer, float(best.mean()), float((best >= MIN_TUNED_VARIANCE_SHARE).mean()))
