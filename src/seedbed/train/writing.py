"""What the runs of a pack write while they train: one text each from the study's prompt.

A run draws with its own seed and the same numbers each time, so texts of different steps differ by the model alone. An
empty prompt stands for the first token of the training text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import nn

from seedbed.data.prepared import prepare_text
from seedbed.generate.sample import write
from seedbed.records import Sampled
from seedbed.settings import Text, Train


class Writer:
    """The prompt of a pack, ready to be continued."""

    def __init__(self, task: Text, dials: Train, seeds: Sequence[int], device: torch.device) -> None:
        text = prepare_text(task)
        self._tokens, self._prompt, self._n_tokens = text.tokens, dials.prompt, dials.sample_tokens
        self._context, self._seeds = task.length, seeds
        train = text.parts["train"]
        self._shown = text.tokens.encode(dials.prompt).tolist()
        begin = self._shown or [int(train.ids[train.spans.starts[0]])]
        self._begin = torch.from_numpy(np.array(begin, dtype=np.int64)).to(device)[None, None]

    def write(self, model: nn.Module, step: int, slots: Sequence[int]) -> Iterator[Sampled]:
        """The texts of these slots at this step; the others write too, and are not heard."""
        written = write(model, self._context, self._begin, self._n_tokens, self._seeds)
        for slot in slots:
            tokens, logs = written.tokens[slot, 0].tolist(), written.log_probabilities[slot, 0].tolist()
            yield Sampled(slot, step, self._prompt, self._text(tokens), tuple(tokens), tuple(logs))

    def _text(self, tokens: list[int]) -> str:
        """What comes after the prompt; its decoder has seen the prompt, so that spaces and split characters go on."""
        decoder = self._tokens.decoder()
        decoder.feed(self._shown)
        return decoder.feed(tokens) + decoder.end()
