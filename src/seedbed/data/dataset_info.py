"""What a task's data decides: vocabulary, context, samples, labels; read without torch, so that a plan can be priced.

    facts = facts_of(Text(corpus="shakespeare"))

Arithmetic follows from its dials alone; a text is read, once a process for each way of cutting it.
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
from seedbed.settings import ArithmeticSettings, DatasetInfo, LabelsSettings, TaskSettings, TextSettings


def get_dataset_info(task: TaskSettings) -> DatasetInfo:
    """The facts of a task; MissingData or UsageError where its corpus cannot be read or holds too little."""
    if isinstance(task, ArithmeticSettings):
        return arithmetic_info(task)
    return text_info(task) if isinstance(task, TextSettings) else label_info(task)


@cache
def arithmetic_info(task: ArithmeticSettings) -> DatasetInfo:
    """What the table of equations holds; the settings decide it, so the generator's version names it."""
    size = vocabulary_size(task)
    n_train = sum(task.n_train(order) for order in task.orders)
    return DatasetInfo(size, context_length(task), n_train, padding_id=size - 1, digest="arithmetic/1")


@cache
def text_info(task: TextSettings) -> DatasetInfo:
    """What the corpus holds, cut as the task says."""
    text = load_text_dataset(task)
    arrays = {id(part.ids): part.ids for part in text.splits.values()}
    return DatasetInfo(
        vocab_size=text.tokenizer.size,
        context_length=task.length,
        n_train=_count_samples(task, text.splits["train"].spans),
        padding_id=PAD_ID,
        digest=_data_digest("text/1", text.tokenizer.digest, arrays.values()),
    )


@cache
def label_info(task: LabelsSettings) -> DatasetInfo:
    """What the labelled texts hold, cut and padded as the task says."""
    labelled = load_labelled_dataset(task)
    arrays = [array for part in labelled.splits.values() for array in (part.rows, part.labels)]
    return DatasetInfo(
        vocab_size=labelled.tokenizer.size,
        context_length=task.length,
        n_train=len(labelled.splits["train"].labels),
        n_classes=len(labelled.label_names),
        padding_id=PAD_ID,
        digest=_data_digest("labels/1", labelled.tokenizer.digest, arrays),
    )


def _count_samples(task: TextSettings, spans: Spans) -> int:
    if task.sampler == "windows":
        return overlapping_windows(spans, task.length).n_windows
    if task.sampler == "epochs":
        return consecutive_windows(spans, task.length).n_windows
    return -(-spans.n_tokens // task.length)


def _data_digest(version: str, tokenizer_digest: str, arrays: Iterable[NDArray[Any]]) -> str:
    """The generator's version and a hash of vocabulary and ids."""
    whole = blake2b(tokenizer_digest.encode(), digest_size=16)
    for array in arrays:
        whole.update(np.ascontiguousarray(array).data)
    return f"{version}/{whole.hexdigest()}"
