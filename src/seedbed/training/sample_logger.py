"""Samples during training: texts of every run from the study's prompt.

A run samples with its own seed and the same random numbers each time, so that texts of different steps differ only
because of the model. An empty prompt stands for the first token of the training text.

On a GPU samples cost training almost nothing: the weights of the moment are copied, and all runs of the pack generate
from the copy on a stream of their own, as replayed CUDA graphs, while training continues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from seedbed.models.build import build_empty_pack
from seedbed.models.layers import running_stats
from seedbed.models.sequence_model import SequenceModel
from seedbed.records import SampleEvent
from seedbed.sampling.filters import SamplingFilters
from seedbed.sampling.sampler import GeneratedTokens, generate_tokens
from seedbed.sampling.static_generator import N_SPARE_TOKENS, Action, StaticGenerator
from seedbed.settings import Settings
from seedbed.training.cuda_graphs import CapturedGraph, HostCopy

if TYPE_CHECKING:
    from seedbed.training.trainer import Trainer


@dataclass(frozen=True)
class _PendingSamples:
    """Samples that are being generated: of which step and slots, and the copies of their tokens to the host."""

    step: int
    slots: tuple[int, ...]
    host_copy: HostCopy


class SampleLogger:
    """Continues the prompt with every run of a pack: `start`, then `collect` once `is_ready`."""

    def __init__(self, settings: Settings, seeds: Sequence[int], trainer: Trainer) -> None:
        self._trainer, self._settings, self._seeds = trainer, settings, seeds
        self._train = settings.train
        device, dataset = trainer.step.device, settings.task.text_dataset()
        self._tokenizer, self._context = dataset.tokenizer, settings.task.dataset_info().context_length
        self._filters = SamplingFilters(
            self._train.sample_temperature, self._train.sample_top_k, self._train.sample_top_p
        )
        train = dataset.splits["train"]
        self._prompt_ids = dataset.tokenizer.encode(self._train.prompt).tolist()
        first_ids = self._prompt_ids or [int(train.ids[train.spans.starts[0]])]
        self._first_tokens = torch.from_numpy(np.array(first_ids, dtype=np.int64)).to(device)[None, None]
        self._pending: _PendingSamples | None = None
        self._background: BackgroundGenerator | None = None
        self._is_capturable = trainer.uses_cuda_graphs and self._context > N_SPARE_TOKENS

    @property
    def is_pending(self) -> bool:
        """Have samples been started and not been collected?"""
        return self._pending is not None

    @property
    def is_ready(self) -> bool:
        return self._pending is not None and self._pending.host_copy.is_ready

    def start(self, step: int, slots: Sequence[int]) -> None:
        """All runs of the pack generate from their current weights; only the texts of these slots are kept."""
        self._trainer.set_arithmetic()
        if self._is_capturable and self._background is None:
            self._background = self._make_background_generator()
            self._is_capturable = self._background is not None
        if self._background is not None:
            host_copy = self._background.start()
        else:
            with self._trainer.use_ema_weights():
                is_apart = self._trainer.reproducible
                parts = self._generate_by_run() if is_apart else [self._generate(self._trainer.model, self._seeds)]
            tokens = np.concatenate([part.tokens for part in parts])
            log_probabilities = np.concatenate([part.log_probabilities for part in parts])
            host_copy = HostCopy(
                {"tokens": torch.from_numpy(tokens), "log_probabilities": torch.from_numpy(log_probabilities)}
            )
        self._pending = _PendingSamples(step, tuple(slots), host_copy)

    def _generate(self, model: SequenceModel, seeds: Sequence[int]) -> GeneratedTokens:
        n_tokens, n_samples = self._train.sample_tokens, self._train.samples
        return generate_tokens(model, self._context, self._first_tokens, n_tokens, seeds, n_samples, self._filters)

    def _generate_by_run(self) -> list[GeneratedTokens]:
        """The samples of one run after the other: decoders of one run and of several differ in rounding."""
        device, dtype = self._trainer.step.device, self._trainer.parameters.weights.dtype
        model, parameters = build_empty_pack(self._settings, 1, device, dtype)
        copies, generated = {"weights": parameters.weights} | running_stats(model), []
        for slot, seed in enumerate(self._seeds):
            for name, source in self._trainer.sampled_tensors().items():
                copies[name].copy_(source[slot : slot + 1])
            generated.append(self._generate(model, [seed]))
        return generated

    def _make_background_generator(self) -> BackgroundGenerator | None:
        """None if the model has no decoder that can be captured."""
        model, parameters = build_empty_pack(
            self._settings, len(self._seeds), self._trainer.step.device, self._trainer.parameters.weights.dtype
        )
        if model.family.make_static_decoder(model, len(self._seeds), 1, 1) is None:
            return None
        copies = {"weights": parameters.weights} | running_stats(model)

        def make_generator(capture: Callable[[Action], Action]) -> StaticGenerator:
            return StaticGenerator(
                model, self._context, self._first_tokens, self._train.sample_tokens, self._seeds,
                self._train.samples, self._filters, capture,
            )  # fmt: skip

        return BackgroundGenerator(make_generator, copies, self._trainer.sampled_tensors())

    def collect(self) -> list[SampleEvent]:
        """The samples that were started last; empty if none were, or they were collected already."""
        if self._pending is None:
            return []
        pending, self._pending = self._pending, None
        arrays = pending.host_copy.tensors
        tokens, log_probabilities = arrays["tokens"], arrays["log_probabilities"].double()
        return [
            self._make_event(pending.step, slot, number, tokens[slot, number], log_probabilities[slot, number])
            for slot in pending.slots
            for number in range(self._train.samples)
        ]

    def _make_event(self, step: int, slot: int, number: int, tokens: Tensor, log_probabilities: Tensor) -> SampleEvent:
        ids, decoder = tokens.tolist(), self._tokenizer.decoder()
        decoder.feed(self._prompt_ids)  # spaces and multi-token characters may continue across the border
        text = decoder.feed(ids) + decoder.flush()
        return SampleEvent(slot, step, self._train.prompt, text, tuple(ids), tuple(log_probabilities.tolist()), number)


class BackgroundGenerator:
    """Generates on a stream of its own from copies of tensors, which training may then change.

    Without a GPU it generates at once, from the copies all the same.
    """

    def __init__(
        self,
        make_generator: Callable[[Callable[[Action], Action]], StaticGenerator],
        copies: Mapping[str, Tensor],
        sources: Mapping[str, Tensor],
    ) -> None:
        self._copies, self._sources = copies, sources
        is_cuda = next(iter(copies.values())).is_cuda
        self._stream = torch.cuda.Stream() if is_cuda else None
        self._pool = torch.cuda.graph_pool_handle() if is_cuda else None
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._generator = make_generator(self._capture)

    def _capture(self, fn: Action) -> Action:
        return fn if self._pool is None else CapturedGraph(fn, self._pool).replay

    def start(self) -> HostCopy:
        """Copies the sources as they are now in the current stream, and queues the generation."""
        if self._stream is not None:  # the copies may still be in use
            torch.cuda.current_stream().wait_stream(self._stream)
        for name, copy in self._copies.items():
            copy.copy_(self._sources[name])
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._generator.run()
            generator = self._generator
            return HostCopy({"tokens": generator.tokens, "log_probabilities": generator.log_probabilities})
