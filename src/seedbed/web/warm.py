"""Models that were asked for lately, kept up to a size; whether a run is there the store is asked each time."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Final, Literal, TypeAlias

from seedbed.generate.load import Loaded
from seedbed.store.store import Store

Step: TypeAlias = int | Literal["last", "best"]
Key: TypeAlias = tuple[str, int, str]  # run, step, digest of the weights
MOST_BYTES: Final = 1 << 29  # of weights; the model that was asked for last stays, however large


class Warm:
    """The models of one home by run, step and the digest of their weights."""

    def __init__(self, home: Path, most_bytes: int = MOST_BYTES) -> None:
        self.home, self.most_bytes = home, most_bytes
        self._models: OrderedDict[Key, tuple[Loaded, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._models)

    def key(self, run: str, step: Step) -> Key:
        """What the model is known by."""
        with Store.read(self.home) as store:
            kept = store.kept(run, step)
        return kept.run, kept.step, kept.digest

    def model(self, run: str, step: Step) -> Loaded:
        """The run at a kept step; a run that was deleted meanwhile is not found, warm or not."""
        key = self.key(run, step)
        if key not in self._models:
            self._models[key] = self._loaded(*key)
        self._models.move_to_end(key)
        self._cool()
        return self._models[key][0]

    def _loaded(self, run: str, step: int, _: str) -> tuple[Loaded, int]:
        with Store.read(self.home) as store:
            weights = store.load_weights(run, step)
            return Loaded(store.run(run), step, weights), sum(array.nbytes for array in weights.values())

    def _cool(self) -> None:
        """Forgets the models that were not asked for the longest."""
        while len(self._models) > 1 and sum(size for _, size in self._models.values()) > self.most_bytes:
            self._models.popitem(last=False)
