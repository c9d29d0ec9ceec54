"""Every optimizer keeps the contract and equals torch's own in float64, or a few lines written by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim

from seedbed.models.layers import meta_parameter
from seedbed.models.parameters import FlatParameters, Param
from seedbed.settings import OPTIMIZERS, TrainSettings
from seedbed.training.optimizers.muon import orthogonalize
from tests.contracts.optimizer import OptimizerContract, Reference, TinyModel

BETAS = ({"betas": (0.9, 0.999)}, {"betas": (0.8, 0.95), "eps": 1e-3}, {"betas": (0.0, 0.9)})


class TestSGD(OptimizerContract):
    kind = "sgd"

    def reference(self, train: TrainSettings, weights: dict[str, nn.Parameter], params: Sequence[Param]) -> Reference:
        return optim.SGD(weights.values(), lr=train.lr, weight_decay=train.weight_decay).step


class TestMomentum(OptimizerContract):
    kind = "momentum"
    own_settings = ({"momentum": 0.0}, {"momentum": 0.3}, {"momentum": 0.9})

    def reference(self, train: TrainSettings, weights: dict[str, nn.Parameter], params: Sequence[Param]) -> Reference:
        return optim.SGD(weights.values(), train.lr, train.momentum, weight_decay=train.weight_decay).step


class TestAdam(OptimizerContract):
    kind = "adam"
    own_settings = BETAS

    def reference(self, train: TrainSettings, weights: dict[str, nn.Parameter], params: Sequence[Param]) -> Reference:
        return optim.Adam(weights.values(), train.lr, train.betas, train.eps, train.weight_decay).step


class TestAdamW(OptimizerContract):
    kind = "adamw"
    own_settings = BETAS

    def reference(self, train: TrainSettings, weights: dict[str, nn.Parameter], params: Sequence[Param]) -> Reference:
        return optim.AdamW(weights.values(), train.lr, train.betas, train.eps, train.weight_decay).step


class TestLion(OptimizerContract):
    """By hand, line by line as in algorithm 2 of Chen et al. 2023."""

    kind = "lion"
    own_settings = ({"betas": (0.9, 0.99)}, {"betas": (0.8, 0.95)}, {"betas": (0.0, 0.9)})

    def reference(self, train: TrainSettings, weights: dict[str, nn.Parameter], params: Sequence[Param]) -> Reference:
        beta1, beta2 = train.betas
        momentum = {name: weight.detach() * 0 for name, weight in weights.items()}

        def step() -> None:
            for name, theta in weights.items():
                g = theta.grad
                c = beta1 * momentum[name] + (1 - beta1) * g
                theta.data -= train.lr * (c.sign() + train.weight_decay * theta.data)
                momentum[name] = beta2 * momentum[name] + (1 - beta2) * g

        return step


class TestMuon(OptimizerContract):
    """torch.optim.Muon for each part of a hidden layer's weight, and torch.optim.AdamW for the other parameters."""

    kind = "muon"
    own_settings = (
        {"betas": (0.9, 0.999), "muon_momentum": 0.95},
        {"betas": (0.8, 0.95), "muon_momentum": 0.0, "eps": 1e-3},
        {"betas": (0.0, 0.9), "muon_momentum": 0.5},
    )

    @pytest.fixture(autouse=True)
    def newton_schulz_in_float64(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """torch.optim.Muon rounds to bfloat16, which would hide any difference."""
        monkeypatch.setattr(Tensor, "bfloat16", lambda x: x.double().clone())

    def reference(self, train: TrainSettings, weights: dict[str, nn.Parameter], params: Sequence[Param]) -> Reference:
        others = [weights[p.name] for p in params if p.role != "matrix"]
        parts = {p.name: [nn.Parameter(x) for x in weights[p.name].detach().chunk(p.n_parts)]
                 for p in params if p.role == "matrix"}  # fmt: skip
        assert sorted(map(len, parts.values())) == [1, 1, 3]
        muon = optim.Muon(
            [part for one in parts.values() for part in one],
            train.lr,
            train.weight_decay,
            train.muon_momentum,
            ns_steps=train.muon_iterations,
            adjust_lr_fn=train.muon_scale,
        )
        adamw = optim.AdamW(others, train.lr, train.betas, train.eps, train.weight_decay)

        def step() -> None:
            for name, chunks in parts.items():  # views of the weights
                for part, gradient in zip(chunks, weights[name].grad.chunk(len(chunks)), strict=True):
                    part.grad = gradient
            muon.step()
            adamw.step()

        return step

    @pytest.mark.parametrize("change", [{"muon_scale": "original"}, {"muon_iterations": 3}])
    def test_scale_and_iterations_follow_torch_too(
        self, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own = [one | change for one in self.own_settings]
        monkeypatch.setattr(TestMuon, "own_settings", own)
        self.test_every_run_follows_the_reference_with_its_own_settings()


@pytest.mark.parametrize("shape", [(4, 7), (7, 4), (5, 5)])
def test_newton_schulz_moves_singular_values_near_one_and_keeps_singular_vectors(shape: tuple[int, int]) -> None:
    matrices = torch.randn(2, 3, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    matrices[0, 1] = 0
    found = orthogonalize(matrices, 5)
    assert (found[0, 1] == 0).all()
    for r, m in ((0, 0), (0, 2), (1, 0), (1, 1), (1, 2)):
        u, _, vh = torch.linalg.svd(matrices[r, m], full_matrices=False)
        inner = u.mT @ found[r, m] @ vh.mT
        values = inner.diagonal()
        torch.testing.assert_close(inner, values.diag(), rtol=0, atol=1e-10)
        assert values.min() > 0.3
        assert values.max() < 1.3


TINY_STUDY = """
question = "Do new optimizers learn?"
seeds = 2
[base]
task.p = 5
model.dim = 8
model.heads = 2
model.layers = 1
train.steps = 12
train.eval_every = 6
[grid]
train.optimizer = ["adamw", "lion", "muon"]
train.muon_momentum = [0.9, 0.95]
"""


def test_a_study_of_optimizers_is_planned_and_trained_by_the_command_line(tmp_path: Path) -> None:
    """Muon's setting has an effect on Muon alone; its runs with either value share a pack."""
    study = tmp_path / "optimizers.toml"
    study.write_text(TINY_STUDY, encoding="utf-8")

    def seedbed(*arguments: str) -> str:
        command = [sys.executable, "-m", "seedbed", *arguments, "--home", str(tmp_path / "home")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    plan = json.loads(seedbed("plan", str(study), "--json"))
    kinds = [run["settings"]["train"]["optimizer"] for run in plan["runs"]]
    assert Counter(kinds) == {"adamw": 2, "lion": 2, "muon": 4}
    packs = {kind: {run["pack"] for run, own in zip(plan["runs"], kinds, strict=True) if own == kind} for kind in kinds}
    assert {kind: len(found) for kind, found in packs.items()} == {"adamw": 1, "lion": 1, "muon": 1}
    seedbed("run", str(study))
    plan = json.loads(seedbed("plan", str(study), "--json"))
    assert {run["status"] for run in plan["runs"]} == {"finished"}


PLUGIN = """
import seedbed
from seedbed.training.optimizers import ElementwiseOptimizer


@seedbed.register
class SignSGD(ElementwiseOptimizer):
    kind, n_moments, settings, label = "sign-sgd", 0, ("momentum",), "signSGD"

    def hyperparameters(self, lr):
        dtype = self.parameters.weights.dtype
        return lr.to(dtype), self.weight_decay.to(dtype)

    @staticmethod
    def update(w, moments, g, *hyperparameters):
        lr, weight_decay = hyperparameters
        w.sub_(lr * (g + weight_decay * w).sign())
"""
CHECK_PLUGIN = """
from seedbed.settings import Settings, all_settings, describe_accepted_values, setting_traits
settings = Settings.from_flat({"train.optimizer": "sign-sgd", "train.momentum": 0.5})
assert settings.is_active("train.momentum") and not settings.is_active("train.betas")
assert "train.momentum" in settings.identity()
assert '"sign-sgd"' in describe_accepted_values("train.optimizer")
assert setting_traits("train.optimizer").value_labels["sign-sgd"] == "signSGD"
"""


def test_a_plugins_optimizer_is_accepted_with_its_settings_and_trains(tmp_path: Path) -> None:
    plugin, study = tmp_path / "mine.py", tmp_path / "own.toml"
    plugin.write_text(PLUGIN, encoding="utf-8")
    own = TINY_STUDY.replace('["adamw", "lion", "muon"]', '["sign-sgd"]').replace("train.muon_", "train.")
    study.write_text(own, encoding="utf-8")
    run = ["-m", "seedbed", "--plugin", str(plugin), "run", str(study), "--home", str(tmp_path / "home")]
    for arguments in (["-c", CHECK_PLUGIN], run):
        environment = os.environ | {"SEEDBED_PLUGINS": str(plugin)}
        command = [sys.executable, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
    assert "4 finished" in done.stderr


def test_params_are_views_with_role_and_parts_and_their_columns_are_joined() -> None:
    parameters = FlatParameters(TinyModel(), 2, torch.device("cpu"), torch.float64)
    params = {param.name: param for param in parameters.params()}
    assert {name: (param.role, param.n_parts) for name, param in params.items()} == {
        "embed.weight": ("embedding", 1), "qkv.weight": ("matrix", 3), "qkv.bias": ("bias", 1),
        "up.weight": ("matrix", 1), "down.weight": ("matrix", 1), "down.bias": ("bias", 1),
        "norm.weight": ("norm", 1), "norm.bias": ("norm", 1),
        "output.weight": ("output", 1), "output.bias": ("bias", 1),
    }  # fmt: skip
    parameters.weights.fill_(1.0)
    assert all((param.weight == 1).all() for param in params.values())
    columns = parameters.columns([name for name, param in params.items() if param.role != "matrix"])
    assert len(columns) == 3  # the embedding, a bias, and everything from down.bias to the end
    for one in columns:
        parameters.weights[:, one] = 2.0
    assert {name: float(param.weight.unique()) for name, param in params.items()} == {
        name: 1.0 if param.role == "matrix" else 2.0 for name, param in params.items()
    }


def test_a_layer_whose_matrix_has_no_role_is_refused() -> None:
    model = nn.Module()
    model.odd = nn.Linear(3, 2)
    model.odd.weight, model.odd.bias = meta_parameter(2, 3), meta_parameter(2)
    with pytest.raises(TypeError, match="Linear has a matrix, but no weight_role"):
        FlatParameters(model, 1, torch.device("cpu"), torch.float64).params()


def test_every_optimizer_has_a_contract_test() -> None:
    """Plugins of other tests are not in the package."""
    tested = {one.kind for one in OptimizerContract.__subclasses__()}
    assert {kind for kind, info in OPTIMIZERS.items() if info.implementation.startswith("seedbed.")} == tested
