"""Arithmetic batches on the device: each run's equation table, split and batches, drawn from its own random stream.

batches = EquationBatches(tasks, seeds, batch_sizes, device)
batch = batches.draw(batch_index)      # for every run: inputs, targets, scored positions, sample weights
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from seedbed.data.arithmetic import N_SCORED_TOKENS, EquationTable, build_equation_table, split_equations
from seedbed.data.batch import Batch, EpochSampler, EvalSplit, RowIndices
from seedbed.kind_settings import ArithmeticSettings

EVAL_CHUNK_EQUATIONS = 4096  # equations evaluated at once


class EquationBatches:
    """Batches of equations; with `share_prefixes`, each distinct beginning of an equation is computed only once."""

    def __init__(
        self,
        tasks: Sequence[ArithmeticSettings],
        seeds: Sequence[int],
        batch_sizes: Sequence[int],
        device: torch.device,
        accumulate: int = 1,
        share_prefixes: bool = False,
    ) -> None:
        tables_by_task = {task: build_equation_table(task) for task in {_table_key(task) for task in tasks}}
        tables = [tables_by_task[_table_key(task)] for task in tasks]
        first_table = tables[0]  # tables of a pack have the same shape and differ at most in operator and results
        self.n_equations = len(first_table.n_operands)
        self.tokens = _stack_tables([table.tokens for table in tables], device)
        # Equations of one order are scored at the same positions, which a slice can express.
        has_one_order = len(tasks[0].orders) == 1
        self.scored_positions = None if has_one_order else torch.from_numpy(first_table.scored_positions).to(device)
        splits = [split_equations(task, seed) for task, seed in zip(tasks, seeds, strict=True)]
        self.train_rows = _pad_rows([train for train, _ in splits], device)
        self.eval_splits = list(_make_eval_splits(splits, first_table.n_operands, tasks[0].orders, device))
        self.epoch_sampler = EpochSampler([len(train) for train, _ in splits], batch_sizes, accumulate, seeds, device)
        batch_size = int(self.epoch_sampler.update_sizes.max()) // accumulate
        self.prefix_length = _best_prefix_length(first_table, batch_size) if share_prefixes else 0
        if self.prefix_length:
            unique = [np.unique(table.tokens[:, : self.prefix_length], axis=0, return_inverse=True) for table in tables]
            prefixes = torch.from_numpy(np.stack([prefix for prefix, _ in unique])).to(device)
            if device.type == "cuda":  # matrix products are fast for multiples of 8, so the last prefix is repeated
                n_padding = -prefixes.shape[1] % 8
                prefixes = torch.cat([prefixes, prefixes[:, -1:].expand(-1, n_padding, -1)], dim=1)
            self.shared_prefixes = prefixes
            self._prefix_index = torch.from_numpy(np.stack([index.reshape(-1) for _, index in unique])).to(device)

    def prepare(self, step: int) -> None:
        self.epoch_sampler.prepare(step)

    def draw(self, batch_index: Int[Tensor, "1"]) -> Batch:
        """Returns this batch of every run; epochs are shuffled separately, and their last batch may be short."""
        indices, weights = self.epoch_sampler.draw(batch_index)
        return self._make_batch(self.train_rows.gather(1, indices), weights)

    def _make_batch(self, rows: Int[Tensor, "R B"], weights: Float[Tensor, "R B"]) -> Batch:
        tokens = self.tokens.gather(1, rows[..., None].expand(-1, -1, self.tokens.shape[-1]))
        prefixes = (self.shared_prefixes, self._prefix_index.gather(1, rows)) if self.prefix_length else (None, None)
        inputs, targets = tokens[..., self.prefix_length : -1], tokens[..., self.prefix_length + 1 :]
        if self.scored_positions is None:
            scored = slice(-N_SCORED_TOKENS, None)
            return Batch(inputs, targets[..., scored], scored, weights, None, *prefixes)
        positions = self.scored_positions[rows] - self.prefix_length
        return Batch(inputs, targets.gather(2, positions), positions, weights, None, *prefixes)

    def eval_chunks(self) -> Iterator[Batch]:
        """Yields all equations in table order, in chunks, for evaluation."""
        for start in range(0, self.n_equations, EVAL_CHUNK_EQUATIONS):
            end = min(start + EVAL_CHUNK_EQUATIONS, self.n_equations)
            rows = torch.arange(start, end, device=self.train_rows.device).expand(len(self.train_rows), -1)
            yield self._make_batch(rows, torch.ones_like(rows, dtype=torch.get_default_dtype()))


def _table_key(task: ArithmeticSettings) -> ArithmeticSettings:
    """Returns the task without its split, so that tasks with equal tables share one."""
    return task.model_copy(update={"train_fraction": 1.0})


def _best_prefix_length(equations: EquationTable, batch_size: int) -> int:
    """Returns the prefix length that minimizes the computed tokens; scored positions are never part of a prefix."""
    length = equations.tokens.shape[1] - 1
    costs = {0: batch_size * length}
    for n in range(1, int(equations.scored_positions.min()) + 1):
        n_prefixes = len(np.unique(equations.tokens[:, :n], axis=0))
        costs[n] = n_prefixes * n + batch_size * (length - n)
    return min(costs, key=lambda n: costs[n])


def _stack_tables(arrays: Sequence[RowIndices], device: torch.device) -> Int[Tensor, "R N T"]:
    """Returns the tables with a run axis; stored once when all runs share one table."""
    if all(array is arrays[0] for array in arrays):
        return torch.from_numpy(arrays[0]).to(device).expand(len(arrays), -1, -1)
    return torch.from_numpy(np.stack(arrays)).to(device)


def _pad_rows(rows: Sequence[RowIndices], device: torch.device) -> Int[Tensor, "R M"]:
    width = max(map(len, rows))
    return torch.from_numpy(np.stack([np.pad(row, (0, width - len(row))) for row in rows])).to(device)


def _make_eval_splits(
    splits: Sequence[tuple[RowIndices, RowIndices]], n_operands: RowIndices, orders: Sequence[int], device: torch.device
) -> Iterator[EvalSplit]:
    """Yields the train and val splits, over all equations and, where there are several orders, for each of them."""
    groups = {"": np.ones(len(n_operands), dtype=bool)}
    if len(orders) > 1:
        groups |= {f"[order={k}]": n_operands == k for k in orders}
    for i, name in enumerate(("train", "val")):
        mask = np.zeros((len(splits), len(n_operands)), dtype=bool)
        for run, rows in enumerate(splits):
            mask[run, rows[i]] = True
        for suffix, group in groups.items():
            yield EvalSplit(name, suffix, slice(None), torch.from_numpy(mask & group).to(device), N_SCORED_TOKENS)
