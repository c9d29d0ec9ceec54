"""Samples during training: one text per run from the study's prompt.

A run samples with its own seed and the same random numbers each time, so that texts of different steps differ only
because of the model. An empty prompt stands for the first token of the training text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from seedbed.models.sequence_model import SequenceModel
from seedbed.records import SampleEvent
from seedbed.sampling.sampler import generate_tokens
from seedbed.settings import TrainSettings
from seedbed.tasks.base import Task


class SampleLogger:
    """Continues the prompt with every run of a pack."""

    def __init__(self, task: Task, train_settings: TrainSettings, seeds: Sequence[int], device: torch.device) -> None:
        dataset = task.text_dataset()
        self._tokenizer, self._prompt = dataset.tokenizer, train_settings.prompt
        self._context = task.dataset_info().context_length
        self._n_tokens, self._seeds = train_settings.sample_tokens, seeds
        train = dataset.splits["train"]
        self._prompt_ids = dataset.tokenizer.encode(train_settings.prompt).tolist()
        first_ids = self._prompt_ids or [int(train.ids[train.spans.starts[0]])]
        self._first_tokens = torch.from_numpy(np.array(first_ids, dtype=np.int64)).to(device)[None, None]

    def sample(self, model: SequenceModel, step: int, slots: Sequence[int]) -> Iterator[SampleEvent]:
        """All runs of the pack generate (one program); only the texts of these slots are yielded."""
        generated = generate_tokens(model, self._context, self._first_tokens, self._n_tokens, self._seeds)
        for slot in slots:
            tokens, log_probs = generated.tokens[slot, 0].tolist(), generated.log_probabilities[slot, 0].tolist()
            yield SampleEvent(slot, step, self._prompt, self._decode(tokens), tuple(tokens), tuple(log_probs))

    def _decode(self, tokens: list[int]) -> str:
        """The text after the prompt."""
        # The decoder is fed the prompt first: spaces and multi-token characters may continue across the border.
        decoder = self._tokenizer.decoder()
        decoder.feed(self._prompt_ids)
        return decoder.feed(tokens) + decoder.flush()
