"""A task's texts as ids, cut into parts: what training and evaluation read, and what `facts.py` counts.

    text = prepare_text(Text(corpus="shakespeare"))
    text.tokens.size, text.parts["train"].spans.n
    labelled = prepare_labels(Labels())
    labelled.parts["test"].rows

Reading, cutting and windows are those of `corpora`, `text`, `words`, `bpe` and `windows`; here they are put together as
the dials say. Splits are the same for every seed, so that all runs of a study are judged on the same text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from seedbed.data.bpe import ByteLevelBPETokenizer
from seedbed.data.catalogue import CATALOGUE, CorpusPart
from seedbed.data.corpora import load_gpt1_tokenizer, open_corpus, open_labelled_texts, open_token_ids
from seedbed.data.documents import Corpus
from seedbed.data.labelled_texts import LabelledTexts, collect_label_names, encode_labels
from seedbed.data.tokenizers import ByteTokenizer, CharTokenizer, EncodedCorpus, TokenIds, Tokenizer, encode_corpus
from seedbed.data.windows import Spans, pad_sequences, split_contiguous, split_documents, take_first_tokens
from seedbed.data.word_tokenizer import WordTokenizer
from seedbed.errors import UsageError
from seedbed.settings import LabelsSettings, TextSettings

Ints = NDArray[np.int64]
SPLIT_SEED = 0  # of the order in which documents and labelled texts are dealt out


@dataclass(frozen=True)
class TextSplit:
    """Some of a corpus: a row of ids and the pieces of it that belong here."""

    ids: TokenIds
    spans: Spans

    def span_ids(self) -> list[TokenIds]:
        """The ids of each piece."""
        ends = self.spans.starts + self.spans.lengths
        return [self.ids[start:end] for start, end in zip(self.spans.starts, ends, strict=True)]


@dataclass(frozen=True)
class TextDataset:
    """A corpus by part: `train`, `val`, `test`, and `test[NAME]` of its named test sets."""

    tokenizer: Tokenizer
    splits: Mapping[str, TextSplit]


@dataclass(frozen=True)
class LabelledSplit:
    """Samples of equal length, padded or cut, with the id of each one's label."""

    rows: Ints  # (N, T)
    lengths: Ints  # (N,) tokens that are not padding
    labels: Ints  # (N,)


@dataclass(frozen=True)
class LabelledDataset:
    """Labelled texts by part: `train`, `val`, `test`."""

    tokenizer: Tokenizer
    label_names: tuple[str, ...]  # of the labels, by id
    splits: Mapping[str, LabelledSplit]


@cache
def load_text_dataset(task: TextSettings) -> TextDataset:
    """The corpus of a task, tokenized and split."""
    tokens = load_tokenizer(task)
    whole = _encode_part(task, "train", tokens)
    own = {name: _encode_part(task, part, tokens) for name, part in _predefined_splits(task)}
    parts = {
        name: TextSplit(whole.ids, spans) for name, spans in _split_corpus(task, whole, has_val="val" in own).items()
    }
    parts |= {name: TextSplit(one.ids, _document_spans(task, one)) for name, one in own.items()}
    train = parts["train"]
    return TextDataset(
        tokens, parts | {"train": TextSplit(train.ids, take_first_tokens(train.spans, task.data_fraction))}
    )


@cache
def load_labelled_dataset(task: LabelsSettings) -> LabelledDataset:
    """The labelled texts of a task, tokenized, padded and split."""
    train, tests = _open_labelled_parts(task)
    tokens, names = load_tokenizer(task), collect_label_names(train, *tests)
    order = np.random.RandomState(SPLIT_SEED).permutation(len(train.labels))
    n_val = round(len(order) * task.val_fraction)
    n_train = max(1, round((len(order) - n_val) * task.data_fraction))
    samples = _encode_samples(task, train, tokens, names)
    parts = {"train": _select_samples(samples, np.sort(order[n_val:][:n_train]))}
    if n_val:
        parts["val"] = _select_samples(samples, np.sort(order[:n_val]))
    parts |= {name: _encode_samples(task, test, tokens, names) for name, test in zip(("test",), tests, strict=False)}
    return LabelledDataset(tokens, names, parts)


@cache
def _build_tokenizer(corpus: str, kind: str, vocab_size: int | None) -> Tokenizer:
    if kind == "bytes":
        return ByteTokenizer()
    if kind == "bpe" and vocab_size is None:
        return load_gpt1_tokenizer()
    texts = list(_open_training_corpora(corpus))
    if kind == "bpe":
        assert vocab_size is not None
        return ByteLevelBPETokenizer.train(*texts, vocab_size=vocab_size)
    return CharTokenizer.from_corpora(*texts) if kind == "characters" else WordTokenizer.from_corpora(*texts)


