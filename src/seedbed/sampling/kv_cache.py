"""What decoders have in common: a model's memory of a prompt, its blocks, and how it tells places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seedbed.models.gpt import GPT, Block
from seedbed.models.lstm import LSTM, LSTMState
from seedbed.models.positions import sinusoidal_embedding

RotaryAngles: TypeAlias = tuple[Tensor, Tensor]  # cosines and sines
MIN_MULTITHREADED_MULTIPLICATIONS = 1 << 22  # multiplications of one product


def prefill_cache(model: GPT | LSTM, tokens: Int[Tensor, "R b T"]) -> list[LSTMState]:
    """What the model remembers of these tokens, layer by layer, without dropout; nothing of none."""
    if not tokens.shape[-1]:
        return []
    with eval_mode(model):
        return model.prefill(tokens)


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """The model without dropout and without gradients, afterwards as it was."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was_training)


def choose_n_threads(model: nn.Module, n_rows: int) -> int:
    """One thread where the products of a step are too small to share: waiting for the other would take longer."""
    widest = max(parameter[0].numel() for parameter in model.parameters() if parameter.ndim == 3)
    return torch.get_num_threads() if n_rows * widest >= MIN_MULTITHREADED_MULTIPLICATIONS else 1


@contextmanager
def inference_context(n_threads: int) -> Iterator[None]:
    """Without gradients and on this many threads, afterwards as it was.

    And without oneDNN: setting up its GELU takes three times as long as torch's own takes for a token.
    """
    threads, had_onednn = torch.get_num_threads(), torch._C._get_mkldnn_enabled()
    torch.set_num_threads(n_threads)
    torch._C._set_mkldnn_enabled(False)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(threads)
        torch._C._set_mkldnn_enabled(had_onednn)


def iter_blocks(model: GPT) -> Iterator[Block]:
    for block in model.blocks:
        assert isinstance(block, Block)
        yield block


def position_embeddings(model: GPT, capacity: int) -> Float[Tensor, "#R S D"] | None:
    """The vector of each place that is added to a token's, if the model tells positions so."""
    if model.position_table is not None:
        return model.position_table.weight
    if model.waves is None:
        return None
    return sinusoidal_embedding(capacity, model.waves.shape[1], model.exponent).to(model.embed.weight)[None]


def rotary_angles(position: int, frequencies: Float[Tensor, "K/2"] | None, dtype: torch.dtype) -> RotaryAngles | None:
    """How far queries and keys at place n are turned, if the model tells positions so."""
    if frequencies is None:
        return None
    angle = position * frequencies
    return angle.cos().to(dtype), angle.sin().to(dtype)


def alibi_last_query_bias(slopes: Float[Tensor, "H"] | None, capacity: int) -> Float[Tensor, "H S"] | None:
    """ALiBi's bias of a query at the last place; the last n entries are the bias over n keys."""
    if slopes is None:
        return None
    return -slopes[:, None] * torch.arange(capacity - 1, -1, -1, device=slopes.device)


def allocate_zeros(shape: Sequence[int], like: Tensor) -> Tensor:
    """A tensor of zeros; on the CPU in NumPy's huge pages, which batched products read a third faster (docs/log.md)."""
    if like.device.type != "cpu":
        return like.new_zeros(tuple(shape))
    return torch.from_numpy(np.zeros(shape, dtype=like.new_empty(0).numpy().dtype))
