"""Early stopping: which runs have gone how many records without progress on a validation reading."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from seedbed.records import Arrays
from seedbed.settings import TrainSettings


class EarlyStopping:
    """Each run's best reading so far and the records since; `patience` 0 never stops a run."""

    def __init__(self, train_settings: TrainSettings, n_runs: int) -> None:
        self.patience, self.metric = train_settings.stop_after, train_settings.stop_metric
        self._sign = -1.0 if train_settings.stop_metric.endswith("accuracy") else 1.0
        self.best = np.full(n_runs, np.inf)
        self.n_bad_evaluations = np.zeros(n_runs, dtype=np.int64)

    def update(self, slots: Sequence[int], values: NDArray[np.float64]) -> list[int]:
        """Takes one record of these slots; returns those that it is the best so far of."""
        better = []
        for slot, reading in zip(slots, (self._sign * values).tolist(), strict=True):
            self.n_bad_evaluations[slot] += 1
            if reading < self.best[slot]:
                self.best[slot], self.n_bad_evaluations[slot] = reading, 0
                better.append(slot)
        return better

    def slots_to_stop(self, slots: Sequence[int]) -> list[int]:
        """The slots whose patience is at its end."""
        return [slot for slot in slots if self.patience and self.n_bad_evaluations[slot] >= self.patience]

    def state(self) -> Arrays:
        return (
            {"stopping.best": self.best.copy(), "stopping.waited": self.n_bad_evaluations.copy()}
            if self.patience
            else {}
        )

    def restore(self, state: Arrays) -> None:
        if self.patience:
            self.best[:], self.n_bad_evaluations[:] = state["stopping.best"], state["stopping.waited"]
