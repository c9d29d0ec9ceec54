"""Marks on a text as it comes against the spans of the whole text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbed.data.suffix_array import MIN_COPIED_CHARACTERS, SuffixArray, find_copied_spans
from seedbed.sampling.copy_detection import StreamingCopyDetector, span_mask

TRAINING = "to be, or not to be, that is the question: whether tis nobler in the mind to suffer the slings and arrows"
INDEX = SuffixArray(TRAINING)
ends = st.integers(0, len(TRAINING))
stretches = st.tuples(ends, ends).map(lambda two: TRAINING[min(two) : max(two)])
texts = st.lists(st.one_of(stretches, st.text("tobe nx", max_size=30)), max_size=6).map("".join)


def marked(text, sizes):
    """The parts of a text that comes in pieces of these sizes, over and over."""
    marks, parts, at = StreamingCopyDetector(INDEX), [], 0
    while at < len(text):
        size = sizes[len(parts) % len(sizes)]
        parts += marks.feed(text[at : at + size])
        at += size
    return marks, [*parts, *marks.flush()]


@given(texts, st.lists(st.integers(1, 40), min_size=1, max_size=4))
@settings(deadline=None)
def test_marks_while_a_text_comes_are_those_of_the_whole_text(text, sizes):
    marks, parts = marked(text, sizes)
    assert "".join(part.text for part in parts) == text
    [spans] = find_copied_spans(INDEX, [text])
    expected = span_mask(spans, len(text))
    assert [part.copied for part in parts for _ in part.text] == expected
    assert (marks.n_characters, marks.n_copied) == (len(text), sum(expected))


@pytest.mark.parametrize(("n", "is_copied"), [(MIN_COPIED_CHARACTERS - 1, False), (MIN_COPIED_CHARACTERS, True)])
def test_a_stretch_is_copied_from_twenty_characters_on(n, is_copied):
    _, parts = marked("#" + TRAINING[7 : 7 + n] + "#", [5])
    assert any(part.copied for part in parts) is is_copied


def test_no_more_is_held_back_than_could_become_a_copy():
    marks = StreamingCopyDetector(INDEX)
    told = "".join(part.text for part in marks.feed("#" * 50 + TRAINING[:10]))
    assert told == "#" * 50
    assert "".join(part.text for part in marks.feed(TRAINING[10:40])) == TRAINING[:40]
