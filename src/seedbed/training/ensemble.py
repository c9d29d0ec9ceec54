"""Ensembles of trained runs: the metrics of the mean of their predicted probabilities, beside those of each run.

    evaluate_ensemble([settings] * 3, [0, 1, 2], weights)["val/loss"].ensemble

The models are evaluated on the same samples as in training, so the values of single runs are those that their training
recorded. Only sets that are the same for all runs count: an ensemble of runs with different splits would be scored on
what some of its members were trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import torch
from jaxtyping import Bool
from torch import Tensor

from seedbed.data.batch import Batch, EvalSplit, SampleScores
from seedbed.models.build import load_pack
from seedbed.records import Arrays
from seedbed.settings import Settings
from seedbed.tasks.base import make_batches
from seedbed.training.loss import score_samples, score_tokens
from seedbed.training.trainer import BatchForward, set_matmul_precision


@dataclass(frozen=True)
class EnsembleMetric:
    """One metric of an ensemble and of each of its members, in their order."""

    ensemble: float
    members: tuple[float, ...]


@dataclass(frozen=True)
class _ChunkScores:
    """The scores of the runs and of their ensemble, and which samples are the same for all runs."""

    members: SampleScores
    ensemble: SampleScores  # as of one run
    is_shared: Bool[Tensor, "B"]


@torch.no_grad()
def evaluate_ensemble(
    settings: Sequence[Settings], seeds: Sequence[int], weights: Sequence[Arrays], device: str | None = None
) -> dict[str, EnsembleMetric]:
    """The metrics by name on every set of samples that the runs share; empty if they share none.

    The device is a GPU, if there is one, unless another is given.
    """
    torch_device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    set_matmul_precision(settings[0].train.precision)
    models = [  # not stacked, since not every family can be
        BatchForward(load_pack(run, [arrays], torch_device), run.train.precision, torch.float32)
        for run, arrays in zip(settings, weights, strict=True)
    ]
    batches = make_batches(settings, seeds, str(torch_device))
    chunks = [_score_chunk(models, batch) for batch in batches.eval_chunks()]
    member_scores = SampleScores.join([chunk.members for chunk in chunks])
    ensemble_scores = SampleScores.join([chunk.ensemble for chunk in chunks])
    is_shared = torch.cat([chunk.is_shared for chunk in chunks])
    found: dict[str, EnsembleMetric] = {}
    for split in batches.eval_splits:
        samples = split.sample_slice
        if not _is_shared_split(split, is_shared[samples]):
            continue
        members = split.metrics(member_scores.select(samples))
        # The masks of all runs are equal, so the scores of the ensemble are repeated for each of them.
        repeated = (values.expand(len(seeds), -1) for values in ensemble_scores.select(samples))
        ensemble = split.metrics(SampleScores(*repeated))
        found |= {
            name: EnsembleMetric(float(ensemble[name][0]), tuple(values.tolist())) for name, values in members.items()
        }
    return found


def _score_chunk(models: Sequence[BatchForward], batch: Batch) -> _ChunkScores:
    logits = torch.cat([model(_select_run(batch, slot)) for slot, model in enumerate(models)])
    # The logarithm of the mean probability, in double precision: a member may be certain, and wrong.
    mean = logits.double().log_softmax(-1).logsumexp(0, keepdim=True) - log(len(models))
    first = _select_run(batch, 0)
    return _ChunkScores(
        score_samples(score_tokens(logits, batch.targets), batch.target_mask),
        score_samples(score_tokens(mean, first.targets), first.target_mask),
        _same_for_all_runs(batch),
    )


def _select_run(batch: Batch, slot: int) -> Batch:
    """The part of one run."""

    def select(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[slot : slot + 1]

    positions = batch.scored_positions
    return Batch(
        batch.inputs[slot : slot + 1],
        batch.targets[slot : slot + 1],
        select(positions) if isinstance(positions, Tensor) else positions,
        batch.weights[slot : slot + 1],
        select(batch.target_mask),
        select(batch.shared_prefixes),
        select(batch.prefix_index),
    )


def _same_for_all_runs(batch: Batch) -> Bool[Tensor, "B"]:
    """Which samples have the same tokens and targets in all runs."""
    per_sample = [batch.inputs, batch.targets, batch.target_mask, batch.prefix_index]
    same = [(one == one[:1]).flatten(2).all(2) for one in per_sample if one is not None and one.ndim > 2]
    same += [one == one[:1] for one in per_sample if one is not None and one.ndim == 2]
    if batch.shared_prefixes is not None:
        same.append((batch.shared_prefixes == batch.shared_prefixes[:1]).all().expand(same[0].shape))
    return torch.stack(same).all(0).all(0)


def _is_shared_split(split: EvalSplit, is_shared: Bool[Tensor, "N"]) -> bool:
    """Whether all runs evaluate the same samples of this set, and any at all."""
    mask = split.sample_mask
    return bool((mask == mask[:1]).all() and is_shared[mask[0]].all() and mask[0].any())
