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

from seedbed.data.bpe import Trained
from seedbed.data.catalogue import CATALOGUE, Part
from seedbed.data.corpora import open_corpus, open_gpt1, open_ids, open_labelled
from seedbed.data.documents import Corpus
from seedbed.data.labelled import Labelled, label_ids, label_names
from seedbed.data.text import Bytes, Characters, Encoded, Ids, Tokens, encode_corpus
from seedbed.data.windows import Spans, first_tokens, segments, split, split_documents
from seedbed.data.words import Words
from seedbed.errors import UsageError
from seedbed.settings import Labels, Text

Ints = NDArray[np.int64]
SPLIT_SEED = 0  # of the order in which documents and labelled texts are dealt out


@dataclass(frozen=True)
class TextPart:
    """Some of a corpus: a row of ids and the pieces of it that belong here."""

    ids: Ids
    spans: Spans

    def pieces(self) -> list[Ids]:
        """The ids of each piece."""
        ends = self.spans.starts + self.spans.lengths
        return [self.ids[start:end] for start, end in zip(self.spans.starts, ends, strict=True)]


@dataclass(frozen=True)
class PreparedText:
    """A corpus by part: `train`, `val`, `test`, and `test[NAME]` of its named test sets."""

    tokens: Tokens
    parts: Mapping[str, TextPart]


@dataclass(frozen=True)
class LabelledPart:
    """Samples of equal length, padded or cut, with the id of each one's label."""

    rows: Ints  # (N, T)
    lengths: Ints  # (N,) tokens that are not padding
    labels: Ints  # (N,)


@dataclass(frozen=True)
class PreparedLabels:
    """Labelled texts by part: `train`, `val`, `test`."""

    tokens: Tokens
    names: tuple[str, ...]  # of the labels, by id
    parts: Mapping[str, LabelledPart]


@cache
def prepare_text(task: Text) -> PreparedText:
    """The corpus of a task, tokenized and split."""
    tokens = tokens_of(task)
    whole = _encode(task, "train", tokens)
    own = {name: _encode(task, part, tokens) for name, part in _own_parts(task)}
    parts = {name: TextPart(whole.ids, spans) for name, spans in _split(task, whole, has_val="val" in own).items()}
    parts |= {name: TextPart(one.ids, _row(task, one)) for name, one in own.items()}
    train = parts["train"]
    return PreparedText(tokens, parts | {"train": TextPart(train.ids, first_tokens(train.spans, task.data_fraction))})


@cache
def prepare_labels(task: Labels) -> PreparedLabels:
    """The labelled texts of a task, tokenized, padded and split."""
    train, tests = _open_labels(task)
    tokens, names = tokens_of(task), label_names(train, *tests)
    order = np.random.RandomState(SPLIT_SEED).permutation(len(train.labels))
    n_val = round(len(order) * task.val_fraction)
    n_train = max(1, round((len(order) - n_val) * task.data_fraction))
    samples = _samples(task, train, tokens, names)
    parts = {"train": _chosen(samples, np.sort(order[n_val:][:n_train]))}
    if n_val:
        parts["val"] = _chosen(samples, np.sort(order[:n_val]))
    parts |= {name: _samples(task, test, tokens, names) for name, test in zip(("test",), tests, strict=False)}
    return PreparedLabels(tokens, names, parts)


@cache
def _vocabulary(corpus: str, kind: str, size: int | None) -> Tokens:
    if kind == "bytes":
        return Bytes()
    if kind == "bpe" and size is None:
        return open_gpt1()
    texts = list(_training_texts(corpus))
    if kind == "bpe":
        assert size is not None
        return Trained.of(*texts, size=size)
    return Characters.of(*texts) if kind == "characters" else Words.of(*texts)


def tokens_of(task: Text | Labels) -> Tokens:
    """The task's vocabulary: of everything in the corpus but its named test sets, as the speeches report has it."""
    return _vocabulary(task.corpus, task.tokens, task.vocabulary)


def _training_texts(corpus: str) -> Iterator[Corpus]:
    if corpus not in CATALOGUE:
        yield open_corpus(corpus)
    for part in CATALOGUE[corpus].parts if corpus in CATALOGUE else ():
        if part.kind == "ids":
            raise UsageError(f"task.corpus = {corpus} is stored as GPT-1's ids; it needs task.tokens = bpe")
        if _is_training(part):
            yield open_corpus(corpus, part.name)


def _is_training(part: Part) -> bool:
    return part.name == "train" or part.name.endswith("/train")


def _own_parts(task: Text) -> Iterator[tuple[str, str]]:
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


def _encode(task: Text, part: str, tokens: Tokens) -> Encoded:
    stored = task.corpus in CATALOGUE and any(
        one.name == part and one.kind == "ids" for one in CATALOGUE[task.corpus].parts
    )
    if not stored:
        return encode_corpus(open_corpus(task.corpus, part), tokens)
    if task.tokens != "bpe" or task.vocabulary is not None:
        raise UsageError(f"task.corpus = {task.corpus} is stored as GPT-1's ids; it needs task.tokens = bpe")
    return open_ids(task.corpus, part)


def _row(task: Text, encoded: Encoded) -> Spans:
    """Documents where samples keep within them; else all as one row, as the reports join lines."""
    return Spans.of(encoded) if _by_documents(task) else Spans.whole(len(encoded.ids))


def _by_documents(task: Text) -> bool:
    return task.split == "documents" or task.sampler in ("documents", "length")


def _split(task: Text, encoded: Encoded, has_val: bool) -> dict[str, Spans]:
    """Train, and what is held out of it; a corpus with its own validation set keeps all its text for training."""
    spans = _row(task, encoded)
    held = {"val": task.val_fraction, "test": task.test_fraction}
    shares = {} if has_val else {name: share for name, share in held.items() if share}
    if not shares:
        return {"train": spans}
    shares = {"train": 1 - sum(shares.values())} | shares
    if task.split == "contiguous":
        return split(spans, shares)
    return split_documents(spans, shares, np.random.RandomState(SPLIT_SEED).permutation(len(spans.lengths)))


def _open_labels(task: Labels) -> tuple[Labelled, list[Labelled]]:
    if task.corpus not in CATALOGUE:
        return open_labelled(task.corpus, ""), []
    found = [part for part in CATALOGUE[task.corpus].parts if part.kind == "labelled"]
    if not found:
        named = ", ".join(name for name, one in CATALOGUE.items() if any(p.kind == "labelled" for p in one.parts))
        raise UsageError(f"task.corpus = {task.corpus} has no labels; expected a TSV or CSV file, or one of {named}")
    train = next(part.name for part in found if _is_training(part))
    tests = [part.name for part in found if part.name != train]
    return open_labelled(task.corpus, train), [open_labelled(task.corpus, name) for name in tests]


def _samples(task: Labels, texts: Labelled, tokens: Tokens, names: tuple[str, ...]) -> LabelledPart:
    rows, lengths = segments([tokens.encode(text) for text in texts.texts], task.length)
    return LabelledPart(rows, lengths, np.array(label_ids(texts, names), dtype=np.int64))


def _chosen(samples: LabelledPart, which: Ints) -> LabelledPart:
    return LabelledPart(samples.rows[which], samples.lengths[which], samples.labels[which])
