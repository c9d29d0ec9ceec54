"""Initial weights of every family, and weights after five updates with dropout, are pinned: no rename moves them.

Names of parameters and modules are random streams (`init/<parameter>`, `dropout/<module>`) and checkpoint keys. Numbers
are compared in float64 with a tolerance, since vectorised exp, log and sums differ in the last bits between processors
(and a bias that BatchNorm cancels is nothing but such bits).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seedbed.records import Arrays
from seedbed.settings import Settings
from seedbed.training.trainer import Trainer

PINNED = Path(__file__).parent / "fingerprints.json"
PLAY = "to be, or not to be: that is the question. whether 'tis nobler — ähm — in the mind to suffer the slings "
LABELS = [f"{'glad' if i % 3 else 'sad'}\tday {i % 5} was {'fine' if i % 3 else 'grey'}\n" for i in range(31)]

SHAPE = {"model.dim": 8, "model.layers": 2, "train.lr": 0.01}
DROPOUT = {"model.dropout": 0.1, "model.embedding_dropout": 0.1}
TRANSFORMER = SHAPE | DROPOUT | {
    "model.heads": 2, "model.attention_dropout": 0.2, "model.residual_dropout": 0.1, "model.mlp_dropout": 0.1,
}  # fmt: skip
LSTM = SHAPE | DROPOUT | {"model.kind": "lstm"}
EQUATIONS = {"task.p": 7}
TEXT = {"task.kind": "text", "task.corpus": "play.txt", "task.length": 7, "train.batch_size": 5}
MOODS = {"task.kind": "labels", "task.corpus": "moods.tsv", "task.length": 6, "task.val_fraction": 0.2}
FAMILIES: dict[str, dict[str, Any]] = {
    "gpt": EQUATIONS | TRANSFORMER,
    "gpt, pre-norm, ALiBi, tied": TEXT
    | TRANSFORMER
    | {"model.norm": "pre", "model.positions": "alibi", "model.final_norm": True, "model.tied": True}
    | {"model.init": "normal-0.02"},
    "gpt, rotary": TEXT | TRANSFORMER | {"model.positions": "rotary", "model.init": "orthogonal"},
    "gpt, learned": EQUATIONS
    | TRANSFORMER
    | {"task.orders": (2, 3), "model.positions": "learned", "model.init": "xavier-normal"},
    "lstm": EQUATIONS | LSTM,
    "lstm, as the library's": TEXT
    | LSTM
    | {"model.gate_biases": 2, "model.gate_init": "library", "model.hidden": 6, "model.projection": 8},
    "encoder": MOODS
    | TRANSFORMER
    | {"model.kind": "encoder", "train.batch_size": 4, "model.batch_norm": True, "model.classifier_dropout": 0.3},
}


def fingerprint(weights: Arrays) -> dict[str, list[float]]:
    """Of each parameter, its sum, its L1 norm, and a sum that depends on the order of its elements."""
    found = {}
    for name, array in weights.items():
        flat = np.asarray(array, dtype=np.float64).ravel()
        found[name] = [float(flat.sum()), float(np.abs(flat).sum()), float(flat @ np.cos(np.arange(flat.size)))]
    return found


def train_five_updates(values: dict[str, Any], folder: Path) -> dict[str, dict[str, list[float]]]:
    if "task.corpus" in values:
        (folder / "play.txt").write_text("".join(PLAY[i % 7 :] for i in range(9)), encoding="utf-8")
        (folder / "moods.tsv").write_text("".join(LABELS), encoding="utf-8")
        values = values | {"task.corpus": str(folder / values["task.corpus"])}
    runs = [Settings.from_flat(values), Settings.from_flat(values | {"train.lr": 0.003})]
    trainer = Trainer(runs, [0, 42], "cpu", torch.float64)
    initial = fingerprint(trainer.parameters.get_arrays(1))
    for _ in range(5):
        trainer.train_step()
    return {"initial": initial, "after five updates": fingerprint(trainer.parameters.get_arrays(1))}


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_those_of_every_version_before(family: str, tmp_path: Path) -> None:
    pinned = json.loads(PINNED.read_text(encoding="utf-8"))[family]
    found = train_five_updates(FAMILIES[family], tmp_path)
    for stage, parameters in pinned.items():
        assert list(found[stage]) == list(parameters)
        for name, numbers in parameters.items():
            np.testing.assert_allclose(found[stage][name], numbers, rtol=1e-9, atol=1e-9, err_msg=f"{stage}: {name}")


def test_a_fingerprint_notices_two_swapped_elements() -> None:
    array = np.arange(12.0).reshape(3, 4)
    swapped = array.copy()
    swapped[0, 0], swapped[2, 1] = array[2, 1], array[0, 0]
    assert fingerprint({"w": array})["w"][2] != pytest.approx(fingerprint({"w": swapped})["w"][2], rel=1e-9)
