"""Samples on the device: each run's table, split and batches, drawn from the run's own stream.

    batches = ArithmeticBatches(tasks, seeds, batch_sizes, device)
    batch = batches.draw(step)             # of every run: inputs, targets, which positions are scored, sample weights

Unequal batch sizes and training sets share one shape: rows that a run does not have get weight 0.
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

from seedbed.data.arithmetic import N_SCORED, Table, split, table
from seedbed.draws import bits, device_keys
from seedbed.settings import Arithmetic

Rows: TypeAlias = NDArray[np.int64]
LAST = torch.iinfo(torch.int32).max


@dataclass(frozen=True)
class Batch:
    """Samples of every run; `at` are the input positions that are scored, `weights` sum to 1 over a run's samples.

    Where samples share their beginnings, `inputs` go on from there: sample b of a run continues stem `stem[b]`.
    """

    inputs: Int[Tensor, "R B T"]
    targets: Int[Tensor, "R B K"]
    at: slice | Int[Tensor, "R B K"]
    weights: Float[Tensor, "R B"]
    stems: Int[Tensor, "R U S"] | None = None
    stem: Int[Tensor, "R B"] | None = None


class ArithmeticBatches:
    """With `share`, the first tokens of equations, of which there are few kinds, are given once each as stems."""

    def __init__(
        self,
        tasks: Sequence[Arithmetic],
        seeds: Sequence[int],
        batch_sizes: Sequence[int],
        device: torch.device,
        share: bool = False,
    ) -> None:
        tables = {task: table(task) for task in {_same_table(task) for task in tasks}}
        mine = [tables[_same_table(task)] for task in tasks]
        self.n = len(mine[0].order)
        self.tokens = _stack([one.tokens for one in mine], device)
        self.scored = None if len(tasks[0].orders) == 1 else torch.from_numpy(mine[0].scored).to(device)
        splits = [split(task, seed) for task, seed in zip(tasks, seeds, strict=True)]
        self.rows = _pad([train for train, _ in splits], device)
        self.members = _memberships(splits, mine[0].order, tasks[0].orders, self.n, device)
        self.n_train = torch.tensor([len(train) for train, _ in splits], device=device)
        self.sizes = torch.minimum(torch.tensor(batch_sizes, device=device), self.n_train)
        self.per_epoch = -(-self.n_train // self.sizes)
        self._whole = bool((self.per_epoch == 1).all())
        self._place = torch.arange(int(self.sizes.max()), device=device)
        self._keys = device_keys(seeds, "order", device)
        self.n_stem = _best_stem(mine[0], len(self._place)) if share else 0
        if self.n_stem:
            found = [np.unique(one.tokens[:, : self.n_stem], axis=0, return_inverse=True) for one in mine]
            self.stems = torch.from_numpy(np.stack([stems for stems, _ in found])).to(device)
            self._stem_of = torch.from_numpy(np.stack([stem.reshape(-1) for _, stem in found])).to(device)

    def draw(self, step: Int[Tensor, "1"]) -> Batch:
        """The batch of every run at this step; each epoch has its own order, the last batch may be short."""
        first = step % self.per_epoch * self.sizes
        place = first[:, None] + self._place
        valid = (self._place < self.sizes[:, None]) & (place < self.n_train[:, None])
        order = self.rows if self._whole else self.rows.gather(1, self._shuffle(step // self.per_epoch))
        rows = order.gather(1, torch.where(valid, place, 0))
        return self._batch(rows, valid / valid.sum(1, keepdim=True))

    def _shuffle(self, epoch: Int[Tensor, "R"]) -> Int[Tensor, "R M"]:
        """Every run's order of its training rows in its epoch."""
        keys = bits(self._keys, epoch, self.rows.shape[1])
        beyond = torch.arange(self.rows.shape[1], device=keys.device) >= self.n_train[:, None]
        return keys.masked_fill(beyond, LAST).argsort(dim=1, stable=True)

    def _batch(self, rows: Int[Tensor, "R B"], weights: Float[Tensor, "R B"]) -> Batch:
        tokens = self.tokens.gather(1, rows[..., None].expand(-1, -1, self.tokens.shape[-1]))
        shared = (self.stems, self._stem_of.gather(1, rows)) if self.n_stem else (None, None)
        inputs, following = tokens[..., self.n_stem : -1], tokens[..., self.n_stem + 1 :]
        if self.scored is None:
            return Batch(inputs, following[..., -N_SCORED:], slice(-N_SCORED, None), weights, *shared)
        at = self.scored[rows] - self.n_stem
        return Batch(inputs, following.gather(2, at), at, weights, *shared)

    def chunks(self, size: int) -> Iterator[Batch]:
        """All equations in order, at most `size` at a time, for evaluation."""
        for start in range(0, self.n, size):
            rows = torch.arange(start, min(start + size, self.n), device=self.rows.device)
            every = rows.expand(len(self.rows), -1)
            yield self._batch(every, torch.ones_like(every, dtype=torch.get_default_dtype()))


def _same_table(task: Arithmetic) -> Arithmetic:
    return task.model_copy(update={"train_fraction": 1.0})


def _best_stem(equations: Table, batch_size: int) -> int:
    """How many first tokens to share so that the fewest are computed; scored positions stay with their samples."""
    length = equations.tokens.shape[1] - 1
    costs = {0: batch_size * length}
    for n in range(1, int(equations.scored.min()) + 1):
        n_stems = len(np.unique(equations.tokens[:, :n], axis=0))
        costs[n] = n_stems * n + batch_size * (length - n)
    return min(costs, key=lambda n: costs[n])


def _stack(arrays: Sequence[Rows], device: torch.device) -> Int[Tensor, "R N T"]:
    """With a run axis; stored once when all runs have the same table."""
    if all(array is arrays[0] for array in arrays):
        return torch.from_numpy(arrays[0]).to(device).expand(len(arrays), -1, -1)
    return torch.from_numpy(np.stack(arrays)).to(device)


def _pad(rows: Sequence[Rows], device: torch.device) -> Int[Tensor, "R M"]:
    width = max(map(len, rows))
    return torch.from_numpy(np.stack([np.pad(row, (0, width - len(row))) for row in rows])).to(device)


def _memberships(
    splits: Sequence[tuple[Rows, Rows]], order: Rows, orders: Sequence[int], n: int, device: torch.device
) -> dict[tuple[str, str], Bool[Tensor, "R N"]]:
    """Which rows each reading averages over, by split and suffix: all, and each order where there are several."""
    groups = {"": np.ones(n, dtype=bool)}
    if len(orders) > 1:
        groups |= {f"[order={k}]": order == k for k in orders}
    members = {}
    for i, name in enumerate(("train", "val")):
        inside = np.zeros((len(splits), n), dtype=bool)
        for run, parts in enumerate(splits):
            inside[run, parts[i]] = True
        for suffix, group in groups.items():
            members[name, suffix] = torch.from_numpy(inside & group).to(device)
    return members
