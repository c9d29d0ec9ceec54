"""Labelled texts on the device: padded segments and their labels, shuffled anew each epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from seedbed.data.prepared import PreparedLabels
from seedbed.data.samples import Batch, Epochs, Part, in_chunks, spread_out


class LabelBatches:
    """All parts lie in one table, the training texts first."""

    def __init__(
        self,
        labelled: PreparedLabels,
        seeds: Sequence[int],
        batch_sizes: Sequence[int],
        device: torch.device,
        accumulate: int = 1,
        eval_batches: int = 0,
        at_once: int = 2**15,
    ) -> None:
        """`at_once`: tokens that are evaluated together, of all runs."""
        parts = labelled.parts
        self.tokens = torch.from_numpy(np.concatenate([part.rows for part in parts.values()])).to(device)
        self.labels = torch.from_numpy(np.concatenate([part.labels for part in parts.values()])).to(device)
        self.epochs = Epochs([len(parts["train"].labels)] * len(seeds), batch_sizes, accumulate, seeds, device)
        self.parts: list[Part] = []
        chosen, start, n_before = [], 0, 0
        for name, part in parts.items():
            rows, counted = spread_out(len(part.labels), [eval_batches * size for size in batch_sizes])
            span = slice(start, start + rows.shape[1])
            self.parts.append(Part(name, "", span, torch.from_numpy(counted).to(device)))
            chosen.append(rows + n_before)
            start, n_before = span.stop, n_before + len(part.labels)
        self._at_once = at_once
        self._evaluated = torch.from_numpy(np.concatenate(chosen, axis=1)).to(device)

    def prepare(self, step: int) -> None:
        self.epochs.prepare(step)

    def draw(self, number: Int[Tensor, "1"]) -> Batch:
        """Batch `number` of every run."""
        return self._batch(*self.epochs.draw(number))

    def _batch(self, rows: Int[Tensor, "R B"], weights: Float[Tensor, "R B"]) -> Batch:
        return Batch(self.tokens[rows], self.labels[rows][..., None], None, weights)

    def chunks(self) -> Iterator[Batch]:
        """The texts that are evaluated, part after part, some at a time."""
        for rows in in_chunks(self._evaluated, self._at_once // (len(self._evaluated) * self.tokens.shape[1])):
            yield self._batch(rows, torch.ones_like(rows, dtype=torch.get_default_dtype()))
