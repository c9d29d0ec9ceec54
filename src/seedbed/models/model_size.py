"""Parameter counts, training memory and work of a run, without torch, from what its model family and task say.

`dataset_info` (vocabulary, context length, classes, samples) is looked up where it is not given.

>>> count_parameters(Settings())
ParameterCounts(total=404516, non_embedding=399908, frozen=0)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from seedbed.records import ParameterCounts
from seedbed.settings import OPTIMIZERS, DatasetInfo, Settings
from seedbed.tasks.base import Task

BYTES_PER_FLOAT32: Final = 4


def count_parameters(settings: Settings, dataset_info: DatasetInfo | None = None) -> ParameterCounts:
    """Trainable parameters; `non_embedding` excludes token and position embeddings, and so a tied output matrix."""
    counts: ParameterCounts = settings.model.count_parameters(dataset_info or settings.task.dataset_info())
    return counts


def count_matrix_weights(settings: Settings, dataset_info: DatasetInfo | None = None) -> int:
    """Weights of the matrices of hidden layers (role "matrix"): neither embeddings nor the output layer."""
    shapes = settings.model.layer_shapes(dataset_info or settings.task.dataset_info())
    return sum(prod(shape) for name, shape in shapes.items() if len(shape) > 1 and not name.endswith("output.weight"))


def n_training_samples(task: Task, dataset_info: DatasetInfo | None = None) -> int:
    """Samples in the training set."""
    return (dataset_info or task.dataset_info()).n_train


def effective_batch_size(settings: Settings, dataset_info: DatasetInfo | None = None) -> int:
    """Samples per batch: the batch size, capped at the size of the training set."""
    return min(settings.train.batch_size, n_training_samples(settings.task, dataset_info))


def estimate_training_bytes(settings: Settings, dataset_info: DatasetInfo | None = None, device: str = "cpu") -> int:
    """Estimated memory of one run while training; monotonic in every size, but not a measurement.

    Weights, gradients, optimizer moments, and the activations of one batch; the workspace of kernels is left out.
    Attention keeps no scores, except on a CPU with dropout on them; on a GPU with bf16 activations take half, but
    logits are in float32 everywhere.
    """
    dataset_info = dataset_info or settings.task.dataset_info()
    tokens = effective_batch_size(settings, dataset_info) * dataset_info.context_length
    activations = int(tokens * _activation_bytes_per_token(settings, dataset_info, device))
    return estimate_state_bytes(settings, dataset_info) + activations


def estimate_peak_bytes(settings: Settings, dataset_info: DatasetInfo | None = None, device: str = "cpu") -> int:
    """Estimated memory of one run at its peak: training and, on a CPU, the copies that a checkpoint is written from.

    Those are of weights and moments, and of the weights once more, so as large as the state with its gradients.
    """
    dataset_info = dataset_info or settings.task.dataset_info()
    copies = estimate_state_bytes(settings, dataset_info) if device == "cpu" else 0
    return estimate_training_bytes(settings, dataset_info, device) + copies


def estimate_state_bytes(settings: Settings, dataset_info: DatasetInfo | None = None) -> int:
    """Bytes of weights, gradients and optimizer moments of one run."""
    dataset_info = dataset_info or settings.task.dataset_info()
    counts = count_parameters(settings, dataset_info)
    optimizer = OPTIMIZERS[settings.train.optimizer]
    copies = 2 + optimizer.n_moments + (settings.train.ema > 0)
    state = copies * counts.total + counts.frozen
    if optimizer.n_matrix_moments is not None:
        n_saved = optimizer.n_moments - optimizer.n_matrix_moments
        state -= n_saved * count_matrix_weights(settings, dataset_info)
    return BYTES_PER_FLOAT32 * state


def _activation_bytes_per_token(settings: Settings, dataset_info: DatasetInfo, device: str) -> float:
    activations = settings.model.activations_per_token(dataset_info)
    if device != "cpu" or not settings.get("model.attention_dropout"):
        activations -= settings.model.attention_scores_per_token(dataset_info)
    n_logits = 0 if dataset_info.n_classes else 2 * dataset_info.vocab_size  # and their softmax
    hidden = max(0, activations - n_logits)
    is_16_bit = device != "cpu" and settings.train.precision == "bf16"
    return BYTES_PER_FLOAT32 * n_logits + hidden * (2.0 if is_16_bit else 4.0)


# ---- work ----
# It need not be exact: times are measured, and these numbers only rescale the time of one shape to another. FLOPs count
# matrix products; norms, activations and the optimizer step enter as bytes. A backward pass costs two forward passes.


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
    """The workload without what the samples of a batch share."""
    if not n_samples or not settings.model.can_share_prefixes:
        return workload
    fraction = settings.task.computed_fraction(n_samples)
    return Workload(workload.flops * fraction, workload.bytes * fraction)


def _forward_flops(settings: Settings, dataset_info: DatasetInfo) -> float:
    n_scored = settings.task.n_scored_positions(dataset_info)
    return float(settings.model.forward_flops(dataset_info, n_scored))
