"""What the decoders share: prefill, inference context managers, position encodings of one token, cache memory."""

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

RotaryAngles: TypeAlias = tuple[Tensor, Tensor]  # cos and sin
MIN_MULTITHREADED_MULTIPLICATIONS = 1 << 22  # per matmul; below this, one thread is faster


def prefill_cache(model: GPT | LSTM, tokens: Int[Tensor, "R b T"]) -> list[LSTMState]:
    """Keys and values (GPT) or states (LSTM) of these tokens for each layer, without dropout; empty for no tokens."""
    if not tokens.shape[-1]:
        return []
    with eval_mode(model):
        return model.prefill(tokens)


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Runs the body in eval and inference mode, then restores the model's training flag."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was_training)


def choose_n_threads(model: nn.Module, n_rows: int) -> int:
    """Number of threads for a decoding step: one if its matmuls are so small that synchronization would dominate."""
    largest = max(parameter[0].numel() for parameter in model.parameters() if parameter.ndim == 3)
    return torch.get_num_threads() if n_rows * largest >= MIN_MULTITHREADED_MULTIPLICATIONS else 1


@contextmanager
def inference_context(n_threads: int) -> Iterator[None]:
    """Inference mode with this many threads and without oneDNN; restores both settings afterwards.

    For a single token, setting up oneDNN's GELU takes three times as long as running torch's own.
    """
    previous_n_threads, had_onednn = torch.get_num_threads(), torch._C._get_mkldnn_enabled()
    torch.set_num_threads(n_threads)
    torch._C._set_mkldnn_enabled(False)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(previous_n_threads)
        torch._C._set_mkldnn_enabled(had_onednn)


def iter_blocks(model: GPT) -> Iterator[Block]:
    for block in model.blocks:
        assert isinstance(block, Block)
        yield block


def position_embeddings(model: GPT, capacity: int) -> Float[Tensor, "#R S D"] | None:
    """Additive position embeddings (learned or sinusoidal), or None if the model uses another kind."""
    if model.position_table is not None:
        return model.position_table.weight
    if model.sinusoids is None:
        return None
    return sinusoidal_embedding(capacity, model.sinusoids.shape[1], model.exponent).to(model.embed.weight)[None]


def rotary_angles(position: int, frequencies: Float[Tensor, "K/2"] | None, dtype: torch.dtype) -> RotaryAngles | None:
    """Rotary cos and sin for a position, or None if the model has no rotary embedding."""
    if frequencies is None:
        return None
    angle = position * frequencies
    return angle.cos().to(dtype), angle.sin().to(dtype)


def alibi_last_query_bias(slopes: Float[Tensor, "H"] | None, capacity: int) -> Float[Tensor, "H S"] | None:
    """ALiBi bias of a query at the last position, or None; its last n entries are the bias over n keys."""
    if slopes is None:
        return None
    return -slopes[:, None] * torch.arange(capacity - 1, -1, -1, device=slopes.device)


def allocate_zeros(shape: Sequence[int], like: Tensor) -> Tensor:
    """Zeros; on the CPU allocated by NumPy in huge pages, which batched matmuls read a third faster (docs/log.md)."""
    if like.device.type != "cpu":
        return like.new_zeros(tuple(shape))
    return torch.from_numpy(np.zeros(shape, dtype=like.new_empty(0).numpy().dtype))
