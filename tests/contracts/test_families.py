"""Every built-in model family keeps the contract."""

from __future__ import annotations

from typing import Any, ClassVar

from tests.contracts.family import FamilyContract

TRANSFORMER = {"model.dim": 12, "model.heads": 3, "model.layers": 2}
LARGER = [{"model.layers": 3}, {"model.dim": 24}, {"model.hidden": 99}]


class TestGPT(FamilyContract):
    settings: ClassVar[dict[str, Any]] = {"task.kind": "text", **TRANSFORMER}
    variants: ClassVar[list[dict[str, Any]]] = [
        {"model.norm": "pre", "model.final_norm": True, "model.mlp_bias": True, "model.positions": "learned"},
        {"model.positions": "alibi", "model.tied": True, "model.activation": "relu"},
        {"model.positions": "rotary", "model.heads": 2, "model.attention_bias": False, "model.qkv_bias": True},
        {"model.positions": "none", "model.output_bias": False, "model.qkv_bias": False},
        {"model.positions": "t5", "model.norm": "pre"},
    ]
    larger: ClassVar[list[dict[str, Any]]] = LARGER


class TestEncoder(FamilyContract):
    settings: ClassVar[dict[str, Any]] = {
        "task.kind": "labels", "model.kind": "encoder", "model.classifier_hidden": 5, **TRANSFORMER,
    }  # fmt: skip
    variants: ClassVar[list[dict[str, Any]]] = [
        {"model.norm": "pre", "model.final_norm": True, "model.batch_norm": True, "model.positions": "alibi"},
        {"model.positions": "learned", "model.output_bias": False},
        {"model.positions": "t5"},
    ]
    larger: ClassVar[list[dict[str, Any]]] = LARGER


class TestLSTM(FamilyContract):
    settings: ClassVar[dict[str, Any]] = {"task.kind": "text", "model.kind": "lstm", "model.dim": 6, "model.layers": 2}
    variants: ClassVar[list[dict[str, Any]]] = [
        {"model.gate_biases": 0, "model.hidden": 5},
        {"model.gate_biases": 2, "model.gate_init": "library", "model.tied": True},
        {"model.hidden": 5, "model.projection": 6, "model.tied": True, "model.output_bias": False},
    ]
    larger: ClassVar[list[dict[str, Any]]] = [*LARGER, {"model.projection": 9}]


class TestGRU(FamilyContract):
    settings: ClassVar[dict[str, Any]] = TestLSTM.settings | {"model.kind": "gru"}
    variants: ClassVar[list[dict[str, Any]]] = [*TestLSTM.variants, {"model.gate_biases": 1}]
    larger: ClassVar[list[dict[str, Any]]] = TestLSTM.larger
