"""Generation that can be captured as CUDA graphs; gives the tokens of `generate_tokens`.

    generator = StaticGenerator(model, context, prompt, 500, seeds, n_samples=1, filters=NO_FILTERS, capture=capture)
    generator.run()                       # queues all work on the current stream
    generator.tokens, generator.log_probabilities

All tensors stay in place, and counters are tensors too. Three functions do the work: start (the prompt), step (one
token) and refill (moves a full window); `capture` may turn each into a replayed graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seedbed.models.sequence_model import SequenceModel
from seedbed.sampling.filters import SamplingFilters
from seedbed.sampling.sampler import iter_uniform_numbers, resolve_hop, sample_next_tokens, window_start

Action: TypeAlias = Callable[[], None]
N_SPARE_TOKENS = 4  # room for the calls of a function before it is captured


class StaticGenerator:
    """Generates again and again from one prompt with the same random numbers, and the weights of the moment."""

    def __init__(
        self,
        model: SequenceModel,
        context: int,
        prompt: Int[Tensor, "1 1 T"],
        n_tokens: int,
        seeds: Sequence[int],
        n_samples: int,
        filters: SamplingFilters,
        capture: Callable[[Action], Action],
    ) -> None:
        prompt = prompt[..., -context:]
        n_runs, self._n_prompt, self._filters = len(seeds), prompt.shape[-1], filters
        self._context, self._hop, self._n_new = context, resolve_hop(model, context), n_tokens
        total = self._n_prompt + n_tokens
        capacity = total if self._hop == 0 else min(context, total)
        decoder = model.family.make_static_decoder(model, n_runs, n_samples, capacity)
        if decoder is None:
            raise TypeError(f"{type(model).__name__} has no decoder that can be captured")
        self._decoder = decoder
        self._prompt = prompt.expand(n_runs, -1, -1)
        self._all_tokens = prompt.new_zeros(n_runs, n_samples, total + N_SPARE_TOKENS)
        self._all_tokens[..., : self._n_prompt] = prompt
        self._n_generated = torch.zeros(1, dtype=torch.int64, device=prompt.device)
        numbers = islice(iter_uniform_numbers(seeds, n_samples, prompt.device), n_tokens + N_SPARE_TOKENS)
        self._uniform = torch.stack(list(numbers))
        self._all_log_probabilities = torch.zeros(
            n_runs, n_samples, n_tokens + N_SPARE_TOKENS, dtype=next(model.parameters()).dtype, device=prompt.device
        )
        self._refill_offsets = torch.arange(context - self._hop, device=prompt.device)
        self._start_fn = capture(self._start)
        with torch.no_grad():
            self._decoder.prefill(self._prompt[..., :0])  # an empty cache has room for the calls before capturing
        self._step_fn = capture(self._step)
        self._refill_fn = None
        if self._hop and total > context + 1:
            self._n_generated.fill_(context - self._n_prompt + 1)  # as many tokens as a window has at least
            self._refill_fn = capture(self._refill)

    @property
    def tokens(self) -> Int[Tensor, "R B N"]:
        """The generated tokens, without the prompt."""
        return self._all_tokens[..., self._n_prompt : self._n_prompt + self._n_new]

    @property
    def log_probabilities(self) -> Float[Tensor, "R B N"]:
        """Their natural log-probabilities under the unfiltered model."""
        return self._all_log_probabilities[..., : self._n_new]

    @torch.no_grad()
    def run(self) -> None:
        """Queues the generation of all tokens."""
        start = 0
        self._start_fn()
        for n in range(self._n_prompt, self._n_prompt + self._n_new):
            if (new_start := window_start(n, self._context, self._hop)) != start and self._refill_fn is not None:
                start = new_start
                self._refill_fn()
            self._step_fn()

    @torch.no_grad()
    def _start(self) -> None:
        self._n_generated.zero_()
        self._decoder.prefill(self._prompt[..., :-1])

    @torch.no_grad()
    def _step(self) -> None:
        end = self._n_generated + self._n_prompt
        logits = self._decoder.step(self._all_tokens.index_select(2, end - 1)[..., 0])
        uniform = self._uniform.index_select(0, self._n_generated)[0]
        sampled = sample_next_tokens(logits, uniform, self._filters)
        self._all_tokens.index_copy_(2, end, sampled.tokens[..., None])
        self._all_log_probabilities.index_copy_(2, self._n_generated, sampled.log_probabilities[..., None])
        self._n_generated += 1

    @torch.no_grad()
    def _refill(self) -> None:
        """Fills the cache with the last context − hop tokens before the current one."""
        first = self._n_generated + self._n_prompt - 1 - len(self._refill_offsets)
        self._decoder.prefill(self._all_tokens.index_select(2, first + self._refill_offsets))
