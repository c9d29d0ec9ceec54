"""Clipping and schedules equal torch's, with different settings for each run; `contracts` has the optimizers."""

from __future__ import annotations

import pytest
import torch

from seedbed.settings import TrainSettings
from seedbed.training.schedule import Schedule
from seedbed.training.trainer import clip_scales


def test_clipping_scales_down_only_gradients_above_the_limit():
    gradients = torch.tensor([[3.0, 4.0], [0.3, 0.4], [30.0, 40.0]])
    scales = clip_scales(gradients.norm(dim=1), torch.tensor([[1.0], [1.0], [0.0]]))
    assert (gradients * scales).norm(dim=1).tolist() == pytest.approx([1.0, 0.5, 50.0], rel=1e-5)


def factors(n_steps: int, **settings: object) -> list[float]:
    """Our learning-rate factors, computed beside a constant schedule to show that kinds share a pack."""
    schedule = Schedule([TrainSettings(**settings), TrainSettings()], torch.tensor([n_steps, n_steps]))  # type: ignore[arg-type]
    rows = [schedule.lr_factors(torch.tensor([t])).tolist() for t in range(n_steps)]
    assert {constant for _, constant in rows} == {1.0}
    return [ours for ours, _ in rows]


def torch_factors(make, n_steps: int) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler, factors_seen = make(optimizer), []
    for _ in range(n_steps):
        factors_seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return factors_seen


S = torch.optim.lr_scheduler


@pytest.mark.parametrize(
    ("settings", "make"),
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
def test_schedules_equal_torch(settings, make):
    assert factors(37, **settings) == pytest.approx(torch_factors(make, 37), rel=1e-12)


def test_plateau_equals_torch_with_each_runs_own_patience():
    settings = [TrainSettings(schedule="plateau", patience=n, threshold=0.1, lr_factor=0.5) for n in (0, 2)] + [
        TrainSettings()
    ]
    ours = Schedule(settings, torch.tensor([50, 50, 50]))
    references = []
    for train in settings[:2]:
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        references.append(
            (optimizer, S.ReduceLROnPlateau(optimizer, factor=0.5, patience=train.patience, threshold=0.1))
        )
    for loss in [3.0, 2.9, 2.5, 2.6, 2.4, 2.0, 1.99, 1.98, 1.97, 1.0, 1.0, 1.0, 1.0]:
        ours.update_plateau(torch.full((3,), loss, dtype=torch.float64))
        for _, scheduler in references:
            scheduler.step(loss)
        expected = [optimizer.param_groups[0]["lr"] for optimizer, _ in references] + [1.0]
        assert ours.lr_factors(torch.tensor([0])).tolist() == pytest.approx(expected)
