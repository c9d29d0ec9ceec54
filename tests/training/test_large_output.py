"""The output layer computed apart from the model gives the same losses, gradients and scores."""

from __future__ import annotations

import pytest
import torch

from seedbed.models.gpt import GPT
from seedbed.settings import Settings
from seedbed.training import large_output
from seedbed.training.large_output import LargeOutput, has_large_output
from seedbed.training.trainer import Trainer

TEXT = {
    "task.kind": "text", "task.corpus": "python-docs", "task.data_fraction": 0.01, "task.length": 12,
    "task.sampler": "epochs", "train.batch_size": 4, "train.lr": 1e-2, "train.eval_batches": 3, "model.dim": 16,
}  # fmt: skip
MODELS = [
    {"model.kind": "gpt", "model.heads": 2, "model.tied": True, "model.output_bias": False},
    {"model.kind": "gpt", "model.heads": 2, "train.label_smoothing": 0.1},
    {"model.kind": "lstm", "model.hidden": 8, "model.projection": 16, "model.tied": True},
    {"model.kind": "gru"},
]


def train(settings: dict[str, object], n_runs: int, apart: bool) -> tuple[torch.Tensor, list[torch.Tensor]]:
    runs = [Settings.from_flat(TEXT | settings)] * n_runs
    trainer = Trainer(runs, range(n_runs), "cpu", torch.float64)
    if apart:
        trainer._large_output = LargeOutput(trainer.forward_batch, lambda function, dynamic: function)
    for _ in range(4):
        trainer.train_step()
    trainer.model.eval()
    with torch.no_grad():
        return trainer.parameters.weights, list(trainer.score_samples())


@pytest.mark.parametrize("settings", MODELS, ids=str)
@pytest.mark.parametrize("n_runs", [1, 3])
@pytest.mark.parametrize("chunk", [7, 8192])
def test_losses_gradients_and_scores_are_those_of_the_whole_model(settings, n_runs, chunk, monkeypatch):
    monkeypatch.setattr(large_output, "EVAL_CHUNK_TOKENS", chunk)
    whole, apart = (train(settings, n_runs, apart) for apart in (False, True))
    torch.testing.assert_close(apart[0], whole[0], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(apart[1][0], whole[1][0], rtol=1e-10, atol=1e-12)
    assert torch.equal(apart[1][1], whole[1][1])


def test_only_models_that_end_with_their_output_layer_are_split():
    class Scaled(GPT):
        def compute_logits(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().compute_logits(x)

    settings = Settings()
    gpt = settings.model.build(settings.task.dataset_info())
    assert has_large_output(gpt, 40_000)
    assert not has_large_output(gpt, 100)
    gpt.__class__ = Scaled
    assert not has_large_output(gpt, 40_000)
