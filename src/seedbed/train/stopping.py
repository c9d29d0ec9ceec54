"""Early stopping: which runs have gone how many records without progress on a validation reading."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from seedbed.records import Arrays
from seedbed.settings import Train


class Stopping:
    """Each run's best reading so far and the records since; `patience` 0 never stops a run."""

    def __init__(self, dials: Train, n_runs: int) -> None:
        self.patience, self.metric = dials.stop_after, dials.stop_metric
        self._sign = -1.0 if dials.stop_metric.endswith("accuracy") else 1.0
        self.best = np.full(n_runs, np.inf)
        self.waited = np.zeros(n_runs, dtype=np.int64)

    def observe(self, slots: Sequence[int], readings: NDArray[np.float64]) -> list[int]:
        """Takes one record of these slots; returns those that it is the best so far of."""
        better = []
        for slot, reading in zip(slots, (self._sign * readings).tolist(), strict=True):
            self.waited[slot] += 1
            if reading < self.best[slot]:
                self.best[slot], self.waited[slot] = reading, 0
                better.append(slot)
        return better

    def due(self, slots: Sequence[int]) -> list[int]:
        """The slots whose patience is at its end."""
        return [slot for slot in slots if self.patience and self.waited[slot] >= self.patience]

    def state(self) -> Arrays:
        return {"stopping.best": self.best.copy(), "stopping.waited": self.waited.copy()} if self.patience else {}

    def restore(self, state: Arrays) -> None:
        if self.patience:
            self.best[:], self.waited[:] = state["stopping.best"], state["stopping.waited"]
