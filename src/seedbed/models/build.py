"""Builds models from settings: a model without storage, or a pack of runs with their initial weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor, nn

from seedbed.data.embeddings import load_embeddings
from seedbed.kind_settings import GPTSettings, LSTMSettings
from seedbed.models.encoder import Encoder
from seedbed.models.gpt import GPT
from seedbed.models.init import initial_weights
from seedbed.models.layers import BatchNorm, Dropout, running_stats
from seedbed.models.lstm import LSTM
from seedbed.models.parameters import FlatParameters
from seedbed.records import Arrays
from seedbed.settings import DatasetInfo, Settings


def build_model(settings: Settings, dataset_info: DatasetInfo | None = None) -> nn.Module:
    """The model on the meta device: its parameters have shapes, but no storage."""
    model_settings, dataset_info = settings.model, dataset_info or settings.task.dataset_info()
    if isinstance(model_settings, GPTSettings):
        return GPT(model_settings, dataset_info.vocab_size, dataset_info.context_length)
    if isinstance(model_settings, LSTMSettings):
        return LSTM(model_settings, dataset_info.vocab_size, dataset_info.padding_id)
    return Encoder(model_settings, dataset_info.vocab_size, dataset_info.context_length, dataset_info.n_classes)


def build_pack(
    settings: Sequence[Settings],
    seeds: Sequence[int],
    step: Int[Tensor, "1"],
    dtype: torch.dtype,
    dataset_info: DatasetInfo | None = None,
) -> tuple[nn.Module, FlatParameters]:
    """One model holding all runs at their initial weights; `step` is the step counter from which dropout derives masks.

    `dataset_info` describes the dataset that all runs of the pack share; looked up if not given.
    """
    model = build_model(settings[0], dataset_info)
    initial = [initial_weights(model, one.model, seed) for one, seed in zip(settings, seeds, strict=True)]
    parameters = FlatParameters(model, len(settings), step.device, dtype)
    for slot, arrays in enumerate(initial):
        parameters.load_arrays(slot, arrays)
    _load_frozen_embeddings(model, settings[0], dataset_info, dtype)
    model.to(step.device)
    for name, module in model.named_modules():
        if isinstance(module, Dropout):
            rates = [getattr(one.model, module.setting) for one in settings]
            module.configure(rates, seeds, f"dropout/{name}", step)
        elif isinstance(module, BatchNorm):
            module.init_running_stats(len(settings), step.device, dtype)
    return model, parameters


def load_run_arrays(model: nn.Module, parameters: FlatParameters, slot: int, arrays: Arrays) -> None:
    """Loads one run's saved arrays: its weights and BatchNorm's running statistics."""
    stats = running_stats(model)
    parameters.load_arrays(slot, {name: array for name, array in arrays.items() if name not in stats})
    for name, buffer in stats.items():
        buffer[slot].copy_(torch.from_numpy(arrays[name]))


def _load_frozen_embeddings(
    model: nn.Module, settings: Settings, dataset_info: DatasetInfo | None, dtype: torch.dtype
) -> None:
    tables = load_embeddings(settings, dataset_info)
    if tables is not None:
        model.get_submodule("embed").weight = torch.from_numpy(tables.tokens).to(dtype)[None]
        if tables.positions is not None:
            model.get_submodule("position_table").weight = torch.from_numpy(tables.positions).to(dtype)[None]
