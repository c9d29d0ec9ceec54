"""The batches of a pack: those of its task, within the limits of its model and device.

batches = make_batches(settings, seeds, device)
batches.prepare(step)
batch = batches.draw(batch_index)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from seedbed.data.batch import Batches
from seedbed.settings import Settings
from seedbed.tasks.base import BatchLimits

# Activations of the widest layers that one evaluation chunk may hold: of each run, as chunks of other sizes round
# differently; on a GPU of all runs together, unless they are to be reproducible.
MAX_EVAL_ACTIVATIONS = 2**20
MAX_GPU_EVAL_ACTIVATIONS = 2**28


def make_batches(settings: Sequence[Settings], seeds: Sequence[int], device: torch.device) -> Batches:
    """Returns the batches of runs whose tasks differ only in per-run settings."""
    batches: Batches = settings[0].task.make_batches(settings, seeds, str(device), batch_limits(settings, device))
    return batches


def batch_limits(settings: Sequence[Settings], device: torch.device) -> BatchLimits:
    """What the model of a pack and its device allow."""
    model, is_per_run = settings[0].model, device.type == "cpu" or settings[0].train.reproducible
    return BatchLimits(
        max_context=model.max_context(settings[0].task.dataset_info().context_length),
        activations_per_token=model.widest_activations(),
        max_activations=MAX_EVAL_ACTIVATIONS if is_per_run else MAX_GPU_EVAL_ACTIVATIONS // len(settings),
        # with dropout, the samples of a prefix would share its masks
        can_share_prefixes=model.caches_prefixes and not any(map(_uses_dropout, settings)),
    )


def _uses_dropout(settings: Settings) -> bool:
    return any(value for name, value in settings.model if name.endswith("dropout"))
