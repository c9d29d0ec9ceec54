"""Readings of a pack: loss and accuracy over whole sets, and the norm of the weights."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from seedbed.train.loss import sample_losses, samples_right
from seedbed.train.step import Trainer

CHUNK = 4096  # samples evaluated at once


@torch.no_grad()
def take_readings(trainer: Trainer) -> dict[str, Float[Tensor, "R"]]:
    """Every reading of every run by name, on the device, in double precision."""
    trainer.model.eval()
    losses, right = _score_all(trainer)
    readings = {}
    for (split, suffix), members in trainer.batches.members.items():
        n = members.sum(1)
        readings[f"{split}/loss{suffix}"] = torch.where(members, losses, 0.0).sum(1) / n
        readings[f"{split}/accuracy{suffix}"] = (members & right).sum(1) / n.double()
    return readings | {"norm": trainer.bank.norms()}


def _score_all(trainer: Trainer) -> tuple[Float[Tensor, "R N"], Tensor]:
    """Each sample's loss and whether it is right, for the whole table of every run."""
    losses, right = [], []
    for batch in trainer.batches.chunks(CHUNK):
        logits = trainer.model(batch.inputs, batch.at)
        losses.append(sample_losses(logits, batch.targets).double())
        right.append(samples_right(logits, batch.targets))
    return torch.cat(losses, 1), torch.cat(right, 1)
