"""A compiled update is the plain one: traced for real, but done operation by operation, so no compiler is needed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch._dynamo.utils import counters

from seedbed.settings import Settings
from seedbed.training.evaluate import compute_metrics
from seedbed.training.trainer import Trainer

DIALS = {
    "task.p": 5, "model.dim": 16, "train.steps": 40, "train.batch_size": 8,
    "train.schedule": "cosine", "train.warmup": 3, "train.clip": 0.5, "train.ema": 0.9, "train.decay_parameters": "matrices",
}  # fmt: skip


@pytest.fixture
def tracing(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is compiled, by name."""
    compiled, compile_it = list[str](), torch.compile

    def traced(function, **options):
        compiled.append(function.__name__)
        return compile_it(function, backend="aot_eager", **options)

    monkeypatch.setattr(torch, "compile", traced)
    counters["graph_break"].clear()
    yield compiled
    assert not counters["graph_break"]  # an update in several pieces is slower, and nobody would be told
    torch._dynamo.reset()


@pytest.mark.parametrize("kind", ["gpt", "lstm"])
@pytest.mark.parametrize("n_runs", [1, 3])
def test_compiled_updates_are_the_plain_ones(kind, n_runs, tracing):
    """Of three runs one has lost its numbers and is frozen."""
    settings = [Settings.from_flat(DIALS | {"model.kind": kind, "train.lr": 1e-3 * (i + 1)}) for i in range(n_runs)]
    plain, ours = (Trainer(settings, range(n_runs), "cpu", torch.float64, engine) for engine in ("plain", "compiled"))
    for trainer in (plain, ours):
        trainer.parameters.weights[2:] = torch.nan
    assert set(tracing) == {"_batch_losses", "_sample_scores", "_decide", "limited"}
    for _ in range(6):
        plain.train_step()
        ours.train_step()
    assert (ours.diverged_at >= 0).tolist() == [i == 2 for i in range(n_runs)]
    for name, held in plain.state().items():
        torch.testing.assert_close(ours.state()[name], held, rtol=1e-10, atol=1e-12, equal_nan=True, msg=name)
    expected, found = compute_metrics(plain), compute_metrics(ours)
    for name, reading in expected.items():
        torch.testing.assert_close(found[name], reading, rtol=1e-10, atol=1e-12, equal_nan=True, msg=name)
