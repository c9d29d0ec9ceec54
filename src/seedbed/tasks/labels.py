"""Classification: predict the label of a text.

    dataset = load_labelled_dataset(LabelsSettings())
    dataset.splits["test"].rows

Texts are tokenized, padded or cut to one length, and split the same way for every seed. Batches are drawn in
`corpus_batches.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from seedbed.data.catalogue import CATALOGUE
from seedbed.data.corpora import cache_until_edited, open_labelled_texts, own_parts
from seedbed.data.datasets import (
    SPLIT_SEED,
    CorpusSource,
    LabelledDataset,
    LabelledSplit,
    TokenizerKind,
    VocabularySize,
    data_digest,
)
from seedbed.data.table_files import ColumnName, Columns, LabelledTexts, collect_label_names, encode_labels
from seedbed.data.tokenizers import PAD_ID, Tokenizer
from seedbed.data.windows import pad_sequences
from seedbed.errors import UsageError
from seedbed.settings import (
    DatasetInfo,
    Fraction,
    PositiveFraction,
    Settings,
    ShortText,
    register_settings,
    setting,
)
from seedbed.tasks.base import (
    HELD_OUT_SPLITS,
    AnalysisInputs,
    BatchLimits,
    Ints,
    check_monitored_metrics,
    evenly_spaced_indices,
)
from seedbed.tasks.corpus_task import (
    CorpusTask,
    column_setting,
    text_token_kinds,
    tokenizer_setting,
    vocabulary_setting,
)

if TYPE_CHECKING:
    from seedbed.tasks.corpus_batches import LabelBatches


@register_settings
class LabelsSettings(CorpusTask):
    """Predict the label of a text."""

    predicts: ClassVar[Literal["next_token", "label"]] = "label"

    kind: Literal["labels"] = setting("labels", "which task", born="arithmetic", label="task")
    corpus: ShortText = setting(
        "speeches",
        "a named corpus with labels, or the path of a table of texts and labels (CSV, TSV, JSON Lines, Parquet)",
    )
    text_column: ColumnName = column_setting("text")
    label_column: ColumnName = column_setting("label")
    tokenizer: TokenizerKind = tokenizer_setting("words")
    vocabulary: VocabularySize = vocabulary_setting()
    length: int = setting(
        32, "length of a sample; longer texts are cut, shorter ones padded", unit="tokens", ge=1, le=1_000_000
    )
    val_fraction: Fraction = setting(0.1, "share of the labelled training texts held out for validation")
    data_fraction: PositiveFraction = setting(1.0, "share of the training part that is used")

    def corpus_source(self) -> CorpusSource:
        return CorpusSource(self.corpus, Columns(self.text_column, self.label_column), is_labelled=True)

    def dataset_info(self) -> DatasetInfo:
        return _label_info(self)

    def check_data(self, settings: Settings) -> None:
        check_monitored_metrics(settings, load_labelled_dataset(self).splits)

    def labelled_dataset(self) -> LabelledDataset:
        return load_labelled_dataset(self)

    def label_names(self) -> tuple[str, ...]:
        return load_labelled_dataset(self).label_names

    def make_batches(
        self, settings: Sequence[Settings], seeds: Sequence[int], device: str, limits: BatchLimits
    ) -> LabelBatches:
        from seedbed.tasks.corpus_batches import LabelBatches

        return LabelBatches(settings, seeds, device, limits)

    def n_scored_positions(self, info: DatasetInfo) -> int:
        return 1

    def analysis_inputs(self, seed: int, n: int) -> AnalysisInputs:
        dataset = load_labelled_dataset(self)
        name = next((name for name in HELD_OUT_SPLITS if name in dataset.splits), "train")
        split = dataset.splits[name]
        indices = evenly_spaced_indices(len(split.labels), n)
        rows, non_padding = split.rows[indices], np.arange(self.length) < split.lengths[indices][:, None]
        targets = split.labels[indices][:, None]
        kinds = text_token_kinds(dataset.tokenizer.readable_texts, rows, non_padding)
        # Every labelled text starts with a sentence; a window of running text need not.
        is_first = np.arange(self.length) == 0
        kinds["sentence starts"] = kinds.get("sentence starts", np.zeros_like(non_padding)) | is_first
        return AnalysisInputs(name, rows, targets, np.ones_like(targets, dtype=bool), non_padding, kinds)


@cache_until_edited
def load_labelled_dataset(task: LabelsSettings) -> LabelledDataset:
    """Returns the labelled texts of a task, tokenized, padded and split."""
    parts = _open_labelled_parts(task)
    train = parts.pop("train")
    tokenizer, label_names = task.load_tokenizer(), collect_label_names(train, *parts.values())
    order = np.random.RandomState(SPLIT_SEED).permutation(len(train.labels))
    n_val = 0 if "val" in parts else round(len(order) * task.val_fraction)
    if n_val == len(order):
        raise UsageError(
            f"task.val_fraction = {task.val_fraction:g} of {n_val:,} texts of {task.corpus} leaves none to train on; "
            "make it smaller, or add texts"
        )
    n_train = max(1, round((len(order) - n_val) * task.data_fraction))
    samples = _encode_samples(task, train, tokenizer, label_names)
    splits = {"train": _select_samples(samples, np.sort(order[n_val:][:n_train]))}
    if n_val:
        splits["val"] = _select_samples(samples, np.sort(order[:n_val]))
    splits |= {name: _encode_samples(task, part, tokenizer, label_names) for name, part in parts.items()}
    return LabelledDataset(tokenizer, label_names, splits)


@cache_until_edited
def _label_info(task: LabelsSettings) -> DatasetInfo:
    """Returns the info of tokenized, padded and split dataset texts."""
    dataset = load_labelled_dataset(task)
    arrays = [array for split in dataset.splits.values() for array in (split.rows, split.labels)]
    return DatasetInfo(
        vocab_size=dataset.tokenizer.size,
        context_length=task.length,
        n_train=len(dataset.splits["train"].labels),
        n_classes=len(dataset.label_names),
        padding_id=PAD_ID,
        digest=data_digest("labels/1", dataset.tokenizer.digest, arrays),
        chance=float(np.bincount(dataset.splits["train"].labels).max() / len(dataset.splits["train"].labels)),
    )


def _open_labelled_parts(task: LabelsSettings) -> dict[str, LabelledTexts]:
    """Returns the training texts of a labelled corpus, and its own validation and test sets, by split."""
    columns = task.corpus_source().columns
    if task.corpus not in CATALOGUE:
        names = {"val" if part == "validation" else part: part for part in own_parts(task.corpus)}
        return {split: open_labelled_texts(task.corpus, part, columns=columns) for split, part in names.items()}
    parts = [part for part in CATALOGUE[task.corpus].parts if part.kind == "labelled"]
    if not parts:
        named = ", ".join(name for name, entry in CATALOGUE.items() if any(p.kind == "labelled" for p in entry.parts))
        raise UsageError(f"task.corpus = {task.corpus} has no labels; expected a TSV or CSV file, or one of {named}")
    splits = {"train" if part.is_training else "test": part.name for part in parts}
    return {split: open_labelled_texts(task.corpus, part) for split, part in sorted(splits.items(), reverse=True)}


def _encode_samples(
    task: LabelsSettings, texts: LabelledTexts, tokenizer: Tokenizer, label_names: tuple[str, ...]
) -> LabelledSplit:
    rows, lengths = pad_sequences([tokenizer.encode(text) for text in texts.texts], task.length)
    return LabelledSplit(rows, lengths, np.array(encode_labels(texts, label_names), dtype=np.int64), texts.texts)


def _select_samples(samples: LabelledSplit, indices: Ints) -> LabelledSplit:
    texts = tuple(samples.texts[i] for i in indices)
    return LabelledSplit(samples.rows[indices], samples.lengths[indices], samples.labels[indices], texts)
