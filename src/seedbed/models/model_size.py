"""Parameter counts and training memory in closed form, without torch; the tests compare them with the modules.

`dataset_info` (vocabulary, context length, classes, samples) is looked up where it is not given.

>>> count_parameters(Settings())
ParameterCounts(total=404516, non_embedding=399908, frozen=0)
"""

from __future__ import annotations

from typing import Final

from seedbed.kind_settings import EncoderSettings, LSTMSettings, TransformerSettings
from seedbed.records import ParameterCounts
from seedbed.settings import OPTIMIZERS, DatasetInfo, Settings
from seedbed.tasks.base import Task

BYTES_PER_FLOAT32: Final = 4


def count_parameters(settings: Settings, dataset_info: DatasetInfo | None = None) -> ParameterCounts:
    """Trainable parameters; `non_embedding` excludes token and position embeddings, and so a tied output matrix."""
    model, dataset_info = settings.model, dataset_info or settings.task.dataset_info()
    if isinstance(model, LSTMSettings):
        body = count_lstm_body_parameters(model)
    else:
        body = count_transformer_body_parameters(model)
    non_embedding = body + _count_output_parameters(settings, dataset_info)
    embedding = _count_embedding_parameters(settings, dataset_info)
    if model.embeddings is not None:
        return ParameterCounts(total=non_embedding, non_embedding=non_embedding, frozen=embedding)
    return ParameterCounts(total=embedding + non_embedding, non_embedding=non_embedding)


def count_attention_parameters(model: TransformerSettings) -> int:
    """Four dim × dim projections: queries, keys, values, output."""
    qkv = 3 * _count_linear_parameters(model.dim, model.dim, model.has_qkv_bias)
    return qkv + _count_linear_parameters(model.dim, model.dim, model.attention_bias)


def count_block_parameters(model: TransformerSettings) -> int:
    """Attention, a two-layer MLP and two LayerNorms."""
    up, down = (model.dim, model.mlp_width), (model.mlp_width, model.dim)
    mlp = _count_linear_parameters(*up, model.mlp_bias) + _count_linear_parameters(*down, model.mlp_bias)
    return count_attention_parameters(model) + mlp + 2 * _count_norm_parameters(model.dim)


def count_transformer_body_parameters(model: TransformerSettings) -> int:
    """All blocks, and the final LayerNorm if there is one."""
    return model.layers * count_block_parameters(model) + model.final_norm * _count_norm_parameters(model.dim)


def count_lstm_body_parameters(model: LSTMSettings) -> int:
    """Four gates per cell, each a matrix from [x; h] to h; the first cell's x has width dim. Plus the projection."""
    input_widths = [model.dim] + [model.hidden_width] * (model.layers - 1)
    biases = model.gate_biases * model.hidden_width
    cells = sum(4 * ((width + model.hidden_width) * model.hidden_width + biases) for width in input_widths)
    if model.projection is None:
        return cells
    return cells + _count_linear_parameters(model.hidden_width, model.projection, True)


def count_classifier_parameters(model: EncoderSettings, n_classes: int) -> int:
    """Hidden layer, BatchNorm if enabled, and output layer."""
    hidden = _count_linear_parameters(model.dim, model.classifier_hidden, True)
    norm = model.batch_norm * _count_norm_parameters(model.classifier_hidden)
    return hidden + norm + _count_linear_parameters(model.classifier_hidden, n_classes, model.output_bias)


def _count_embedding_parameters(settings: Settings, dataset_info: DatasetInfo) -> int:
    model = settings.model
    has_position_table = not isinstance(model, LSTMSettings) and model.positions == "learned"
    return (dataset_info.vocab_size + has_position_table * dataset_info.context_length) * model.dim


def _count_output_parameters(settings: Settings, dataset_info: DatasetInfo) -> int:
    model, vocab_size = settings.model, dataset_info.vocab_size
    if isinstance(model, EncoderSettings):
        return count_classifier_parameters(model, dataset_info.n_classes)
    width = model.output_width if isinstance(model, LSTMSettings) else model.dim
    return (0 if model.tied else width * vocab_size) + model.output_bias * vocab_size


def _count_linear_parameters(d_in: int, d_out: int, bias: bool) -> int:
    return d_in * d_out + bias * d_out


def _count_norm_parameters(width: int) -> int:
    return 2 * width


def n_training_samples(task: Task, dataset_info: DatasetInfo | None = None) -> int:
    """Samples in the training set."""
    return (dataset_info or task.dataset_info()).n_train


def effective_batch_size(settings: Settings, dataset_info: DatasetInfo | None = None) -> int:
    """Samples per batch: the batch size, capped at the size of the training set."""
    return min(settings.train.batch_size, n_training_samples(settings.task, dataset_info))


def estimate_training_bytes(settings: Settings, dataset_info: DatasetInfo | None = None) -> int:
    """Estimated memory of one run while training in float32; monotonic in every size, but not a measurement.

    Weights, gradients, optimizer moments, and the activations of one batch; the workspace of kernels is left out.
    """
    dataset_info = dataset_info or settings.task.dataset_info()
    counts = count_parameters(settings, dataset_info)
    copies = 2 + OPTIMIZERS[settings.train.optimizer].n_moments + (settings.train.ema > 0)
    state = copies * counts.total + counts.frozen
    tokens = effective_batch_size(settings, dataset_info) * dataset_info.context_length
    return BYTES_PER_FLOAT32 * (state + tokens * _activations_per_token(settings, dataset_info))


def _activations_per_token(settings: Settings, dataset_info: DatasetInfo) -> int:
    """Floats saved for the backward pass, per token of a batch."""
    model = settings.model
    logits = (
        0 if isinstance(model, EncoderSettings) else 2 * dataset_info.vocab_size
    )  # and their softmax; an encoder has few
    if isinstance(model, TransformerSettings):
        scores = 2 * model.heads * dataset_info.context_length  # and their softmax
        # a block saves its input, q, k, v, head outputs, two residual sums, two norms, and the MLP's hidden layer twice
        return model.dim + model.layers * (9 * model.dim + 2 * model.mlp_width + scores) + logits
    # a cell saves [x; h], the four gates before and after, c, tanh c and h
    return model.dim + model.layers * (model.dim + 12 * model.hidden_width) + 2 * (model.projection or 0) + logits
