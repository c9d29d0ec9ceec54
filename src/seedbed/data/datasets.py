"""Datasets of text and label tasks: corpora tokenized and split into train, validation and test sets.

    dataset = load_text_dataset(TextSettings(corpus="shakespeare"))
    dataset.tokenizer.size, dataset.splits["train"].spans.n_tokens
    labelled = load_labelled_dataset(LabelsSettings())
    labelled.splits["test"].rows

Combines `corpora`, the tokenizers and `windows` as the settings say. Splits are the same for every seed, so that all
runs of a study are evaluated on the same text.
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
from seedbed.kind_settings import LabelsSettings, TextSettings

Ints = NDArray[np.int64]
SPLIT_SEED = 0  # of the permutation of documents and labelled texts


@dataclass(frozen=True)
class TextSplit:
    """One split of a corpus: the flat array of token ids, and the spans of it that belong to this split."""

    ids: TokenIds
    spans: Spans

    def span_ids(self) -> list[TokenIds]:
        """Returns the ids of each span."""
        ends = self.spans.starts + self.spans.lengths
        return [self.ids[start:end] for start, end in zip(self.spans.starts, ends, strict=True)]


@dataclass(frozen=True)
class TextDataset:
    """A tokenized corpus by split: `train`, `val`, `test`, and `test[NAME]` for its named test sets."""

    tokenizer: Tokenizer
    splits: Mapping[str, TextSplit]


@dataclass(frozen=True)
class LabelledSplit:
    """Samples padded or truncated to one length, with their label ids."""

    rows: Ints  # (N, T)
    lengths: Ints  # (N,) tokens that are not padding
    labels: Ints  # (N,)


@dataclass(frozen=True)
class LabelledDataset:
    """Tokenized labelled texts by split: `train`, `val`, `test`."""

    tokenizer: Tokenizer
    label_names: tuple[str, ...]  # by label id
    splits: Mapping[str, LabelledSplit]


@cache
def load_text_dataset(task: TextSettings) -> TextDataset:
    """Returns the corpus of a task, tokenized and split."""
    tokenizer = load_tokenizer(task)
    main = _encode_part(task, "train", tokenizer)
    predefined = {name: _encode_part(task, part, tokenizer) for name, part in _predefined_splits(task)}
    main_spans = _split_corpus(task, main, has_val="val" in predefined)
    splits = {name: TextSplit(main.ids, spans) for name, spans in main_spans.items()}
    splits |= {name: TextSplit(part.ids, _document_spans(task, part)) for name, part in predefined.items()}
    train_spans = take_first_tokens(splits["train"].spans, task.data_fraction)
    return TextDataset(tokenizer, splits | {"train": TextSplit(main.ids, train_spans)})


@cache
def load_labelled_dataset(task: LabelsSettings) -> LabelledDataset:
    """Returns the labelled texts of a task, tokenized, padded and split."""
    train, tests = _open_labelled_parts(task)
    tokenizer, label_names = load_tokenizer(task), collect_label_names(train, *tests)
    order = np.random.RandomState(SPLIT_SEED).permutation(len(train.labels))
    n_val = round(len(order) * task.val_fraction)
    n_train = max(1, round((len(order) - n_val) * task.data_fraction))
    samples = _encode_samples(task, train, tokenizer, label_names)
    splits = {"train": _select_samples(samples, np.sort(order[n_val:][:n_train]))}
    if n_val:
        splits["val"] = _select_samples(samples, np.sort(order[:n_val]))
    if tests:
        splits["test"] = _encode_samples(task, tests[0], tokenizer, label_names)
    return LabelledDataset(tokenizer, label_names, splits)


@cache
def _build_tokenizer(corpus: str, kind: str, vocab_size: int | None) -> Tokenizer:
    if kind == "bytes":
        return ByteTokenizer()
    if kind == "bpe" and vocab_size is None:
        return load_gpt1_tokenizer()
    corpora = list(_open_training_corpora(corpus))
    if kind == "bpe":
        assert vocab_size is not None
        return ByteLevelBPETokenizer.train(*corpora, vocab_size=vocab_size)
    return CharTokenizer.from_corpora(*corpora) if kind == "characters" else WordTokenizer.from_corpora(*corpora)


def load_tokenizer(task: TextSettings | LabelsSettings) -> Tokenizer:
    """Returns the task's tokenizer, built on the whole corpus except its named test sets, as in report B."""
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
    """Yields the corpus' own validation and test sets: (split name, part name)."""
    parts = CATALOGUE[task.corpus].parts if task.corpus in CATALOGUE else ()
    part_names = [part.name for part in parts if part.kind in ("text", "ids")]
    tests = [name for name in part_names if name not in ("train", "validation")]
    for name in task.tests:
        if name not in tests:
            available = ", ".join(tests) or "none"
            raise UsageError(f"task.tests: {task.corpus} has no test set {name!r}; it has {available}")
    if "validation" in part_names:
        yield "val", "validation"
    for name in tests:
        if not task.tests or name in task.tests:
            yield "test" if name == "test" else f"test[{name}]", name


