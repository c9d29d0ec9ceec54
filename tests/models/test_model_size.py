"""Closed-form parameter counts against the reports' formulas and tables, and against the modules."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
import torch

from seedbed.models.build import build_model
from seedbed.models.families import GPTSettings, LSTMSettings
from seedbed.models.families.base import Family, count_elements
from seedbed.models.model_size import (
    count_matrix_weights,
    count_parameters,
    estimate_peak_bytes,
    estimate_training_bytes,
)
from seedbed.models.parameter_formulas import Formula, parameter_formulas, symbols_of, total_formula
from seedbed.models.parameters import FlatParameters
from seedbed.records import ParameterCounts
from seedbed.settings import OPTIMIZERS, DatasetInfo, Settings


def count_layers(model: Family, *prefixes: str) -> int:
    """Parameters of the layers whose names start with one of the prefixes."""
    shapes = model.layer_shapes(DatasetInfo(5, 6, 1))
    return sum(count_elements(shapes, prefix) for prefix in prefixes)


# (layers, dim): GPT body, P, total; LSTM body, P, total; P includes the output layer, not the token embedding
TABLE = {
    (1, 64): (49_664, 52_004, 54_308, 33_024, 35_364, 37_668),
    (1, 128): (197_632, 202_276, 206_884, 131_584, 136_228, 140_836),
    (1, 256): (788_480, 797_732, 806_948, 525_312, 534_564, 543_780),
    (2, 64): (99_328, 101_668, 103_972, 66_048, 68_388, 70_692),
    (2, 128): (395_264, 399_908, 404_516, 263_168, 267_812, 272_420),
    (2, 256): (1_576_960, 1_586_212, 1_595_428, 1_050_624, 1_059_876, 1_069_092),
    (3, 64): (148_992, 151_332, 153_636, 99_072, 101_412, 103_716),
    (3, 128): (592_896, 597_540, 602_148, 394_752, 399_396, 404_004),
    (3, 256): (2_365_440, 2_374_692, 2_383_908, 1_575_936, 1_585_188, 1_594_404),
}


@pytest.mark.parametrize(("size", "counts"), TABLE.items())
def test_the_report_s_eighteen_models_have_its_counts(size: tuple[int, int], counts: tuple[int, ...]) -> None:
    layers, dim = size
    gpt = Settings.from_flat({"model.layers": layers, "model.dim": dim})
    lstm = Settings.from_flat({"model.kind": "lstm", "model.layers": layers, "model.dim": dim})
    assert (count_layers(gpt.model, "blocks."), count_layers(lstm.model, "cells.")) == (counts[0], counts[3])
    assert count_parameters(gpt) == ParameterCounts(total=counts[2], non_embedding=counts[1])
    assert count_parameters(lstm) == ParameterCounts(total=counts[5], non_embedding=counts[4])


@pytest.mark.parametrize("d", [6, 20])
@pytest.mark.parametrize("m", [1, 3])
def test_the_report_s_formulas_hold_with_and_without_bias(d: int, m: int) -> None:
    biased, plain = (GPTSettings(dim=d, mlp_multiplier=m, attention_bias=bias) for bias in (True, False))
    assert (count_layers(biased, "blocks.0.attention."), count_layers(plain, "blocks.0.attention.")) == (
        4 * (d**2 + d),
        4 * d**2,
    )
    assert (count_layers(biased, "blocks.0."), count_layers(plain, "blocks.0.")) == (
        (4 + 2 * m) * d**2 + 8 * d,
        (4 + 2 * m) * d**2 + 4 * d,
    )


@pytest.mark.parametrize("layers", [1, 2, 5])
@pytest.mark.parametrize("hidden", [7, 11])
def test_the_report_s_lstm_formula_holds_for_any_number_of_biases(layers: int, hidden: int) -> None:
    d_x, d_h = 5, hidden
    for biases in (0, 1, 2):
        model = LSTMSettings(dim=d_x, hidden=d_h, layers=layers, gate_biases=biases)
        assert count_layers(model, "cells.") == 4 * d_h * (d_x + biases * layers + (2 * layers - 1) * d_h)


@pytest.mark.parametrize(
    ("overrides", "total", "non_embedding"),
    [
        ({"model.tied": True}, -36 * 128, -36 * 128),
        ({"model.output_bias": False}, -36, -36),
        ({"model.final_norm": True}, 2 * 128, 2 * 128),
        ({"model.mlp_bias": True}, 2 * 5 * 128, 2 * 5 * 128),
        ({"model.attention_bias": False}, -2 * 4 * 128, -2 * 4 * 128),
        ({"model.positions": "learned"}, 6 * 128, 0),
        ({"model.positions": "learned", "task.orders": [2, 3]}, 8 * 128, 0),
        ({"model.positions": "none"}, 0, 0),
        ({"task.p": 32}, 2 * 128 + 1, 128 + 1),
        ({"model.heads": 8, "model.norm": "pre", "model.dropout": 0.5}, 0, 0),
    ],
)
def test_each_setting_changes_the_counts_by_its_own_parameters(
    overrides: dict[str, Any], total: int, non_embedding: int
) -> None:
    plain, changed = count_parameters(Settings()), count_parameters(Settings.from_flat(overrides))
    assert (changed.total - plain.total, changed.non_embedding - plain.non_embedding) == (total, non_embedding)


def test_a_tied_output_counts_as_embedding_but_its_bias_does_not() -> None:
    tied = {"model.kind": "lstm", "model.tied": True}
    assert count_parameters(Settings.from_flat(tied)) == ParameterCounts(
        total=263_168 + 36 * 128 + 36, non_embedding=263_168 + 36
    )
    wide = Settings.from_flat({"model.kind": "lstm", "model.dim": 3, "model.hidden": 5, "model.layers": 1})
    assert count_parameters(wide).non_embedding == 4 * (3 + 5 + 1) * 5 + 5 * 36 + 36


@pytest.mark.parametrize("kind", ["gpt", "lstm"])
@pytest.mark.parametrize(
    "larger",
    [{"model.layers": 3}, {"model.dim": 256}, {"task.p": 61}, {"task.orders": [3]}, {"task.train_fraction": 0.9}],
)
def test_estimated_memory_grows_with_every_size(kind: str, larger: dict[str, Any]) -> None:
    assert estimate_training_bytes(Settings.from_flat({"model.kind": kind} | larger)) > estimate_training_bytes(
        Settings.from_flat({"model.kind": kind})
    )


def test_estimated_memory_includes_weights_gradients_and_moments() -> None:
    estimates = {name: estimate_training_bytes(Settings.from_flat({"train.optimizer": name})) for name in OPTIMIZERS}
    assert estimates["momentum"] - estimates["sgd"] == estimates["adam"] - estimates["momentum"] == 4 * 404_516
    assert estimates["adam"] == estimates["adamw"]
    assert estimates["lion"] == estimates["momentum"]
    assert estimates["adamw"] - estimates["muon"] == 4 * 2 * (
        4 * 128 * 128 + 2 * 128 * 512
    )  # second moments of matrices
    assert estimates["sgd"] > 2 * 4 * 404_516


@pytest.mark.parametrize("kind", ["gpt", "lstm", "encoder"])
def test_matrix_weights_are_those_of_parameters_with_that_role(kind: str) -> None:
    own = {"lstm": {"model.projection": 6}, "encoder": {"task.kind": "labels", "model.batch_norm": True}}.get(kind, {})
    settings = Settings.from_flat({"model.kind": kind, "model.dim": 8} | own)
    info = DatasetInfo(vocab_size=5, context_length=6, n_train=1, n_classes=3)
    parameters = FlatParameters(build_model(settings, info), 1, torch.device("meta"), torch.float32)
    n_matrix = sum(param.weight.numel() for param in parameters.params() if param.role == "matrix")
    assert count_matrix_weights(settings, info) == n_matrix > 0


def test_estimated_memory_caps_the_batch_at_the_training_set() -> None:
    assert estimate_training_bytes(Settings.from_flat({"train.batch_size": 480})) == estimate_training_bytes(
        Settings.from_flat({"train.batch_size": 10**9})
    )
    assert estimate_training_bytes(Settings.from_flat({"train.batch_size": 479})) < estimate_training_bytes(Settings())


# ---- the text reports ----

A = {"task.kind": "text", "model.norm": "pre", "model.final_norm": True, "model.positions": "learned",
     "model.mlp_bias": True, "model.dim": 192, "model.heads": 6, "model.layers": 12}  # fmt: skip
B = {"model.norm": "pre", "model.positions": "learned", "model.mlp_bias": True, "model.qkv_bias": False,
     "model.dim": 64, "model.heads": 2, "model.layers": 4}  # fmt: skip
ENCODER = B | {"task.kind": "labels", "model.kind": "encoder"}
DECODER = B | {"task.kind": "text"}
C_LSTM = {"task.kind": "text", "model.kind": "lstm", "model.dim": 768, "model.hidden": 512, "model.projection": 768,
          "model.gate_biases": 2, "model.tied": True, "model.output_bias": False,
          "model.embeddings": "gpt1"}  # fmt: skip
C_GPT = {"task.kind": "text", "model.dim": 768, "model.heads": 12, "model.mlp_bias": True, "model.positions": "learned",
         "model.tied": True, "model.output_bias": False, "model.embeddings": "gpt1"}  # fmt: skip
SPEECHES, WIKI = DatasetInfo(5_755, 32, 1, n_classes=3), DatasetInfo(40_479, 256, 1)


@pytest.mark.parametrize(
    ("overrides", "dataset_info", "total"),
    [
        (A | {"model.layers": 6}, DatasetInfo(66, 128, 1), 2_719_554),
        (A | {"model.layers": 8}, DatasetInfo(66, 128, 1), 3_609_282),
        (A, DatasetInfo(66, 128, 1), 5_388_738),
        (A, DatasetInfo(159, 128, 1), 5_424_543),
        (A | {"model.heads": 16}, DatasetInfo(66, 128, 1), 5_388_738),
        (ENCODER, SPEECHES, 576_339),
        (ENCODER | {"model.batch_norm": True}, SPEECHES, 576_539),
        (ENCODER | {"model.final_norm": True}, SPEECHES, 576_467),
        (ENCODER | {"model.positions": "alibi"}, SPEECHES, 576_339 - 2_048),
        (DECODER, SPEECHES, 943_611),
        (DECODER | {"model.hidden": 256}, SPEECHES, 943_611),
        (DECODER | {"model.hidden": 100}, SPEECHES, 863_115),
        (DECODER | {"model.positions": "alibi"}, SPEECHES, 943_611 - 2_048),
        (DECODER | {"model.positions": "rotary"}, SPEECHES, 943_611 - 2_048),
    ],
)
def test_characters_and_speeches_have_their_reports_counts(
    overrides: dict[str, Any], dataset_info: DatasetInfo, total: int
) -> None:
    settings = Settings.from_flat(overrides)
    assert settings.conflicts() == []
    assert count_parameters(settings, dataset_info).total == total
    assert sum(p.numel() for p in build_model(settings, dataset_info).parameters()) == total


@pytest.mark.parametrize(
    ("layers", "lstm", "gpt"),
    [
        (1, (34_107_392, 3_019_520), (38_372_352, 7_087_872)),
        (2, (36_208_640, 5_120_768), (45_460_224, 14_175_744)),
        (4, (40_411_136, 9_323_264), (59_635_968, 28_351_488)),
    ],
)
def test_wikitext_models_have_their_reports_counts_frozen_or_learned(
    layers: int, lstm: tuple[int, int], gpt: tuple[int, int]
) -> None:
    for overrides, (total, learnable) in ((C_LSTM, lstm), (C_GPT, gpt)):
        frozen = Settings.from_flat(overrides | {"model.layers": layers})
        counted = count_parameters(frozen, WIKI)
        assert (counted.total + counted.frozen, counted.total) == (total, learnable)
        assert sum(p.numel() for p in build_model(frozen, WIKI).parameters()) == learnable
        learned = Settings.from_flat(
            {name: value for name, value in overrides.items() if name != "model.embeddings"} | {"model.layers": layers}
        )
        assert count_parameters(learned, WIKI) == ParameterCounts(total, learnable)
        assert sum(p.numel() for p in build_model(learned, WIKI).parameters()) == total


def test_attention_and_block_of_gpt_1_have_the_report_s_counts() -> None:
    gpt = GPTSettings(dim=768, heads=12, mlp_bias=True)
    assert (count_layers(gpt, "blocks.0.attention."), count_layers(gpt, "blocks.0.")) == (2_362_368, 7_087_872)


def test_estimated_memory_grows_with_the_vocabulary_and_with_ema() -> None:
    settings, small, large = Settings.from_flat(DECODER), DatasetInfo(100, 32, 50), DatasetInfo(200, 32, 50)
    assert estimate_training_bytes(settings, small) < estimate_training_bytes(settings, large)
    averaged = Settings.from_flat(DECODER | {"train.ema": 0.99})
    extra = estimate_training_bytes(averaged, small) - estimate_training_bytes(settings, small)
    assert extra == 4 * count_parameters(settings, small).total


def test_scores_count_only_where_attention_keeps_them() -> None:
    """With dropout on a CPU; torch's and our fused attention keep none."""
    plain, dropped = (Settings.from_flat(A | {"model.attention_dropout": rate}) for rate in (0.0, 0.1))
    info = DatasetInfo(66, 128, 8_000)
    scores = 12 * 2 * 6 * 128 * 4 * plain.train.batch_size * 128
    assert estimate_training_bytes(dropped, info) - estimate_training_bytes(plain, info) == scores
    assert estimate_training_bytes(dropped, info, "cuda") == estimate_training_bytes(plain, info, "cuda")


