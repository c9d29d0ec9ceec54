"""Language modelling: predict the next token of a corpus, tokenized and split into train, validation and test sets.

    dataset = TextSettings(corpus="shakespeare").text_dataset()
    dataset.tokenizer.size, dataset.splits["train"].spans.n_tokens

Splits are the same for every seed, so that all runs of a study are evaluated on the same text. Batches are drawn in
`corpus_batches.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from seedbed.data.catalogue import CATALOGUE
from seedbed.data.corpora import cache_until_edited, open_corpus, own_parts
from seedbed.data.datasets import (
    SPLIT_SEED,
    EncodedText,
    TextDataset,
    TokenizerKind,
    VocabularySize,
    data_digest,
    encode_corpus,
    open_token_ids,
    stored_ids_error,
)
from seedbed.data.table_files import ColumnName
from seedbed.data.tokenizers import PAD_ID, Tokenizer
from seedbed.data.windows import (
    Spans,
    Windows,
    WindowSampler,
    consecutive_windows,
    gather_windows,
    overlapping_windows,
    sliding_windows,
    split_contiguous,
    split_documents,
    take_first_tokens,
    uniform_document_sampler,
    uniform_position_sampler,
)
from seedbed.errors import UsageError
from seedbed.settings import (
    Conflict,
    DatasetInfo,
    Fraction,
    PositiveFraction,
    Settings,
    ShortText,
    TrainSettings,
    as_tuple,
    register_settings,
    setting,
)
from seedbed.tasks.base import (
    HELD_OUT_SPLITS,
    AnalysisInputs,
    BatchLimits,
    check_monitored_metrics,
    evenly_spaced_indices,
)
from seedbed.tasks.corpus_task import (
    CorpusTask,
    column_setting,
    sentence_boundary_words,
    text_token_kinds,
    tokenizer_setting,
    vocabulary_setting,
    word_index_per_token,
)

if TYPE_CHECKING:
    from seedbed.tasks.corpus_batches import TextBatches

TextTuple = Annotated[tuple[ShortText, ...], BeforeValidator(as_tuple)]
ContextLengths = Annotated[tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...], BeforeValidator(as_tuple)]


@register_settings
class TextSettings(CorpusTask):
    """Predict the next token of a text."""

    generates_text: ClassVar[bool] = True

    kind: Literal["text"] = setting("text", "which task", born="arithmetic", label="task")
    corpus: ShortText = setting(
        "python-docs",
        "a named corpus, or the path of a text file, a folder of *.txt or a table with a text column",
    )
    text_column: ColumnName = column_setting("text")
    tokenizer: TokenizerKind = tokenizer_setting("characters")
    vocabulary: VocabularySize = vocabulary_setting()
    length: int = setting(128, "context length of a sample", unit="tokens", label="context length", ge=1, le=1_000_000)
    split: Literal["contiguous", "documents"] = setting(
        "contiguous", "how parts are held out: the end of the text, or whole documents, the same for all seeds"
    )
    val_fraction: Fraction = setting(0.1, "share held out for validation, unless the corpus has its own")
    test_fraction: Fraction = setting(0.0, "share held out for testing, unless the corpus has its own")
    data_fraction: PositiveFraction = setting(1.0, "share of the training part that is used")
    sampler: Literal["documents", "length", "windows", "epochs"] = setting(
        "length",
        "training samples: a random position of a random document (documents equally likely, or by their length), "
        "every window once an epoch (stride 1), or windows one after the other (stride length)",
    )
    tests: TextTuple = setting((), "named test sets of the corpus to evaluate; unset: all that it has")
    lengths: ContextLengths = setting(
        (), "context lengths at which perplexity is evaluated besides length", unit="tokens"
    )

    def conflicts(self) -> Iterator[Conflict]:
        if self.val_fraction + self.test_fraction >= 1:
            held_out = f"task.val_fraction = {self.val_fraction} and task.test_fraction = {self.test_fraction}"
            yield "task.val_fraction", f"{held_out} leave nothing to train on"

    def dataset_info(self) -> DatasetInfo:
        return _text_info(self)

    def check_data(self, settings: Settings) -> None:
        check_monitored_metrics(settings, _check_windows(self, settings.train.eval_sets))

    def text_dataset(self) -> TextDataset:
        return load_text_dataset(self)

    def make_batches(
        self, settings: Sequence[Settings], seeds: Sequence[int], device: str, limits: BatchLimits
    ) -> TextBatches:
        from seedbed.tasks.corpus_batches import TextBatches

        return TextBatches(settings, seeds, device, limits)

    def n_eval_samples(self, train: TrainSettings, info: DatasetInfo) -> int:
        """Windows of the trained length that hold as many tokens as are evaluated; needs the corpus."""
        sizes, limit = _eval_window_sizes(self, train.eval_sets), train.eval_batches * train.batch_size
        return -(-sum(length * (min(n, limit) if limit else n) for n, length in sizes) // self.length)

    def analysis_inputs(self, seed: int, n: int) -> AnalysisInputs:
        dataset = self.text_dataset()
        # A split may be named after a part of its corpus: "test[part]".
        name = next((name for name in dataset.splits if name.partition("[")[0] in HELD_OUT_SPLITS), "train")
        split = dataset.splits[name]
        windows = consecutive_windows(split.spans, self.length)
        rows, scored = gather_windows(split.ids, windows, evenly_spaced_indices(windows.n_windows, n))
        non_padding = np.arange(self.length) < np.maximum(scored.sum(1, keepdims=True), 1)
        tokens, texts = rows[:, :-1], dataset.tokenizer.readable_texts
        words = None if self.tokenizer == "words" else word_index_per_token(texts, tokens)
        kinds = text_token_kinds(texts, tokens, non_padding)
        kinds |= sentence_boundary_words(texts, tokens, non_padding, words)
        return AnalysisInputs(name, tokens, rows[:, 1:], scored, non_padding, kinds, words)


@cache_until_edited
def load_text_dataset(task: TextSettings) -> TextDataset:
    """Returns the corpus of a task, tokenized and split."""
    tokenizer = task.load_tokenizer()
    main = _encode_part(task, "train", tokenizer)
    predefined = {name: _encode_part(task, part, tokenizer) for name, part in _predefined_splits(task)}
    main_spans = _split_corpus(task, main, has_val="val" in predefined)
    splits = {name: EncodedText(main.ids, spans) for name, spans in main_spans.items()}
    splits |= {name: EncodedText(part.ids, _document_spans(task, part)) for name, part in predefined.items()}
    train_spans = take_first_tokens(splits["train"].spans, task.data_fraction)
    return TextDataset(tokenizer, splits | {"train": EncodedText(main.ids, train_spans)})


def eval_windows(
    task: TextSettings, name: str, spans: Spans, max_context: int | None = None
) -> Iterator[tuple[str, Windows]]:
    """Yields a split's evaluation windows with their metric suffix: the trained length, and others if held out."""
    yield "", consecutive_windows(spans, task.length)
    if name == "train":
        return
    for length in dict.fromkeys((task.length, *task.lengths) if task.lengths else ()):
        if max_context is not None and length > max_context:
            continue
        if length != task.length:
            yield f"[length={length}]", consecutive_windows(spans, length)
        if length > 1:
            yield f"[length={length}]", sliding_windows(spans, length, length // 2)


@cache_until_edited
def _check_windows(task: TextSettings, sets: tuple[str, ...]) -> tuple[str, ...]:
    """The names of all splits; UsageError if a sample to train on or to evaluate is longer than its text."""
    splits = load_text_dataset(task).splits
    make_training_windows(task, splits["train"].spans)
    for name, split in splits.items():
        if name.partition("[")[0] in sets:
            for _ in eval_windows(task, name, split.spans):
                pass
    return tuple(splits)


def make_training_windows(task: TextSettings, spans: Spans) -> WindowSampler | Windows:
    """Returns where training samples start: a sampler of random positions, or all windows of an epoch."""
    if task.sampler == "documents":
        return uniform_document_sampler(spans, task.length)
    if task.sampler == "length":
        return uniform_position_sampler(spans, task.length)
    return (overlapping_windows if task.sampler == "windows" else consecutive_windows)(spans, task.length)


@cache_until_edited
def _eval_window_sizes(task: TextSettings, sets: tuple[str, ...]) -> list[tuple[int, int]]:
    """Returns number and length of the windows of these sets, for all lengths, whatever context a model has."""
    splits = load_text_dataset(task).splits.items()
    wanted = [(name, split.spans) for name, split in splits if name.partition("[")[0] in sets]
    windows = [windows for name, spans in wanted for _, windows in eval_windows(task, name, spans)]
    return [(one.n_windows, one.length) for one in windows]


@cache_until_edited
def _text_info(task: TextSettings) -> DatasetInfo:
    """Returns the info of a tokenized and split corpus."""
    dataset = load_text_dataset(task)
    arrays = {id(split.ids): split.ids for split in dataset.splits.values()}  # splits may share one array
    return DatasetInfo(
        vocab_size=dataset.tokenizer.size,
        context_length=task.length,
        n_train=_count_samples(task, dataset.splits["train"].spans),
        padding_id=PAD_ID,
        digest=data_digest("text/1", dataset.tokenizer.digest, arrays.values()),
    )


def _count_samples(task: TextSettings, spans: Spans) -> int:
    """Returns the samples of one epoch; for random sampling, as many as hold the text's tokens once."""
    if task.sampler == "windows":
        return overlapping_windows(spans, task.length).n_windows
    if task.sampler == "epochs":
        return consecutive_windows(spans, task.length).n_windows
    return -(-spans.n_tokens // task.length)


def _predefined_splits(task: TextSettings) -> Iterator[tuple[str, str]]:
    """Yields the corpus' own validation and test sets: (split name, part name)."""
    if task.corpus in CATALOGUE:
        part_names = [part.name for part in CATALOGUE[task.corpus].parts if part.kind in ("text", "ids")]
    else:
        part_names = list(own_parts(task.corpus))
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


def _encode_part(task: TextSettings, part: str, tokenizer: Tokenizer) -> EncodedText:
    """Returns the token ids of one part of the corpus, encoded or as stored."""
    parts = CATALOGUE[task.corpus].parts if task.corpus in CATALOGUE else ()
    has_stored_ids = any(candidate.name == part and candidate.kind == "ids" for candidate in parts)
    if not has_stored_ids:
        return encode_corpus(open_corpus(task.corpus, part, columns=task.corpus_source().columns), tokenizer)
    if task.tokenizer != "bpe" or task.vocabulary != "gpt1":
        raise stored_ids_error(task.corpus)
    return open_token_ids(task.corpus, part)


def _document_spans(task: TextSettings, encoded: EncodedText) -> Spans:
    """Returns one span per document if samples stay within documents, else a single span, as in the reports."""
    within_documents = task.split == "documents" or task.sampler in ("documents", "length")
    return encoded.spans if within_documents else Spans.single(len(encoded.ids))


def _split_corpus(task: TextSettings, encoded: EncodedText, has_val: bool) -> dict[str, Spans]:
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
