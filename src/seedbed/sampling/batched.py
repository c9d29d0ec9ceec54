"""Samples several runs from one prompt; runs of equal shape are stacked into one model and decoded in one batch.

    for chunk in stream_runs(runs, "my lord", tokens=200, n=4): ...          # chunk.run, chunk.sample, chunk.text
    sample_runs(runs, "my lord")[2][0].text                                  # by run, then by sample

All runs use the same uniform numbers, so differences between texts come from the models alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from seedbed.models.build import load_pack
from seedbed.models.sequence_model import SequenceModel
from seedbed.sampling.loaded_run import LoadedRun, TextOrIds
from seedbed.sampling.results import Samples, StreamChunk
from seedbed.settings import setting_traits


def stream_runs(
    runs: Sequence[LoadedRun], prompt: TextOrIds = "", tokens: int = 500, *args: Any, **kwargs: Any
) -> Iterator[StreamChunk]:
    """Yields the tokens of all samples as they are generated, shape by shape; arguments as `LoadedRun.stream`."""
    for indices in group_by_shape(runs):
        group = [runs[index] for index in indices]
        model = group[0].model if len(group) == 1 else stack_runs(group)
        for chunk in group[0].stream_with_model(model, len(group), prompt, tokens, *args, **kwargs):
            yield replace(chunk, run=indices[chunk.run])


def sample_runs(
    runs: Sequence[LoadedRun], prompt: TextOrIds = "", tokens: int = 500, *args: Any, **kwargs: Any
) -> list[Samples]:
    """The samples of every run."""
    by_run: dict[int, list[StreamChunk]] = {}
    for chunk in stream_runs(runs, prompt, tokens, *args, **kwargs):
        by_run.setdefault(chunk.run, []).append(chunk)
    return [run.collect_samples(prompt, by_run[index]) for index, run in enumerate(runs)]


def group_by_shape(runs: Sequence[LoadedRun]) -> list[list[int]]:
    """Indices of runs that can be stacked into one model, in order of first appearance."""
    groups: dict[Any, list[int]] = {}
    for index, run in enumerate(runs):
        shape = tuple(
            (name, value)
            for name, value in run.run.settings.flat().items()
            if not setting_traits(name).per_run and not name.startswith("train.")
        )
        groups.setdefault((shape, run.tokenizer.texts), []).append(index)
    return list(groups.values())


def stack_runs(runs: Sequence[LoadedRun]) -> SequenceModel:
    """One model that holds the weights of all runs along its run axis."""
    arrays = [{name: one[0].detach().numpy() for name, one in run.model.named_parameters()} for run in runs]
    return load_pack(runs[0].run.settings, arrays, torch.device("cpu"), runs[0].dataset_info)
