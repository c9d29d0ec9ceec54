"""What decoders have in common: a model's memory of a prompt, its blocks, and its vectors of places."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seedbed.models.gpt import GPT, Block
from seedbed.models.lstm import LSTM, Memory
from seedbed.models.positions import sinusoidal

WORTH_SHARING = 1 << 22  # multiplications of one product


def remembered(model: GPT | LSTM, tokens: Int[Tensor, "R b T"]) -> list[Memory]:
    """What the model remembers of these tokens, layer by layer, without dropout; nothing of none."""
    if not tokens.shape[-1]:
        return []
    with evaluating(model):
        return model.remember(tokens)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model without dropout and without gradients, afterwards as it was."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was_training)


def threads_for(model: nn.Module, n_rows: int) -> int:
    """One thread where the products of a step are too small to share: waiting for the other would take longer."""
    widest = max(parameter[0].numel() for parameter in model.parameters() if parameter.ndim == 3)
    return torch.get_num_threads() if n_rows * widest >= WORTH_SHARING else 1


@contextmanager
def inferring(n_threads: int) -> Iterator[None]:
    """Without gradients and on this many threads, afterwards as it was."""
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(before)


def blocks_of(model: GPT) -> Iterator[Block]:
    for block in model.blocks:
        assert isinstance(block, Block)
        yield block


def places_of(model: GPT, capacity: int) -> Float[Tensor, "#R S D"] | None:
    """The vector of each place that is added to a token's, if the model tells positions so."""
    if model.position_table is not None:
        return model.position_table.weight
    if model.waves is None:
        return None
    return sinusoidal(capacity, model.waves.shape[1], model.exponent).to(model.embed.weight)[None]
