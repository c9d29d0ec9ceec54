"""The corpora of reports A, B and C have the sizes that the authors' settings imply."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest

from seedbed.data.corpora import load_gpt1_tokenizer, open_corpus, open_labelled_texts
from seedbed.data.datasets import EncodedText, encode_corpus, open_token_ids
from seedbed.data.documents import corpus_digest, iter_text
from seedbed.data.ngram import compute_ngram_losses
from seedbed.data.table_files import collect_label_names, encode_labels
from seedbed.data.tokenizers import CharTokenizer
from seedbed.data.windows import (
    Spans,
    consecutive_windows,
    gather_windows,
    overlapping_windows,
    pad_sequences,
    sliding_windows,
    uniform_document_sampler,
    uniform_position_sampler,
)
from seedbed.data.word_tokenizer import WordTokenizer, split_words

TESTS = ("obama", "hbush", "wbush")


def count_batches(n: int, size: int) -> tuple[int, int]:
    """Returns the number of batches and the size of the last."""
    return -(-n // size), (n - 1) % size + 1


@pytest.fixture(scope="module")
def words(real_data) -> WordTokenizer:
    """Labels are part of the vocabulary: the starter code concatenates the raw files."""
    return WordTokenizer.from_corpora(open_corpus("speeches", "classifier/train"), open_corpus("speeches", "train"))


@pytest.fixture(scope="module")
def hebrew(real_data) -> tuple[CharTokenizer, EncodedText]:
    corpus = open_corpus("hebrew")
    tokenizer = CharTokenizer.from_corpora(corpus)
    return tokenizer, encode_corpus(corpus, tokenizer)


# ---- A ----


def test_a_shakespeare_has_66_symbols(real_data):
    corpus = open_corpus("shakespeare")
    tokenizer = CharTokenizer.from_corpora(corpus)
    assert tokenizer.size == 66
    assert len(encode_corpus(corpus, tokenizer).ids) == 1_115_394
    assert corpus_digest(corpus) == "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"


def test_a_hebrew_has_159_symbols_in_474_documents(hebrew):
    tokenizer, encoded = hebrew
    assert tokenizer.size == 159
    assert len(encoded.spans.lengths) == 474
    assert len(encoded.ids) == 835_481
    assert corpus_digest(open_corpus("hebrew")) == "1513f36677224179fe340b5983d2ef841660d6e33985d469fa324e3d7ad8fc7d"


def test_a_short_hebrew_documents_are_oversampled(hebrew):
    _, encoded = hebrew
    short = encoded.spans.lengths < 1000
    assert short.sum() == 343
    assert encoded.spans.lengths[short].sum() / encoded.spans.lengths.sum() == pytest.approx(0.175, abs=5e-4)
    assert np.median(encoded.spans.lengths) == pytest.approx(478, abs=0.5)
    even, weighted = (
        uniform_document_sampler(encoded.spans, 128),
        uniform_position_sampler(encoded.spans, 128),
    )
    assert len(even.starts) == 474  # so "longer than" and "at least" seq_len + 1 agree here
    shares = [np.diff(one.cumulative_weights, prepend=0) / one.cumulative_weights[-1] for one in (even, weighted)]
    assert shares[0][short].sum() == pytest.approx(0.72, abs=5e-3)
    assert shares[1][short].sum() < 0.175


def test_a_the_hebrew_prompt_occurs_in_242_documents(real_data):
    texts = ["".join(iter_text(document)) for document in open_corpus("hebrew").documents]
    assert sum("חיים נחמן ביאליק" in text for text in texts) == 242


@pytest.mark.parametrize(("name", "characters"), [("bialik", 316_083), ("rachel", 47_208)])
def test_a_clean_poems_have_the_expected_characters(real_data, name, characters):
    corpus = open_corpus(name)
    assert len(encode_corpus(corpus, CharTokenizer.from_corpora(corpus)).ids) == characters


# ---- B ----


def test_b_the_vocabulary_equals_the_reference_tokenizers(words, real_data):
    reference = (real_data / "speeches/vocab_nltk381.txt").read_text(encoding="utf-8").splitlines()
    assert words.size == 5_755
    assert list(words.texts) == reference


@pytest.mark.parametrize(
    ("part", "n", "n_batches"),
    [("train", 32_071, 2_003), ("obama", 5_534, 344), ("hbush", 4_728, 294), ("wbush", 4_780, 297)],
)
def test_b_tokens_windows_and_batches_of_the_language_model(words, part, n, n_batches):
    ids = encode_corpus(open_corpus("speeches", part), words).ids
    assert len(ids) == n
    windows = overlapping_windows(Spans.single(n), 32)
    assert windows.n_windows == n - 32
    assert count_batches(windows.n_windows, 16)[0] == n_batches
    unknown = (ids == 1).mean()
    assert unknown == 0 if part == "train" else 0.0195 < unknown < 0.0235


def test_b_labels_and_lines(real_data):
    train, test = (open_labelled_texts("speeches", f"classifier/{part}") for part in ("train", "test"))
    names = collect_label_names(train, test)
    assert names == ("0", "1", "2")
    assert np.bincount(encode_labels(train, names)).tolist() == [934, 539, 619]
    assert np.bincount(encode_labels(test, names)).tolist() == [250, 250, 250]
    assert max(np.bincount(encode_labels(train, names))) / len(train.texts) == pytest.approx(0.4465, abs=5e-5)
    assert [count_batches(len(part.texts), 16)[0] for part in (train, test)] == [131, 47]


def test_b_samples_have_18_4_tokens_on_average_and_none_is_truncated(words):
    samples = open_labelled_texts("speeches", "classifier/train")
    rows, lengths = pad_sequences([words.encode(text) for text in samples.texts], 32)
    assert rows.shape == (2_092, 32)
    assert lengths.mean() == pytest.approx(18.4, abs=0.05)
    assert lengths.max() == 30


def test_b_language_model_files_have_the_expected_lines(real_data):
    lines = {part: "".join(map("".join, iter_text(open_corpus("speeches", part).documents[0]))) for part in TESTS}
    assert [text.count("\n") for text in lines.values()] == [250, 250, 250]
    train = "".join(iter_text(open_corpus("speeches", "train").documents[0]))
    assert train.count("\n") == 1_553


@pytest.mark.parametrize("length", [32, 64, 128])
def test_b_longer_windows_score_each_test_token_once(words, length):
    ids = encode_corpus(open_corpus("speeches", "obama"), words).ids
    for windows in (
        consecutive_windows(Spans.single(len(ids)), length),
        sliding_windows(Spans.single(len(ids)), length, length // 4),
    ):
        tokens, mask = gather_windows(ids, windows)
        assert np.array_equal(tokens[:, 1:][mask], ids[1:])


def test_b_decoded_words_are_the_words_of_the_line_and_nearly_always_the_line_itself(words):
    lines = "".join(iter_text(open_corpus("speeches", "train").documents[0])).splitlines()
    decoded = [words.decode(words.encode(line)) for line in lines]
    assert [split_words(text) for text in decoded] == [split_words(line) for line in lines]
    n_equal = sum(one == " ".join(line.split()) for one, line in zip(decoded, lines, strict=True))
    assert n_equal > 0.99 * len(lines)


# ---- C ----


@pytest.mark.parametrize(
    ("part", "n", "lines", "n_windows", "in_batches"),
    [
        ("train", 2_356_376, 23_767, 9_205, (576, 5)),
        ("validation", 245_046, 2_461, 958, (60, 14)),
        ("test", 279_023, 2_891, 1_090, (69, 2)),
    ],
)
def test_c_tokens_lines_windows_and_batches(real_data, part, n, lines, n_windows, in_batches):
    encoded = open_token_ids("wikitext2", part)
    assert (len(encoded.ids), len(encoded.spans.lengths)) == (n, lines)
    windows = consecutive_windows(Spans.single(n), 256)
    assert windows.n_windows == n_windows
    assert count_batches(windows.n_windows, 16) == in_batches
    assert windows.n_scored == n - 1
    tokens, mask = gather_windows(encoded.ids, windows, np.array([-1]))
    assert mask[0].sum() == (n - 2) % 256 + 1
    assert (tokens[0, mask[0].sum() + 1 :] == 0).all()


def test_c_stored_ids_are_gpt1s_plus_one(real_data):
    encoded, gpt1 = open_token_ids("wikitext2", "train"), load_gpt1_tokenizer()
    assert gpt1.size == 40_479
    assert len(np.unique(encoded.ids)) == 30_447
    assert (encoded.ids == 1).sum() == 8_000
    assert gpt1.texts[1] == "<unk>"
    decoded = (real_data / "wikitext2/wiki.train.decoded.txt").read_text(encoding="utf-8").split("\n")
    for line in range(0, 23_767, 97):
        start = encoded.spans.starts[line]
        assert gpt1.decode(encoded.ids[start : start + encoded.spans.lengths[line]]) == decoded[line]


def test_c_our_encoding_reproduces_the_stored_ids(real_data):
    encoded, gpt1 = open_token_ids("wikitext2", "train"), load_gpt1_tokenizer()
    for line in range(0, 23_767, 97):
        ids = encoded.ids[encoded.spans.starts[line] :][: encoded.spans.lengths[line]]
        if 1 not in ids:  # <unk> inside a word loses the word boundary
            assert np.array_equal(gpt1.encode(gpt1.decode(ids)), ids)


def test_c_a_stuck_model_is_at_the_unigram_level(real_data):
    """Runs 11 and 12 of the public logs plateaued near 1,480 on validation: the unigram perplexity."""
    train, validation = open_token_ids("wikitext2", "train"), open_token_ids("wikitext2", "validation")
    perplexity = exp(compute_ngram_losses(train.ids, validation.ids, 40_479, 1).mean())
    assert 1_000 < perplexity < 1_700
