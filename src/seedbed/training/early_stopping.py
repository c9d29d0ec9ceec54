"""Early stopping: ends runs whose validation metric has not improved for a number of evaluations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from seedbed.records import Arrays
from seedbed.settings import TrainSettings


class EarlyStopping:
    """Each run's best value so far and the evaluations since then; with `patience` 0 no run is ever stopped."""

    def __init__(self, train_settings: TrainSettings, n_runs: int) -> None:
        self.patience, self.metric = train_settings.stop_after, train_settings.stop_metric
        self._sign = -1.0 if train_settings.stop_metric.endswith("accuracy") else 1.0
        self.best = np.full(n_runs, np.inf)
        self.n_bad_evaluations = np.zeros(n_runs, dtype=np.int64)

    def update(self, slots: Sequence[int], values: NDArray[np.float64]) -> list[int]:
        """Adds one evaluation of these slots; returns the slots that improved."""
        improved = []
        for slot, value in zip(slots, (self._sign * values).tolist(), strict=True):
            self.n_bad_evaluations[slot] += 1
            if value < self.best[slot]:
                self.best[slot], self.n_bad_evaluations[slot] = value, 0
                improved.append(slot)
        return improved

    def slots_to_stop(self, slots: Sequence[int]) -> list[int]:
        """The slots whose patience is exhausted."""
        return [slot for slot in slots if self.patience and self.n_bad_evaluations[slot] >= self.patience]

    def state(self) -> Arrays:
        if not self.patience:
            return {}
        return {"stopping.best": self.best.copy(), "stopping.waited": self.n_bad_evaluations.copy()}

    def restore(self, state: Arrays) -> None:
        if self.patience:
            self.best[:], self.n_bad_evaluations[:] = state["stopping.best"], state["stopping.waited"]
