"""The output layer and the loss of a model with a large vocabulary, compiled as one function on a GPU.

With a vocabulary of 40,000 tokens, logits are most of the memory that an update moves, and every operation of the loss
reads all of them; compiled together, they are read only a few times. The rest of the model is left alone: it may be a
recurrence, which the compiler would unroll.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seedbed.models.fast.modules import FAST_MODULES
from seedbed.models.gpt import GPT
from seedbed.models.gru import GRU
from seedbed.models.layers import OutputLayer
from seedbed.models.lstm import LSTM
from seedbed.models.sequence_model import SequenceModel
from seedbed.training.loss import TokenScores, average_tokens, score_samples, score_tokens, token_losses

if TYPE_CHECKING:
    from seedbed.data.batch import Batch, SampleScores
    from seedbed.training.trainer import BatchForward

MIN_VOCABULARY = 4096
EVAL_CHUNK_TOKENS = 8192  # of all runs; all chunks have one shape, so that the function is compiled once
ENDS_WITH_OUTPUT = {GPT, LSTM, GRU} | {FAST_MODULES.get(kind, kind) for kind in (GPT, LSTM, GRU)}


def has_large_output(model: SequenceModel, vocab_size: int) -> bool:
    """Whether logits dominate this model's memory, and its last operation is known to be the output layer."""
    return vocab_size >= MIN_VOCABULARY and type(model) in ENDS_WITH_OUTPUT


class LargeOutput:
    """Losses and scores from the output layer's input."""

    def __init__(self, forward_batch: BatchForward, compile_function: Callable[..., Any] = torch.compile) -> None:
        self._forward_batch = forward_batch
        self._losses_fn = compile_function(_weighted_losses, dynamic=False)
        self._scores_fn = compile_function(_token_scores, dynamic=False)

    def weighted_losses(self, batch: Batch, label_smoothing: float) -> Float[Tensor, "R"]:
        """Every run's loss: the mean over each sample's tokens, summed with the samples' weights."""
        hidden = self._hidden(batch)
        losses: Float[Tensor, "R"] = self._losses_fn(
            self._forward_batch, hidden, batch.targets, batch.target_mask, batch.weights, label_smoothing
        )
        return losses

    def score_samples(self, batch: Batch) -> SampleScores:
        """The scores of every sample of a batch."""
        flat, targets = self._hidden(batch).flatten(1, 2), batch.targets.flatten(1)
        chunks, size = [], max(1, EVAL_CHUNK_TOKENS // len(targets))
        for x, y in zip(flat.split(size, dim=1), targets.split(size, dim=1), strict=True):
            n_padded = size - y.shape[1]
            padded = (F.pad(x, (0, 0, 0, n_padded)), F.pad(y, (0, n_padded))) if n_padded else (x, y)
            chunks.append([values[:, : y.shape[1]] for values in self._scores_fn(self._forward_batch, *padded)])
        tokens = (torch.cat(parts, dim=1).view_as(batch.targets) for parts in zip(*chunks, strict=True))
        return score_samples(TokenScores(*tokens), batch.target_mask)

    def _hidden(self, batch: Batch) -> Float[Tensor, "R B K D"]:
        model = self._forward_batch.model
        assert isinstance(model.output, OutputLayer)
        with _bypassed(model.output):
            hidden: Float[Tensor, "R B K D"] = self._forward_batch.forward_model(batch)
        return hidden


@contextmanager
def _bypassed(layer: OutputLayer) -> Iterator[None]:
    layer.is_bypassed = True
    try:
        yield
    finally:
        layer.is_bypassed = False


def _weighted_losses(
    forward_batch: BatchForward,
    hidden: Float[Tensor, "R B K D"],
    targets: Int[Tensor, "R B K"],
    target_mask: Bool[Tensor, "R B K"] | None,
    weights: Float[Tensor, "R B"],
    label_smoothing: float,
) -> Float[Tensor, "R"]:
    losses = average_tokens(token_losses(forward_batch.output_logits(hidden), targets, label_smoothing), target_mask)
    return (losses * weights.to(losses.dtype)).sum(1)


def _token_scores(
    forward_batch: BatchForward, hidden: Float[Tensor, "R N D"], targets: Int[Tensor, "R N"]
) -> TokenScores:
    return score_tokens(forward_batch.output_logits(hidden[:, :, None])[:, :, 0], targets)
