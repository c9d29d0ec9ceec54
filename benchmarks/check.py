"""Checks that a peer computes the same function as ours: loss and all gradients in float64, on random weights.

    difference = relative_difference("plain", settings, "cpu")      # largest over all parameters

Dropout is disabled, and only two layers and two texts per batch are used, to save time.
"""

from __future__ import annotations

import torch
from loops import IGNORE_INDEX, Samples, compute_loss
from parameter_mapping import find_counterpart, load_weights
from peers import MODELS
from torch import Tensor

from seedbed.data.batch import Batch
from seedbed.settings import Settings
from seedbed.training.trainer import Trainer

MAX_RELATIVE_DIFFERENCE = 1e-9  # in float64; different summation orders stay far below


def relative_difference(kind: str, settings: Settings, device: str) -> float:
    """Largest relative difference between this peer and ours in the loss and in any parameter's gradient."""
    settings = shrink_settings(settings)
    trainer = Trainer([settings], [0], device, torch.float64)
    trainer.batches.prepare(0)
    weights = {name: torch.from_numpy(array) for name, array in trainer.parameters.get_arrays(0).items()}
    random_weights = {name: 0.1 * torch.randn_like(weight) for name, weight in weights.items()}
    if kind == "hugging_face":
        random_weights["output.bias"].zero_()  # its output layer has no bias
    trainer.parameters.load_arrays(0, {name: weight.numpy() for name, weight in random_weights.items()})
    inputs, targets = first_run_samples(trainer.batches.draw(trainer.n_batches_drawn))
    loss, gradients = trainer._loss_and_gradients()
    peer = MODELS[kind](settings).double().to(device)
    load_weights(peer, {name: weight.to(device) for name, weight in random_weights.items()})
    theirs = compute_loss(peer, inputs, targets, settings.train.label_smoothing)
    theirs.backward()
    ours = {name: view[0] for name, view in trainer.parameters.views(gradients).items()}
    errors = [abs(loss.item() - theirs.item()) / abs(theirs.item())]
    for name, parameter in peer.named_parameters():
        if (mine := find_counterpart(name, ours)) is not None:
            errors.append(_relative_error(mine, parameter.grad, ours))
    return max(errors)


def shrink_settings(settings: Settings) -> Settings:
    """The settings without dropout and with fewer layers and samples."""
    overrides = {name: value for name, value in settings.non_default().items() if not name.endswith("dropout")}
    overrides["train.precision"] = "fp32"
    overrides["model.layers"] = min(settings.model.layers, 2)
    if settings.task.kind == "text":
        overrides["train.batch_size"] = min(settings.train.batch_size, 2)
    return Settings.from_flat({"task.kind": settings.task.kind, "model.kind": settings.model.kind} | overrides)


def first_run_samples(batch: Batch) -> Samples:
    """The first run's samples including shared prefixes, as the plain loop gets them."""
    inputs, targets = batch.inputs[0], batch.targets[0]
    prefix_length = 0
    if batch.shared_prefixes is not None and batch.prefix_index is not None:
        prefix_length = batch.shared_prefixes.shape[2]
        inputs = torch.cat([batch.shared_prefixes[0][batch.prefix_index[0]], inputs], dim=1)
    if isinstance(batch.scored_positions, Tensor):
        # what a sample lacks of the scored positions is its last one again, with the same target
        targets = torch.full_like(inputs, IGNORE_INDEX).scatter(1, batch.scored_positions[0] + prefix_length, targets)
    elif batch.target_mask is not None:
        targets = targets.masked_fill(~batch.target_mask[0], IGNORE_INDEX)
    return inputs, targets


def _relative_error(mine: Tensor, theirs: Tensor | None, all_gradients: dict[str, Tensor]) -> float:
    """Error relative to the gradient's norm, but at least to 1e-3 of the norm of all: some are 0 up to rounding."""
    assert theirs is not None
    total_norm = torch.stack([gradient.norm() for gradient in all_gradients.values()]).norm()
    return float((mine - theirs).norm() / torch.maximum(theirs.norm(), 1e-3 * total_norm))
