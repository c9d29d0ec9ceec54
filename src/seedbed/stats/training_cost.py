"""The training cost of a run: compute P·B·T as report D counts it, and memory.

>>> from seedbed.records import ParameterCounts
>>> run = StoredRun("a", 0, Settings(), ParameterCounts(404_516, 399_908), "planned", 0)
>>> training_compute(run)  # 399,908 × 480 × 10,001
1919750355840.0
"""

from __future__ import annotations

from math import nan

from seedbed.errors import SeedbedError
from seedbed.models.model_size import estimate_training_bytes
from seedbed.records import StoredRun
from seedbed.settings import DatasetInfo, Settings
from seedbed.tasks.base import stored_dataset_info


def training_compute(run: StoredRun, n_updates: float | None = None) -> float:
    """C = P·B·T for this many updates (all when None): non-embedding parameters × samples per update × updates."""
    info = stored_dataset_info(run)
    updates = run.settings.n_steps(info) if n_updates is None else n_updates
    return float(run.parameters.non_embedding) * run.settings.samples_per_update(info) * updates


def predict_memory_mib(settings: Settings, info: DatasetInfo | None = None) -> float:
    """Predicted training memory in MiB; NaN if it depends on a corpus that is not available."""
    try:
        return estimate_training_bytes(settings, info) / 2**20
    except SeedbedError:
        return nan
