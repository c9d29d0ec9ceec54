"""Readings of a pack: loss and accuracy over whole sets, and the norm of the weights."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from seedbed.train.step import Trainer, use_precision


@torch.no_grad()
def take_readings(trainer: Trainer) -> dict[str, Float[Tensor, "R"]]:
    """Every reading of every run by name, on the device, in double precision."""
    use_precision(trainer.precision)
    trainer.model.eval()
    losses, right = trainer.score_table()
    readings = {}
    for (split, suffix), members in trainer.batches.members.items():
        n = members.sum(1)
        readings[f"{split}/loss{suffix}"] = torch.where(members, losses, 0.0).sum(1) / n
        readings[f"{split}/accuracy{suffix}"] = (members & right).sum(1) / n.double()
    return readings | {"norm": trainer.bank.norms()}
