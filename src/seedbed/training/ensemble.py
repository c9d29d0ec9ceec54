"""Ensembles of trained runs: the metrics of the mean of their predicted probabilities, beside those of each run.

    evaluate_ensemble([settings] * 3, [0, 1, 2], weights)["val/loss"].ensemble

The models are stacked and evaluated on the same samples as in training, so the values of single runs are those that
their training recorded. Only sets that are the same for all runs count: an ensemble of runs with different splits would
be scored on what some of its members were trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seedbed.data.batch import Batch, EvalSplit
from seedbed.models.build import load_run_arrays
from seedbed.records import Arrays
from seedbed.settings import Settings
from seedbed.training.loss import n_correct, sample_losses
from seedbed.training.trainer import Trainer, set_matmul_precision


@dataclass(frozen=True)
class EnsembleMetric:
    """One metric of an ensemble and of each of its members, in their order."""

    ensemble: float
    members: tuple[float, ...]


@torch.no_grad()
def evaluate_ensemble(
    settings: Sequence[Settings], seeds: Sequence[int], weights: Sequence[Arrays], device: str = "cpu"
) -> dict[str, EnsembleMetric]:
    """The metrics by name on every set of samples that the runs share; empty if they share none."""
    trainer = Trainer(settings, seeds, device, torch.float32)
    for slot, arrays in enumerate(weights):
        load_run_arrays(trainer.model, trainer.parameters, slot, arrays)
    set_matmul_precision(trainer.precision)
    trainer.parameters.sync_bf16()
    trainer.model.eval()
    chunks = [_score_chunk(trainer, batch) for batch in trainer.batches.eval_chunks()]
    losses, correct, ensemble_losses, ensemble_correct, is_shared = (
        torch.cat(columns, -1) for columns in zip(*chunks, strict=True)
    )
    found: dict[str, EnsembleMetric] = {}
    for split in trainer.batches.eval_splits:
        samples = split.sample_slice
        if _is_shared_split(split, is_shared[samples]):
            members = split.metrics(losses[:, samples], correct[:, samples])
            # The masks of all runs are equal, so the ensemble's samples are repeated for each of them.
            ensemble = split.metrics(
                ensemble_losses[:, samples].expand(len(seeds), -1), ensemble_correct[:, samples].expand(len(seeds), -1)
            )
            found |= {
                name: EnsembleMetric(float(ensemble[name][0]), tuple(values.tolist()))
                for name, values in members.items()
            }
    return found


def _score_chunk(
    trainer: Trainer, batch: Batch
) -> tuple[
    Float[Tensor, "R B"], Int[Tensor, "R B"], Float[Tensor, "1 B"], Int[Tensor, "1 B"], Bool[Tensor, "B"]
]:  # fmt: skip
    """Losses and correct tokens of the runs, those of their ensemble, and which samples are the same for all runs."""
    logits = trainer.forward_batch(batch)
    losses = sample_losses(logits, batch.targets, batch.target_mask).double()
    # log of the mean probability, in double precision: a member may be certain, and wrong
    mean = logits.double().log_softmax(-1).logsumexp(0, keepdim=True) - torch.tensor(len(logits)).double().log()
    mask = None if batch.target_mask is None else batch.target_mask[:1]
    return (
        losses,
        n_correct(logits, batch.targets, batch.target_mask),
        sample_losses(mean, batch.targets[:1], mask),
        n_correct(mean, batch.targets[:1], mask),
        _same_for_all_runs(batch),
    )


def _same_for_all_runs(batch: Batch) -> Bool[Tensor, "B"]:
    same = torch.ones(batch.inputs.shape[1], dtype=torch.bool, device=batch.inputs.device)
    for tensor in (batch.inputs, batch.targets, batch.target_mask, batch.prefix_index):
        if tensor is not None:
            same &= (
                (tensor == tensor[:1]).all(0).flatten(1).all(1) if tensor.ndim > 2 else (tensor == tensor[:1]).all(0)
            )
    if batch.shared_prefixes is not None:
        same &= (batch.shared_prefixes == batch.shared_prefixes[:1]).all()
    return same


def _is_shared_split(split: EvalSplit, is_shared: Bool[Tensor, "N"]) -> bool:
    """Whether all runs evaluate the same samples of this set."""
    mask = split.sample_mask
    return bool((mask == mask[:1]).all()) and bool(is_shared[mask[0]].all()) and bool(mask[0].any())
