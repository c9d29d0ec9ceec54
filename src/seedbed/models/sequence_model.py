"""What every family's `build` returns: a module that maps tokens to logits and knows its family."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from torch import Tensor, nn

if TYPE_CHECKING:
    from seedbed.models.families.base import Family

# What a layer keeps of the tokens so far: keys and values, or its state; each tensor is (R, B, …).
LayerCache: TypeAlias = tuple[Tensor, ...]


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
