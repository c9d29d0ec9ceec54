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
from seedbed.data.prepared import prepare_labels, prepare_text
from seedbed.data.text import PAD
from seedbed.data.windows import Spans, consecutive, overlapping
from seedbed.settings import Arithmetic, DataFacts, Labels, Task, Text


def facts_of(task: Task) -> DataFacts:
    """The facts of a task; MissingData or UsageError where its corpus cannot be read or holds too little."""
    if isinstance(task, Arithmetic):
        return arithmetic_facts(task)
    return text_facts(task) if isinstance(task, Text) else label_facts(task)


@cache
def arithmetic_facts(task: Arithmetic) -> DataFacts:
    """What the table of equations holds; the settings decide it, so the generator's version names it."""
    size = vocabulary_size(task)
    n_train = sum(task.n_train(order) for order in task.orders)
    return DataFacts(size, context_length(task), n_train, padding=size - 1, digest="arithmetic/1")


@cache
def text_facts(task: Text) -> DataFacts:
    """What the corpus holds, cut as the task says."""
    text = prepare_text(task)
    arrays = {id(part.ids): part.ids for part in text.parts.values()}
    return DataFacts(
        vocabulary=text.tokens.size,
        context=task.length,
        n_train=_n_samples(task, text.parts["train"].spans),
        padding=PAD,
        digest=_digest("text/1", text.tokens.digest, arrays.values()),
    )


@cache
def label_facts(task: Labels) -> DataFacts:
    """What the labelled texts hold, cut and padded as the task says."""
    labelled = prepare_labels(task)
    arrays = [array for part in labelled.parts.values() for array in (part.rows, part.labels)]
    return DataFacts(
        vocabulary=labelled.tokens.size,
        context=task.length,
        n_train=len(labelled.parts["train"].labels),
        classes=len(labelled.names),
        padding=PAD,
        digest=_digest("labels/1", labelled.tokens.digest, arrays),
    )


def _n_samples(task: Text, spans: Spans) -> int:
    if task.sampler == "windows":
        return overlapping(spans, task.length).n
    if task.sampler == "epochs":
        return consecutive(spans, task.length).n
    return -(-spans.n // task.length)


def _digest(version: str, tokens: str, arrays: Iterable[NDArray[Any]]) -> str:
    """The generator's version and a hash of vocabulary and ids."""
    whole = blake2b(tokens.encode(), digest_size=16)
    for array in arrays:
        whole.update(np.ascontiguousarray(array).data)
    return f"{version}/{whole.hexdigest()}"
