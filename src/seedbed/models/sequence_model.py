"""What every family's `build` returns, a module that maps tokens to logits and knows its family, and its evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from seedbed.models.families.base import Family

# What a layer keeps of the tokens so far: keys and values, or its state; each tensor is (R, B, …).
LayerCache: TypeAlias = tuple[Tensor, ...]
GradMode: TypeAlias = Callable[[], AbstractContextManager[object]]  # torch.inference_mode or torch.no_grad


class SequenceModel(nn.Module):
    """A model of one or more runs.

    `forward(tokens, positions=None, hooks=NO_HOOKS)` returns logits at the requested positions. A model that predicts
    the next token also has `prefill(tokens)`, the cache of each layer after these tokens, and continues from it with
    `forward(..., past=cache)`. A model that predicts labels takes `sample_mask` instead: the samples that count.
    """

    def __init__(self, family: Family) -> None:
        super().__init__()
        self.family = family

    def prefill(self, tokens: Tensor) -> list[LayerCache]:
        """Cache of these tokens, one entry per layer."""
        raise NotImplementedError


@contextmanager
def eval_mode(model: nn.Module, without_grad: GradMode = torch.inference_mode) -> Iterator[None]:
    """Runs the body in eval mode without gradients, then restores the model's training flag."""
    was_training = model.training
    model.eval()
    try:
        with without_grad():
            yield
    finally:
        model.train(was_training)
