"""Several runs that write from one prompt: those of equal shape as one model, all samples of all of them at once.

    for piece in stream_together(runs, "my lord", tokens=200, n=4): ...      # piece.run, piece.sample, piece.text
    sample_together(runs, "my lord")[2][0].text                              # by run, then by sample

Every run draws with the same numbers, so that texts differ by the models alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from seedbed.data.dataset_info import get_dataset_info
from seedbed.models.build import build_pack
from seedbed.sampling.loaded_run import LoadedRun, TextOrIds
from seedbed.sampling.results import Samples, StreamChunk
from seedbed.study.pack import PER_RUN_SETTINGS


def stream_runs(
    runs: Sequence[LoadedRun], prompt: TextOrIds = "", tokens: int = 500, *args: Any, **kwargs: Any
) -> Iterator[StreamChunk]:
    """The tokens of all samples as they come, runs of equal shape side by side; the dials are `Loaded.stream`'s."""
    for numbers in group_by_shape(runs):
        group = [runs[number] for number in numbers]
        model = group[0].model if len(group) == 1 else stack_runs(group)
        for piece in group[0].stream_with_model(model, len(group), prompt, tokens, *args, **kwargs):
            yield replace(piece, run=numbers[piece.run])


def sample_runs(
    runs: Sequence[LoadedRun], prompt: TextOrIds = "", tokens: int = 500, *args: Any, **kwargs: Any
) -> list[Samples]:
    """The texts of every run."""
    by_run: dict[int, list[StreamChunk]] = {}
    for piece in stream_runs(runs, prompt, tokens, *args, **kwargs):
        by_run.setdefault(piece.run, []).append(piece)
    return [run.collect_samples(prompt, by_run[number]) for number, run in enumerate(runs)]


def group_by_shape(runs: Sequence[LoadedRun]) -> list[list[int]]:
    """The places of runs that can be one model, in the order of their first."""
    groups: dict[Any, list[int]] = {}
    for number, run in enumerate(runs):
        dials = run.run.settings.flat().items()
        shape = tuple(
            (name, value) for name, value in dials if name not in PER_RUN_SETTINGS and not name.startswith("train.")
        )
        groups.setdefault((shape, run.tokenizer.texts), []).append(number)
    return list(groups.values())


def stack_runs(runs: Sequence[LoadedRun]) -> nn.Module:
    """One model that holds the weights of all."""
    settings = [run.run.settings for run in runs]
    step = torch.zeros(1, dtype=torch.int64)
    model, bank = build_pack(
        settings, [run.run.seed for run in runs], step, torch.float32, get_dataset_info(settings[0].task)
    )
    for slot, run in enumerate(runs):
        weights = {name: held[0].detach().numpy() for name, held in run.model.named_parameters()}
        bank.load_arrays(slot, weights)
    return model.eval()
