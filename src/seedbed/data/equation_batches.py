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

from seedbed.data.arithmetic import N_SCORED_TOKENS, EquationTable, build_equation_table, split_equations
from seedbed.data.batch import Batch, EpochSampler, EvalSplit, RowIndices
from seedbed.settings import ArithmeticSettings

EVAL_CHUNK_EQUATIONS = 4096  # equations evaluated at once


class EquationBatches:
    """With `share`, the first tokens of equations, of which there are few kinds, are given once each as stems."""

    def __init__(
        self,
        tasks: Sequence[ArithmeticSettings],
        seeds: Sequence[int],
        batch_sizes: Sequence[int],
        device: torch.device,
        accumulate: int = 1,
        share_prefixes: bool = False,
    ) -> None:
        tables = {task: build_equation_table(task) for task in {_table_key(task) for task in tasks}}
        mine = [tables[_table_key(task)] for task in tasks]
        self.n_equations = len(mine[0].n_operands)
        self.tokens = _stack_tables([one.tokens for one in mine], device)
        self.scored_positions = (
            None if len(tasks[0].orders) == 1 else torch.from_numpy(mine[0].scored_positions).to(device)
        )
        splits = [split_equations(task, seed) for task, seed in zip(tasks, seeds, strict=True)]
        self.train_rows = _pad_rows([train for train, _ in splits], device)
        self.eval_splits = list(_make_eval_splits(splits, mine[0].n_operands, tasks[0].orders, device))
        self.epoch_sampler = EpochSampler([len(train) for train, _ in splits], batch_sizes, accumulate, seeds, device)
        self.prefix_length = (
            _best_prefix_length(mine[0], int(self.epoch_sampler.update_sizes.max()) // accumulate)
            if share_prefixes
            else 0
        )
        if self.prefix_length:
            found = [np.unique(one.tokens[:, : self.prefix_length], axis=0, return_inverse=True) for one in mine]
            self.shared_prefixes = torch.from_numpy(np.stack([stems for stems, _ in found])).to(device)
            if device.type == "cuda":  # products by the stems are fast when these are a multiple of 8: the last again
                lacking = -self.shared_prefixes.shape[1] % 8
                self.shared_prefixes = torch.cat(
                    [self.shared_prefixes, self.shared_prefixes[:, -1:].expand(-1, lacking, -1)], dim=1
                )
            self._prefix_index = torch.from_numpy(np.stack([stem.reshape(-1) for _, stem in found])).to(device)

    def prepare(self, step: int) -> None:
        self.epoch_sampler.prepare(step)

    def draw(self, batch_index: Int[Tensor, "1"]) -> Batch:
        """Batch `number` of every run; each epoch has its own order, its last batch may be short."""
        places, weights = self.epoch_sampler.draw(batch_index)
        return self._make_batch(self.train_rows.gather(1, places), weights)

    def _make_batch(self, rows: Int[Tensor, "R B"], weights: Float[Tensor, "R B"]) -> Batch:
        tokens = self.tokens.gather(1, rows[..., None].expand(-1, -1, self.tokens.shape[-1]))
        shared = (self.shared_prefixes, self._prefix_index.gather(1, rows)) if self.prefix_length else (None, None)
        inputs, following = tokens[..., self.prefix_length : -1], tokens[..., self.prefix_length + 1 :]
        if self.scored_positions is None:
            return Batch(
                inputs, following[..., -N_SCORED_TOKENS:], slice(-N_SCORED_TOKENS, None), weights, None, *shared
            )
        at = self.scored_positions[rows] - self.prefix_length
        return Batch(inputs, following.gather(2, at), at, weights, None, *shared)

    def eval_chunks(self) -> Iterator[Batch]:
        """All equations in order, some at a time, for evaluation."""
        for start in range(0, self.n_equations, EVAL_CHUNK_EQUATIONS):
            rows = torch.arange(
                start, min(start + EVAL_CHUNK_EQUATIONS, self.n_equations), device=self.train_rows.device
            )
            every = rows.expand(len(self.train_rows), -1)
            yield self._make_batch(every, torch.ones_like(every, dtype=torch.get_default_dtype()))


def _table_key(task: ArithmeticSettings) -> ArithmeticSettings:
    return task.model_copy(update={"train_fraction": 1.0})


def _best_prefix_length(equations: EquationTable, batch_size: int) -> int:
    """How many first tokens to share so that the fewest are computed; scored positions stay with their samples."""
    length = equations.tokens.shape[1] - 1
    costs = {0: batch_size * length}
    for n in range(1, int(equations.scored_positions.min()) + 1):
        n_stems = len(np.unique(equations.tokens[:, :n], axis=0))
        costs[n] = n_stems * n + batch_size * (length - n)
    return min(costs, key=lambda n: costs[n])


def _stack_tables(arrays: Sequence[RowIndices], device: torch.device) -> Int[Tensor, "R N T"]:
    """With a run axis; stored once when all runs have the same table."""
    if all(array is arrays[0] for array in arrays):
        return torch.from_numpy(arrays[0]).to(device).expand(len(arrays), -1, -1)
    return torch.from_numpy(np.stack(arrays)).to(device)


def _pad_rows(rows: Sequence[RowIndices], device: torch.device) -> Int[Tensor, "R M"]:
    width = max(map(len, rows))
    return torch.from_numpy(np.stack([np.pad(row, (0, width - len(row))) for row in rows])).to(device)


def _make_eval_splits(
    splits: Sequence[tuple[RowIndices, RowIndices]], n_operands: RowIndices, orders: Sequence[int], device: torch.device
) -> Iterator[EvalSplit]:
    """Train and validation, all equations together and each order where there are several."""
    groups = {"": np.ones(len(n_operands), dtype=bool)}
    if len(orders) > 1:
        groups |= {f"[order={k}]": n_operands == k for k in orders}
    for i, name in enumerate(("train", "val")):
        inside = np.zeros((len(splits), len(n_operands)), dtype=bool)
        for run, parts in enumerate(splits):
            inside[run, parts[i]] = True
        for suffix, group in groups.items():
            yield EvalSplit(name, suffix, slice(None), torch.from_numpy(inside & group).to(device), N_SCORED_TOKENS)
