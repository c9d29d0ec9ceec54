"""Whether theirs and ours are the same function: loss and every gradient, in float64, on weights and inputs just drawn.

    difference = difference_to("plain", settings, "cpu")      # relative, the largest over all parameters

Dropout is left out, layers beyond the second and texts beyond the second of a batch too: they are more of the same.
"""

from __future__ import annotations

import torch
from loops import UNSCORED, Samples, loss_of
from peers import MODELS
from places import counterpart, load
from torch import Tensor

from seedbed.data.batch import Batch
from seedbed.settings import Settings
from seedbed.training.trainer import Trainer

AGREE = 1e-9  # relative, in float64; different orders of summation stay far below


def difference_to(kind: str, settings: Settings, device: str) -> float:
    """The largest relative difference of the loss and of any parameter's gradient between this peer and ours."""
    settings = less_of_the_same(settings)
    trainer = Trainer([settings], [0], device, torch.float64)
    trainer.batches.prepare(0)
    weights = {name: torch.from_numpy(array) for name, array in trainer.parameters.get_arrays(0).items()}
    drawn = {name: 0.1 * torch.randn_like(weight) for name, weight in weights.items()}
    if kind == "hugging_face":
        drawn["output.bias"].zero_()  # it has none
    trainer.parameters.load_arrays(0, {name: weight.numpy() for name, weight in drawn.items()})
    inputs, targets = whole_samples(trainer.batches.draw(trainer.n_batches_drawn))
    loss, gradients = trainer._loss_and_gradients()
    peer = MODELS[kind](settings).double().to(device)
    load(peer, {name: weight.to(device) for name, weight in drawn.items()})
    theirs = loss_of(peer, inputs, targets, settings.train.label_smoothing)
    theirs.backward()
    ours = {name: view[0] for name, view in trainer.parameters.views(gradients).items()}
    found = [abs(loss.item() - theirs.item()) / abs(theirs.item())]
    for name, parameter in peer.named_parameters():
        if (mine := counterpart(name, ours)) is not None:
            found.append(_relative(mine, parameter.grad, ours))
    return max(found)


def less_of_the_same(settings: Settings) -> Settings:
    """The settings without dropout, and small where nothing new is in the rest."""
    dials = {name: value for name, value in settings.non_default().items() if not name.endswith("dropout")}
    dials["train.precision"] = "fp32"
    dials["model.layers"] = min(settings.model.layers, 2)
    if settings.task.kind == "text":
        dials["train.batch_size"] = min(settings.train.batch_size, 2)
    return Settings.from_flat({"task.kind": settings.task.kind, "model.kind": settings.model.kind} | dials)


def whole_samples(batch: Batch) -> Samples:
    """The first run's samples from their first token on, as the plain loop takes them."""
    inputs, targets = batch.inputs[0], batch.targets[0]
    n_stem = 0
    if batch.shared_prefixes is not None and batch.prefix_index is not None:
        n_stem = batch.shared_prefixes.shape[2]
        inputs = torch.cat([batch.shared_prefixes[0][batch.prefix_index[0]], inputs], dim=1)
    if isinstance(batch.scored_positions, Tensor):
        targets = torch.full_like(inputs, UNSCORED).scatter(1, batch.scored_positions[0] + n_stem, targets)
    if batch.target_mask is not None:
        targets = targets.masked_fill(~batch.target_mask[0], UNSCORED)
    return inputs, targets


def _relative(mine: Tensor, theirs: Tensor | None, whole: dict[str, Tensor]) -> float:
    """Against the gradient's own size; one that is 0 by rights, such as of a bias before BatchNorm, against all."""
    assert theirs is not None
    everything = torch.stack([piece.norm() for piece in whole.values()]).norm()
    return float((mine - theirs).norm() / torch.maximum(theirs.norm(), 1e-3 * everything))
