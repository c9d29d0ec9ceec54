"""Models that were asked for lately, kept up to a size; whether a run is there the store is asked each time."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Final, Literal, TypeAlias

from seedbed.sampling.loaded_run import LoadedRun
from seedbed.store.store import Store

CheckpointStep: TypeAlias = int | Literal["last", "best"]
CacheKey: TypeAlias = tuple[str, int, str]  # run, step, digest of the weights
MAX_CACHED_BYTES: Final = 1 << 29  # of weights; the model that was asked for last stays, however large


class ModelCache:
    """The models of one home by run, step and the digest of their weights."""

    def __init__(self, home: Path, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self.home, self.max_bytes = home, max_bytes
        self._models: OrderedDict[CacheKey, tuple[LoadedRun, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._models)

    def resolve_key(self, run: str, step: CheckpointStep) -> CacheKey:
        """What the model is known by."""
        with Store.open_read_only(self.home) as store:
            kept = store.find_checkpoint(run, step)
        return kept.run, kept.step, kept.digest

    def get_model(self, run: str, step: CheckpointStep) -> LoadedRun:
        """The run at a kept step; a run that was deleted meanwhile is not found, warm or not."""
        key = self.resolve_key(run, step)
        if key not in self._models:
            self._models[key] = self._load(*key)
        self._models.move_to_end(key)
        self._evict()
        return self._models[key][0]

    def _load(self, run: str, step: int, _: str) -> tuple[LoadedRun, int]:
        with Store.open_read_only(self.home) as store:
            weights = store.load_weights(run, step)
            return LoadedRun(store.run(run), step, weights), sum(array.nbytes for array in weights.values())

    def _evict(self) -> None:
        """Forgets the models that were not asked for the longest."""
        while len(self._models) > 1 and sum(size for _, size in self._models.values()) > self.max_bytes:
            self._models.popitem(last=False)
