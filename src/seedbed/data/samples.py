"""What batches are made of: the batch itself, the order of an epoch, and the parts that are evaluated.

    epochs = Epochs(n_samples, batch_sizes, accumulate, seeds, device)
    epochs.prepare(step)                   # on the host, before the update
    rows, weights = epochs.draw(number)    # of every run: which samples, and what each weighs

Unequal batch sizes and training sets share one shape: rows that a run does not have get weight 0. What the samples hold
is left to the tasks' own files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from seedbed.draws import bits, device_keys

Rows: TypeAlias = NDArray[np.int64]
LAST = torch.iinfo(torch.int32).max
IN_TABLE, BATCHES = 2**20, 1000  # up to so many places and batches of an epoch a GPU looks up: 3 kernels, not a dozen
IN_STEP = 4096  # up to so many samples a GPU puts in order within the update; else once an epoch, told by the host


@dataclass(frozen=True)
class Batch:
    """Samples of every run; `at` are the input positions that are scored (None: all), `weights` what a sample weighs.

    The weights of an update's samples sum to 1 in every run. `scored` tells targets from padding (None: all count).
    Where samples share their beginnings, `inputs` go on from there: sample b of a run continues stem `stem[b]`.
    """

    inputs: Int[Tensor, "R B T"]
    targets: Int[Tensor, "R B K"]
    at: slice | Int[Tensor, "R B K"] | None
    weights: Float[Tensor, "R B"]
    scored: Bool[Tensor, "R B K"] | None = None
    stems: Int[Tensor, "R U S"] | None = None
    stem: Int[Tensor, "R B"] | None = None


@dataclass(frozen=True)
class Part:
    """Samples that readings average over: those at `span` among all that are evaluated, as far as a run counts them."""

    name: str  # train, val, test, test[NAME]
    group: str  # of the reading's name: "", "[order=2]", "[length=64]"
    span: slice
    counted: Bool[Tensor, "R N"]
    n_scored: int = 1  # targets of a sample; it is right when all of them are


class Sizes:
    """How many samples each run takes for an update, and which of them its batches hold when there are several.

    Batch k of an update takes every `accumulate`-th sample from the k-th on, so all of them are about as full.
    """

    def __init__(
        self, n_samples: Sequence[int], batch_sizes: Sequence[int], accumulate: int, device: torch.device
    ) -> None:
        self.n = torch.tensor(n_samples, device=device)
        self.sizes = torch.minimum(torch.tensor(batch_sizes, device=device) * accumulate, self.n)
        self.accumulate = accumulate
        self.largest = int(self.sizes.max())
        self._row = torch.arange(-(-self.largest // accumulate), device=device)

    def places(self, number: Int[Tensor, "1"]) -> tuple[Int[Tensor, "1"], Int[Tensor, "B"]]:
        """Of batch `number`: the update it belongs to, and the places of its rows among that update's samples."""
        if self.accumulate == 1:
            return number, self._row
        return number // self.accumulate, self._row * self.accumulate + number % self.accumulate


