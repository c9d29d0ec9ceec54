"""Equations on the device: each run's table, split and batches, drawn from the run's own stream.

batches = EquationBatches(tasks, seeds, batch_sizes, device)
batch = batches.draw(number)           # of every run: inputs, targets, which positions are scored, sample weights
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from seedbed.data.arithmetic import N_SCORED, Table, split, table
from seedbed.data.samples import Batch, Epochs, Part, Rows
from seedbed.settings import Arithmetic

CHUNK = 4096  # equations evaluated at once


class EquationBatches:
    """With `share`, the first tokens of equations, of which there are few kinds, are given once each as stems."""

    def __init__(
        self,
        tasks: Sequence[Arithmetic],
        seeds: Sequence[int],
        batch_sizes: Sequence[int],
        device: torch.device,
        accumulate: int = 1,
        share: bool = False,
    ) -> None:
        tables = {task: table(task) for task in {_same_table(task) for task in tasks}}
        mine = [tables[_same_table(task)] for task in tasks]
        self.n = len(mine[0].order)
        self.tokens = _stack([one.tokens for one in mine], device)
        self.scored = None if len(tasks[0].orders) == 1 else torch.from_numpy(mine[0].scored).to(device)
        splits = [split(task, seed) for task, seed in zip(tasks, seeds, strict=True)]
        self.rows = _pad([train for train, _ in splits], device)
        self.parts = list(_parts(splits, mine[0].order, tasks[0].orders, device))
        self.epochs = Epochs([len(train) for train, _ in splits], batch_sizes, accumulate, seeds, device)
        self.n_stem = _best_stem(mine[0], int(self.epochs.sizes.max()) // accumulate) if share else 0
        if self.n_stem:
            found = [np.unique(one.tokens[:, : self.n_stem], axis=0, return_inverse=True) for one in mine]
            self.stems = torch.from_numpy(np.stack([stems for stems, _ in found])).to(device)
            if device.type == "cuda":  # products by the stems are fast when these are a multiple of 8: the last again
                lacking = -self.stems.shape[1] % 8
                self.stems = torch.cat([self.stems, self.stems[:, -1:].expand(-1, lacking, -1)], dim=1)
            self._stem_of = torch.from_numpy(np.stack([stem.reshape(-1) for _, stem in found])).to(device)

    def prepare(self, step: int) -> None:
        self.epochs.prepare(step)

    def draw(self, number: Int[Tensor, "1"]) -> Batch:
        """Batch `number` of every run; each epoch has its own order, its last batch may be short."""
        places, weights = self.epochs.draw(number)
        return self._batch(self.rows.gather(1, places), weights)

    def _batch(self, rows: Int[Tensor, "R B"], weights: Float[Tensor, "R B"]) -> Batch:
        tokens = self.tokens.gather(1, rows[..., None].expand(-1, -1, self.tokens.shape[-1]))
        shared = (self.stems, self._stem_of.gather(1, rows)) if self.n_stem else (None, None)
        inputs, following = tokens[..., self.n_stem : -1], tokens[..., self.n_stem + 1 :]
        if self.scored is None:
            return Batch(inputs, following[..., -N_SCORED:], slice(-N_SCORED, None), weights, None, *shared)
        at = self.scored[rows] - self.n_stem
        return Batch(inputs, following.gather(2, at), at, weights, None, *shared)

    def chunks(self) -> Iterator[Batch]:
        """All equations in order, some at a time, for evaluation."""
        for start in range(0, self.n, CHUNK):
            rows = torch.arange(start, min(start + CHUNK, self.n), device=self.rows.device)
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


def _parts(
    splits: Sequence[tuple[Rows, Rows]], order: Rows, orders: Sequence[int], device: torch.device
) -> Iterator[Part]:
    """Train and validation, all equations together and each order where there are several."""
    groups = {"": np.ones(len(order), dtype=bool)}
    if len(orders) > 1:
        groups |= {f"[order={k}]": order == k for k in orders}
    for i, name in enumerate(("train", "val")):
        inside = np.zeros((len(splits), len(order)), dtype=bool)
        for run, parts in enumerate(splits):
            inside[run, parts[i]] = True
        for suffix, group in groups.items():
            yield Part(name, suffix, slice(None), torch.from_numpy(inside & group).to(device), N_SCORED)
