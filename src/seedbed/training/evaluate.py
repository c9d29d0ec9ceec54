"""Readings of a pack: what every part of its data is worth to its weights, and their norm.

Of equations and labels a sample counts; of text a token does: sums and counts are kept apart, so that windows of
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

MAX_CAPTURED_CHUNKS = 8  # of the evaluated samples; a graph of more would be large, and the host is then no bottleneck


class Evaluator:
    """Takes the readings of a pack again and again; a table of them comes to the host as one copy."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._graph: CapturedGraph[MetricTable] | None = None
        self.uses_cuda_graph = (
            trainer.uses_cuda_graphs
            and len(list(islice(trainer.batches.eval_chunks(), MAX_CAPTURED_CHUNKS + 1))) <= MAX_CAPTURED_CHUNKS
        )

    def evaluate(self) -> MetricTable:
        """All readings now, on the device."""
        if not self.uses_cuda_graph:
            return self._evaluate()
        if self._graph is None:
            self._graph = CapturedGraph(self._evaluate, self._trainer.graph_pool)
        return self._graph.replay()

    def _evaluate(self) -> MetricTable:
        readings = compute_metrics(self._trainer)
        state = {"broken_at": self._trainer.diverged_at, "cause": self._trainer.divergence_cause}
        return MetricTable(
            readings, torch.stack([*readings.values(), *(held.double() for held in state.values())], dim=1)
        )


class MetricTable(NamedTuple):
    """Readings by name, and all of them with `broken_at` and `cause` as columns of one tensor."""

    metrics: dict[str, Float[Tensor, "R"]]
    columns: Float[Tensor, "R N+2"]


@torch.no_grad()
def compute_metrics(trainer: Trainer) -> dict[str, Float[Tensor, "R"]]:
    """Every reading of every run by name, on the device, in double precision."""
    set_matmul_precision(trainer.precision)
    trainer.model.eval()
    readings: dict[str, Float[Tensor, "R"]] = {}
    with trainer.use_ema_weights():
        losses, right = trainer.score_samples()
        norms = trainer.parameters.weight_norms()
    for part in trainer.batches.eval_splits:
        read = _token_metrics if isinstance(part, TokenEvalSplit) else _sample_metrics
        readings |= read(part, losses[:, part.sample_slice], right[:, part.sample_slice])
    return readings | {"norm": norms}


def _sample_metrics(
    part: EvalSplit, losses: Float[Tensor, "R N"], right: Int[Tensor, "R N"]
) -> dict[str, Float[Tensor, "R"]]:
    n = part.sample_mask.sum(1)
    return {
        f"{part.name}/loss{part.metric_suffix}": torch.where(part.sample_mask, losses, 0.0).sum(1) / n,
        f"{part.name}/accuracy{part.metric_suffix}": (part.sample_mask & (right == part.n_scored)).sum(1) / n.double(),
    }


def _token_metrics(
    part: EvalSplit, losses: Float[Tensor, "R N"], right: Int[Tensor, "R N"]
) -> dict[str, Float[Tensor, "R"]]:
    assert isinstance(part, TokenEvalSplit)
    n, nats = part.masked_sum(part.n_tokens), part.masked_sum(losses * part.n_tokens)
    if part.metric_suffix:
        return {f"{part.name}/perplexity{'_sliding' if part.is_sliding else ''}{part.metric_suffix}": (nats / n).exp()}
    readings = {
        "loss": nats / n,
        "perplexity": (nats / n).exp(),
        "bits_per_character": nats / log(2) / part.masked_sum(part.n_characters).clamp(min=1),
        "bits_per_byte": nats / log(2) / part.masked_sum(part.n_bytes).clamp(min=1),
        "accuracy": part.masked_sum(right) / n,
    }
    if part.has_padded_metric:
        readings["perplexity_padded"] = padded_loss(part, losses).exp()
    return {f"{part.name}/{quantity}": value for quantity, value in readings.items()}


def padded_loss(part: TokenEvalSplit, losses: Float[Tensor, "R N"]) -> Float[Tensor, "R"]:
    """The WikiText report's figure: the mean over batches of loss × tokens ÷ the tokens of a full batch.

    A short last batch is divided by a full one, so it is lower than the loss per token.
    """
    number = torch.arange(losses.shape[1], device=losses.device) // part.batch_sizes[:, None]
    n_batches = torch.where(part.sample_mask, number, 0).amax(1) + 1

    def by_batch(values: Tensor) -> Float[Tensor, "R N"]:
        return torch.zeros_like(losses).scatter_add_(1, number, torch.where(part.sample_mask, values, 0.0).double())

    loss = by_batch(losses) / by_batch(torch.ones_like(losses)).clamp(min=1)
    shares = by_batch(part.n_tokens) / (part.batch_sizes[:, None] * part.length)
    return (loss * shares).sum(1) / n_batches
