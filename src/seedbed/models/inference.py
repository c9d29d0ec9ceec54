"""Context managers for inference, and the number of threads that suits a decoding step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

MIN_MULTITHREADED_MULTIPLICATIONS = 1 << 22  # per matmul; below this, one thread is faster


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
