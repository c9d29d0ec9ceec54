"""Compiled updates equal plain ones: really traced, but run with the aot_eager backend, so no compiler is needed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch._dynamo.utils import counters

from seedbed.settings import Settings
from seedbed.training.evaluate import compute_metrics
from seedbed.training.trainer import Trainer

SETTINGS = {
    "task.p": 5, "model.dim": 16, "train.steps": 40, "train.batch_size": 8,
    "train.schedule": "cosine", "train.warmup": 3, "train.clip": 0.5, "train.ema": 0.9,
    "train.decay_parameters": "matrices",
}  # fmt: skip


@pytest.fixture
def tracing(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of the functions that are compiled."""
    compiled, original = list[str](), torch.compile

    def traced(function, **options):
        compiled.append(function.__name__)
        return original(function, backend="aot_eager", **options)

    monkeypatch.setattr(torch, "compile", traced)
    counters["graph_break"].clear()
    yield compiled
    assert not counters["graph_break"]  # graph breaks would silently slow down the update
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("kind", "n_runs", "optimizer", "compiled_rule"),
    [
        ("gpt", 1, "adamw", "clipped_update"),
        ("gpt", 3, "adamw", "clipped_update"),
        ("lstm", 1, "adamw", "clipped_update"),
        ("lstm", 3, "adamw", "clipped_update"),
        ("gru", 3, "adamw", "clipped_update"),
        ("t5", 3, "adamw", "clipped_update"),
        ("gpt", 3, "muon", "orthogonalize"),
    ],
)
def test_compiled_updates_equal_plain_updates(kind, n_runs, optimizer, compiled_rule, tracing):
    """Of three runs one has NaN weights and is frozen."""
    model = {"model.positions": "t5"} if kind == "t5" else {"model.kind": kind}
    shared = SETTINGS | model | {"train.optimizer": optimizer}
    settings = [Settings.from_flat(shared | {"train.lr": 1e-3 * (i + 1)}) for i in range(n_runs)]
    plain, compiled = (Trainer(settings, range(n_runs), "cpu", torch.float64, mode) for mode in ("plain", "compiled"))
    for trainer in (plain, compiled):
        trainer.parameters.weights[2:] = torch.nan
    assert set(tracing) == {"_batch_losses", "_score_batch", "_active_and_lr", compiled_rule}
    for _ in range(6):
        plain.train_step()
        compiled.train_step()
    assert (compiled.diverged_at >= 0).tolist() == [i == 2 for i in range(n_runs)]
    for name, tensor in plain.state().items():
        torch.testing.assert_close(compiled.state()[name], tensor, rtol=1e-10, atol=1e-12, equal_nan=True, msg=name)
    expected, actual = compute_metrics(plain), compute_metrics(compiled)
    for name, metric in expected.items():
        torch.testing.assert_close(actual[name], metric, rtol=1e-10, atol=1e-12, equal_nan=True, msg=name)
