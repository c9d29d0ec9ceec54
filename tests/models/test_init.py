"""Initial weights have the distributions of torch.nn.init, each of several maps side by side by itself."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from seedbed.models.build import build_model
from seedbed.models.init import initial_weights
from seedbed.settings import DatasetInfo, Settings

DATASET_INFO = DatasetInfo(vocab_size=70, context_length=9, n_train=1, n_classes=3, padding_id=0)
MATRICES = {
    "gpt": ["embed.weight", "blocks.0.attention.qkv.weight", "blocks.0.mlp.up.weight", "output.weight"],
    "lstm": ["embed.weight", "cells.0.input.weight", "cells.1.state.weight", "output.weight"],
    "encoder": [
        "embed.weight",
        "blocks.0.attention.out.weight",
        "classifier.hidden.weight",
        "classifier.output.weight",
    ],
}
PARTS = {"qkv": 3, "input": 4, "state": 4}


def start(kind: str, init: str, **overrides: Any) -> dict[str, NDArray[np.float64]]:
    task = "labels" if kind == "encoder" else "text"
    chosen = {"task.kind": task, "model.kind": kind, "model.dim": 64, "model.init": init, **overrides}
    settings = Settings.from_flat(chosen)
    return initial_weights(build_model(settings, DATASET_INFO), settings.model, 7)


def maps(name: str, weights: dict[str, NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """The maps that one matrix holds; a padding row is left out."""
    whole = weights[name][1:] if name == "embed.weight" else weights[name]
    return np.split(whole, PARTS.get(name.split(".")[-2], 1))


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in MATRICES.items() for name in names])
@pytest.mark.parametrize("init", ["normal-0.02", "xavier-normal", "xavier-uniform"])
def test_mean_spread_and_range_are_those_of_torchs_init(kind: str, name: str, init: str) -> None:
    weights = start(kind, init)
    for one in maps(name, weights):
        rows = len(one) + (name == "embed.weight" and kind == "lstm")
        theirs = torch.empty(70 if name == "embed.weight" else rows, one.shape[1], dtype=torch.float64)
        torch.manual_seed(1)
        if init == "normal-0.02":
            torch.nn.init.normal_(theirs, std=0.02)
        else:
            getattr(torch.nn.init, init.replace("-", "_") + "_")(theirs)
        n = one.size
        assert abs(one.mean()) < 4 * one.std() / sqrt(n)
        assert one.std() == pytest.approx(float(theirs.std()), rel=5 / sqrt(n))
        assert np.abs(one).max() == pytest.approx(float(theirs.abs().max()), rel=0.5 if "normal" in init else 0.06)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in MATRICES.items() for name in names])
def test_orthogonal_maps_have_orthonormal_rows_or_columns(kind: str, name: str) -> None:
    for one in np.split(start(kind, "orthogonal")[name], PARTS.get(name.split(".")[-2], 1)):
        if name == "embed.weight" and kind == "lstm":
            continue  # its padding row is cleared afterwards
        inner = one @ one.T if len(one) <= one.shape[1] else one.T @ one
        np.testing.assert_allclose(inner, np.eye(len(inner)), atol=1e-12)


def test_orthogonal_starts_favour_no_direction() -> None:
    """Without the sign rule, the diagonal of Q would lean to one side."""
    signs = [start("gpt", "orthogonal", **{"model.dim": 4})[f"blocks.{i}.mlp.up.weight"][0, 0] for i in range(2)]
    draws = [
        initial_weights(build_model(settings, DATASET_INFO), settings.model, seed)["blocks.0.attention.out.weight"][
            0, 0
        ]
        > 0
        for seed in range(60)
        for settings in [Settings.from_flat({"task.kind": "text", "model.dim": 4, "model.init": "orthogonal"})]
    ]
    assert len(set(signs)) == 2
    assert 15 < sum(draws) < 45


@pytest.mark.parametrize("kind", ["gpt", "lstm", "encoder"])
@pytest.mark.parametrize("init", ["xavier-normal", "xavier-uniform", "orthogonal"])
def test_biases_start_at_zero_and_norms_at_one(kind: str, init: str) -> None:
    weights = start(kind, init, **({"model.batch_norm": True, "model.mlp_bias": True} if kind == "encoder" else {}))
    for name, values in weights.items():
        if name.endswith("bias"):
            assert not values.any(), name
        elif "norm" in name:
            assert (values == 1).all(), name


def test_an_initial_scale_multiplies_matrices_only() -> None:
    plain, scaled = (start("gpt", "orthogonal", **{"model.init_scale": scale}) for scale in (1.0, 3.0))
    np.testing.assert_allclose(scaled["output.weight"], 3 * plain["output.weight"])
    np.testing.assert_array_equal(scaled["blocks.0.norm1.weight"], plain["blocks.0.norm1.weight"])
