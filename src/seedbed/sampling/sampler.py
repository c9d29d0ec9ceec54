"""Autoregressive sampling: one token at a time, for all samples of all runs at once.

    for sampled in stream_tokens(model, context, prompt, n_tokens=500, seeds=[1], n_samples=4):
        sampled.tokens                    # (R, B), as soon as they are available
    generated = generate_tokens(…)        # same arguments; all tokens at the end

The uniform number behind token t of sample i is a function of (seed, t, i) alone, so a sample does not depend on how
many are drawn alongside it. Prompts are truncated to their last `context` tokens.

Past the context, a transformer's window advances in hops: with n tokens it starts at `window_start(n)`, a multiple of
the hop, so it holds between context − hop + 1 and context tokens and the KV cache is rebuilt once per hop. Without a
learned position table, hop 0 keeps the whole text in the window. The default hop is 0 for ALiBi and a quarter of the
context otherwise. A recurrent model carries its state and has no window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from seedbed.errors import UsageError
from seedbed.models.sequence_model import SequenceModel
from seedbed.rng import device_keys, uniform
from seedbed.sampling.filters import SamplingFilters, filtered_probabilities

UNIFORM_BLOCK_TOKENS = 64  # tokens whose uniform numbers are drawn in one call
MAX_NEW_TOKENS = 1_000_000
MIN_MULTITHREADED_MULTIPLICATIONS = 1 << 22  # per matmul; below this, one thread is faster
NO_FILTERS = SamplingFilters()


@dataclass(frozen=True)
class SampledTokens:
    """The next token of every sample; natural log-probabilities under the unfiltered model.

    Non-finite logits give token 0 and log-probability NaN.
    """

    tokens: Int[Tensor, "R B"]
    log_probabilities: Float[Tensor, "R B"]


@dataclass(frozen=True)
class GeneratedTokens:
    """All generated tokens, with natural log-probabilities under the unfiltered model."""

    tokens: NDArray[np.int64]  # (R, B, N)
    log_probabilities: NDArray[np.float64]  # (R, B, N)


def stream_tokens(
    model: SequenceModel,
    context: int,
    prompt: Int[Tensor, "#R #B T"],
    n_tokens: int,
    seeds: Sequence[int],
    n_samples: int = 1,
    filters: SamplingFilters = NO_FILTERS,
    hop: int | None = None,
) -> Iterator[SampledTokens]:
    """Yields the next token of every sample, n_tokens times; the prompt has at least one token, each run one seed."""
    hop = _validated_hop(model, context, prompt, n_tokens, n_samples, hop)
    n_threads = choose_n_threads(model, len(seeds) * n_samples)
    with inference_context(n_threads):
        state = _GenerationState(model, context, hop, prompt.expand(len(seeds), -1, -1), n_samples, n_tokens)
    for uniform_numbers in islice(iter_uniform_numbers(seeds, n_samples, prompt.device), n_tokens):
        with inference_context(n_threads):
            sampled = sample_next_tokens(state.next_logits(), uniform_numbers, filters)
            state.append(sampled.tokens)
        yield sampled


def choose_n_threads(model: nn.Module, n_rows: int) -> int:
    """Number of threads for a decoding step: one if its matmuls are so small that synchronization would dominate."""
    largest = max(parameter[0].numel() for parameter in model.parameters() if parameter.ndim == 3)
    return torch.get_num_threads() if n_rows * largest >= MIN_MULTITHREADED_MULTIPLICATIONS else 1


@contextmanager
def inference_context(n_threads: int) -> Iterator[None]:
    """Inference mode with this many threads and without oneDNN; restores both settings afterwards.

    For a single token, setting up oneDNN's GELU takes three times as long as running torch's own.
    """
    previous_n_threads, had_onednn = torch.get_num_threads(), torch._C._get_mkldnn_enabled()
    torch.set_num_threads(n_threads)
    torch._C._set_mkldnn_enabled(False)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(previous_n_threads)
        torch._C._set_mkldnn_enabled(had_onednn)


class _GenerationState:
    """All tokens so far, and a decoder whose cache holds the tokens of the window except the last."""

    def __init__(
        self, model: SequenceModel, context: int, hop: int, prompt: Int[Tensor, "R b T"], n_samples: int, n_tokens: int
    ) -> None:
        self.context, self.hop, self.window_start = context, hop, 0
        prompt = prompt[..., -context:]
        n_runs, _, self.n_tokens = prompt.shape
        self.tokens = prompt.new_empty(n_runs, n_samples, self.n_tokens + n_tokens)
        self.tokens[..., : self.n_tokens] = prompt
        capacity = self.tokens.shape[-1] if hop == 0 else min(context, self.tokens.shape[-1])
        self.decoder = model.family.make_decoder(model, n_runs, n_samples, capacity)
        self.decoder.prefill(prompt[..., :-1])  # computed once if all samples share the prompt

    def next_logits(self) -> Float[Tensor, "R B V"]:
        """Logits of the next token; moves the window first if it is full."""
        if (start := window_start(self.n_tokens, self.context, self.hop)) != self.window_start:
            self.window_start = start
            self.decoder.prefill(self.tokens[..., start : self.n_tokens - 1])
        return self.decoder.step(self.tokens[..., self.n_tokens - 1])

    def append(self, tokens: Int[Tensor, "R B"]) -> None:
        self.tokens[..., self.n_tokens] = tokens
        self.n_tokens += 1


def generate_tokens(
    model: SequenceModel,
    context: int,
    prompt: Int[Tensor, "#R #B T"],
    n_tokens: int,
    seeds: Sequence[int],
    n_samples: int = 1,
    filters: SamplingFilters = NO_FILTERS,
    hop: int | None = None,
) -> GeneratedTokens:
    """Like `stream_tokens`, but returns all tokens at the end."""
    steps = list(stream_tokens(model, context, prompt, n_tokens, seeds, n_samples, filters, hop))
    tokens = torch.stack([step.tokens for step in steps], dim=-1)
    log_probabilities = torch.stack([step.log_probabilities for step in steps], dim=-1)
    return GeneratedTokens(tokens.cpu().numpy(), log_probabilities.double().cpu().numpy())


def window_start(n: int, context: int, hop: int) -> int:
    """Index of the first of n tokens that is still in the window.

    >>> [window_start(n, context=8, hop=3) for n in (8, 9, 11, 12)]
    [0, 3, 3, 6]
    """
    return 0 if hop == 0 or n <= context else -(-(n - context) // hop) * hop


def sample_next_tokens(
    logits: Float[Tensor, "*n V"], uniform_numbers: Float[Tensor, "*n"], filters: SamplingFilters
) -> SampledTokens:
    """Inverse-CDF sampling: the first token whose cumulative probability exceeds a uniform number in [0, 1)."""
    cdf = filtered_probabilities(logits, filters).cumsum(-1, dtype=torch.float64)
    # Scaled by the total, which rounding may leave slightly off 1.
    tokens = (cdf <= (uniform_numbers * cdf[..., -1])[..., None]).sum(-1)
    return SampledTokens(tokens, logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0])


def iter_uniform_numbers(seeds: Sequence[int], n_samples: int, device: torch.device) -> Iterator[Float[Tensor, "R B"]]:
    """Yields the uniform numbers for each next token."""
    keys = device_keys(seeds, "sample", device).repeat_interleave(UNIFORM_BLOCK_TOKENS, dim=0)
    for first in count(0, UNIFORM_BLOCK_TOKENS):
        counters = torch.arange(first, first + UNIFORM_BLOCK_TOKENS, device=device).repeat(len(seeds))
        block = uniform(keys, counters, n_samples).view(len(seeds), UNIFORM_BLOCK_TOKENS, n_samples)
        yield from block.double().unbind(1)


def _validated_hop(
    model: SequenceModel, context: int, prompt: Tensor, n_tokens: int, n_samples: int, hop: int | None
) -> int:
    """Checks the arguments and returns the resolved hop."""
    if not 1 <= n_tokens <= MAX_NEW_TOKENS:
        raise UsageError(f"tokens = {n_tokens}: expected a whole number from 1 to {MAX_NEW_TOKENS:,}")
    if n_samples < 1:
        raise UsageError(f"{n_samples} samples: expected at least 1")
    if prompt.shape[-1] == 0:
        raise UsageError("the prompt has no tokens; a model needs at least one to start from")
    return resolve_hop(model, context, hop)


def resolve_hop(model: SequenceModel, context: int, hop: int | None = None) -> int:
    """Number of tokens the window advances by; 0: the window keeps growing."""
    family = model.family
    if family.carries_state and hop:
        raise UsageError(f"hop = {hop}: this model carries its state and has no window; leave hop out")
    if hop is None:
        return family.default_hop(context)
    if not 0 <= hop <= context:
        raise UsageError(f"hop = {hop}: expected a whole number from 0 (no window) to the context, {context}")
    if hop == 0 and family.max_context(context) is not None:
        raise UsageError(f"hop = 0: this model has learned positions for {context} tokens only; give a hop from 1 up")
    return hop
