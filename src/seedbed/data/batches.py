"""Batches of a pack, for any task: the protocol, and its construction from settings.

    batches = make_batches(settings, seeds, device)
    batches.prepare(step)
    batch = batches.draw(batch_index)

All implementations use counter-based random numbers, so a batch depends only on its run's seed and the batch index.
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
from seedbed.kind_settings import ArithmeticSettings, LSTMSettings, TextSettings, TransformerSettings
from seedbed.settings import Settings

# Activations of the widest layers that one evaluation chunk may hold, by device type.
MAX_EVAL_ACTIVATIONS = {"cpu": 2**23, "cuda": 2**28}


class Batches(Protocol):
    """Training batches and evaluation samples of a pack."""

    @property
    def eval_splits(self) -> Sequence[EvalSplit]:
        """The sets of samples that metrics average over, as slices of the concatenated `eval_chunks`."""
        ...

    def prepare(self, step: int) -> None:
        """Prepares the update that follows `step` updates; called on the host, outside any captured graph."""
        ...

    def draw(self, batch_index: Int[Tensor, "1"]) -> Batch:
        """Returns this batch of every run; runs inside the (possibly captured) update."""
        ...

    def eval_chunks(self) -> Iterator[Batch]:
        """Yields all evaluated samples in chunks."""
        ...


def make_batches(settings: Sequence[Settings], seeds: Sequence[int], device: torch.device) -> Batches:
    """Returns the batches of runs whose tasks differ only in per-run settings."""
    task, train = settings[0].task, settings[0].train
    batch_sizes = [run.train.batch_size for run in settings]
    if isinstance(task, ArithmeticSettings):
        tasks = [run.task for run in settings if isinstance(run.task, ArithmeticSettings)]
        share_prefixes = not any(map(_uses_dropout, settings))  # samples of a shared prefix would share dropout masks
        return EquationBatches(tasks, seeds, batch_sizes, device, train.accumulate, share_prefixes)
    max_tokens = _max_eval_tokens(settings[0], device)
    if not isinstance(task, TextSettings):
        dataset = load_labelled_dataset(task)
        return LabelBatches(dataset, seeds, batch_sizes, device, train.accumulate, train.eval_batches, max_tokens)
    eval_options = EvalOptions(train.eval_batches, _max_eval_context(settings[0], task), max_tokens)
    return TextBatches(task, seeds, batch_sizes, device, train.accumulate, eval_options)


def _uses_dropout(settings: Settings) -> bool:
    return any(value for name, value in settings.model if name.endswith("dropout"))


def _max_eval_context(settings: Settings, task: TextSettings) -> int | None:
    """Returns the longest context that the model can process; None if unlimited."""
    model = settings.model
    return task.length if isinstance(model, TransformerSettings) and model.positions == "learned" else None


def _max_eval_tokens(settings: Settings, device: torch.device) -> int:
    """Returns how many tokens of all runs together one evaluation chunk may hold."""
    model = settings.model
    # Approximate activations per token in the widest layers: LSTM gates, or QKV projections and the MLP hidden layer.
    width = 8 * model.hidden_width if isinstance(model, LSTMSettings) else 3 * model.dim + model.mlp_width
    n_logits = get_dataset_info(settings.task).vocab_size if isinstance(settings.task, TextSettings) else 0
    return MAX_EVAL_ACTIVATIONS[device.type] // (n_logits + width)
