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

from seedbed.rng import device_keys, random_bits

RowIndices: TypeAlias = NDArray[np.int64]
INT32_MAX = torch.iinfo(torch.int32).max
MAX_TABULATED_SAMPLES, MAX_TABULATED_BATCHES = (
    2**20,
    1000,
)  # up to so many places and batches of an epoch a GPU looks up: 3 kernels, not a dozen
MAX_IN_STEP_SHUFFLE_SAMPLES = (
    4096  # up to so many samples a GPU puts in order within the update; else once an epoch, told by the host
)


@dataclass(frozen=True)
class Batch:
    """Samples of every run; `at` are the input positions that are scored (None: all), `weights` what a sample weighs.

    The weights of an update's samples sum to 1 in every run. `scored` tells targets from padding (None: all count).
    Where samples share their beginnings, `inputs` go on from there: sample b of a run continues stem `stem[b]`.
    """

    inputs: Int[Tensor, "R B T"]
    targets: Int[Tensor, "R B K"]
    scored_positions: slice | Int[Tensor, "R B K"] | None
    weights: Float[Tensor, "R B"]
    target_mask: Bool[Tensor, "R B K"] | None = None
    shared_prefixes: Int[Tensor, "R U S"] | None = None
    prefix_index: Int[Tensor, "R B"] | None = None


@dataclass(frozen=True)
class EvalSplit:
    """Samples that readings average over: those at `span` among all that are evaluated, as far as a run counts them."""

    name: str  # train, val, test, test[NAME]
    metric_suffix: str  # of the reading's name: "", "[order=2]", "[length=64]"
    sample_slice: slice
    sample_mask: Bool[Tensor, "R N"]
    n_scored: int = 1  # targets of a sample; it is right when all of them are


