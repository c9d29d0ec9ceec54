"""From settings to a model: one that has only shapes, or a pack of runs with initial weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor, nn

from seedbed.data.arithmetic import context_length, vocabulary_size
from seedbed.models.gpt import GPT
from seedbed.models.init import initial_weights
from seedbed.models.layers import Bank, Dropout
from seedbed.models.lstm import LSTM
from seedbed.settings import GPT as GPTSettings
from seedbed.settings import Settings


def build_model(settings: Settings) -> nn.Module:
    """The model's parts and shapes; its parameters have no storage yet."""
    size = vocabulary_size(settings.task)
    if isinstance(settings.model, GPTSettings):
        return GPT(settings.model, size, context_length(settings.task))
    return LSTM(settings.model, size, padding=size - 1)


def build_pack(
    settings: Sequence[Settings], seeds: Sequence[int], step: Int[Tensor, "1"], dtype: torch.dtype
) -> tuple[nn.Module, Bank]:
    """One model that holds all runs, each at its initial weights; `step` is the counter that dropout follows."""
    model = build_model(settings[0])
    start = [initial_weights(model, one.model, seed) for one, seed in zip(settings, seeds, strict=True)]
    bank = Bank(model, len(settings), step.device, dtype)
    for slot, arrays in enumerate(start):
        bank.load(slot, arrays)
    model.to(step.device)
    for name, module in model.named_modules():
        if isinstance(module, Dropout):
            module.prepare([one.model.dropout for one in settings], seeds, f"dropout/{name}", step)
    return model, bank
