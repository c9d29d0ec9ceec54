"""Copied segments of streamed text against the spans of the whole text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbed.data.suffix_array import MIN_COPIED_CHARACTERS, SuffixArray, find_copied_spans
from seedbed.sampling.copy_detection import StreamingCopyDetector, span_mask

TRAINING = "to be, or not to be, that is the question: whether tis nobler in the mind to suffer the slings and arrows"
INDEX = SuffixArray(TRAINING)
ends = st.integers(0, len(TRAINING))
excerpts = st.tuples(ends, ends).map(lambda pair: TRAINING[min(pair) : max(pair)])
texts = st.lists(st.one_of(excerpts, st.text("tobe nx", max_size=30)), max_size=6).map("".join)


def detect(text, sizes):
    """A detector and its segments of a text that is fed in chunks of these sizes, cyclically."""
    detector, segments, start = StreamingCopyDetector(INDEX), [], 0
    while start < len(text):
        size = sizes[len(segments) % len(sizes)]
        segments += detector.feed(text[start : start + size])
        start += size
    return detector, [*segments, *detector.flush()]


@given(texts, st.lists(st.integers(1, 40), min_size=1, max_size=4))
@settings(deadline=None)
def test_streamed_segments_equal_the_spans_of_the_whole_text(text, sizes):
    detector, segments = detect(text, sizes)
    assert "".join(segment.text for segment in segments) == text
    [spans] = find_copied_spans(INDEX, [text])
    expected = span_mask(spans, len(text))
    assert [segment.is_copied for segment in segments for _ in segment.text] == expected
    assert (detector.n_characters, detector.n_copied) == (len(text), sum(expected))


@pytest.mark.parametrize(("n", "is_copied"), [(MIN_COPIED_CHARACTERS - 1, False), (MIN_COPIED_CHARACTERS, True)])
def test_a_match_is_copied_from_twenty_characters_on(n, is_copied):
    _, segments = detect("#" + TRAINING[7 : 7 + n] + "#", [5])
    assert any(segment.is_copied for segment in segments) is is_copied


def test_only_text_that_could_become_a_copy_is_held_back():
    detector = StreamingCopyDetector(INDEX)
    emitted = "".join(segment.text for segment in detector.feed("#" * 50 + TRAINING[:10]))
    assert emitted == "#" * 50
    assert "".join(segment.text for segment in detector.feed(TRAINING[10:40])) == TRAINING[:40]