def _encode_part(task: TextSettings, part: str, tokenizer: Tokenizer) -> EncodedCorpus:
    """Returns the token ids of one part of the corpus, encoded or as stored."""
    parts = CATALOGUE[task.corpus].parts if task.corpus in CATALOGUE else ()
    has_stored_ids = any(candidate.name == part and candidate.kind == "ids" for candidate in parts)
    if not has_stored_ids:
        return encode_corpus(open_corpus(task.corpus, part), tokenizer)
    if task.tokenizer != "bpe" or task.vocabulary is not None:
        raise UsageError(f"task.corpus = {task.corpus} is stored as GPT-1's ids; it needs task.tokenizer = bpe")
    return open_token_ids(task.corpus, part)


def _document_spans(task: TextSettings, encoded: EncodedCorpus) -> Spans:
    """Returns one span per document if samples stay within documents, else a single span, as in the reports."""
    return Spans.from_encoded(encoded) if _samples_within_documents(task) else Spans.single(len(encoded.ids))


def _samples_within_documents(task: TextSettings) -> bool:
    return task.split == "documents" or task.sampler in ("documents", "length")


def _split_corpus(task: TextSettings, encoded: EncodedCorpus, has_val: bool) -> dict[str, Spans]:
    """Returns the train split and what is held out of it; nothing if the corpus has its own validation set."""
    spans = _document_spans(task, encoded)
    requested = {"val": task.val_fraction, "test": task.test_fraction}
    held_out = {} if has_val else {name: fraction for name, fraction in requested.items() if fraction}
    if not held_out:
        return {"train": spans}
    fractions = {"train": 1 - sum(held_out.values())} | held_out
    if task.split == "contiguous":
        return split_contiguous(spans, fractions)
    return split_documents(spans, fractions, np.random.RandomState(SPLIT_SEED).permutation(len(spans.lengths)))


def _open_labelled_parts(task: LabelsSettings) -> tuple[LabelledTexts, list[LabelledTexts]]:
    """Returns the training texts and the test sets of a labelled corpus; a user's own file has no test set."""
    if task.corpus not in CATALOGUE:
        return open_labelled_texts(task.corpus, ""), []
    parts = [part for part in CATALOGUE[task.corpus].parts if part.kind == "labelled"]
    if not parts:
        names = ", ".join(name for name, entry in CATALOGUE.items() if any(p.kind == "labelled" for p in entry.parts))
        raise UsageError(f"task.corpus = {task.corpus} has no labels; expected a TSV or CSV file, or one of {names}")
    train = next(part.name for part in parts if _is_training_part(part))
    tests = [part.name for part in parts if part.name != train]
    return open_labelled_texts(task.corpus, train), [open_labelled_texts(task.corpus, name) for name in tests]


def _encode_samples(
    task: LabelsSettings, texts: LabelledTexts, tokenizer: Tokenizer, label_names: tuple[str, ...]
) -> LabelledSplit:
    rows, lengths = pad_sequences([tokenizer.encode(text) for text in texts.texts], task.length)
    return LabelledSplit(rows, lengths, np.array(encode_labels(texts, label_names), dtype=np.int64))


def _select_samples(samples: LabelledSplit, indices: Ints) -> LabelledSplit:
    return LabelledSplit(samples.rows[indices], samples.lengths[indices], samples.labels[indices])
