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

from seedbed.data.equation_batches import EquationBatches
from seedbed.data.facts import facts_of
from seedbed.data.label_batches import LabelBatches
from seedbed.data.prepared import prepare_labels
from seedbed.data.samples import Batch, Part
from seedbed.data.text_batches import Reading, TextBatches
from seedbed.settings import LSTM, Arithmetic, Settings, Text, Transformer

NUMBERS = {"cpu": 2**23, "cuda": 2**28}  # that a model may make at once while it is evaluated, in its widest layers


class Batches(Protocol):
    """Samples of a pack: those of an update, and those that are evaluated."""

    @property
    def parts(self) -> Sequence[Part]:
        """What readings average over, as places among the samples that `chunks` gives."""
        ...

    def prepare(self, step: int) -> None:
        """Makes ready for the update after `step` updates; on the host, before it."""
        ...

    def draw(self, number: Int[Tensor, "1"]) -> Batch:
        """Batch `number` of every run, within the update."""
        ...

    def chunks(self) -> Iterator[Batch]:
        """All samples that are evaluated, some at a time."""
        ...


def make_batches(settings: Sequence[Settings], seeds: Sequence[int], device: torch.device) -> Batches:
    """The batches of runs whose tasks differ at most in what a pack may differ in."""
    task, train = settings[0].task, settings[0].train
    sizes = [one.train.batch_size for one in settings]
    if isinstance(task, Arithmetic):
        tasks = [one.task for one in settings if isinstance(one.task, Arithmetic)]
        share = not any(map(_drops, settings))  # shared beginnings would share what is dropped
        return EquationBatches(tasks, seeds, sizes, device, train.accumulate, share)
    at_once = _tokens_at_once(settings[0], device)
    if not isinstance(task, Text):
        return LabelBatches(prepare_labels(task), seeds, sizes, device, train.accumulate, train.eval_batches, at_once)
    reading = Reading(train.eval_batches, _longest(settings[0], task), at_once)
    return TextBatches(task, seeds, sizes, device, train.accumulate, reading)


def _drops(settings: Settings) -> bool:
    return any(value for dial, value in settings.model if dial.endswith("dropout"))


def _longest(settings: Settings, task: Text) -> int | None:
    """The longest context that the model can read; None: any."""
    model = settings.model
    return task.length if isinstance(model, Transformer) and model.positions == "learned" else None


def _tokens_at_once(settings: Settings, device: torch.device) -> int:
    model = settings.model
    width = 8 * model.width if isinstance(model, LSTM) else 3 * model.dim + model.mlp_width
    logits = facts_of(settings.task).vocabulary if isinstance(settings.task, Text) else 0
    return NUMBERS[device.type] // (logits + width)
