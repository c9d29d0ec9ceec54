"""Splits, samplers and windows against counting by hand."""

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
    take_first_documents,
    take_first_tokens,
    uniform_document_sampler,
    uniform_position_sampler,
)
from seedbed.errors import UsageError

lengths = st.lists(st.integers(0, 40), min_size=1, max_size=6)


def spans_of(sizes) -> Spans:
    sizes = np.array(sizes, dtype=np.int64)
    return Spans(np.cumsum(sizes) - sizes, sizes)


def covered(spans: Spans) -> list[int]:
    return [i for start, n in zip(spans.starts, spans.lengths, strict=True) for i in range(start, start + n)]


def test_a_contiguous_split_cuts_documents_at_the_borders():
    parts = split_contiguous(spans_of([5, 3, 12]), {"train": 0.7, "val": 0.2, "test": 0.1})
    assert [covered(part) for part in parts.values()] == [list(range(14)), [14, 15, 16, 17], [18, 19]]
    assert parts["train"].lengths.tolist() == [5, 3, 6]


@given(lengths, st.floats(0.05, 0.95))
def test_a_contiguous_split_has_every_token_once(sizes, share):
    spans = spans_of(sizes)
    try:
        parts = split_contiguous(spans, {"train": share, "val": 1 - share})
    except UsageError:
        assert round(spans.n_tokens * share) in (0, spans.n_tokens)
        return
    assert covered(parts["train"]) + covered(parts["val"]) == list(range(spans.n_tokens))
    assert parts["train"].n_tokens == round(spans.n_tokens * share)


def test_a_split_by_document_keeps_documents_whole_in_the_order_given():
    spans = spans_of([5, 3, 12, 1])
    parts = split_documents(spans, {"train": 0.5, "val": 0.5}, np.array([2, 0, 3, 1]))
    assert covered(parts["train"]) == [*range(5), *range(8, 20)]
    assert covered(parts["val"]) == [5, 6, 7, 20]


@pytest.mark.parametrize("shares", [{"train": 0.9, "val": 0.2}, {"train": 1.0, "val": 0.0}, {}])
def test_shares_that_do_not_add_up_are_refused(shares):
    with pytest.raises(UsageError, match="add up to 1"):
        split_contiguous(spans_of([10]), shares)


def test_a_share_that_leaves_nothing_is_refused_by_name():
    with pytest.raises(UsageError, match=r"the val share 0\.1 of 4 leaves nothing"):
        split_contiguous(spans_of([4]), {"train": 0.9, "val": 0.1})
    with pytest.raises(UsageError, match=r"1 document\(s\) cannot be split into 2 parts"):
        split_documents(spans_of([4]), {"train": 0.9, "val": 0.1})


def test_a_fraction_takes_the_first_tokens_or_the_first_documents():
    spans = spans_of([5, 3, 12, 1])
    assert covered(take_first_tokens(spans, 1 / 3)) == list(range(7))
    assert covered(take_first_documents(spans, 0.5)) == list(range(8))
    assert covered(take_first_documents(spans, 0.01)) == list(range(5))
    with pytest.raises(UsageError, match="above 0"):
        take_first_tokens(spans, 0.0)


GRID = (np.arange(2000) + 0.5) / 2000  # stands for uniform numbers, each interval hit evenly


def drawn(sampler) -> Counter[int]:
    u, v = np.meshgrid(GRID, GRID[::20] + 0.1 / 2000)
    return Counter(sampler.start(u.ravel(), v.ravel()).tolist())


def test_by_document_draws_documents_evenly_and_then_positions_evenly():
    counts = drawn(uniform_document_sampler(spans_of([3, 9, 4, 5]), length=4))
    assert sorted(counts) == [3, 4, 5, 6, 7, 16]  # of 9 ids five starts, of 5 ids one; shorter ones never
    n = sum(counts.values())
    assert counts[16] / n == pytest.approx(1 / 2, rel=0.02)
    assert counts[5] / n == pytest.approx(1 / 10, rel=0.02)


def test_by_length_draws_every_position_evenly():
    counts = drawn(uniform_position_sampler(spans_of([3, 9, 4, 5]), length=4))
    assert sorted(counts) == [3, 4, 5, 6, 7, 16]
    assert all(count / sum(counts.values()) == pytest.approx(1 / 6, rel=0.05) for count in counts.values())


@given(lengths, st.integers(1, 10))
def test_a_drawn_sample_never_crosses_a_document(sizes, length):
    spans = spans_of(sizes)
    document = np.repeat(np.arange(len(sizes)), sizes)
    last = np.nextafter(1.0, 0.0)
    for make in (uniform_document_sampler, uniform_position_sampler):
        if max(sizes) <= length:
            with pytest.raises(UsageError, match=f"no document holds a sample of {length} \\+ 1 tokens"):
                make(spans, length)
            continue
        starts = make(spans, length).sample_starts(np.array([0.0, 0.5, last, last]), np.array([0.0, 0.5, last, 0.0]))
        assert np.array_equal(document[starts], document[starts + length])


def test_overlapping_windows_are_n_minus_length():
    windows = overlapping_windows(Spans.single(100), 32)
    tokens, mask = gather_windows(np.arange(100), windows)
    assert windows.n_windows == 68
    assert mask.all()
    assert np.array_equal(tokens, np.lib.stride_tricks.sliding_window_view(np.arange(100), 33))


@given(lengths, st.integers(1, 12), st.integers(1, 12))
def test_sliding_windows_score_every_target_once(sizes, length, stride):
    spans, stride = spans_of(sizes), min(stride, length)
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


def test_a_sliding_window_gives_each_target_a_long_context():
    windows = sliding_windows(Spans.single(50), 8, 2)
    _, mask = gather_windows(np.arange(50), windows)
    assert mask[1:, :6].sum() == 0
    assert mask[0].all()


def test_consecutive_windows_share_one_token_and_mask_the_short_tail():
    tokens, mask = gather_windows(np.arange(1, 12), consecutive_windows(Spans.single(11), 4))
    assert tokens.tolist() == [[1, 2, 3, 4, 5], [5, 6, 7, 8, 9], [9, 10, 11, 0, 0]]
    assert mask.sum(1).tolist() == [4, 4, 2]


def test_a_part_shorter_than_a_window_is_one_masked_window():
    tokens, mask = gather_windows(np.array([7, 8, 9]), consecutive_windows(Spans.single(3), 256))
    assert tokens.shape == (1, 257)
    assert mask.sum() == 2


def test_segments_are_padded_and_cut():
    rows, kept = pad_sequences([np.array([4, 5]), np.arange(1, 8), np.array([], dtype=int)], 5)
    assert rows.tolist() == [[4, 5, 0, 0, 0], [1, 2, 3, 4, 5], [0, 0, 0, 0, 0]]
    assert kept.tolist() == [2, 5, 0]
