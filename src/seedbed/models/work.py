"""What one update and one record of a run ask of a machine: operations and bytes in closed form; no torch.

They need not be exact: times are measured, and this tells how the time of one shape carries over to another. Layers are
matrix products; norms, activations and the update are in the bytes. A sample's backward pass costs two forward ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from seedbed.data.facts import facts_of
from seedbed.models.count import effective_batch, lstm_body, predict_bytes
from seedbed.settings import LSTM, Arithmetic, DataFacts, Encoder, Labels, Settings

SCORED_OF_AN_EQUATION = 2  # its result and EOS
READ_SETS = 4  # that a record of a text reads, about: training, validation, tests


@dataclass(frozen=True)
class Work:
    """Operations, and bytes read and written."""

    operations: float
    bytes: float


def update_work(settings: Settings, facts: DataFacts | None = None) -> Work:
    """One update of one run: forward, backward and optimizer."""
    facts = facts or facts_of(settings.task)
    n_samples = effective_batch(settings, facts) * settings.train.accumulate
    bytes_ = 3 * predict_bytes(settings, facts) * settings.train.accumulate  # written, read back, and once more changed
    return Work(3 * n_samples * _forward(settings, facts), bytes_)


def record_work(settings: Settings, facts: DataFacts | None = None) -> Work:
    """One record of one run: forward over all samples that it reads."""
    facts = facts or facts_of(settings.task)
    n_samples = read_samples(settings, facts)
    share = n_samples / effective_batch(settings, facts)
    return Work(n_samples * _forward(settings, facts), share * predict_bytes(settings, facts))


def read_samples(settings: Settings, facts: DataFacts) -> int:
    """Samples that a record reads; of a text about, since its held-out parts are not among its facts."""
    task, train = settings.task, settings.train
    if isinstance(task, Arithmetic):
        return sum(map(task.n_equations, task.orders))
    whole = facts.n_train + facts.n_train // 2
    return min(whole, READ_SETS * train.eval_batches * train.batch_size) if train.eval_batches else whole


def _forward(settings: Settings, facts: DataFacts) -> float:
    """Operations of one sample: two for each weight that each position meets, and attention's two products."""
    model, length = settings.model, facts.context
    if isinstance(model, LSTM):
        body = 2.0 * length * lstm_body(model)
        return body + 2.0 * _scored(settings, length) * model.output_width * facts.vocabulary
    weights = 4 * model.dim**2 + 2 * model.dim * model.mlp_width
    body = model.layers * (2.0 * length * weights + 4.0 * length**2 * model.dim)
    if isinstance(model, Encoder):
        return body + 2.0 * model.dim * model.classifier_hidden
    return body + 2.0 * _scored(settings, length) * model.dim * facts.vocabulary


def _scored(settings: Settings, length: int) -> int:
    if isinstance(settings.task, Labels):
        return 1
    return SCORED_OF_AN_EQUATION if isinstance(settings.task, Arithmetic) else length
