"""What is done to logits before a token is drawn: temperature, top-k, top-p; pure functions, every dial over samples.

    weights = probabilities(logits, Filters(temperature=0.8, top_k=40))

The order is that of the Hugging Face library: logits are divided by the temperature, the k likeliest are kept, then the
fewest of those that together have the share p. Among equal logits the smaller id counts as likelier, so that exactly k
are kept and temperature 0 (greedy: top-k of 1) has one answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seedbed.errors import UsageError


@dataclass(frozen=True)
class SamplingFilters:
    """How far a sample may stray from the likeliest token."""

    temperature: float = 1.0  # 0: always the likeliest
    top_k: int = 0  # 0: all
    top_p: float = 1.0  # 1: all

    def __post_init__(self) -> None:
        if not (isfinite(self.temperature) and self.temperature >= 0):
            raise UsageError(f"temperature = {self.temperature}: expected a finite number, 0 (greedy) or more")
        if self.top_k < 0:
            raise UsageError(f"top-k = {self.top_k}: expected a whole number from 0 (all tokens) up, such as 40")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top-p = {self.top_p}: expected a share above 0 and up to 1 (all tokens), such as 0.9")


def filtered_probabilities(logits: Float[Tensor, "*n V"], filters: SamplingFilters) -> Float[Tensor, "*n V"]:
    """What the next token is drawn from; each row sums to 1, tokens that are filtered out have exactly 0."""
    if filters.temperature not in (0, 1):
        logits = apply_temperature(logits, torch.tensor(filters.temperature, dtype=logits.dtype))
    k = filters.top_k if filters.temperature > 0 else 1
    if 0 < k < logits.shape[-1]:
        logits = keep_top_k(logits, torch.tensor(k, device=logits.device))
    if filters.top_p < 1:
        logits = keep_top_p(logits, torch.tensor(filters.top_p, dtype=logits.dtype, device=logits.device))
    return logits.softmax(-1)


def apply_temperature(logits: Float[Tensor, "*n V"], temperature: Float[Tensor, "*n"]) -> Float[Tensor, "*n V"]:
    """Flatter above 1, sharper below; the largest logit becomes 0, so that no temperature can overflow."""
    return (logits - logits.amax(-1, keepdim=True)) / temperature[..., None]


def keep_top_k(logits: Float[Tensor, "*n V"], k: Int[Tensor, "*n"]) -> Float[Tensor, "*n V"]:
    """All but the k likeliest at −∞."""
    _, order = _sort_descending(logits)
    rank = torch.arange(logits.shape[-1], device=logits.device)
    return _mask_dropped(logits, order, rank >= k[..., None])


def keep_top_p(logits: Float[Tensor, "*n V"], p: Float[Tensor, "*n"]) -> Float[Tensor, "*n V"]:
    """All at −∞ but the fewest likeliest whose share reaches p (Holtzman et al. 2019, section 3.1); never none."""
    ranked, order = _sort_descending(logits)
    weights = ranked.softmax(-1)
    return _mask_dropped(logits, order, weights.cumsum(-1) - weights >= p[..., None])


def _sort_descending(logits: Tensor) -> tuple[Tensor, Tensor]:
    return torch.sort(logits, dim=-1, descending=True, stable=True)


def _mask_dropped(logits: Tensor, order: Int[Tensor, "*n V"], dropped: Bool[Tensor, "*n V"]) -> Tensor:
    """The logits with −∞ where the entry of that rank is dropped; the first rank always stays."""
    dropped = dropped.expand(order.shape).clone()
    dropped[..., 0] = False
    return logits.masked_fill(torch.zeros_like(dropped).scatter(-1, order, dropped), float("-inf"))
