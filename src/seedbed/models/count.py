"""Sizes of models in closed form: parameters, and memory while training; no torch, tested against the modules.

Vocabulary, context, labels and samples are facts of the data; without them they are looked up (arithmetic: computed).

>>> count_parameters(Settings())
Parameters(total=404516, non_embedding=399908, frozen=0)
"""

from __future__ import annotations

from typing import Final

from seedbed.data.facts import facts_of
from seedbed.records import Parameters
from seedbed.settings import LSTM, DataFacts, Encoder, Settings, Task, Transformer

BYTES_PER_NUMBER: Final = 4  # float32
MOMENTS: Final = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}


def count_parameters(settings: Settings, facts: DataFacts | None = None) -> Parameters:
    """Learnable numbers; `non_embedding` leaves out token and position tables, and with them a tied output's matrix."""
    model, facts = settings.model, facts or facts_of(settings.task)
    body = lstm_body(model) if isinstance(model, LSTM) else transformer_body(model)
    non_embedding = body + _output(settings, facts)
    tables = _tables(settings, facts)
    if model.embeddings is not None:
        return Parameters(total=non_embedding, non_embedding=non_embedding, frozen=tables)
    return Parameters(total=tables + non_embedding, non_embedding=non_embedding)


def attention(model: Transformer) -> int:
    """Four maps from dim to dim: queries, keys, values, output."""
    qkv = 3 * _linear(model.dim, model.dim, model.has_qkv_bias)
    return qkv + _linear(model.dim, model.dim, model.attention_bias)


def block(model: Transformer) -> int:
    """Attention, a two-layer MLP and two LayerNorms."""
    up, down = (model.dim, model.mlp_width), (model.mlp_width, model.dim)
    mlp = _linear(*up, model.mlp_bias) + _linear(*down, model.mlp_bias)
    return attention(model) + mlp + 2 * _norm(model.dim)


def transformer_body(model: Transformer) -> int:
    """The blocks, and the final LayerNorm where there is one."""
    return model.layers * block(model) + model.final_norm * _norm(model.dim)


def lstm_body(model: LSTM) -> int:
    """Four gates a cell, each a map from [x; h] to the state; only the first cell sees the token table. Projection."""
    below = [model.dim] + [model.width] * (model.layers - 1)
    biases = model.gate_biases * model.width
    cells = sum(4 * ((width + model.width) * model.width + biases) for width in below)
    return cells + (0 if model.projection is None else _linear(model.width, model.projection, True))


def classifier(model: Encoder, classes: int) -> int:
    """A hidden layer, with BatchNorm where asked for, and the output."""
    hidden = _linear(model.dim, model.classifier_hidden, True) + model.batch_norm * _norm(model.classifier_hidden)
    return hidden + _linear(model.classifier_hidden, classes, model.output_bias)


def _tables(settings: Settings, facts: DataFacts) -> int:
    model = settings.model
    has_positions = not isinstance(model, LSTM) and model.positions == "learned"
    return (facts.vocabulary + has_positions * facts.context) * model.dim


def _output(settings: Settings, facts: DataFacts) -> int:
    model, size = settings.model, facts.vocabulary
    if isinstance(model, Encoder):
        return classifier(model, facts.classes)
    width = model.output_width if isinstance(model, LSTM) else model.dim
    return (0 if model.tied else width * size) + model.output_bias * size


def _linear(n_in: int, n_out: int, bias: bool) -> int:
    return n_in * n_out + bias * n_out


def _norm(width: int) -> int:
    return 2 * width


def n_training(task: Task, facts: DataFacts | None = None) -> int:
    """Samples in the training set."""
    return (facts or facts_of(task)).n_train


def effective_batch(settings: Settings, facts: DataFacts | None = None) -> int:
    """Samples per batch: the batch size, capped at the training set."""
    return min(settings.train.batch_size, n_training(settings.task, facts))


def predict_bytes(settings: Settings, facts: DataFacts | None = None) -> int:
    """Memory that one run needs while training in float32: an estimate that grows with every size, not a measurement.

    Weights, gradients, the optimizer's moments, and what backward needs of one batch; kernels' workspace is left out.
    """
    facts = facts or facts_of(settings.task)
    counted = count_parameters(settings, facts)
    copies = 2 + MOMENTS[settings.train.optimizer] + (settings.train.ema > 0)
    state = copies * counted.total + counted.frozen
    tokens = effective_batch(settings, facts) * facts.context
    return BYTES_PER_NUMBER * (state + tokens * _kept_per_token(settings, facts))


def _kept_per_token(settings: Settings, facts: DataFacts) -> int:
    """Numbers that forward keeps for backward, for each token of a batch."""
    model = settings.model
    logits = 0 if isinstance(model, Encoder) else 2 * facts.vocabulary  # with their softmax; an encoder has few
    if isinstance(model, Transformer):
        maps = 2 * model.heads * facts.context  # scores and their softmax
        # a block keeps its input, q, k, v, the mixed values, two sums, two norms, and the MLP's hidden layer twice
        return model.dim + model.layers * (9 * model.dim + 2 * model.mlp_width + maps) + logits
    # a cell keeps [x; h], the four gates before and after, c, tanh c and h
    return model.dim + model.layers * (model.dim + 12 * model.width) + 2 * (model.projection or 0) + logits
