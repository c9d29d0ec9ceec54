"""Small random models for the tests of generation: awkward sizes, weights large enough that positions matter."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seedbed.models.build import build_pack
from seedbed.sampling.filters import SamplingFilters
from seedbed.sampling.sampler import _iter_uniform_numbers, sample_next_tokens, window_start
from seedbed.settings import DatasetInfo, Settings

FACTS = DatasetInfo(vocab_size=11, context_length=9, n_train=1, padding_id=0)


def make_model(n_runs: int = 1, dtype: torch.dtype = torch.float64, **dials: object) -> nn.Module:
    """Runs with different random weights; `dials` are those of the model."""
    shape = {"kind": "gpt", "layers": 2, "dim": 12} | dials
    if shape["kind"] == "gpt":
        shape = {"heads": 3 if shape.get("positions") != "rotary" else 2} | shape
    settings = Settings.from_flat({"task.kind": "text", **{f"model.{name}": value for name, value in shape.items()}})
    model, bank = build_pack([settings] * n_runs, range(n_runs), torch.zeros(1, dtype=torch.int64), dtype, FACTS)
    bank.weights.normal_(std=0.4, generator=torch.Generator().manual_seed(5))
    return model


def write_plainly(
    model: nn.Module, prompt: Tensor, n_tokens: int, seeds: list[int], n_samples: int, hop: int
) -> tuple[Tensor, Tensor]:
    """Tokens and their log-probabilities with the whole window computed anew for every token."""
    model.eval()
    history, logs = prompt.expand(len(seeds), n_samples, -1), []
    chances = _iter_uniform_numbers(seeds, n_samples, prompt.device)
    for _ in range(n_tokens):
        start = window_start(history.shape[-1], FACTS.context_length, hop)
        with torch.no_grad():
            drawn = sample_next_tokens(model(history[..., start:])[:, :, -1], next(chances), SamplingFilters())
        history = torch.cat([history, drawn.tokens[..., None]], dim=-1)
        logs.append(drawn.log_probabilities)
    return history[..., prompt.shape[-1] :], torch.stack(logs, dim=-1)
