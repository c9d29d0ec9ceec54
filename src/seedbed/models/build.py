"""Builds models from settings: a model without storage, or a pack of runs with their initial weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor, nn

from seedbed.data.embeddings import load_embeddings
from seedbed.models.fast.modules import use_fast_modules
from seedbed.models.layers import BatchNorm, Dropout, running_stats
from seedbed.models.parameters import FlatParameters
from seedbed.models.sequence_model import SequenceModel
from seedbed.records import Arrays
from seedbed.settings import DatasetInfo, Settings


def build_model(settings: Settings, dataset_info: DatasetInfo | None = None) -> SequenceModel:
    """The model on the meta device: its parameters have shapes, but no storage."""
    return use_fast_modules(settings.model.build(dataset_info or settings.task.dataset_info()))


def build_pack(
    settings: Sequence[Settings],
    seeds: Sequence[int],
    step: Int[Tensor, "1"],
    dtype: torch.dtype,
    dataset_info: DatasetInfo | None = None,
) -> tuple[SequenceModel, FlatParameters]:
    """One model holding all runs at their initial weights; `step` is the step counter from which dropout derives masks.

    `dataset_info` describes the dataset that all runs of the pack share; looked up if not given.
    """
    info = dataset_info or settings[0].task.dataset_info()
    model = build_model(settings[0], info)
    initial = [one.model.initial_arrays(model, seed) for one, seed in zip(settings, seeds, strict=True)]
    parameters = _allocate(model, settings[0], len(settings), step.device, dtype, info)
    for slot, arrays in enumerate(initial):
        parameters.load_arrays(slot, arrays)
    for name, module in model.named_modules():
        if isinstance(module, Dropout):
            rates = [getattr(one.model, module.setting) for one in settings]
            module.configure(rates, seeds, f"dropout/{name}", step)
    return model, parameters


def build_empty_pack(
    settings: Settings, n_runs: int, device: torch.device, dtype: torch.dtype, dataset_info: DatasetInfo | None = None
) -> tuple[SequenceModel, FlatParameters]:
    """A model of the same shape in evaluation mode, for weights that are copied into it: all zeros so far."""
    info = dataset_info or settings.task.dataset_info()
    model = build_model(settings, info)
    return model.eval(), _allocate(model, settings, n_runs, device, dtype, info)


def load_pack(
    settings: Settings, arrays: Sequence[Arrays], device: torch.device, dataset_info: DatasetInfo | None = None
) -> SequenceModel:
    """A model in evaluation mode that holds saved arrays in float32, one run each."""
    model, parameters = build_empty_pack(settings, len(arrays), device, torch.float32, dataset_info)
    for slot, one in enumerate(arrays):
        load_run_arrays(model, parameters, slot, one)
    return model


def _allocate(
    model: SequenceModel, settings: Settings, n_runs: int, device: torch.device, dtype: torch.dtype, info: DatasetInfo
) -> FlatParameters:
    """Gives the model storage on the device; frozen embeddings have their values, all else is 0."""
    parameters = FlatParameters(model, n_runs, device, dtype)
    for name, array in load_embeddings(settings, info).items():
        module = settings.model.embedding_tables(info)[name].module
        model.get_submodule(module).weight = torch.from_numpy(array).to(dtype)[None]
    model.to(device)
    for module in model.modules():
        if isinstance(module, BatchNorm):
            module.init_running_stats(n_runs, device, dtype)
    return parameters


def load_run_arrays(model: nn.Module, parameters: FlatParameters, slot: int, arrays: Arrays) -> None:
    """Loads one run's saved arrays: its weights and BatchNorm's running statistics."""
    stats = running_stats(model)
    parameters.load_arrays(slot, {name: array for name, array in arrays.items() if name not in stats})
    for name, buffer in stats.items():
        buffer[slot].copy_(torch.from_numpy(arrays[name]))
