"""Batches of labelled texts on the device: padded sequences and their labels, reshuffled every epoch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from seedbed.data.batch import Batch, EpochSampler, EvalSplit, evenly_spaced_rows, split_into_chunks
from seedbed.data.datasets import LabelledDataset
from seedbed.settings import ALL_EVAL_SETS


class LabelBatches:
    """Training and evaluation batches; all splits are stored in one array, the training texts first."""

    def __init__(
        self,
        dataset: LabelledDataset,
        seeds: Sequence[int],
        batch_sizes: Sequence[int],
        device: torch.device | str,
        accumulate: int = 1,
        eval_batches: int = 0,
        max_chunk_tokens: int = 2**15,
        eval_sets: Collection[str] = ALL_EVAL_SETS,
    ) -> None:
        """`max_chunk_tokens` bounds an evaluation chunk, over all runs together."""
        splits, device = dataset.splits, torch.device(device)
        self.tokens = torch.from_numpy(np.concatenate([split.rows for split in splits.values()])).to(device)
        self.labels = torch.from_numpy(np.concatenate([split.labels for split in splits.values()])).to(device)
        n_train = [len(splits["train"].labels)] * len(seeds)
        self.epoch_sampler = EpochSampler(n_train, batch_sizes, accumulate, seeds, device)
        self.eval_splits: list[EvalSplit] = []
        eval_rows = [np.zeros((len(seeds), 0), dtype=np.int64)]
        start, offset = 0, 0  # `start` counts evaluated samples, `offset` all samples
        for name, split in splits.items():
            if name in eval_sets:
                rows, sample_mask = evenly_spaced_rows(len(split.labels), [eval_batches * size for size in batch_sizes])
                sample_slice = slice(start, start + rows.shape[1])
                self.eval_splits.append(EvalSplit(name, "", sample_slice, torch.from_numpy(sample_mask).to(device)))
                eval_rows.append(rows + offset)
                start = sample_slice.stop
            offset += len(split.labels)
        self._max_chunk_tokens = max_chunk_tokens
        self._eval_rows = torch.from_numpy(np.concatenate(eval_rows, axis=1)).to(device)

    def prepare(self, step: int) -> None:
        self.epoch_sampler.prepare(step)

    def draw(self, batch_index: Int[Tensor, "1"]) -> Batch:
        """Returns this batch of every run."""
        return self._make_batch(*self.epoch_sampler.draw(batch_index))

    def _make_batch(self, rows: Int[Tensor, "R B"], weights: Float[Tensor, "R B"]) -> Batch:
        return Batch(self.tokens[rows], self.labels[rows][..., None], None, weights)

    def eval_chunks(self) -> Iterator[Batch]:
        """Yields the evaluated texts in chunks, split after split."""
        max_rows = self._max_chunk_tokens // (len(self._eval_rows) * self.tokens.shape[1])
        for rows in split_into_chunks(self._eval_rows, max_rows):
            yield self._make_batch(rows, torch.ones_like(rows, dtype=torch.get_default_dtype()))
