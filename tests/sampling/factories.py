"""Small random models for the sampling tests: awkward sizes, weights large enough that positions matter."""

from __future__ import annotations

import torch
from torch import Tensor

from seedbed.models.build import build_pack
from seedbed.models.sequence_model import SequenceModel
from seedbed.sampling.filters import SamplingFilters
from seedbed.sampling.sampler import iter_uniform_numbers, sample_next_tokens, window_start
from seedbed.settings import DatasetInfo, Settings

DATASET_INFO = DatasetInfo(vocab_size=11, context_length=9, n_train=1, padding_id=0)


def make_model(n_runs: int = 1, dtype: torch.dtype = torch.float64, **model_settings: object) -> SequenceModel:
    """A model of several runs with different random weights."""
    shape = {"kind": "gpt", "layers": 2, "dim": 12} | model_settings
    if shape["kind"] == "gpt":
        shape = {"heads": 3 if shape.get("positions") != "rotary" else 2} | shape
    settings = Settings.from_flat({"task.kind": "text", **{f"model.{name}": value for name, value in shape.items()}})
    model, parameters = build_pack(
        [settings] * n_runs, range(n_runs), torch.zeros(1, dtype=torch.int64), dtype, DATASET_INFO
    )
    parameters.weights.normal_(std=0.4, generator=torch.Generator().manual_seed(5))
    return model


def generate_uncached(
    model: SequenceModel, prompt: Tensor, n_tokens: int, seeds: list[int], n_samples: int, hop: int
) -> tuple[Tensor, Tensor]:
    """Reference: tokens and log-probabilities with the whole window recomputed for every token."""
    model.eval()
    history, log_probabilities = prompt.expand(len(seeds), n_samples, -1), []
    uniform_numbers = iter_uniform_numbers(seeds, n_samples, prompt.device)
    for _ in range(n_tokens):
        start = window_start(history.shape[-1], DATASET_INFO.context_length, hop)
        with torch.no_grad():
            sampled = sample_next_tokens(
                model(history[..., start:])[:, :, -1], next(uniform_numbers), SamplingFilters()
            )
        history = torch.cat([history, sampled.tokens[..., None]], dim=-1)
        log_probabilities.append(sampled.log_probabilities)
    return history[..., prompt.shape[-1] :], torch.stack(log_probabilities, dim=-1)