class Epochs:
    """Every sample once an epoch, in each run's own order; the last update of an epoch may be short."""

    def __init__(
        self,
        n_samples: Sequence[int],
        batch_sizes: Sequence[int],
        accumulate: int,
        seeds: Sequence[int],
        device: torch.device,
    ) -> None:
        self._of = Sizes(n_samples, batch_sizes, accumulate, device)
        self.n, self.sizes = self._of.n, self._of.sizes
        self.per_epoch = -(-self.n // self.sizes)
        self._lengths = self.per_epoch.tolist()
        self._keys = device_keys(seeds, "order", device)
        self._index = torch.arange(max(n_samples), device=device)
        kept = (device.type == "cpu" or len(self._index) > IN_STEP) and max(self._lengths) > 1
        self._order = torch.zeros(len(seeds), len(self._index), dtype=torch.int32, device=device) if kept else None
        self._ordered: list[int] = []  # the epoch of every run that the kept order is of
        self._table: tuple[Tensor, Tensor] | None = None
        n_updates = max(self._lengths)
        is_small = len(seeds) * n_updates * self._of.largest <= IN_TABLE and accumulate * n_updates <= BATCHES
        if device.type == "cuda" and is_small:
            self.tabulate()
        self.prepare(0)

    def tabulate(self) -> None:
        """Works out all batches of an epoch beforehand: a row for each of them, run after run."""
        n_batches, device = self._of.accumulate * max(self._lengths), self.n.device
        batches = [self._batch(torch.tensor([i], device=device)) for i in range(n_batches)]
        places, weights = (torch.stack(parts, dim=1).flatten(0, 1) for parts in zip(*batches, strict=True))
        self._table, self._first_rows = (places, weights), torch.arange(len(self.n), device=device) * n_batches

    def prepare(self, step: int) -> None:
        """Makes the orders that the update after `step` updates needs, in place, since a captured update reads them."""
        epochs = [step // n for n in self._lengths]
        if self._order is not None and epochs != self._ordered:
            self._order.copy_(self._shuffle(torch.tensor(epochs, device=self._order.device)))
            self._ordered = epochs

    def draw(self, number: Int[Tensor, "1"]) -> tuple[Int[Tensor, "R B"], Float[Tensor, "R B"]]:
        """The samples of every run in batch `number`, and their weights in their update."""
        if self._table is None:
            place, weights = self._batch(number)
        else:
            row = number % (self.per_epoch * self._of.accumulate) + self._first_rows
            place, weights = (held.index_select(0, row) for held in self._table)
        if max(self._lengths) == 1:
            return place, weights
        order = self._order
        if order is None:
            order = self._shuffle(self._of.places(number)[0] // self.per_epoch)
        return order.gather(1, place).long(), weights

    def _batch(self, number: Int[Tensor, "1"]) -> tuple[Int[Tensor, "R B"], Float[Tensor, "R B"]]:
        """The places of batch `number` in the order of its epoch, and their weights in their update."""
        step, within = self._of.places(number)
        first = step % self.per_epoch * self.sizes
        place = first[:, None] + within
        valid = (within < self.sizes[:, None]) & (place < self.n[:, None])
        weights = valid.double() / torch.minimum(self.sizes, self.n - first)[:, None]
        return torch.where(valid, place, 0), weights

    def _shuffle(self, epoch: Int[Tensor, "R"]) -> Int[Tensor, "R M"]:
        """Every run's order of its samples in its epoch."""
        keys = bits(self._keys, epoch, len(self._index))
        return keys.masked_fill(self._index >= self.n[:, None], LAST).argsort(dim=1, stable=True)


def spread_out(n: int, limits: Sequence[int]) -> tuple[Rows, NDArray[np.bool_]]:
    """For every run, up to its limit (0: all) of n samples, evenly spread and always the same; and which rows it has.

    >>> spread_out(10, [4, 2])[0].tolist()
    [[1, 3, 6, 8], [2, 7, 0, 0]]
    """
    counts = [min(limit, n) if limit else n for limit in limits]
    rows = np.zeros((len(limits), max(counts)), dtype=np.int64)
    for row, count in zip(rows, counts, strict=True):
        row[:count] = (2 * np.arange(count) + 1) * n // (2 * count)
    return rows, np.arange(max(counts)) < np.array(counts)[:, None]


def in_chunks(rows: Int[Tensor, "R N"], most: int) -> Iterator[Int[Tensor, "R B"]]:
    """The rows of every run, at most `most` (at least one) at a time; all chunks alike where that is near the most.

    Programs are compiled for a shape, so chunks of one shape are worth being up to twice as many.
    """
    n = rows.shape[1]
    fewest = -(-n // max(1, most))
    n_chunks = next((few for few in range(max(1, fewest), 2 * fewest) if n % few == 0), fewest)
    size = -(-n // max(1, n_chunks))
    for start in range(0, n, max(1, size)):
        yield rows[:, start : start + size]
