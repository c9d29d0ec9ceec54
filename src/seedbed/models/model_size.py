"""Sizes of models in closed form: parameters, and memory while training; no torch, tested against the modules.

Vocabulary, context, labels and samples are facts of the data; without them they are looked up (arithmetic: computed).

>>> count_parameters(Settings())
Parameters(total=404516, non_embedding=399908, frozen=0)
"""

from __future__ import annotations

from typing import Final

from seedbed.data.dataset_info import get_dataset_info
from seedbed.records import ParameterCounts
from seedbed.settings import DatasetInfo, EncoderSettings, LSTMSettings, Settings, TaskSettings, TransformerSettings

BYTES_PER_FLOAT32: Final = 4  # float32
MOMENTS_PER_WEIGHT: Final = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}


def count_parameters(settings: Settings, dataset_info: DatasetInfo | None = None) -> ParameterCounts:
    """Learnable numbers; `non_embedding` leaves out token and position tables, and with them a tied output's matrix."""
    model, dataset_info = settings.model, dataset_info or get_dataset_info(settings.task)
    body = (
        count_lstm_body_parameters(model)
        if isinstance(model, LSTMSettings)
        else count_transformer_body_parameters(model)
    )
    non_embedding = body + _count_output_parameters(settings, dataset_info)
    tables = _count_embedding_parameters(settings, dataset_info)
    if model.embeddings is not None:
        return ParameterCounts(total=non_embedding, non_embedding=non_embedding, frozen=tables)
    return ParameterCounts(total=tables + non_embedding, non_embedding=non_embedding)


def count_attention_parameters(model: TransformerSettings) -> int:
    """Four maps from dim to dim: queries, keys, values, output."""
    qkv = 3 * _count_linear_parameters(model.dim, model.dim, model.has_qkv_bias)
    return qkv + _count_linear_parameters(model.dim, model.dim, model.attention_bias)


def count_block_parameters(model: TransformerSettings) -> int:
    """Attention, a two-layer MLP and two LayerNorms."""
    up, down = (model.dim, model.mlp_width), (model.mlp_width, model.dim)
    mlp = _count_linear_parameters(*up, model.mlp_bias) + _count_linear_parameters(*down, model.mlp_bias)
    return count_attention_parameters(model) + mlp + 2 * _count_norm_parameters(model.dim)


def count_transformer_body_parameters(model: TransformerSettings) -> int:
    """The blocks, and the final LayerNorm where there is one."""
    return model.layers * count_block_parameters(model) + model.final_norm * _count_norm_parameters(model.dim)


def count_lstm_body_parameters(model: LSTMSettings) -> int:
    """Four gates a cell, each a map from [x; h] to the state; only the first cell sees the token table. Projection."""
    below = [model.dim] + [model.hidden_width] * (model.layers - 1)
    biases = model.gate_biases * model.hidden_width
    cells = sum(4 * ((width + model.hidden_width) * model.hidden_width + biases) for width in below)
    return cells + (
        0 if model.projection is None else _count_linear_parameters(model.hidden_width, model.projection, True)
    )


def count_classifier_parameters(model: EncoderSettings, classes: int) -> int:
    """A hidden layer, with BatchNorm where asked for, and the output."""
    hidden = _count_linear_parameters(
        model.dim, model.classifier_hidden, True
    ) + model.batch_norm * _count_norm_parameters(model.classifier_hidden)
    return hidden + _count_linear_parameters(model.classifier_hidden, classes, model.output_bias)


def _count_embedding_parameters(settings: Settings, facts: DatasetInfo) -> int:
    model = settings.model
    has_positions = not isinstance(model, LSTMSettings) and model.positions == "learned"
    return (facts.vocab_size + has_positions * facts.context_length) * model.dim


def _count_output_parameters(settings: Settings, facts: DatasetInfo) -> int:
    model, size = settings.model, facts.vocab_size
    if isinstance(model, EncoderSettings):
        return count_classifier_parameters(model, facts.n_classes)
    width = model.output_width if isinstance(model, LSTMSettings) else model.dim
    return (0 if model.tied else width * size) + model.output_bias * size


def _count_linear_parameters(n_in: int, n_out: int, bias: bool) -> int:
    return n_in * n_out + bias * n_out


def _count_norm_parameters(width: int) -> int:
    return 2 * width


def n_training_samples(task: TaskSettings, dataset_info: DatasetInfo | None = None) -> int:
    """Samples in the training set."""
    return (dataset_info or get_dataset_info(task)).n_train


def effective_batch_size(settings: Settings, dataset_info: DatasetInfo | None = None) -> int:
    """Samples per batch: the batch size, capped at the training set."""
    return min(settings.train.batch_size, n_training_samples(settings.task, dataset_info))


def estimate_training_bytes(settings: Settings, dataset_info: DatasetInfo | None = None) -> int:
    """Memory that one run needs while training in float32: an estimate that grows with every size, not a measurement.

    Weights, gradients, the optimizer's moments, and what backward needs of one batch; kernels' workspace is left out.
    """
    dataset_info = dataset_info or get_dataset_info(settings.task)
    counted = count_parameters(settings, dataset_info)
    copies = 2 + MOMENTS_PER_WEIGHT[settings.train.optimizer] + (settings.train.ema > 0)
    state = copies * counted.total + counted.frozen
    tokens = effective_batch_size(settings, dataset_info) * dataset_info.context_length
    return BYTES_PER_FLOAT32 * (state + tokens * _activations_per_token(settings, dataset_info))


def _activations_per_token(settings: Settings, facts: DatasetInfo) -> int:
    """Numbers that forward keeps for backward, for each token of a batch."""
    model = settings.model
    logits = 0 if isinstance(model, EncoderSettings) else 2 * facts.vocab_size  # with their softmax; an encoder has few
    if isinstance(model, TransformerSettings):
        maps = 2 * model.heads * facts.context_length  # scores and their softmax
        # a block keeps its input, q, k, v, the mixed values, two sums, two norms, and the MLP's hidden layer twice
        return model.dim + model.layers * (9 * model.dim + 2 * model.mlp_width + maps) + logits
    # a cell keeps [x; h], the four gates before and after, c, tanh c and h
    return model.dim + model.layers * (model.dim + 12 * model.hidden_width) + 2 * (model.projection or 0) + logits
