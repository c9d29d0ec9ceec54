"""Fourier analysis of a run on modular arithmetic: its number embeddings, hidden units and logits, by checkpoint.

The key frequencies are those of the run's last checkpoint, so that the same ones are followed over training. Numbers
are taken in the cyclic order of the task: products and quotients by the discrete logarithm.
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
    from seedbed.interp.activations import PairActivations
    from seedbed.sampling.loaded_run import LoadedRun

Floats = NDArray[np.float64]
MIN_TUNED_VARIANCE_SHARE = 0.85  # of a unit's variance in one frequency, to count as tuned (Nanda et al. 2023)
MAX_PLANES = 3


@dataclass(frozen=True)
class NeuronTuning:
    """How far the hidden units of one layer at `=`, over all pairs of numbers, follow single frequencies."""

    layer: int
    share: float  # of variance that a unit's best frequency explains, on average
    tuned: float  # share of units where it explains at least MIN_TUNED_VARIANCE_SHARE


@dataclass(frozen=True)
class FourierProgress:
    """The Fourier analysis of one checkpoint; losses are NaN without equations of two operands in the split."""

    step: int
    frequencies: tuple[int, ...]  # the key frequencies, strongest first
    share: float  # of the embeddings' power in them
    n_frequencies: float  # effective number of frequencies
    restricted: float  # validation loss of the logits projected onto the key frequencies
    excluded: float  # training loss without that projection
    neurons: tuple[NeuronTuning, ...]
    planes: tuple[FrequencyPlane, ...]


def find_key_frequencies(weights: Arrays, order: Sequence[int]) -> list[int]:
    """The key frequencies of these weights, over the numbers in cyclic order."""
    return key_frequencies(frequency_power(_number_embeddings(weights, order)))


def analyze_fourier(
    loaded: LoadedRun, weights: Arrays, order: Sequence[int], frequencies: Sequence[int]
) -> FourierProgress:
    """The Fourier analysis of a run at the checkpoint of these weights, over the numbers in cyclic order."""
    from seedbed.interp.activations import compute_pair_activations

    embeddings, pairs = _number_embeddings(weights, order), compute_pair_activations(loaded)
    power = frequency_power(embeddings)
    numbers = () if list(order) == list(range(len(order))) else tuple(order)
    restricted, excluded = (nan, nan) if pairs is None else _restricted_and_excluded_loss(pairs, frequencies)
    return FourierProgress(
        step=loaded.step,
        frequencies=tuple(frequencies),
        share=power_at(power, frequencies),
        n_frequencies=effective_n_frequencies(power),
        restricted=restricted,
        excluded=excluded,
        neurons=()
        if pairs is None
        else tuple(_neuron_tuning(layer, units) for layer, units in enumerate(pairs.hidden_units)),
        planes=tuple(
            FrequencyPlane(k, float(power[k - 1]), project_to_frequency_plane(embeddings, k), numbers)
            for k in [k for k in frequencies if 2 * k < len(order)][:MAX_PLANES]  # the highest of even n spans a line
        ),
    )


def fourier_metrics(progress: FourierProgress) -> dict[str, AnalysisValue]:
    """The results as analysis metrics by name."""
    values = {
        "circle_share": progress.share,
        "circle_frequencies": progress.n_frequencies,
        "circle_restricted_loss": progress.restricted,
        "circle_excluded_loss": progress.excluded,
    }
    for neurons in progress.neurons:
        values[f"circle_units[layer={neurons.layer + 1}]"] = neurons.share
        values[f"circle_tuned_units[layer={neurons.layer + 1}]"] = neurons.tuned
    return {name: AnalysisValue(value) for name, value in values.items()}


def _number_embeddings(weights: Arrays, order: Sequence[int]) -> Floats:
    return np.asarray(weights["embed.weight"][list(order)], dtype=np.float64)


def _restricted_and_excluded_loss(pairs: PairActivations, frequencies: Sequence[int]) -> tuple[float, float]:
    """Loss of the projected logits on validation pairs, and of the logits without the projection on training pairs."""
    projected = project_logits_to_frequencies(pairs.logits, frequencies, pairs.b_sign)
    restricted_logits = projected + pairs.logits.mean((0, 1))
    restricted = mean_cross_entropy(restricted_logits, pairs.results, ~pairs.in_training_set)
    return restricted, mean_cross_entropy(pairs.logits - projected, pairs.results, pairs.in_training_set)


def _neuron_tuning(layer: int, units: Floats) -> NeuronTuning:
    best = np.nan_to_num(neuron_variance_explained(units)).max(0)
    return NeuronTuning(layer, float(best.mean()), float((best >= MIN_TUNED_VARIANCE_SHARE).mean()))
