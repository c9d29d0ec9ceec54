"""What one update and one record of a run ask of a machine: operations and bytes in closed form; no torch.

They need not be exact: times are measured, and this tells how the time of one shape carries over to another. Layers are
matrix products; norms, activations and the update are in the bytes. A sample's backward pass costs two forward ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from seedbed.data.dataset_info import get_dataset_info
from seedbed.models.model_size import count_lstm_body_parameters, effective_batch_size, estimate_training_bytes
from seedbed.settings import ArithmeticSettings, DatasetInfo, EncoderSettings, LabelsSettings, LSTMSettings, Settings

SCORED_TOKENS_PER_EQUATION = 2  # its result and EOS
N_EVALUATION_SETS = 4  # that a record of a text reads, about: training, validation, tests


@dataclass(frozen=True)
class Workload:
    """Operations, and bytes read and written."""

    flops: float
    bytes: float


def update_workload(settings: Settings, dataset_info: DatasetInfo | None = None) -> Workload:
    """One update of one run: forward, backward and optimizer."""
    dataset_info = dataset_info or get_dataset_info(settings.task)
    n_samples = effective_batch_size(settings, dataset_info) * settings.train.accumulate
    bytes_ = (
        3 * estimate_training_bytes(settings, dataset_info) * settings.train.accumulate
    )  # written, read back, and once more changed
    return Workload(3 * n_samples * _forward_flops(settings, dataset_info), bytes_)


def evaluation_workload(settings: Settings, dataset_info: DatasetInfo | None = None) -> Workload:
    """One record of one run: forward over all samples that it reads."""
    dataset_info = dataset_info or get_dataset_info(settings.task)
    n_samples = n_evaluation_samples(settings, dataset_info)
    share = n_samples / effective_batch_size(settings, dataset_info)
    return Workload(
        n_samples * _forward_flops(settings, dataset_info), share * estimate_training_bytes(settings, dataset_info)
    )


def n_evaluation_samples(settings: Settings, dataset_info: DatasetInfo) -> int:
    """Samples that a record reads; of a text about, since its held-out parts are not among its facts."""
    task, train = settings.task, settings.train
    if isinstance(task, ArithmeticSettings):
        return sum(map(task.n_equations, task.orders))
    whole = dataset_info.n_train + dataset_info.n_train // 2
    return min(whole, N_EVALUATION_SETS * train.eval_batches * train.batch_size) if train.eval_batches else whole


def _forward_flops(settings: Settings, facts: DatasetInfo) -> float:
    """Operations of one sample: two for each weight that each position meets, and attention's two products."""
    model, length = settings.model, facts.context_length
    if isinstance(model, LSTMSettings):
        body = 2.0 * length * count_lstm_body_parameters(model)
        return body + 2.0 * _n_scored_positions(settings, length) * model.output_width * facts.vocab_size
    weights = 4 * model.dim**2 + 2 * model.dim * model.mlp_width
    body = model.layers * (2.0 * length * weights + 4.0 * length**2 * model.dim)
    if isinstance(model, EncoderSettings):
        return body + 2.0 * model.dim * model.classifier_hidden
    return body + 2.0 * _n_scored_positions(settings, length) * model.dim * facts.vocab_size


def _n_scored_positions(settings: Settings, length: int) -> int:
    if isinstance(settings.task, LabelsSettings):
        return 1
    return SCORED_TOKENS_PER_EQUATION if isinstance(settings.task, ArithmeticSettings) else length
