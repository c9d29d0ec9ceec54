"""Sizes of models in closed form: parameters, and memory while training; no torch, tested against the modules.

>>> count_parameters(Settings())
Parameters(total=404516, non_embedding=399908)
"""

from __future__ import annotations

from typing import Final

from seedbed.data.arithmetic import context_length, vocabulary_size
from seedbed.records import Parameters
from seedbed.settings import GPT, LSTM, Settings, Task

BYTES_PER_NUMBER: Final = 4  # float32
MOMENTS: Final = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}


def count_parameters(settings: Settings) -> Parameters:
    """Learnable numbers; `non_embedding` leaves out token and position tables, and with them a tied output's matrix."""
    task, model = settings.task, settings.model
    body = gpt_body(model) if isinstance(model, GPT) else lstm_body(model)
    tables = vocabulary_size(task) * model.dim
    if isinstance(model, GPT) and model.positions == "learned":
        tables += context_length(task) * model.dim
    non_embedding = body + _output(settings)
    return Parameters(total=tables + non_embedding, non_embedding=non_embedding)


def attention(model: GPT) -> int:
    """Four maps from dim to dim: queries, keys, values, output."""
    return 4 * _linear(model.dim, model.dim, model.attention_bias)


def block(model: GPT) -> int:
    """Attention, a two-layer MLP and two LayerNorms."""
    hidden = model.mlp_multiplier * model.dim
    mlp = _linear(model.dim, hidden, model.mlp_bias) + _linear(hidden, model.dim, model.mlp_bias)
    return attention(model) + mlp + 2 * _norm(model.dim)


def gpt_body(model: GPT) -> int:
    """The blocks, and the final LayerNorm where there is one."""
    return model.layers * block(model) + model.final_norm * _norm(model.dim)


def lstm_body(model: LSTM) -> int:
    """Four gates a cell, each a map from [x; h] to the state; only the first cell sees the token table."""
    below = [model.dim] + [model.width] * (model.layers - 1)
    biases = model.gate_biases * model.width
    return sum(4 * ((width + model.width) * model.width + biases) for width in below)


def _output(settings: Settings) -> int:
    model, size = settings.model, vocabulary_size(settings.task)
    width = model.dim if isinstance(model, GPT) else model.width
    return (0 if model.tied else width * size) + model.output_bias * size


def _linear(n_in: int, n_out: int, bias: bool) -> int:
    return n_in * n_out + bias * n_out


def _norm(width: int) -> int:
    return 2 * width


def n_training(task: Task) -> int:
    """Equations in the training set, over all orders."""
    return sum(task.n_train(order) for order in task.orders)


def effective_batch(settings: Settings) -> int:
    """Samples per update: the batch size, capped at the training set."""
    return min(settings.train.batch_size, n_training(settings.task))


def predict_bytes(settings: Settings) -> int:
    """Memory that one run needs while training in float32: an estimate that grows with every size, not a measurement.

    Weights, gradients, the optimizer's moments, and what backward needs of one batch; kernels' workspace is left out.
    """
    state = (2 + MOMENTS[settings.train.optimizer]) * count_parameters(settings).total
    tokens = effective_batch(settings) * context_length(settings.task)
    return BYTES_PER_NUMBER * (state + tokens * _kept_per_token(settings))


def _kept_per_token(settings: Settings) -> int:
    """Numbers that forward keeps for backward, for each token of a batch."""
    model, size = settings.model, vocabulary_size(settings.task)
    logits = 2 * size  # with their softmax
    if isinstance(model, GPT):
        maps = 2 * model.heads * context_length(settings.task)  # scores and their softmax
        # a block keeps its input, q, k, v, the mixed values, two sums, two norms, and the MLP's hidden layer twice
        return model.dim + model.layers * ((9 + 2 * model.mlp_multiplier) * model.dim + maps) + logits
    # a cell keeps [x; h], the four gates before and after, c, tanh c and h
    return model.dim + model.layers * (model.dim + 12 * model.width) + logits
