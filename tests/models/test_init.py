"""Initial weights have the distributions of torch.nn.init, separately for each of several concatenated matrices."""

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
MATRIX_NAMES = {
    "gpt": ["embed.weight", "blocks.0.attention.qkv.weight", "blocks.0.mlp.up.weight", "output.weight"],
    "lstm": ["embed.weight", "cells.0.input.weight", "cells.1.state.weight", "output.weight"],
    "encoder": [
        "embed.weight",
        "blocks.0.attention.out.weight",
        "classifier.hidden.weight",
        "classifier.output.weight",
    ],
}
N_PARTS = {"qkv": 3, "input": 4, "state": 4}


def init_weights(kind: str, init: str, **overrides: Any) -> dict[str, NDArray[np.float64]]:
    task = "labels" if kind == "encoder" else "text"
    flat = {"task.kind": task, "model.kind": kind, "model.dim": 64, "model.init": init, **overrides}
    settings = Settings.from_flat(flat)
    return initial_weights(build_model(settings, DATASET_INFO), settings.model, 7)


def split_parts(name: str, weights: dict[str, NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """The matrices that are concatenated in one parameter, without a padding row."""
    whole = weights[name][1:] if name == "embed.weight" else weights[name]
    return np.split(whole, N_PARTS.get(name.split(".")[-2], 1))


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in MATRIX_NAMES.items() for name in names])
@pytest.mark.parametrize("init", ["normal-0.02", "xavier-normal", "xavier-uniform"])
def test_mean_std_and_range_equal_those_of_torch_init(kind: str, name: str, init: str) -> None:
    weights = init_weights(kind, init)
    for one in split_parts(name, weights):
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


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in MATRIX_NAMES.items() for name in names])
def test_orthogonal_matrices_have_orthonormal_rows_or_columns(kind: str, name: str) -> None:
    for one in np.split(init_weights(kind, "orthogonal")[name], N_PARTS.get(name.split(".")[-2], 1)):
        if name == "embed.weight" and kind == "lstm":
            continue  # its padding row is set to zero afterwards
        inner = one @ one.T if len(one) <= one.shape[1] else one.T @ one
        np.testing.assert_allclose(inner, np.eye(len(inner)), atol=1e-12)


def test_orthogonal_matrices_have_no_preferred_sign() -> None:
    """Without the sign correction, the diagonal of Q would be biased."""
    signs = [init_weights("gpt", "orthogonal", **{"model.dim": 4})[f"blocks.{i}.mlp.up.weight"][0, 0] for i in range(2)]
    is_positive = [
        initial_weights(build_model(settings, DATASET_INFO), settings.model, seed)["blocks.0.attention.out.weight"][
            0, 0
        ]
        > 0
        for seed in range(60)
        for settings in [Settings.from_flat({"task.kind": "text", "model.dim": 4, "model.init": "orthogonal"})]
    ]
    assert len(set(signs)) == 2
    assert 15 < sum(is_positive) < 45


@pytest.mark.parametrize("kind", ["gpt", "lstm", "encoder"])
@pytest.mark.parametrize("init", ["xavier-normal", "xavier-uniform", "orthogonal"])
def test_biases_start_at_zero_and_norms_at_one(kind: str, init: str) -> None:
    weights = init_weights(
        kind, init, **({"model.batch_norm": True, "model.mlp_bias": True} if kind == "encoder" else {})
    )
    for name, values in weights.items():
        if name.endswith("bias"):
            assert not values.any(), name
        elif "norm" in name:
            assert (values == 1).all(), name


def test_init_scale_multiplies_matrices_only() -> None:
    plain, scaled = (init_weights("gpt", "orthogonal", **{"model.init_scale": scale}) for scale in (1.0, 3.0))
    np.testing.assert_allclose(scaled["output.weight"], 3 * plain["output.weight"])
    np.testing.assert_array_equal(scaled["blocks.0.norm1.weight"], plain["blocks.0.norm1.weight"])
