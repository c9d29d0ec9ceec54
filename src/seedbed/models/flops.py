"""FLOPs and memory traffic of one update and of one evaluation of a run, in closed form and without torch.

They need not be exact: times are measured, and these numbers only rescale the time of one shape to another. FLOPs count
matrix products; norms, activations and the optimizer step enter as bytes. A backward pass costs two forward passes.
"""

from __future__ import annotations

from dataclasses import dataclass

from seedbed.models.model_size import effective_batch_size, estimate_training_bytes
from seedbed.settings import DatasetInfo, Settings


@dataclass(frozen=True)
class Workload:
    """Floating-point operations, and bytes read and written."""

    flops: float
    bytes: float


def update_workload(settings: Settings, dataset_info: DatasetInfo | None = None) -> Workload:
    """One update of one run: forward, backward and optimizer."""
    dataset_info = dataset_info or settings.task.dataset_info()
    n_samples = settings.samples_per_update(dataset_info)
    # everything is written, read back and updated once
    bytes_ = 3 * estimate_training_bytes(settings, dataset_info) * settings.train.accumulate
    whole = Workload(3 * n_samples * _forward_flops(settings, dataset_info), bytes_)
    return _computed_part(whole, settings, effective_batch_size(settings, dataset_info))


def evaluation_workload(settings: Settings, dataset_info: DatasetInfo | None = None) -> Workload:
    """One evaluation of one run: a forward pass over all evaluation samples."""
    dataset_info = dataset_info or settings.task.dataset_info()
    n_samples = settings.task.n_eval_samples(settings.train, dataset_info)
    n_batches = n_samples / effective_batch_size(settings, dataset_info)
    bytes_ = n_batches * estimate_training_bytes(settings, dataset_info)
    return _computed_part(Workload(n_samples * _forward_flops(settings, dataset_info), bytes_), settings, n_samples)


def _computed_part(workload: Workload, settings: Settings, n_samples: int) -> Workload:
    """The workload without what the samples of a batch share; dropout leaves nothing to share."""
    has_dropout = any(value for name, value in settings.model if name.endswith("dropout"))
    if not n_samples or not settings.model.caches_prefixes or has_dropout:
        return workload
    fraction = settings.task.computed_fraction(n_samples)
    return Workload(workload.flops * fraction, workload.bytes * fraction)


def _forward_flops(settings: Settings, dataset_info: DatasetInfo) -> float:
    n_scored = settings.task.n_scored_positions(dataset_info)
    return float(settings.model.forward_flops(dataset_info, n_scored))
