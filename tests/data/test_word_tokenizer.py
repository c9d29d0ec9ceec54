"""Word tokenizer: examples of each rule, and the vocabulary of a corpus."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.data.datasets import encode_corpus
from seedbed.data.documents import corpus_from_text
from seedbed.data.tokenizers import UNKNOWN_ID
from seedbed.data.word_tokenizer import WordTokenizer, split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("state-of-the-art and/or America\u2014the", "state-of-the-art and/or America\u2014the"),
        ("a; b@c #1 $5 5% x&y?! *", "a ; b @ c # 1 $ 5 5 % x & y ? ! *"),
        ("1,200 men, at 9:30: go", "1,200 men , at 9:30 : go"),
        ("wait...what -- no", "wait ... what -- no"),
        ('He said "yes" ("no")', "He said `` yes '' ( `` no '' )"),
        ("I'm we'll they've don't it's he'd", "I 'm we 'll they 've do n't it 's he 'd"),
        ("Israel\u2019s", "Israel \u2019 s"),
        ("get 'em at five o'clock", "get 'em at five o'clock"),
        ("the boys' own Shi'a", "the boys ' own Shi ' a"),
        ("It ends. It begins.", "It ends . It begins ."),
        ("pays 1.5 percent v. 2.8.", "pays 1.5 percent v. 2.8 ."),
        ("Dr. Rice of Washington, D.C.", "Dr. Rice of Washington , D.C."),
        ("(It ends.)", "( It ends . )"),
        ("We CANNOT, gonna", "We CAN NOT , gon na"),
        ("one\ntwo.\nthree", "one two . three"),
        ("  \t ", ""),
    ],
)
def test_each_rule_holds(text, words):
    assert split_words(text) == words.split()


@given(st.text())
def test_no_letter_is_lost_or_added(text):
    """Everything but white space is kept in order; only straight double quotes change."""
    plain = str.maketrans("", "", "\"'`")
    joined = "".join(split_words(text)).translate(plain)
    assert joined == "".join("".join(text.split()).translate(plain).split())


SENTENCES = (
    'The king said, "We cannot wait (not now)," and married; they didn\'t.',
    "It's 5% of $1,200: we'll see... I'm gonna go!",
    "workers' rights, isn't it?",
)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_words_and_punctuation_are_joined_as_they_were_written(sentence):
    words = WordTokenizer.from_corpora(corpus_from_text("t", sentence))
    assert words.decode(words.encode(sentence)) == sentence


@given(st.lists(st.sampled_from(["to", "be", ".", ",", "n't", "(", ")", "``", "''", "\u05d0\u05d1", "<pad>", "<unk>"])))
def test_streamed_words_are_joined_as_at_once(words):
    vocabulary = WordTokenizer(("<pad>", "<unk>", *sorted(set(words) - {"<pad>", "<unk>"})))
    ids = [vocabulary.texts.index(word) for word in words]
    decoder = vocabulary.decoder()
    assert "".join(decoder.feed([token]) for token in ids) + decoder.flush() == vocabulary.decode(ids)


def test_ids_are_sorted_and_new_words_are_unknown():
    words = WordTokenizer.from_corpora(corpus_from_text("t", "to be, or not to be"))
    assert words.texts == ("<pad>", "<unk>", ",", "be", "not", "or", "to")
    assert words.encode("to see or be").tolist() == [6, UNKNOWN_ID, 5, 3]
    assert words.decode([6, 1, 0]) == "to <unk>"


def test_a_document_encodes_like_its_text():
    text = 'One line.\nAnd "two", it\'s said.\n\nthree'
    words = WordTokenizer.from_corpora(corpus_from_text("t", text))
    assert np.array_equal(encode_corpus(corpus_from_text("t", text), words).ids, words.encode(text))


def test_a_corpus_of_white_space_is_rejected():
    with pytest.raises(Exception, match="holds no tokens"):
        encode_corpus(corpus_from_text("blank", " \n\t\n"), WordTokenizer.from_corpora(corpus_from_text("t", "a")))
