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

from seedbed.data.samples import Part
from seedbed.data.text_batches import TokenPart
from seedbed.train.graphs import Recorded
from seedbed.train.step import Trainer, use_precision

PIECES = 8  # of the evaluated samples; a graph of more would be large, and the host is then no bottleneck


class Reader:
    """Takes the readings of a pack again and again; a table of them comes to the host as one copy."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._recorded: Recorded[Table] | None = None
        self.records = trainer.records_work and len(list(islice(trainer.batches.chunks(), PIECES + 1))) <= PIECES

    def read(self) -> Table:
        """All readings now, on the device."""
        if not self.records:
            return self._read()
        if self._recorded is None:
            self._recorded = Recorded(self._read, self._trainer.pool)
        return self._recorded.replay()

    def _read(self) -> Table:
        readings = take_readings(self._trainer)
        state = {"broken_at": self._trainer.broken_at, "cause": self._trainer.cause}
        return Table(readings, torch.stack([*readings.values(), *(held.double() for held in state.values())], dim=1))


class Table(NamedTuple):
    """Readings by name, and all of them with `broken_at` and `cause` as columns of one tensor."""

    readings: dict[str, Float[Tensor, "R"]]
    columns: Float[Tensor, "R N+2"]


@torch.no_grad()
def take_readings(trainer: Trainer) -> dict[str, Float[Tensor, "R"]]:
    """Every reading of every run by name, on the device, in double precision."""
    use_precision(trainer.precision)
    trainer.model.eval()
    readings: dict[str, Float[Tensor, "R"]] = {}
    with trainer.evaluated_weights():
        losses, right = trainer.score_table()
        norms = trainer.bank.norms()
    for part in trainer.batches.parts:
        read = _token_readings if isinstance(part, TokenPart) else _sample_readings
        readings |= read(part, losses[:, part.span], right[:, part.span])
    return readings | {"norm": norms}


def _sample_readings(
    part: Part, losses: Float[Tensor, "R N"], right: Int[Tensor, "R N"]
) -> dict[str, Float[Tensor, "R"]]:
    n = part.counted.sum(1)
    return {
        f"{part.name}/loss{part.group}": torch.where(part.counted, losses, 0.0).sum(1) / n,
        f"{part.name}/accuracy{part.group}": (part.counted & (right == part.n_scored)).sum(1) / n.double(),
    }


def _token_readings(
    part: Part, losses: Float[Tensor, "R N"], right: Int[Tensor, "R N"]
) -> dict[str, Float[Tensor, "R"]]:
    assert isinstance(part, TokenPart)
    n, nats = part.total(part.n_tokens), part.total(losses * part.n_tokens)
    if part.group:
        return {f"{part.name}/perplexity{'_sliding' if part.sliding else ''}{part.group}": (nats / n).exp()}
    readings = {
        "loss": nats / n,
        "perplexity": (nats / n).exp(),
        "bits_per_character": nats / log(2) / part.total(part.n_characters).clamp(min=1),
        "bits_per_byte": nats / log(2) / part.total(part.n_bytes).clamp(min=1),
        "accuracy": part.total(right) / n,
    }
    if part.padded:
        readings["perplexity_padded"] = padded_loss(part, losses).exp()
    return {f"{part.name}/{quantity}": value for quantity, value in readings.items()}


def padded_loss(part: TokenPart, losses: Float[Tensor, "R N"]) -> Float[Tensor, "R"]:
    """The WikiText report's figure: the mean over batches of loss × tokens ÷ the tokens of a full batch.

    A short last batch is divided by a full one, so it is lower than the loss per token.
    """
    number = torch.arange(losses.shape[1], device=losses.device) // part.batch_sizes[:, None]
    n_batches = torch.where(part.counted, number, 0).amax(1) + 1

    def by_batch(values: Tensor) -> Float[Tensor, "R N"]:
        return torch.zeros_like(losses).scatter_add_(1, number, torch.where(part.counted, values, 0.0).double())

    loss = by_batch(losses) / by_batch(torch.ones_like(losses)).clamp(min=1)
    shares = by_batch(part.n_tokens) / (part.batch_sizes[:, None] * part.length)
    return (loss * shares).sum(1) / n_batches
