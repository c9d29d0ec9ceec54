"""Summary statistics and a preview of a corpus, to inspect it before training: texts, and labelled samples.

>>> count_duplicates(["One day.", "one  day", "Two", "Two"])
Duplicates(exact=1, normalized=2)

Repeated texts are counted within a part of a corpus, and between a training and a held-out part. They are compared as
they are, and normalized: without case, punctuation and spacing, so that near copies count as well.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from seedbed.data.bpe import ByteLevelBPETokenizer, suitable_vocab_size
from seedbed.data.documents import (
    Corpus,
    corpus_digest,
    iter_bytes,
    iter_line_chunks,
    iter_text,
    normalization_notes,
)
from seedbed.data.table_files import LabelledTexts
from seedbed.data.tokenizers import N_CODEPOINTS, Tokenizer, text_to_codepoints
from seedbed.data.word_tokenizer import WordTokenizer, split_words
from seedbed.errors import MissingData

N_PREVIEW_LINES, MAX_PREVIEW_LINE_CHARACTERS, N_MOST_COMMON_CHARACTERS = 5, 100, 12
MAX_TOKENIZED_BYTES = 20_000_000  # larger corpora are not tokenized for a preview
MIN_COMPARED_LINE_CHARACTERS = 40  # shorter lines of a text repeat by chance
FEW_SAMPLES = 5  # of a class, below which it is pointed out
_NON_WORDS = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Duplicates:
    """Texts that repeat an earlier one, exactly or after normalization (which includes the exact ones)."""

    exact: int
    normalized: int


@dataclass(frozen=True)
class Leak:
    """Texts of a held-out part that also occur in the training part."""

    train: str
    held_out: str
    texts: int  # of the held-out part
    exact: int
    normalized: int


@dataclass(frozen=True)
class TokenCount:
    """How many tokens a tokenizer makes of a text, and the size of its vocabulary, padding included."""

    tokens: int
    vocabulary: int


@dataclass(frozen=True)
class CorpusStats:
    """Sizes, most common characters and first lines of a corpus; the field names are keys of `data show --json`."""

    documents: int
    bytes: int
    characters: int
    lines: int
    distinct: int  # characters; a character vocabulary adds one id for padding
    tokens: Mapping[str, TokenCount]  # by tokenizer
    duplicates: Duplicates  # of documents, or of lines if there is one document
    commonest: tuple[tuple[str, int], ...]
    first_lines: tuple[str, ...]
    digest: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class LabelledStats:
    """Classes, lengths and repetitions of labelled texts; the field names are keys of `data show --json`."""

    samples: int
    classes: Mapping[str, int]  # samples of each class
    majority: float  # share of the largest class: the accuracy of always guessing it
    characters: Mapping[str, float]  # of a text: median, 95 %, longest
    words: Mapping[str, float]
    distinct_words: int
    duplicates: Duplicates
    conflicts: int  # distinct texts with more than one label
    first_lines: tuple[str, ...]
    notes: tuple[str, ...]


def compute_corpus_stats(corpus: Corpus) -> CorpusStats:
    """Computes the statistics by streaming the text, in bounded memory."""
    counts = np.zeros(N_CODEPOINTS, dtype=np.int64)
    for document in corpus.documents:
        for text in iter_text(document):
            counts += np.bincount(text_to_codepoints(text), minlength=N_CODEPOINTS)
    commonest = np.argsort(-counts, kind="stable")[:N_MOST_COMMON_CHARACTERS]
    n_bytes = sum(len(chunk) for document in corpus.documents for chunk in iter_bytes(document))
    n_characters, n_distinct = int(counts.sum()), int((counts > 0).sum())
    tokens = {"characters": TokenCount(n_characters, n_distinct + 1), "bytes": TokenCount(n_bytes, 257)}
    n_empty = sum(not any(map(str.strip, iter_text(document))) for document in corpus.documents)
    empty = (f"{n_empty:,} of {len(corpus.documents):,} documents are empty",) if n_empty and n_characters else ()
    return CorpusStats(
        documents=len(corpus.documents),
        bytes=n_bytes,
        characters=n_characters,
        lines=int(counts[ord("\n")]),
        distinct=n_distinct,
        tokens=tokens | (_count_tokens(corpus, n_bytes) if 0 < n_bytes <= MAX_TOKENIZED_BYTES else {}),
        duplicates=count_duplicates(comparable_texts(corpus)),
        commonest=tuple((chr(codepoint), int(counts[codepoint])) for codepoint in commonest if counts[codepoint]),
        first_lines=tuple(
            line.rstrip("\n")[:MAX_PREVIEW_LINE_CHARACTERS] for line in islice(_iter_lines(corpus), N_PREVIEW_LINES)
        ),
        digest=corpus_digest(corpus),
        notes=normalization_notes(corpus) + _degenerate_text_warnings(corpus, n_distinct) + empty,
    )


def comparable_texts(corpus: Corpus) -> list[str]:
    """The texts whose repetition means something: documents, or the longer lines of a single document."""
    if len(corpus.documents) > 1:
        return [text for document in corpus.documents if (text := "".join(iter_text(document))).strip()]
    return [line for line in map(str.strip, _iter_lines(corpus)) if len(line) >= MIN_COMPARED_LINE_CHARACTERS]


def _iter_lines(corpus: Corpus) -> Iterator[str]:
    return (line for document in corpus.documents for chunk in iter_line_chunks(document) for line in chunk)


def _count_tokens(corpus: Corpus, n_bytes: int) -> dict[str, TokenCount]:
    """Tokens of the tokenizers that are built on the corpus; without BPE where its library is missing."""
    words = WordTokenizer.from_corpora(corpus)
    counts = {"words": _count_encoded(corpus, words)}
    try:
        bpe = ByteLevelBPETokenizer.train(corpus, vocab_size=suitable_vocab_size(n_bytes))
    except MissingData:
        return counts
    return counts | {"bpe": _count_encoded(corpus, bpe)}


def _count_encoded(corpus: Corpus, tokenizer: Tokenizer) -> TokenCount:
    n_tokens = sum(len(ids) for document in corpus.documents for ids in tokenizer.encode_document(document))
    return TokenCount(n_tokens, tokenizer.size)


def compute_labelled_stats(samples: LabelledTexts) -> LabelledStats:
    """Computes the statistics of labelled texts."""
    classes = dict(sorted(Counter(samples.labels).items()))
    words = [split_words(text) for text in samples.texts]
    notes = [f"class {name!r} has only {n} sample{'s' * (n > 1)}" for name, n in classes.items() if n < FEW_SAMPLES]
    if len(classes) == 1:
        notes.append(f"every sample has the label {samples.labels[0]!r}; a classifier needs at least 2")
    return LabelledStats(
        samples=len(samples.texts),
        classes=classes,
        majority=max(classes.values()) / len(samples.texts),
        characters=_describe_lengths([len(text) for text in samples.texts]),
        words=_describe_lengths([len(one) for one in words]),
        distinct_words=len({word for one in words for word in one}),
        duplicates=count_duplicates(samples.texts),
        conflicts=count_conflicts(samples.texts, samples.labels),
        first_lines=tuple(
            f"{label}: {text}"[:MAX_PREVIEW_LINE_CHARACTERS]
            for label, text in islice(zip(samples.labels, samples.texts, strict=True), N_PREVIEW_LINES)
        ),
        notes=tuple(notes),
    )


def _describe_lengths(lengths: Sequence[int]) -> dict[str, float]:
    return {
        "median": float(np.median(lengths)),
        "95 %": float(np.percentile(lengths, 95, method="higher")),
        "longest": float(max(lengths)),
    }


def _degenerate_text_warnings(corpus: Corpus, n_distinct: int) -> tuple[str, ...]:
    warnings = {
        0: "is empty; a corpus needs some text",
        1: "has only one distinct character; there is nothing to learn",
    }
    return (f"{corpus.name} {warnings[n_distinct]}",) if n_distinct in warnings else ()


# ---- repeated texts ----


def normalize_text(text: str) -> str:
    """The words of a text: compatibility forms unified, without case, punctuation and spacing.

    >>> normalize_text(' ﬁne,  THAT—is ')
    'fine that is'
    """
    return _NON_WORDS.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()


def count_duplicates(texts: Sequence[str]) -> Duplicates:
    """Counts the texts that repeat an earlier one."""
    return Duplicates(len(texts) - len(set(texts)), len(texts) - len(set(map(normalize_text, texts))))


def count_conflicts(texts: Iterable[str], labels: Iterable[str]) -> int:
    """Counts the distinct normalized texts that have more than one label."""
    found: dict[str, set[str]] = {}
    for text, label in zip(texts, labels, strict=True):
        found.setdefault(normalize_text(text), set()).add(label)
    return sum(len(one) > 1 for one in found.values())


def count_leaks(train: str, parts: Mapping[str, Sequence[str]]) -> tuple[Leak, ...]:
    """Counts, for each other part, its texts that occur in the training part."""
    exact, normalized = set(parts[train]), set(map(normalize_text, parts[train]))
    return tuple(
        Leak(
            train=train,
            held_out=name,
            texts=len(texts),
            exact=sum(text in exact for text in texts),
            normalized=sum(normalize_text(text) in normalized for text in texts),
        )
        for name, texts in parts.items()
        if name != train
    )
