"""Temperature, top-k and top-p filtering of logits; pure functions that accept a different value per sample.

    probabilities = filtered_probabilities(logits, SamplingFilters(temperature=0.8, top_k=40))

Applied in the order of Hugging Face Transformers: divide by the temperature, keep the k most likely tokens, then keep
the smallest set of those with cumulative probability p. Ties are broken by the smaller token id, so exactly k tokens
are kept and temperature 0 (greedy: top-k of 1) is deterministic.
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
    """Sampling parameters; the defaults sample from the model's own distribution."""

    temperature: float = 1.0  # 0: greedy
    top_k: int = 0  # 0: all tokens
    top_p: float = 1.0  # 1: all tokens

    def __post_init__(self) -> None:
        if not (isfinite(self.temperature) and self.temperature >= 0):
            raise UsageError(f"temperature = {self.temperature}: expected a finite number, 0 (greedy) or more")
        if self.top_k < 0:
            raise UsageError(f"top-k = {self.top_k}: expected a whole number from 0 (all tokens) up, such as 40")
        if not 0 < self.top_p <= 1:
            raise UsageError(
                f"top-p = {self.top_p}: expected a probability above 0 and up to 1 (all tokens), such as 0.9"
            )


def filtered_probabilities(logits: Float[Tensor, "*n V"], filters: SamplingFilters) -> Float[Tensor, "*n V"]:
    """Distribution the next token is sampled from; rows sum to 1, filtered tokens have probability exactly 0."""
    if filters.temperature not in (0, 1):
        logits = apply_temperature(logits, logits.new_full((), filters.temperature))
    k = filters.top_k if filters.temperature > 0 else 1
    if 0 < k < logits.shape[-1]:
        logits = keep_top_k(logits, torch.full((), k, device=logits.device))
    if filters.top_p < 1:
        logits = keep_top_p(logits, logits.new_full((), filters.top_p))
    return logits.softmax(-1)


def apply_temperature(logits: Float[Tensor, "*n V"], temperature: Float[Tensor, "*n"]) -> Float[Tensor, "*n V"]:
    """Logits divided by the temperature; shifted so the largest is 0 and no temperature can overflow."""
    return (logits - logits.amax(-1, keepdim=True)) / temperature[..., None]


def keep_top_k(logits: Float[Tensor, "*n V"], k: Int[Tensor, "*n"]) -> Float[Tensor, "*n V"]:
    """Logits with all but the k largest set to −∞."""
    _, order = _sort_descending(logits)
    rank = torch.arange(logits.shape[-1], device=logits.device)
    return _mask_dropped(logits, order, rank >= k[..., None])


def keep_top_p(logits: Float[Tensor, "*n V"], p: Float[Tensor, "*n"]) -> Float[Tensor, "*n V"]:
    """Logits with all but the nucleus of probability p set to −∞ (Holtzman et al. 2019, section 3.1)."""
    ranked, order = _sort_descending(logits)
    probabilities = ranked.softmax(-1)
    # The mass before a token decides, so the token that crosses p is kept.
    return _mask_dropped(logits, order, probabilities.cumsum(-1) - probabilities >= p[..., None])


def _sort_descending(logits: Tensor) -> tuple[Tensor, Tensor]:
    return torch.sort(logits, dim=-1, descending=True, stable=True)


def _mask_dropped(logits: Tensor, order: Int[Tensor, "*n V"], dropped: Bool[Tensor, "*n V"]) -> Tensor:
    """Logits with −∞ at the ranks in `dropped`; the top rank is always kept."""
    dropped = dropped.expand(order.shape).clone()
    dropped[..., 0] = False
    return logits.masked_fill(torch.zeros_like(dropped).scatter(-1, order, dropped), float("-inf"))
