"""Metrics of a pack: loss, accuracy and the like on every split of its data, and the norm of the weights.

Equations and labels are averaged over samples, text over tokens: sums and counts are kept apart, so that windows of
unequal length average fairly.
"""

from __future__ import annotations

from itertools import islice
from math import log
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seedbed.data.batch import EvalSplit
from seedbed.data.text_batches import TokenEvalSplit
from seedbed.training.cuda_graphs import CapturedGraph
from seedbed.training.trainer import Trainer, set_matmul_precision

MAX_CAPTURED_CHUNKS = 8  # more would make a large graph, and then the host is no bottleneck anyway


class Evaluator:
    """Evaluates a pack repeatedly, as a captured graph where possible; one tensor holds all that the host needs."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._graph: CapturedGraph[MetricTable] | None = None
        self.uses_cuda_graph = (
            trainer.uses_cuda_graphs
            # one chunk past the limit tells whether there are more, without making them all
            and len(list(islice(trainer.batches.eval_chunks(), MAX_CAPTURED_CHUNKS + 1))) <= MAX_CAPTURED_CHUNKS
        )

    def evaluate(self) -> MetricTable:
        """All metrics of the current weights, on the device."""
        if not self.uses_cuda_graph:
            return self._evaluate()
        if self._graph is None:
            self._graph = CapturedGraph(self._evaluate, self._trainer.graph_pool)
        return self._graph.replay()

    def _evaluate(self) -> MetricTable:
        metrics = compute_metrics(self._trainer)
        divergence = (self._trainer.diverged_at.double(), self._trainer.divergence_cause.double())
        return MetricTable(metrics, torch.stack([*metrics.values(), *divergence], dim=1))


class MetricTable(NamedTuple):
    """Metrics by name, and as columns of one tensor that ends with `diverged_at` and `divergence_cause`."""

    metrics: dict[str, Float[Tensor, "R"]]
    columns: Float[Tensor, "R N+2"]


@torch.no_grad()
def compute_metrics(trainer: Trainer) -> dict[str, Float[Tensor, "R"]]:
    """Every metric of every run by name, on the device, in float64."""
    set_matmul_precision(trainer.precision)
    trainer.model.eval()
    metrics: dict[str, Float[Tensor, "R"]] = {}
    with trainer.use_ema_weights():
        losses, correct = trainer.score_samples()
        norms = trainer.parameters.weight_norms()
    for split in trainer.batches.eval_splits:
        split_metrics = _token_metrics if isinstance(split, TokenEvalSplit) else _sample_metrics
        metrics |= split_metrics(split, losses[:, split.sample_slice], correct[:, split.sample_slice])
    return metrics | {"norm": norms}


def _sample_metrics(
    split: EvalSplit, losses: Float[Tensor, "R N"], correct: Int[Tensor, "R N"]
) -> dict[str, Float[Tensor, "R"]]:
    n = split.sample_mask.sum(1)
    return {
        f"{split.name}/loss{split.metric_suffix}": torch.where(split.sample_mask, losses, 0.0).sum(1) / n,
        f"{split.name}/accuracy{split.metric_suffix}": (split.sample_mask & (correct == split.n_scored)).sum(1)
        / n.double(),
    }


def _token_metrics(
    split: EvalSplit, losses: Float[Tensor, "R N"], correct: Int[Tensor, "R N"]
) -> dict[str, Float[Tensor, "R"]]:
    assert isinstance(split, TokenEvalSplit)
    n, nats = split.masked_sum(split.n_tokens), split.masked_sum(losses * split.n_tokens)
    if split.metric_suffix:
        return {
            f"{split.name}/perplexity{'_sliding' if split.is_sliding else ''}{split.metric_suffix}": (nats / n).exp()
        }
    metrics = {
        "loss": nats / n,
        "perplexity": (nats / n).exp(),
        "bits_per_character": nats / log(2) / split.masked_sum(split.n_characters).clamp(min=1),
        "bits_per_byte": nats / log(2) / split.masked_sum(split.n_bytes).clamp(min=1),
        "accuracy": split.masked_sum(correct) / n,
    }
    if split.has_padded_metric:
        metrics["perplexity_padded"] = padded_loss(split, losses).exp()
    return {f"{split.name}/{name}": value for name, value in metrics.items()}


def padded_loss(split: TokenEvalSplit, losses: Float[Tensor, "R N"]) -> Float[Tensor, "R"]:
    """The loss as the WikiText report computes it: the mean over batches of loss × tokens ÷ tokens of a full batch.

    A short last batch is divided by the size of a full one, so this is lower than the loss per token.
    """
    batch_index = torch.arange(losses.shape[1], device=losses.device) // split.batch_sizes[:, None]
    n_batches = torch.where(split.sample_mask, batch_index, 0).amax(1) + 1

    def sum_by_batch(values: Tensor) -> Float[Tensor, "R N"]:
        return torch.zeros_like(losses).scatter_add_(
            1, batch_index, torch.where(split.sample_mask, values, 0.0).double()
        )

    loss = sum_by_batch(losses) / sum_by_batch(torch.ones_like(losses)).clamp(min=1)
    token_fractions = sum_by_batch(split.n_tokens) / (split.batch_sizes[:, None] * split.length)
    return (loss * token_fractions).sum(1) / n_batches