class MicroBatchLayout:
    """How many samples each run takes for an update, and which of them its batches hold when there are several.

    Batch k of an update takes every `accumulate`-th sample from the k-th on, so all of them are about as full.
    """

    def __init__(
        self, n_samples: Sequence[int], batch_sizes: Sequence[int], accumulate: int, device: torch.device
    ) -> None:
        self.n_samples = torch.tensor(n_samples, device=device)
        self.update_sizes = torch.minimum(torch.tensor(batch_sizes, device=device) * accumulate, self.n_samples)
        self.accumulate = accumulate
        self.max_update_size = int(self.update_sizes.max())
        self._row_index = torch.arange(-(-self.max_update_size // accumulate), device=device)

    def locate_batch(self, batch_index: Int[Tensor, "1"]) -> tuple[Int[Tensor, "1"], Int[Tensor, "B"]]:
        """Of batch `number`: the update it belongs to, and the places of its rows among that update's samples."""
        if self.accumulate == 1:
            return batch_index, self._row_index
        return batch_index // self.accumulate, self._row_index * self.accumulate + batch_index % self.accumulate


class EpochSampler:
    """Every sample once an epoch, in each run's own order; the last update of an epoch may be short."""

    def __init__(
        self,
        n_samples: Sequence[int],
        batch_sizes: Sequence[int],
        accumulate: int,
        seeds: Sequence[int],
        device: torch.device,
    ) -> None:
        self._layout = MicroBatchLayout(n_samples, batch_sizes, accumulate, device)
        self.n_samples, self.update_sizes = self._layout.n_samples, self._layout.update_sizes
        self.updates_per_epoch = -(-self.n_samples // self.update_sizes)
        self._epoch_lengths = self.updates_per_epoch.tolist()
        self._keys = device_keys(seeds, "order", device)
        self._sample_index = torch.arange(max(n_samples), device=device)
        kept = (device.type == "cpu" or len(self._sample_index) > MAX_IN_STEP_SHUFFLE_SAMPLES) and max(
            self._epoch_lengths
        ) > 1
        self._order = (
            torch.zeros(len(seeds), len(self._sample_index), dtype=torch.int32, device=device) if kept else None
        )
        self._order_epochs: list[int] = []  # the epoch of every run that the kept order is of
        self._batch_table: tuple[Tensor, Tensor] | None = None
        n_updates = max(self._epoch_lengths)
        is_small = (
            len(seeds) * n_updates * self._layout.max_update_size <= MAX_TABULATED_SAMPLES
            and accumulate * n_updates <= MAX_TABULATED_BATCHES
        )
        if device.type == "cuda" and is_small:
            self.precompute_batches()
        self.prepare(0)

    def precompute_batches(self) -> None:
        """Works out all batches of an epoch beforehand: a row for each of them, run after run."""
        n_batches, device = self._layout.accumulate * max(self._epoch_lengths), self.n_samples.device
        batches = [self._compute_batch(torch.tensor([i], device=device)) for i in range(n_batches)]
        places, weights = (torch.stack(parts, dim=1).flatten(0, 1) for parts in zip(*batches, strict=True))
        self._batch_table, self._table_offsets = (
            (places, weights),
            torch.arange(len(self.n_samples), device=device) * n_batches,
        )

    def prepare(self, step: int) -> None:
        """Makes the orders that the update after `step` updates needs, in place, since a captured update reads them."""
        epochs = [step // n for n in self._epoch_lengths]
        if self._order is not None and epochs != self._order_epochs:
            self._order.copy_(self._shuffle(torch.tensor(epochs, device=self._order.device)))
            self._order_epochs = epochs

    def draw(self, batch_index: Int[Tensor, "1"]) -> tuple[Int[Tensor, "R B"], Float[Tensor, "R B"]]:
        """The samples of every run in batch `number`, and their weights in their update."""
        if self._batch_table is None:
            place, weights = self._compute_batch(batch_index)
        else:
            row = batch_index % (self.updates_per_epoch * self._layout.accumulate) + self._table_offsets
            place, weights = (held.index_select(0, row) for held in self._batch_table)
        if max(self._epoch_lengths) == 1:
            return place, weights
        order = self._order
        if order is None:
            order = self._shuffle(self._layout.locate_batch(batch_index)[0] // self.updates_per_epoch)
        return order.gather(1, place).long(), weights

    def _compute_batch(self, batch_index: Int[Tensor, "1"]) -> tuple[Int[Tensor, "R B"], Float[Tensor, "R B"]]:
        """The places of batch `number` in the order of its epoch, and their weights in their update."""
        step, within = self._layout.locate_batch(batch_index)
        first = step % self.updates_per_epoch * self.update_sizes
        place = first[:, None] + within
        valid = (within < self.update_sizes[:, None]) & (place < self.n_samples[:, None])
        weights = valid.double() / torch.minimum(self.update_sizes, self.n_samples - first)[:, None]
        return torch.where(valid, place, 0), weights

    def _shuffle(self, epoch: Int[Tensor, "R"]) -> Int[Tensor, "R M"]:
        """Every run's order of its samples in its epoch."""
        keys = random_bits(self._keys, epoch, len(self._sample_index))
        return keys.masked_fill(self._sample_index >= self.n_samples[:, None], INT32_MAX).argsort(dim=1, stable=True)


def evenly_spaced_rows(n: int, limits: Sequence[int]) -> tuple[RowIndices, NDArray[np.bool_]]:
    """For every run, up to its limit (0: all) of n samples, evenly spread and always the same; and which rows it has.

    >>> spread_out(10, [4, 2])[0].tolist()
    [[1, 3, 6, 8], [2, 7, 0, 0]]
    """
    counts = [min(limit, n) if limit else n for limit in limits]
    rows = np.zeros((len(limits), max(counts)), dtype=np.int64)
    for row, count in zip(rows, counts, strict=True):
        row[:count] = (2 * np.arange(count) + 1) * n // (2 * count)
    return rows, np.arange(max(counts)) < np.array(counts)[:, None]


def split_into_chunks(rows: Int[Tensor, "R N"], max_rows: int) -> Iterator[Int[Tensor, "R B"]]:
    """The rows of every run, at most `most` (at least one) at a time; all chunks alike where that is near the most.

    Programs are compiled for a shape, so chunks of one shape are worth being up to twice as many.
    """
    n = rows.shape[1]
    fewest = -(-n // max(1, max_rows))
    n_chunks = next((few for few in range(max(1, fewest), 2 * fewest) if n % few == 0), fewest)
    size = -(-n // max(1, n_chunks))
    for start in range(0, n, max(1, size)):
        yield rows[:, start : start + size]
