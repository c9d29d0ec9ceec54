"""Building blocks of batches: the batch record, the evaluation splits and their metrics, the shuffled epoch sampler.

    sampler = EpochSampler(MicroBatchLayout(n_samples, settings, device), seeds)
    sampler.prepare(step)                       # on the host, before the update
    rows, weights = sampler.draw(batch_index)   # per run: sample indices and their loss weights

Runs with different batch sizes or training set sizes share one shape: rows that a run lacks get weight 0. What a sample
contains is defined by each task's own module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from seedbed.rng import device_keys, random_bits
from seedbed.settings import Settings

RowIndices: TypeAlias = NDArray[np.int64]
INT32_MAX = torch.iinfo(torch.int32).max
# Epochs up to this size are tabulated on a GPU: drawing a batch then takes 3 kernels instead of about 12.
MAX_TABULATED_SAMPLES, MAX_TABULATED_BATCHES = 2**20, 1000
# Up to this many samples, a GPU shuffles within each update; above it, once per epoch from the host.
MAX_IN_STEP_SHUFFLE_SAMPLES = 4096


@dataclass(frozen=True)
class Batch:
    """Samples of every run; `scored_positions` are the input positions with a loss (None: all).

    `weights` are per-sample loss weights that sum to 1 over each run's update. `target_mask` is False for padding
    (None: every target counts). With `shared_prefixes`, `inputs` hold only what follows the prefix: sample b of a run
    continues its prefix number `prefix_index[b]`.
    """

    inputs: Int[Tensor, "R B T"]
    targets: Int[Tensor, "R B K"]
    scored_positions: slice | Int[Tensor, "R B K"] | None
    weights: Float[Tensor, "R B"]
    target_mask: Bool[Tensor, "R B K"] | None = None
    shared_prefixes: Int[Tensor, "R U S"] | None = None
    prefix_index: Int[Tensor, "R B"] | None = None


class SampleScores(NamedTuple):
    """What is kept of the logits of evaluated samples; metrics are computed from it."""

    losses: Float[Tensor, "R N"]  # in nats, averaged over a sample's scored tokens
    correct: Int[Tensor, "R N"]  # scored tokens that the argmax predicts

    @classmethod
    def join(cls, chunks: Sequence[SampleScores]) -> SampleScores:
        return cls(*(torch.cat(parts, 1) for parts in zip(*chunks, strict=True)))

    def select(self, samples: slice) -> SampleScores:
        """The scores of some of the samples."""
        return SampleScores(*(values[:, samples] for values in self))


@dataclass(frozen=True)
class EvalSplit:
    """Samples that a metric averages over: `sample_slice` of all evaluated samples, restricted to each run's mask."""

    name: str  # train, val, test, test[NAME]
    metric_suffix: str  # of the metric's name: "", "[order=2]", "[length=64]"
    sample_slice: slice
    sample_mask: Bool[Tensor, "R N"]
    n_scored: int | Int[Tensor, "N"] = 1  # targets per sample; a sample is correct when all of them are
    has_token_metric: bool = False  # whether the share of correct targets is evaluated too

    def metrics(self, scores: SampleScores) -> dict[str, Float[Tensor, "R"]]:
        """Metrics of every run by name, from the scores of the split's samples."""
        n = self.sample_mask.sum(1)
        is_correct = self.sample_mask & (scores.correct == self.n_scored)
        metrics = {
            "loss": torch.where(self.sample_mask, scores.losses, 0.0).sum(1) / n,
            "accuracy": is_correct.sum(1) / n.double(),
        }
        if self.has_token_metric:
            n_targets = (self.sample_mask * self.n_scored).sum(1)
            metrics["token_accuracy"] = torch.where(self.sample_mask, scores.correct, 0).sum(1) / n_targets.double()
        return {f"{self.name}/{name}{self.metric_suffix}": value for name, value in metrics.items()}


