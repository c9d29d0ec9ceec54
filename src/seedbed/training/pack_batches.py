"""The batches of a pack: those of its task, within the limits of its model and device.

batches = make_batches(settings, seeds, device)
batches.prepare(step)
batch = batches.draw(batch_index)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from seedbed.data.batch import Batches
from seedbed.kind_settings import LSTMSettings, TransformerSettings
from seedbed.settings import Settings
from seedbed.tasks.base import BatchLimits

# Activations of the widest layers that one evaluation chunk may hold, by device type.
MAX_EVAL_ACTIVATIONS = {"cpu": 2**23, "cuda": 2**28}


def make_batches(settings: Sequence[Settings], seeds: Sequence[int], device: torch.device) -> Batches:
    """Returns the batches of runs whose tasks differ only in per-run settings."""
    batches: Batches = settings[0].task.make_batches(settings, seeds, str(device), batch_limits(settings, device))
    return batches


def batch_limits(settings: Sequence[Settings], device: torch.device) -> BatchLimits:
    """What the model of a pack and its device allow."""
    model = settings[0].model
    is_limited = isinstance(model, TransformerSettings) and model.positions == "learned"
    # Approximate activations per token in the widest layers: LSTM gates, or QKV projections and the MLP hidden layer.
    width = 8 * model.hidden_width if isinstance(model, LSTMSettings) else 3 * model.dim + model.mlp_width
    return BatchLimits(
        max_context=settings[0].task.dataset_info().context_length if is_limited else None,
        activations_per_token=width,
        max_activations=MAX_EVAL_ACTIVATIONS[device.type],
        can_share_prefixes=not any(map(_uses_dropout, settings)),  # samples of a prefix would share dropout masks
    )


def _uses_dropout(settings: Settings) -> bool:
    return any(value for name, value in settings.model if name.endswith("dropout"))
