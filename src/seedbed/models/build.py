"""From settings to a model: one that has only shapes, or a pack of runs with initial weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor, nn

from seedbed.data.embeddings import read_tables
from seedbed.data.facts import facts_of
from seedbed.models.bank import Bank
from seedbed.models.encoder import Encoder
from seedbed.models.gpt import GPT
from seedbed.models.init import initial_weights
from seedbed.models.layers import BatchNorm, Dropout, statistics
from seedbed.models.lstm import LSTM
from seedbed.records import Arrays
from seedbed.settings import GPT as GPTSettings
from seedbed.settings import LSTM as LSTMSettings
from seedbed.settings import DataFacts, Settings


def build_model(settings: Settings, facts: DataFacts | None = None) -> nn.Module:
    """The model's parts and shapes; its parameters have no storage yet."""
    dials, facts = settings.model, facts or facts_of(settings.task)
    if isinstance(dials, GPTSettings):
        return GPT(dials, facts.vocabulary, facts.context)
    if isinstance(dials, LSTMSettings):
        return LSTM(dials, facts.vocabulary, facts.padding)
    return Encoder(dials, facts.vocabulary, facts.context, facts.classes)


def build_pack(
    settings: Sequence[Settings],
    seeds: Sequence[int],
    step: Int[Tensor, "1"],
    dtype: torch.dtype,
    facts: DataFacts | None = None,
) -> tuple[nn.Module, Bank]:
    """One model that holds all runs, each at its initial weights; `step` is the counter that dropout follows.

    `facts` are those of the data that all runs of the pack share; without them they are looked up.
    """
    model = build_model(settings[0], facts)
    start = [initial_weights(model, one.model, seed) for one, seed in zip(settings, seeds, strict=True)]
    bank = Bank(model, len(settings), step.device, dtype)
    for slot, arrays in enumerate(start):
        bank.load(slot, arrays)
    _set_frozen_tables(model, settings[0], facts, dtype)
    model.to(step.device)
    for name, module in model.named_modules():
        if isinstance(module, Dropout):
            rates = [getattr(one.model, module.dial) for one in settings]
            module.prepare(rates, seeds, f"dropout/{name}", step)
        elif isinstance(module, BatchNorm):
            module.prepare(len(settings), step.device, dtype)
    return model, bank


def load_kept(model: nn.Module, bank: Bank, slot: int, arrays: Arrays) -> None:
    """Sets one run to what was kept of it: its weights, and the statistics that its layers gathered beside them."""
    gathered = statistics(model)
    bank.load(slot, {name: array for name, array in arrays.items() if name not in gathered})
    for name, held in gathered.items():
        held[slot].copy_(torch.from_numpy(arrays[name]))


def _set_frozen_tables(model: nn.Module, settings: Settings, facts: DataFacts | None, dtype: torch.dtype) -> None:
    tables = read_tables(settings, facts)
    if tables is not None:
        model.get_submodule("embed").weight = torch.from_numpy(tables.tokens).to(dtype)[None]
        if tables.positions is not None:
            model.get_submodule("position_table").weight = torch.from_numpy(tables.positions).to(dtype)[None]
