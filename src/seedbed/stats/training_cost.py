"""What a run costs: compute P·B·T as report D counts it, training FLOPs, and memory.

>>> from seedbed.records import Parameters
>>> compute(Settings(), Parameters(404_516, 399_908))  # 399,908 × 480 × 10,001
1919750355840.0
"""

from __future__ import annotations

from math import nan

from seedbed.data.dataset_info import get_dataset_info
from seedbed.errors import SeedbedError
from seedbed.models.model_size import estimate_training_bytes, n_training_samples
from seedbed.records import ParameterCounts
from seedbed.settings import ArithmeticSettings, Settings

FLOPS_PER_PARAMETER = 6  # and token: 2 forward, 4 backward (Kaplan et al. 2020, section 2.1)


def training_compute(settings: Settings, parameters: ParameterCounts, n_updates: float | None = None) -> float:
    """C = P·B·T up to these steps (all when None): parameters without tables × samples per update × updates."""
    updates = settings.n_steps(get_dataset_info(settings.task)) if n_updates is None else n_updates
    return float(parameters.non_embedding) * samples_per_update(settings) * updates


def samples_per_update(settings: Settings) -> int:
    """B: batch size times accumulated batches; equations are few, so it is capped at the training set."""
    wanted = settings.train.batch_size * settings.train.accumulate
    return min(wanted, n_training_samples(settings.task)) if isinstance(settings.task, ArithmeticSettings) else wanted


def training_flops(parameters: ParameterCounts, tokens: float) -> float:
    """6·P for every token trained on; attention's scores, which grow with the context, are left out."""
    return FLOPS_PER_PARAMETER * float(parameters.non_embedding) * tokens


def predict_memory_mib(settings: Settings) -> float:
    """Predicted memory while training, in MiB; NaN where it hangs on a corpus that is not here."""
    try:
        return estimate_training_bytes(settings) / 2**20
    except SeedbedError:
        return nan
