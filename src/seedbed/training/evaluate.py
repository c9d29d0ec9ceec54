"""Metrics of a pack: loss, accuracy and the like on every set of `train.eval_sets`, and the norm of the weights.

Equations and labels are averaged over samples, text over tokens: sums and counts are kept apart, so that windows of
unequal length average fairly.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from seedbed.training.cuda_graphs import CapturedGraph
from seedbed.training.trainer import Trainer

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
    trainer.set_arithmetic()
    trainer.model.eval()
    metrics: dict[str, Float[Tensor, "R"]] = {}
    if trainer.running_loss is not None:
        metrics |= trainer.running_loss.metrics()
    with trainer.use_ema_weights():
        norms = trainer.parameters.weight_norms()
        if splits := trainer.batches.eval_splits:
            scores = trainer.score_samples()
            for split in splits:
                metrics |= split.metrics(scores.select(split.sample_slice))
    return metrics | {"norm": norms}
