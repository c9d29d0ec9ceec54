"""Batches of equations on the device: each run's equation table, split and batches, drawn from its own random stream.

batches = EquationBatches(settings, seeds, device, limits)
batch = batches.draw(batch_index)      # for every run: inputs, targets, scored positions, sample weights
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from seedbed.data.batch import Batch, EpochSampler, EvalSplit, MicroBatchLayout, RowIndices
from seedbed.settings import Settings
from seedbed.tasks.base import BatchLimits
from seedbed.tasks.equations import EquationTable, EquationTask

EVAL_CHUNK_EQUATIONS = 4096  # equations evaluated at once


class EquationBatches:
    """Batches of equations; each distinct beginning of an equation is computed only once, where the limits allow it."""

    def __init__(
        self, settings: Sequence[Settings], seeds: Sequence[int], device_name: str, limits: BatchLimits
    ) -> None:
        device = torch.device(device_name)
        tasks: list[EquationTask] = [run.task for run in settings]
        tables_by_key = {key: task.build_table() for key, task in {task.table_key(): task for task in tasks}.items()}
        tables = [tables_by_key[task.table_key()] for task in tasks]
        first_table = tables[0]  # tables of a pack have the same shape and differ at most in their tokens
        self.n_equations, self.n_scored = first_table.scored_positions.shape
        self.tokens = _stack_tables([table.tokens for table in tables], device)
        self.scored_positions = self.is_scored = None
        if not _scores_last_tokens(first_table):
            self.scored_positions = torch.from_numpy(first_table.scored_positions).to(device)
        if first_table.is_scored is not None:
            self.is_scored = torch.from_numpy(first_table.is_scored).to(device)
        splits = [task.split_rows(seed) for task, seed in zip(tasks, seeds, strict=True)]
        self.train_rows = _pad_rows([train for train, _ in splits], device)
        every_split = _make_eval_splits(splits, first_table, device)
        self.eval_splits = [split for split in every_split if split.name in settings[0].train.eval_sets]
        layout = MicroBatchLayout([len(train) for train, _ in splits], settings, device)
        self.epoch_sampler = EpochSampler(layout, seeds)
        batch_size = layout.max_update_size // layout.accumulate
        self.prefix_length = _best_prefix_length(first_table, batch_size) if limits.can_share_prefixes else 0
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
            scored = slice(-self.n_scored, None)
            return Batch(inputs, targets[..., scored], scored, weights, None, *prefixes)
        positions = self.scored_positions[rows] - self.prefix_length
        target_mask = None if self.is_scored is None else self.is_scored[rows]
        return Batch(inputs, targets.gather(2, positions), positions, weights, target_mask, *prefixes)

    def eval_chunks(self) -> Iterator[Batch]:
        """Yields all equations in table order, in chunks, whichever sets are evaluated."""
        for start in range(0, self.n_equations if self.eval_splits else 0, EVAL_CHUNK_EQUATIONS):
            end = min(start + EVAL_CHUNK_EQUATIONS, self.n_equations)
            rows = torch.arange(start, end, device=self.train_rows.device).expand(len(self.train_rows), -1)
            yield self._make_batch(rows, torch.ones_like(rows, dtype=torch.get_default_dtype()))


def _scores_last_tokens(table: EquationTable) -> bool:
    """Whether all equations are scored at their last positions, which a slice can express."""
    n, k = table.tokens.shape[1] - 1, table.scored_positions.shape[1]
    return table.is_scored is None and bool((table.scored_positions == np.arange(n - k, n)).all())


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
    splits: Sequence[tuple[RowIndices, RowIndices]], table: EquationTable, device: torch.device
) -> Iterator[EvalSplit]:
    """Yields the train and val splits, over all equations and for each group of them."""
    n, n_scored = table.scored_positions.shape
    varies = table.is_scored is not None
    counts = torch.from_numpy(table.n_scored).to(device) if varies else n_scored
    for i, name in enumerate(("train", "val")):
        mask = np.zeros((len(splits), n), dtype=bool)
        for run, rows in enumerate(splits):
            mask[run, rows[i]] = True
        for suffix, group in {"": np.ones(n, dtype=bool), **table.groups}.items():
            yield EvalSplit(name, suffix, slice(None), torch.from_numpy(mask & group).to(device), counts, varies)