def test_a_checkpoint_on_a_cpu_copies_weights_moments_and_the_kept_weights() -> None:
    settings = Settings.from_flat({"train.optimizer": "adamw"})
    extra = estimate_peak_bytes(settings) - estimate_training_bytes(settings)
    assert extra == 4 * (3 + 1) * 404_516
    assert estimate_peak_bytes(settings, device="cuda") == estimate_training_bytes(settings, device="cuda")


def evaluate(formula: Formula, sizes: dict[str, int]) -> int:
    return sum(factor * prod(sizes[symbol] for symbol in symbols) for symbols, factor in formula.items())


@pytest.mark.parametrize(
    "flat",
    [
        {},
        {"model.layers": 3, "model.mlp_bias": True, "model.tied": True, "model.hidden": 96},
        {"model.positions": "t5", "model.attention_bias": False},
        {"model.kind": "lstm", "model.hidden": 64, "model.projection": 32, "model.gate_biases": 2},
        {"model.kind": "gru", "model.layers": 3},
    ],
)
def test_formulas_by_module_add_up_to_the_counts(flat: dict[str, Any]) -> None:
    settings = Settings.from_flat(flat)
    parts, sizes = parameter_formulas(settings), symbols_of(settings, settings.task.dataset_info())
    for part in parts:
        assert evaluate(part.formula, sizes) == part.count
        assert evaluate(part.biases, sizes) == part.n_biases
    assert evaluate(total_formula(parts), sizes) == count_parameters(settings).total


def test_attention_has_the_formula_of_the_reports() -> None:
    """Question 2.5 of report C: 4d(d + 1) parameters in attention, 2,362,368 with d = 768, and 4d² without biases."""
    settings = Settings.from_flat({"model.dim": 768, "model.heads": 12})
    attention = next(part for part in parameter_formulas(settings) if part.module == "blocks.*.attention")
    assert (attention.copies, attention.count, str(attention.formula), str(attention.biases)) == (
        2, 2_362_368, "4d² + 4d", "4d",
    )  # fmt: skip
    assert evaluate(attention.formula, {"d": 100}) == 40_400
