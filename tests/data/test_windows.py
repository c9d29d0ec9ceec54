"""Splits, samplers and windows, compared with hand-counted cases."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.data.windows import (
    Spans,
    consecutive_windows,
    gather_windows,
    overlapping_windows,
    pad_sequences,
    sliding_windows,
    split_contiguous,
    split_documents,
    take_first_tokens,
    uniform_document_sampler,
    uniform_position_sampler,
)
from seedbed.errors import UsageError

lengths = st.lists(st.integers(0, 40), min_size=1, max_size=6)


def make_spans(sizes) -> Spans:
    sizes = np.array(sizes, dtype=np.int64)
    return Spans(np.cumsum(sizes) - sizes, sizes)


def covered_positions(spans: Spans) -> list[int]:
    return [i for start, n in zip(spans.starts, spans.lengths, strict=True) for i in range(start, start + n)]


def test_a_contiguous_split_cuts_documents_at_its_boundaries():
    splits = split_contiguous(make_spans([5, 3, 12]), {"train": 0.7, "val": 0.2, "test": 0.1})
    assert [covered_positions(spans) for spans in splits.values()] == [list(range(14)), [14, 15, 16, 17], [18, 19]]
    assert splits["train"].lengths.tolist() == [5, 3, 6]


@given(lengths, st.floats(0.05, 0.95))
def test_a_contiguous_split_partitions_the_tokens(sizes, fraction):
    spans = make_spans(sizes)
    try:
        splits = split_contiguous(spans, {"train": fraction, "val": 1 - fraction})
    except UsageError:
        assert round(spans.n_tokens * fraction) in (0, spans.n_tokens)
        return
    assert covered_positions(splits["train"]) + covered_positions(splits["val"]) == list(range(spans.n_tokens))
    assert splits["train"].n_tokens == round(spans.n_tokens * fraction)


def test_a_split_by_document_keeps_documents_whole_and_follows_the_permutation():
    spans = make_spans([5, 3, 12, 1])
    splits = split_documents(spans, {"train": 0.5, "val": 0.5}, np.array([2, 0, 3, 1]))
    assert covered_positions(splits["train"]) == [*range(5), *range(8, 20)]
    assert covered_positions(splits["val"]) == [5, 6, 7, 20]


@pytest.mark.parametrize("fractions", [{"train": 0.9, "val": 0.2}, {"train": 1.0, "val": 0.0}, {}])
def test_fractions_that_do_not_add_up_are_rejected(fractions):
    with pytest.raises(UsageError, match="add up to 1"):
        split_contiguous(make_spans([10]), fractions)


def test_a_fraction_that_leaves_nothing_is_rejected_by_name():
    with pytest.raises(UsageError, match=r"the val fraction 0\.1 of 4 leaves nothing"):
        split_contiguous(make_spans([4]), {"train": 0.9, "val": 0.1})
    with pytest.raises(UsageError, match=r"1 document\(s\) cannot be split into 2 sets"):
        split_documents(make_spans([4]), {"train": 0.9, "val": 0.1})


def test_a_data_fraction_takes_the_first_tokens_or_documents():
    spans = make_spans([5, 3, 12, 1])
    assert covered_positions(take_first_tokens(spans, 1 / 3)) == list(range(7))
    with pytest.raises(UsageError, match="above 0"):
        take_first_tokens(spans, 0.0)


GRID = (np.arange(2000) + 0.5) / 2000  # a regular grid in place of uniform random numbers


def sample_starts(sampler, u, v):
    """Window starts for u and v in [0, 1): u selects a span by its weight, v a start within it."""
    span = np.searchsorted(sampler.cumulative_weights, np.floor(u * sampler.cumulative_weights[-1]), side="right")
    return sampler.starts[span] + np.floor(v * sampler.n_starts[span]).astype(np.int64)


def count_starts(sampler) -> Counter[int]:
    u, v = np.meshgrid(GRID, GRID[::20] + 0.1 / 2000)
    return Counter(sample_starts(sampler, u.ravel(), v.ravel()).tolist())


def test_the_document_sampler_is_uniform_over_documents_and_then_over_positions():
    counts = count_starts(uniform_document_sampler(make_spans([3, 9, 4, 5]), length=4))
    assert sorted(counts) == [3, 4, 5, 6, 7, 16]  # five starts in 9 ids, one in 5; none in shorter ones
    n = sum(counts.values())
    assert counts[16] / n == pytest.approx(1 / 2, rel=0.02)
    assert counts[5] / n == pytest.approx(1 / 10, rel=0.02)


def test_the_position_sampler_is_uniform_over_positions():
    counts = count_starts(uniform_position_sampler(make_spans([3, 9, 4, 5]), length=4))
    assert sorted(counts) == [3, 4, 5, 6, 7, 16]
    assert all(count / sum(counts.values()) == pytest.approx(1 / 6, rel=0.05) for count in counts.values())


@given(lengths, st.integers(1, 10))
def test_a_sampled_window_never_crosses_a_document(sizes, length):
    spans = make_spans(sizes)
    document = np.repeat(np.arange(len(sizes)), sizes)
    last = np.nextafter(1.0, 0.0)
    for make in (uniform_document_sampler, uniform_position_sampler):
        if max(sizes) <= length:
            with pytest.raises(UsageError, match=f"no document holds a sample of {length} \\+ 1 tokens"):
                make(spans, length)
            continue
        u, v = np.array([0.0, 0.5, last, last]), np.array([0.0, 0.5, last, 0.0])
        starts = sample_starts(make(spans, length), u, v)
        assert np.array_equal(document[starts], document[starts + length])


def test_overlapping_windows_are_n_minus_length():
    windows = overlapping_windows(Spans.single(100), 32)
    tokens, mask = gather_windows(np.arange(100), windows)
    assert windows.n_windows == 68
    assert mask.all()
    assert np.array_equal(tokens, np.lib.stride_tricks.sliding_window_view(np.arange(100), 33))


@given(lengths, st.integers(1, 12), st.integers(1, 12))
def test_sliding_windows_score_every_target_once(sizes, length, stride):
    spans, stride = make_spans(sizes), min(stride, length)
    ids = np.arange(1, spans.n_tokens + 1)
    expected = sorted(
        i + 1 for start, n in zip(spans.starts, spans.lengths, strict=True) for i in range(start + 1, start + n)
    )
    if not expected:
        with pytest.raises(UsageError, match="nothing to evaluate"):
            sliding_windows(spans, length, stride)
        return
    windows = sliding_windows(spans, length, stride)
    tokens, mask = gather_windows(ids, windows)
    assert sorted(tokens[:, 1:][mask].tolist()) == expected
    assert windows.n_scored == len(expected)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    assert np.array_equal(inputs[mask] + 1, targets[mask])


def test_a_small_stride_gives_each_target_a_long_context():
    windows = sliding_windows(Spans.single(50), 8, 2)
    _, mask = gather_windows(np.arange(50), windows)
    assert mask[1:, :6].sum() == 0
    assert mask[0].all()


def test_consecutive_windows_overlap_by_one_token_and_mask_the_short_tail():
    tokens, mask = gather_windows(np.arange(1, 12), consecutive_windows(Spans.single(11), 4))
    assert tokens.tolist() == [[1, 2, 3, 4, 5], [5, 6, 7, 8, 9], [9, 10, 11, 0, 0]]
    assert mask.sum(1).tolist() == [4, 4, 2]


def test_a_split_shorter_than_a_window_is_one_masked_window():
    tokens, mask = gather_windows(np.array([7, 8, 9]), consecutive_windows(Spans.single(3), 256))
    assert tokens.shape == (1, 257)
    assert mask.sum() == 2


def test_sequences_are_padded_and_truncated():
    rows, lengths_kept = pad_sequences([np.array([4, 5]), np.arange(1, 8), np.array([], dtype=int)], 5)
    assert rows.tolist() == [[4, 5, 0, 0, 0], [1, 2, 3, 4, 5], [0, 0, 0, 0, 0]]
    assert lengths_kept.tolist() == [2, 5, 0]
