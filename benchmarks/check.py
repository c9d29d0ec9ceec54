"""Whether theirs and ours are the same function: loss and every gradient, in float64, on weights and inputs just drawn.

difference = difference_to("plain", settings, "cpu")      # relative, the largest over all parameters
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from peers import MODELS, load, same_place
from torch import Tensor

from seedbed.data.arithmetic import N_SCORED, split, table
from seedbed.settings import Arithmetic, Settings
from seedbed.train.step import Trainer

AGREE = 1e-9  # relative, in float64; different orders of summation stay far below


def difference_to(kind: str, settings: Settings, device: str) -> float:
    """The largest relative difference of the loss and of any parameter's gradient between this peer and ours."""
    settings = without_dropout(settings)
    trainer = Trainer([settings], [0], device, torch.float64)
    weights = {name: torch.from_numpy(array) for name, array in trainer.bank.arrays(0).items()}
    drawn = {name: 0.1 * torch.randn_like(weight) for name, weight in weights.items()}
    if kind == "hugging_face":
        drawn["output.bias"].zero_()  # it has none
    trainer.bank.load(0, {name: weight.numpy() for name, weight in drawn.items()})
    inputs, targets = same_samples(trainer, settings)
    loss, gradients = trainer._loss_and_gradients()
    peer = MODELS[kind](settings).double().to(device)
    load(peer, {name: weight.to(device) for name, weight in drawn.items()})
    theirs = F.cross_entropy(peer(inputs)[:, -targets.shape[1] :].flatten(0, 1), targets.flatten())
    theirs.backward()
    ours = trainer.bank.pieces(gradients)
    found = [abs(loss.item() - theirs.item()) / abs(theirs.item())]
    for name, parameter in peer.named_parameters():
        if (place := same_place(name)) is not None:
            mine = ours[place[0]][0]
            found.append(_relative(mine.T if place[1] else mine, parameter.grad))
    return max(found)


def without_dropout(settings: Settings) -> Settings:
    dials = {name: value for name, value in settings.differences().items() if not name.endswith("dropout")}
    return Settings.of({"task.kind": settings.task.kind, "model.kind": settings.model.kind} | dials)


def same_samples(trainer: Trainer, settings: Settings) -> tuple[Tensor, Tensor]:
    """The samples of the trainer's next update, whole."""
    if isinstance(settings.task, Arithmetic):  # all training equations, since a batch holds them all
        tokens = torch.from_numpy(table(settings.task).tokens)[split(settings.task, 0)[0]].to(trainer.step.device)
        return tokens[:, :-1], tokens[:, -N_SCORED:]
    batch = trainer.batches.draw(trainer.drawn)
    return batch.inputs[0], batch.targets[0]


def _relative(mine: Tensor, theirs: Tensor | None) -> float:
    assert theirs is not None
    return float((mine - theirs).norm() / theirs.norm())
