"""From settings to samples on the device: the batches of a pack, whatever its task.

    batches = make_batches(settings, seeds, device)
    batches.prepare(step)
    batch = batches.draw(number)

All of them draw by counting, so a batch depends on its run's seed and number alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from jaxtyping import Int
from torch import Tensor

from seedbed.data.batch import Batch, EvalSplit
from seedbed.data.dataset_info import get_dataset_info
from seedbed.data.datasets import load_labelled_dataset
from seedbed.data.equation_batches import EquationBatches
from seedbed.data.label_batches import LabelBatches
from seedbed.data.text_batches import EvalOptions, TextBatches
from seedbed.settings import ArithmeticSettings, LSTMSettings, Settings, TextSettings, TransformerSettings

MAX_EVAL_ACTIVATIONS = {
    "cpu": 2**23,
    "cuda": 2**28,
}  # that a model may make at once while it is evaluated, in its widest layers


class Batches(Protocol):
    """Samples of a pack: those of an update, and those that are evaluated."""

    @property
    def eval_splits(self) -> Sequence[EvalSplit]:
        """What readings average over, as places among the samples that `chunks` gives."""
        ...

    def prepare(self, step: int) -> None:
        """Makes ready for the update after `step` updates; on the host, before it."""
        ...

    def draw(self, batch_index: Int[Tensor, "1"]) -> Batch:
        """Batch `number` of every run, within the update."""
        ...

    def eval_chunks(self) -> Iterator[Batch]:
        """All samples that are evaluated, some at a time."""
        ...


def make_batches(settings: Sequence[Settings], seeds: Sequence[int], device: torch.device) -> Batches:
    """The batches of runs whose tasks differ at most in what a pack may differ in."""
    task, train = settings[0].task, settings[0].train
    sizes = [one.train.batch_size for one in settings]
    if isinstance(task, ArithmeticSettings):
        tasks = [one.task for one in settings if isinstance(one.task, ArithmeticSettings)]
        share = not any(map(_uses_dropout, settings))  # shared beginnings would share what is dropped
        return EquationBatches(tasks, seeds, sizes, device, train.accumulate, share)
    at_once = _max_eval_tokens(settings[0], device)
    if not isinstance(task, TextSettings):
        return LabelBatches(
            load_labelled_dataset(task), seeds, sizes, device, train.accumulate, train.eval_batches, at_once
        )
    reading = EvalOptions(train.eval_batches, _max_eval_context(settings[0], task), at_once)
    return TextBatches(task, seeds, sizes, device, train.accumulate, reading)


def _uses_dropout(settings: Settings) -> bool:
    return any(value for dial, value in settings.model if dial.endswith("dropout"))


def _max_eval_context(settings: Settings, task: TextSettings) -> int | None:
    """The longest context that the model can read; None: any."""
    model = settings.model
    return task.length if isinstance(model, TransformerSettings) and model.positions == "learned" else None


def _max_eval_tokens(settings: Settings, device: torch.device) -> int:
    model = settings.model
    width = 8 * model.hidden_width if isinstance(model, LSTMSettings) else 3 * model.dim + model.mlp_width
    logits = get_dataset_info(settings.task).vocab_size if isinstance(settings.task, TextSettings) else 0
    return MAX_EVAL_ACTIVATIONS[device.type] // (logits + width)
