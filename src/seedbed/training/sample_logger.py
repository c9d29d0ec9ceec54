"""What the runs of a pack write while they train: one text each from the study's prompt.

A run draws with its own seed and the same numbers each time, so texts of different steps differ by the model alone. An
empty prompt stands for the first token of the training text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import nn

from seedbed.data.datasets import load_text_dataset
from seedbed.records import SampleEvent
from seedbed.sampling.sampler import generate_tokens
from seedbed.settings import TextSettings, TrainSettings


class SampleLogger:
    """The prompt of a pack, ready to be continued."""

    def __init__(
        self, task: TextSettings, train_settings: TrainSettings, seeds: Sequence[int], device: torch.device
    ) -> None:
        text = load_text_dataset(task)
        self._tokenizer, self._prompt, self._n_tokens = (
            text.tokenizer,
            train_settings.prompt,
            train_settings.sample_tokens,
        )
        self._context, self._seeds = task.length, seeds
        train = text.splits["train"]
        self._prompt_ids = text.tokenizer.encode(train_settings.prompt).tolist()
        begin = self._prompt_ids or [int(train.ids[train.spans.starts[0]])]
        self._first_tokens = torch.from_numpy(np.array(begin, dtype=np.int64)).to(device)[None, None]

    def sample(self, model: nn.Module, step: int, slots: Sequence[int]) -> Iterator[SampleEvent]:
        """The texts of these slots at this step; the others write too, and are not heard."""
        written = generate_tokens(model, self._context, self._first_tokens, self._n_tokens, self._seeds)
        for slot in slots:
            tokens, logs = written.tokens[slot, 0].tolist(), written.log_probabilities[slot, 0].tolist()
            yield SampleEvent(slot, step, self._prompt, self._decode(tokens), tuple(tokens), tuple(logs))

    def _decode(self, tokens: list[int]) -> str:
        """What comes after the prompt; its decoder has seen the prompt, so that spaces and split characters go on."""
        decoder = self._tokenizer.decoder()
        decoder.feed(self._prompt_ids)
        return decoder.feed(tokens) + decoder.flush()