class Batches(Protocol):
    """Training batches and evaluation samples of a pack, as a task makes them.

    All implementations use counter-based random numbers, so a batch depends only on its run's seed and the batch index.
    """

    @property
    def eval_splits(self) -> Sequence[EvalSplit]:
        """The sets of samples that metrics average over, as slices of the concatenated `eval_chunks`."""
        ...

    def prepare(self, step: int) -> None:
        """Prepares the update that follows `step` updates; called on the host, outside any captured graph."""
        ...

    def draw(self, batch_index: Int[Tensor, "1"]) -> Batch:
        """Returns this batch of every run; runs inside the (possibly captured) update."""
        ...

    def eval_chunks(self) -> Iterator[Batch]:
        """Yields all evaluated samples in chunks."""
        ...


class MicroBatchLayout:
    """Samples per update of each run, and how gradient accumulation deals them out to micro-batches.

    Micro-batch k takes every `accumulate`-th sample starting at the k-th, so that all are about equally full.
    """

    def __init__(self, n_samples: Sequence[int], settings: Sequence[Settings], device: torch.device) -> None:
        self.n_samples, self.accumulate = torch.tensor(n_samples, device=device), settings[0].train.accumulate
        batch_sizes = torch.tensor([run.train.batch_size for run in settings], device=device)
        self.update_sizes = torch.minimum(batch_sizes * self.accumulate, self.n_samples)
        self.max_update_size = int(self.update_sizes.max())
        self._row_index = torch.arange(-(-self.max_update_size // self.accumulate), device=device)

    def locate_batch(self, batch_index: Int[Tensor, "1"]) -> tuple[Int[Tensor, "1"], Int[Tensor, "B"]]:
        """Returns the update that a batch belongs to, and the positions of its rows within that update."""
        if self.accumulate == 1:
            return batch_index, self._row_index
        return batch_index // self.accumulate, self._row_index * self.accumulate + batch_index % self.accumulate


class EpochSampler:
    """Draws every sample once per epoch, shuffled per run; the last update of an epoch may be short."""

    def __init__(self, layout: MicroBatchLayout, seeds: Sequence[int]) -> None:
        self._layout, device = layout, layout.n_samples.device
        self.n_samples, self.update_sizes = layout.n_samples, layout.update_sizes
        self.updates_per_epoch = -(-self.n_samples // self.update_sizes)
        self._epoch_lengths = self.updates_per_epoch.tolist()
        self._keys = device_keys(seeds, "order", device)
        self._sample_index = torch.arange(int(self.n_samples.max()), device=device)
        n_runs, n_total, n_updates = len(seeds), len(self._sample_index), max(self._epoch_lengths)
        # Where an update holds the whole training set, the order does not matter and nothing is shuffled.
        stores_order = (device.type == "cpu" or n_total > MAX_IN_STEP_SHUFFLE_SAMPLES) and n_updates > 1
        self._order = torch.zeros(n_runs, n_total, dtype=torch.int32, device=device) if stores_order else None
        self._order_epochs: list[int] = []  # per run, the epoch that the stored order belongs to
        self._batch_table: tuple[Tensor, Tensor] | None = None
        n_table_samples = n_runs * n_updates * self._layout.max_update_size
        is_small = (
            n_table_samples <= MAX_TABULATED_SAMPLES and self._layout.accumulate * n_updates <= MAX_TABULATED_BATCHES
        )
        if device.type == "cuda" and is_small:
            self.precompute_batches()
        self.prepare(0)

    def precompute_batches(self) -> None:
        """Tabulates all batches of an epoch: one row per batch, grouped by run."""
        n_batches, device = self._layout.accumulate * max(self._epoch_lengths), self.n_samples.device
        batches = [self._compute_batch(torch.tensor([i], device=device)) for i in range(n_batches)]
        positions, weights = (torch.stack(tensors, dim=1).flatten(0, 1) for tensors in zip(*batches, strict=True))
        self._batch_table = positions, weights
        self._table_offsets = torch.arange(len(self.n_samples), device=device) * n_batches

    def prepare(self, step: int) -> None:
        """Shuffles for the update after `step` updates; in place, since a captured CUDA graph reads the order."""
        epochs = [step // n for n in self._epoch_lengths]
        if self._order is not None and epochs != self._order_epochs:
            self._order.copy_(self._shuffle(torch.tensor(epochs, device=self._order.device)))
            self._order_epochs = epochs

    def draw(self, batch_index: Int[Tensor, "1"]) -> tuple[Int[Tensor, "R B"], Float[Tensor, "R B"]]:
        """Returns the sample indices of every run in this batch, and their weights within the update."""
        if self._batch_table is None:
            position, weights = self._compute_batch(batch_index)
        else:
            row = batch_index % (self.updates_per_epoch * self._layout.accumulate) + self._table_offsets
            position, weights = (column.index_select(0, row) for column in self._batch_table)
        if max(self._epoch_lengths) == 1:
            return position, weights
        order = self._order
        if order is None:
            order = self._shuffle(self._layout.locate_batch(batch_index)[0] // self.updates_per_epoch)
        return order.gather(1, position).long(), weights

    def _compute_batch(self, batch_index: Int[Tensor, "1"]) -> tuple[Int[Tensor, "R B"], Float[Tensor, "R B"]]:
        """Returns the batch's positions in the order of its epoch, and their weights within the update."""
        step, within = self._layout.locate_batch(batch_index)
        first = step % self.updates_per_epoch * self.update_sizes
        position = first[:, None] + within
        valid = (within < self.update_sizes[:, None]) & (position < self.n_samples[:, None])
        weights = valid.double() / torch.minimum(self.update_sizes, self.n_samples - first)[:, None]
        return torch.where(valid, position, 0), weights

    def _shuffle(self, epoch: Int[Tensor, "R"]) -> Int[Tensor, "R M"]:
        """Returns every run's permutation of its samples for its epoch."""
        sort_keys = random_bits(self._keys, epoch, len(self._sample_index))
        # A run whose update holds its whole training set keeps the order that it would have alone.
        sort_keys = torch.where(self.updates_per_epoch[:, None] > 1, sort_keys, self._sample_index.to(sort_keys.dtype))
        # Runs with fewer samples sort their missing ones last.
        return sort_keys.masked_fill(self._sample_index >= self.n_samples[:, None], INT32_MAX).argsort(
            dim=1, stable=True
        )


def evenly_spaced_rows(n: int, limits: Sequence[int]) -> tuple[RowIndices, NDArray[np.bool_]]:
    """Returns up to `limit` (0: all) evenly spaced rows of n for each run, and the mask of rows that a run has.

    >>> evenly_spaced_rows(10, [4, 2])[0].tolist()
    [[1, 3, 6, 8], [2, 7, 0, 0]]
    """
    counts = [min(limit, n) if limit else n for limit in limits]
    rows = np.zeros((len(limits), max(counts)), dtype=np.int64)
    for row, count in zip(rows, counts, strict=True):
        row[:count] = (2 * np.arange(count) + 1) * n // (2 * count)
    return rows, np.arange(max(counts)) < np.array(counts)[:, None]


def split_into_chunks(rows: Int[Tensor, "R N"], max_rows: int) -> Iterator[Int[Tensor, "R B"]]:
    """Splits into chunks of at most `max_rows` (at least one), equal where that costs less than twice as many.

    Equal chunks share one compiled shape.
    """
    n = rows.shape[1]
    min_chunks = -(-n // max(1, max_rows))
    n_chunks = next((k for k in range(max(1, min_chunks), 2 * min_chunks) if n % k == 0), min_chunks)
    size = -(-n // max(1, n_chunks))
    for start in range(0, n, max(1, size)):
        yield rows[:, start : start + size]