def load_tokenizer(task: TextSettings | LabelsSettings) -> Tokenizer:
    """The task's vocabulary: of everything in the corpus but its named test sets, as the speeches report has it."""
    return _build_tokenizer(task.corpus, task.tokenizer, task.vocabulary)


def _open_training_corpora(corpus: str) -> Iterator[Corpus]:
    if corpus not in CATALOGUE:
        yield open_corpus(corpus)
    for part in CATALOGUE[corpus].parts if corpus in CATALOGUE else ():
        if part.kind == "ids":
            raise UsageError(f"task.corpus = {corpus} is stored as GPT-1's ids; it needs task.tokenizer = bpe")
        if _is_training_part(part):
            yield open_corpus(corpus, part.name)


def _is_training_part(part: CorpusPart) -> bool:
    return part.name == "train" or part.name.endswith("/train")


def _predefined_splits(task: TextSettings) -> Iterator[tuple[str, str]]:
    """The validation and test sets that the corpus has besides its training text: reading's name, part's name."""
    parts = CATALOGUE[task.corpus].parts if task.corpus in CATALOGUE else ()
    found = [part.name for part in parts if part.kind in ("text", "ids")]
    tests = [name for name in found if name not in ("train", "validation")]
    for name in task.tests:
        if name not in tests:
            has = ", ".join(tests) or "none"
            raise UsageError(f"task.tests: {task.corpus} has no test set {name!r}; it has {has}")
    if "validation" in found:
        yield "val", "validation"
    for name in tests:
        if not task.tests or name in task.tests:
            yield "test" if name == "test" else f"test[{name}]", name


def _encode_part(task: TextSettings, part: str, tokenizer: Tokenizer) -> EncodedCorpus:
    stored = task.corpus in CATALOGUE and any(
        one.name == part and one.kind == "ids" for one in CATALOGUE[task.corpus].parts
    )
    if not stored:
        return encode_corpus(open_corpus(task.corpus, part), tokenizer)
    if task.tokenizer != "bpe" or task.vocabulary is not None:
        raise UsageError(f"task.corpus = {task.corpus} is stored as GPT-1's ids; it needs task.tokenizer = bpe")
    return open_token_ids(task.corpus, part)


def _document_spans(task: TextSettings, encoded: EncodedCorpus) -> Spans:
    """Documents where samples keep within them; else all as one row, as the reports join lines."""
    return Spans.from_encoded(encoded) if _samples_within_documents(task) else Spans.single(len(encoded.ids))


def _samples_within_documents(task: TextSettings) -> bool:
    return task.split == "documents" or task.sampler in ("documents", "length")


def _split_corpus(task: TextSettings, encoded: EncodedCorpus, has_val: bool) -> dict[str, Spans]:
    """Train, and what is held out of it; a corpus with its own validation set keeps all its text for training."""
    spans = _document_spans(task, encoded)
    held = {"val": task.val_fraction, "test": task.test_fraction}
    shares = {} if has_val else {name: share for name, share in held.items() if share}
    if not shares:
        return {"train": spans}
    shares = {"train": 1 - sum(shares.values())} | shares
    if task.split == "contiguous":
        return split_contiguous(spans, shares)
    return split_documents(spans, shares, np.random.RandomState(SPLIT_SEED).permutation(len(spans.lengths)))


def _open_labelled_parts(task: LabelsSettings) -> tuple[LabelledTexts, list[LabelledTexts]]:
    if task.corpus not in CATALOGUE:
        return open_labelled_texts(task.corpus, ""), []
    found = [part for part in CATALOGUE[task.corpus].parts if part.kind == "labelled"]
    if not found:
        named = ", ".join(name for name, one in CATALOGUE.items() if any(p.kind == "labelled" for p in one.parts))
        raise UsageError(f"task.corpus = {task.corpus} has no labels; expected a TSV or CSV file, or one of {named}")
    train = next(part.name for part in found if _is_training_part(part))
    tests = [part.name for part in found if part.name != train]
    return open_labelled_texts(task.corpus, train), [open_labelled_texts(task.corpus, name) for name in tests]


def _encode_samples(
    task: LabelsSettings, texts: LabelledTexts, tokenizer: Tokenizer, label_names: tuple[str, ...]
) -> LabelledSplit:
    rows, lengths = pad_sequences([tokenizer.encode(text) for text in texts.texts], task.length)
    return LabelledSplit(rows, lengths, np.array(encode_labels(texts, label_names), dtype=np.int64))


def _select_samples(samples: LabelledSplit, indices: Ints) -> LabelledSplit:
    return LabelledSplit(samples.rows[indices], samples.lengths[indices], samples.labels[indices])
