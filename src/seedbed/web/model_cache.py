"""An LRU cache of loaded models, bounded in bytes; every request still checks the store that the run exists."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Final, Literal, TypeAlias

from seedbed.sampling.loaded_run import LoadedRun
from seedbed.store import open_store, stored_vocabulary

CheckpointStep: TypeAlias = int | Literal["last", "best"]
CacheKey: TypeAlias = tuple[str, int, str]  # run, step, digest of the weights
MAX_CACHED_BYTES: Final = 1 << 29  # of weights; the most recently used model always stays, however large


class ModelCache:
    """The models of one home, by run, step and digest of the weights."""

    def __init__(self, home: Path, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self.home, self.max_bytes = home, max_bytes
        self._models: OrderedDict[CacheKey, tuple[LoadedRun, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._models)

    def resolve_key(self, run: str, step: CheckpointStep) -> CacheKey:
        """The cache key of a checkpoint; raises when the store has no such run or step."""
        with open_store(self.home, read_only=True) as store:
            checkpoint = store.find_checkpoint(run, step)
        return checkpoint.run, checkpoint.step, checkpoint.digest

    def get_model(self, run: str, step: CheckpointStep) -> LoadedRun:
        """The run at a stored step; a run deleted since is not found, even if it is still cached."""
        key = self.resolve_key(run, step)
        if key not in self._models:
            self._models[key] = self._load(*key)
        self._models.move_to_end(key)
        self._evict()
        return self._models[key][0]

    def _load(self, run: str, step: int, _: str) -> tuple[LoadedRun, int]:
        with open_store(self.home, read_only=True) as store:
            weights = store.load_weights(run, step)
            stored = store.run(run)
            loaded = LoadedRun(stored, step, weights, vocabulary=stored_vocabulary(store, stored))
            return loaded, sum(array.nbytes for array in weights.values())

    def _evict(self) -> None:
        """Drops the least recently used models until the rest fit."""
        while len(self._models) > 1 and sum(size for _, size in self._models.values()) > self.max_bytes:
            self._models.popitem(last=False)
