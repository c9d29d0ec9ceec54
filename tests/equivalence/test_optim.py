"""Each update rule, clipping and schedule against torch's own, every run with its own overrides, in float64."""

from __future__ import annotations

import pytest
import torch

from seedbed.settings import TrainSettings
from seedbed.training.optim import Optimizer, clip_scales
from seedbed.training.schedule import Schedule

LR, DECAY, BETAS, CLIP = (0.1, 0.01, 0.003), (0.0, 0.1, 0.7), ((0.9, 0.999), (0.8, 0.95), (0.0, 0.9)), (0.0, 1.0, 30.0)


def trains(optimizer: str) -> list[TrainSettings]:
    return [
        TrainSettings(
            optimizer=optimizer, lr=LR[i], weight_decay=DECAY[i], betas=BETAS[i], clip=CLIP[i], momentum=0.3 * i
        )
        for i in range(3)
    ]


def theirs(train: TrainSettings, parameter: torch.Tensor) -> torch.optim.Optimizer:
    common = {"lr": train.lr, "weight_decay": train.weight_decay}
    if train.optimizer in ("sgd", "momentum"):
        return torch.optim.SGD([parameter], momentum=train.momentum if train.optimizer == "momentum" else 0, **common)
    kind = torch.optim.Adam if train.optimizer == "adam" else torch.optim.AdamW
    return kind([parameter], betas=train.betas, eps=train.eps, **common)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw"])
def test_every_run_moves_as_torchs_optimizer_with_its_dials(optimizer):
    torch.manual_seed(1)
    weights = torch.randn(3, 11, dtype=torch.float64)
    alone = [row.clone().requires_grad_() for row in weights]
    overrides = trains(optimizer)
    ours, references = Optimizer(overrides, weights), [theirs(t, p) for t, p in zip(overrides, alone, strict=True)]
    for _ in range(20):
        gradients = 5 * torch.randn(3, 11, dtype=torch.float64)
        for row, parameter, reference, train in zip(gradients, alone, references, overrides, strict=True):
            parameter.grad = row.clone()
            if train.clip:
                torch.nn.utils.clip_grad_norm_([parameter], train.clip)
            reference.step()
        norms = torch.linalg.vector_norm(gradients, dim=1)
        active = torch.ones(3, dtype=torch.bool)
        ours.step(gradients, active, *ours.next_hyperparameters(norms, torch.ones(3, dtype=torch.float64), active))
    torch.testing.assert_close(weights, torch.stack([p.detach() for p in alone]), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw"])
def test_a_frozen_run_stays_even_when_its_gradients_are_nan(optimizer):
    weights = torch.randn(3, 11, dtype=torch.float64)
    before = weights.clone()
    ours = Optimizer(trains(optimizer), weights)
    active = torch.tensor([True, False, True])
    for bad in (1.0, torch.nan, torch.inf):
        gradients = torch.full((3, 11), 1.0, dtype=torch.float64)
        gradients[1] = bad
        norms = torch.linalg.vector_norm(gradients, dim=1)
        ours.step(gradients, active, *ours.next_hyperparameters(norms, torch.ones(3, dtype=torch.float64), active))
    assert torch.equal(weights[1], before[1])
    assert (weights[0] != before[0]).all()


def test_clipping_shortens_what_is_too_long_and_leaves_the_rest():
    gradients = torch.tensor([[3.0, 4.0], [0.3, 0.4], [30.0, 40.0]])
    scales = clip_scales(gradients.norm(dim=1), torch.tensor([[1.0], [1.0], [0.0]]))
    assert (gradients * scales).norm(dim=1).tolist() == pytest.approx([1.0, 0.5, 50.0], rel=1e-5)


def factors(n_steps: int, **overrides: object) -> list[float]:
    """Our factors next to those of a constant run, to show that kinds share a pack."""
    schedule = Schedule([TrainSettings(**overrides), TrainSettings()], torch.tensor([n_steps, n_steps]))  # type: ignore[arg-type]
    rows = [schedule.lr_factors(torch.tensor([t])).tolist() for t in range(n_steps)]
    assert {constant for _, constant in rows} == {1.0}
    return [ours for ours, _ in rows]


def torchs(make, n_steps: int) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler, seen = make(optimizer), []
    for _ in range(n_steps):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return seen


S = torch.optim.lr_scheduler


@pytest.mark.parametrize(
    ("overrides", "make"),
    [
        ({"schedule": "linear", "lr_floor": 0.2}, lambda o: S.LinearLR(o, 1.0, 0.2, total_iters=37)),
        ({"schedule": "cosine", "lr_floor": 0.1}, lambda o: S.CosineAnnealingLR(o, 37, eta_min=0.1)),
        ({"schedule": "step", "lr_every": 5, "lr_factor": 0.3}, lambda o: S.StepLR(o, 5, 0.3)),
        ({"warmup": 8}, lambda o: S.LinearLR(o, 1 / 8, 1.0, total_iters=7)),
        (
            {"schedule": "cosine", "warmup": 10},
            lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.1, 1.0, 9), S.CosineAnnealingLR(o, 27)], milestones=[10]),
        ),
    ],
)
def test_schedules_equal_torchs(overrides, make):
    assert factors(37, **overrides) == pytest.approx(torchs(make, 37), rel=1e-12)


def test_plateau_equals_torchs_with_each_runs_own_patience():
    overrides = [TrainSettings(schedule="plateau", patience=n, threshold=0.1, lr_factor=0.5) for n in (0, 2)] + [
        TrainSettings()
    ]
    ours = Schedule(overrides, torch.tensor([50, 50, 50]))
    references = []
    for train in overrides[:2]:
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        references.append(
            (optimizer, S.ReduceLROnPlateau(optimizer, factor=0.5, patience=train.patience, threshold=0.1))
        )
    for reading in [3.0, 2.9, 2.5, 2.6, 2.4, 2.0, 1.99, 1.98, 1.97, 1.0, 1.0, 1.0, 1.0]:
        ours.update_plateau(torch.full((3,), reading, dtype=torch.float64))
        for _, scheduler in references:
            scheduler.step(reading)
        expected = [optimizer.param_groups[0]["lr"] for optimizer, _ in references] + [1.0]
        assert ours.lr_factors(torch.tensor([0])).tolist() == pytest.approx(expected)
