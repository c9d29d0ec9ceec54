"""Dataset info of a task: vocabulary size, context length, samples, classes; without torch, so that plans stay fast.

    info = get_dataset_info(TextSettings(corpus="shakespeare"))

For arithmetic it follows from the settings alone; a text is loaded once per process for each combination of settings.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.data.arithmetic import context_length, vocabulary_size
from seedbed.data.datasets import load_labelled_dataset, load_text_dataset
from seedbed.data.tokenizers import PAD_ID
from seedbed.data.windows import Spans, consecutive_windows, overlapping_windows
from seedbed.errors import MissingData, UsageError
from seedbed.kind_settings import ArithmeticSettings, LabelsSettings, TextSettings
from seedbed.records import StoredRun
from seedbed.settings import DatasetInfo, TaskSettings


def get_dataset_info(task: TaskSettings) -> DatasetInfo:
    """Returns the dataset info of a task; MissingData or UsageError if its corpus is unreadable or too small."""
    if isinstance(task, ArithmeticSettings):
        return arithmetic_info(task)
    return text_info(task) if isinstance(task, TextSettings) else label_info(task)


def stored_dataset_info(run: StoredRun) -> DatasetInfo | None:
    """Returns the dataset info of a stored run, as stored or else recomputed; None if the corpus is missing."""
    if run.dataset_info is not None:
        return run.dataset_info
    try:
        return get_dataset_info(run.settings.task)
    except (MissingData, UsageError):
        return None


@cache
def arithmetic_info(task: ArithmeticSettings) -> DatasetInfo:
    """Returns the info of an equation table; settings determine the data, so the digest is the generator's version."""
    size = vocabulary_size(task)
    n_train = sum(task.n_train(order) for order in task.orders)
    return DatasetInfo(
        size,
        context_length(task),
        n_train,
        padding_id=size - 1,
        digest="arithmetic/1",
        tokens_per_sample=task.mean_sample_tokens(),
    )


@cache
def text_info(task: TextSettings) -> DatasetInfo:
    """Returns the info of a tokenized and split corpus."""
    dataset = load_text_dataset(task)
    arrays = {id(split.ids): split.ids for split in dataset.splits.values()}  # splits may share one array
    return DatasetInfo(
        vocab_size=dataset.tokenizer.size,
        context_length=task.length,
        n_train=_count_samples(task, dataset.splits["train"].spans),
        padding_id=PAD_ID,
        digest=_data_digest("text/1", dataset.tokenizer.digest, arrays.values()),
    )


@cache
def label_info(task: LabelsSettings) -> DatasetInfo:
    """Returns the info of tokenized, padded and split dataset texts."""
    dataset = load_labelled_dataset(task)
    arrays = [array for split in dataset.splits.values() for array in (split.rows, split.labels)]
    return DatasetInfo(
        vocab_size=dataset.tokenizer.size,
        context_length=task.length,
        n_train=len(dataset.splits["train"].labels),
        n_classes=len(dataset.label_names),
        padding_id=PAD_ID,
        digest=_data_digest("labels/1", dataset.tokenizer.digest, arrays),
    )


def _count_samples(task: TextSettings, spans: Spans) -> int:
    """Returns the samples of one epoch; for random sampling, as many as hold the text's tokens once."""
    if task.sampler == "windows":
        return overlapping_windows(spans, task.length).n_windows
    if task.sampler == "epochs":
        return consecutive_windows(spans, task.length).n_windows
    return -(-spans.n_tokens // task.length)


def _data_digest(version: str, tokenizer_digest: str, arrays: Iterable[NDArray[Any]]) -> str:
    """Returns the generator's version and a hash of the tokenizer and all arrays."""
    hasher = blake2b(tokenizer_digest.encode(), digest_size=16)
    for array in arrays:
        hasher.update(np.ascontiguousarray(array).data)
    return f"{version}/{hasher.hexdigest()}"
