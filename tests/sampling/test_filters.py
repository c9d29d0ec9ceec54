"""Temperature, top-k and top-p against plain Python over one row, and their bounds."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbed.errors import UsageError
from seedbed.sampling.filters import SamplingFilters, apply_temperature, filtered_probabilities, keep_top_k, keep_top_p

rows = st.lists(st.integers(-6, 6).map(float), min_size=1, max_size=8)  # integers, so that ties are common


def reference_probabilities(logits: list[float], temperature: float, k: int, p: float) -> list[float]:
    """The same filters in plain Python, one token at a time."""
    ranked = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if temperature == 0:
        k, temperature = 1, 1.0
    ranked = ranked[: k or None]
    weights = [math.exp((logits[i] - max(logits)) / temperature) for i in ranked]
    kept, before = {}, 0.0
    for i, weight in zip(ranked, weights, strict=True):
        if not kept or p == 1 or before / sum(weights) < p - 1e-12:
            kept[i] = weight
        before += weight
    return [kept.get(i, 0.0) / sum(kept.values()) for i in range(len(logits))]


@given(rows, st.sampled_from([0.0, 0.3, 1.0, 2.0]), st.integers(0, 10), st.sampled_from([0.013, 0.37, 0.77, 1.0]))
@settings(deadline=None)
def test_filters_match_the_reference(logits, temperature, k, p):
    probabilities = filtered_probabilities(
        torch.tensor([logits], dtype=torch.float64), SamplingFilters(temperature, k, p)
    )[0]
    assert probabilities.tolist() == pytest.approx(reference_probabilities(logits, temperature, k, p), abs=1e-9)


def test_every_sample_may_have_its_own_filters():
    logits = torch.randn(3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    values = [(0.5, 2, 0.6), (1.0, 7, 1.0), (2.0, 4, 0.9)]
    temperature, k, p = (torch.tensor(column) for column in zip(*values, strict=True))
    batched = keep_top_p(keep_top_k(apply_temperature(logits, temperature), k), p.double()).softmax(-1)
    for row, probabilities, (one_temperature, one_k, one_p) in zip(logits, batched, values, strict=True):
        assert probabilities.tolist() == pytest.approx(
            filtered_probabilities(row, SamplingFilters(one_temperature, one_k, one_p)).tolist(), abs=1e-7
        )


def test_a_tiny_temperature_does_not_overflow():
    probabilities = filtered_probabilities(torch.tensor([3e4, 2.9e4, -1e4]), SamplingFilters(temperature=1e-30))
    assert probabilities.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("filters", [{"top_k": 0}, {"top_k": 99}, {"top_p": 1.0}])
def test_top_k_of_zero_or_more_than_all_and_top_p_of_one_keep_all_tokens(filters):
    logits = torch.tensor([0.1, 2.0, -3.0])
    assert torch.equal(
        filtered_probabilities(logits, SamplingFilters(**filters)), filtered_probabilities(logits, SamplingFilters())
    )


@pytest.mark.parametrize(
    ("filters", "name"),
    [({"temperature": bad}, "temperature") for bad in (-0.1, math.nan, math.inf)]
    + [({"top_k": -1}, "top-k")]
    + [({"top_p": bad}, "top-p") for bad in (0.0, -1.0, 1.0001, 2.0, math.nan)],
)
def test_filters_out_of_range_are_refused(filters, name):
    with pytest.raises(UsageError, match=f"{name} = .*expected"):
        SamplingFilters(**filters)
