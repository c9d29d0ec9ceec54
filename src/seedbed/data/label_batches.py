"""Labelled texts on the device: padded segments and their labels, shuffled anew each epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from seedbed.data.batch import Batch, EpochSampler, EvalSplit, evenly_spaced_rows, split_into_chunks
from seedbed.data.datasets import LabelledDataset


class LabelBatches:
    """All parts lie in one table, the training texts first."""

    def __init__(
        self,
        dataset: LabelledDataset,
        seeds: Sequence[int],
        batch_sizes: Sequence[int],
        device: torch.device,
        accumulate: int = 1,
        eval_batches: int = 0,
        max_chunk_tokens: int = 2**15,
    ) -> None:
        """`at_once`: tokens that are evaluated together, of all runs."""
        parts = dataset.splits
        self.tokens = torch.from_numpy(np.concatenate([part.rows for part in parts.values()])).to(device)
        self.labels = torch.from_numpy(np.concatenate([part.labels for part in parts.values()])).to(device)
        self.epoch_sampler = EpochSampler(
            [len(parts["train"].labels)] * len(seeds), batch_sizes, accumulate, seeds, device
        )
        self.eval_splits: list[EvalSplit] = []
        chosen, start, n_before = [], 0, 0
        for name, part in parts.items():
            rows, counted = evenly_spaced_rows(len(part.labels), [eval_batches * size for size in batch_sizes])
            span = slice(start, start + rows.shape[1])
            self.eval_splits.append(EvalSplit(name, "", span, torch.from_numpy(counted).to(device)))
            chosen.append(rows + n_before)
            start, n_before = span.stop, n_before + len(part.labels)
        self._max_chunk_tokens = max_chunk_tokens
        self._eval_rows = torch.from_numpy(np.concatenate(chosen, axis=1)).to(device)

    def prepare(self, step: int) -> None:
        self.epoch_sampler.prepare(step)

    def draw(self, batch_index: Int[Tensor, "1"]) -> Batch:
        """Batch `number` of every run."""
        return self._make_batch(*self.epoch_sampler.draw(batch_index))

    def _make_batch(self, rows: Int[Tensor, "R B"], weights: Float[Tensor, "R B"]) -> Batch:
        return Batch(self.tokens[rows], self.labels[rows][..., None], None, weights)

    def eval_chunks(self) -> Iterator[Batch]:
        """The texts that are evaluated, part after part, some at a time."""
        for rows in split_into_chunks(
            self._eval_rows, self._max_chunk_tokens // (len(self._eval_rows) * self.tokens.shape[1])
        ):
            yield self._make_batch(rows, torch.ones_like(rows, dtype=torch.get_default_dtype()))
