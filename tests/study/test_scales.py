"""Scales, training budgets, and conflicts between settings."""

from __future__ import annotations

import pytest

from seedbed.errors import StudyError
from seedbed.records import Plan
from seedbed.settings import DatasetInfo, Settings
from seedbed.study.plan import plan_named

from .conftest import WriteStudy

SCALED = """
    seeds = 1
    [base.train]
    lr = 0.1
    [[configs]]
    model.kind = "lstm"
    model.hidden = 64
    train.epochs = 3
    [[configs]]
    model.kind = "gpt"
    train.steps = 900
    [grid]
    model.layers = [1, 2]
    [scales.tiny]
    model.dim = 8
    model.heads = 2
    model.hidden = 6
    train.steps = 20
    [scales.small]
    model.dim = 16
    """


def plan(write: WriteStudy, text: str, *overrides: str) -> Plan:
    return plan_named(str(write(text)), overrides)


def test_a_scale_overrides_configs_and_base_where_a_model_has_the_setting(write: WriteStudy) -> None:
    tiny = plan(write, SCALED, "scale=tiny")
    assert tiny.warnings == ()
    assert [run.settings.model.layers for run in tiny.runs] == [1, 2, 1, 2]
    assert {run.settings.model.dim for run in tiny.runs} == {8}
    assert {run.settings.model.hidden for run in tiny.runs} == {6}
    assert {run.settings.train.lr for run in tiny.runs} == {0.1}
    assert {run.settings.n_steps() for run in tiny.runs} == {20}


def test_arguments_override_a_scale_and_other_scales_have_no_effect(write: WriteStudy) -> None:
    assert {run.settings.model.dim for run in plan(write, SCALED, "scale=tiny", "model.dim=32").runs} == {32}
    assert {run.settings.model.dim for run in plan(write, SCALED, "scale=small").runs} == {16}
    assert {run.settings.model.dim for run in plan(write, SCALED).runs} == {128}


def test_a_resolved_scaled_plan_plans_to_the_same_runs(write: WriteStudy) -> None:
    tiny = plan(write, SCALED, "scale=tiny")
    assert [run.id for run in plan(write, tiny.text).runs] == [run.id for run in tiny.runs]


@pytest.mark.parametrize(
    ("text", "overrides", "message"),
    [
        (
            "[scales.tiny]\nmodel.head = 4",
            [],
            "study.toml:2: model.head is not a setting (did you mean model.heads?)",
        ),
        ("[scales.tiny]\nmodel.heads = 0", [], "study.toml:2: model.heads = 0: expected a whole number from 1"),
        ("scales = 3", [], "study.toml:1: scales = 3: expected tables such as [scales.tiny]"),
        ("[scales]\ntiny = 3", [], "study.toml:2: scales.tiny = 3: expected a table such as [scales.tiny]"),
        ("[scales.tiny]\nmodel.dim = 8", ["scale=huge"], "the study has no scale of this name; it has tiny"),
        ("", ["scale=tiny"], "the study has no scale of this name; it has none"),
        ("[scales.tiny]\nmodel.dim = 8", ["scale=tiny,small"], "expected the name of one scale, such as scale=tiny"),
        (
            "[scales.tiny]\nmodel.heads = 5",
            ["scale=tiny"],
            "study.toml:2: model.heads = 5 does not divide model.dim = 128",
        ),
    ],
)
def test_a_wrong_scale_is_reported_with_its_location(
    write: WriteStudy, text: str, overrides: list[str], message: str
) -> None:
    with pytest.raises(StudyError) as error:
        plan(write, text, *overrides)
    assert message in str(error.value)


# ---- training budgets ----


def test_an_overriding_budget_replaces_the_earlier_one(write: WriteStudy) -> None:
    text = "seeds = 1\n[base.train]\nepochs = 3\nbatch_size = 100"
    assert plan(write, text).runs[0].settings.n_steps() == 3 * 5
    assert plan(write, text, "train.steps=7").runs[0].settings.n_steps() == 10  # whole epochs of arithmetic
    assert plan(write, text, "train.max_tokens=6001").runs[0].settings.n_steps() == 11
    assert "\nsteps = " not in plan(write, text).text


def test_two_budgets_in_one_place_are_rejected(write: WriteStudy) -> None:
    with pytest.raises(StudyError, match=r"train\.steps = 5 and train\.epochs = 3 both say how long to train"):
        plan(write, "[base.train]\nsteps = 5\nepochs = 3")
    with pytest.raises(StudyError, match=r"train\.max_tokens = 5 and train\.seconds = 3"):
        plan(write, "", "train.max_tokens=5", "train.seconds=3")


def test_updates_of_a_text_task_follow_from_its_dataset_info() -> None:
    info = DatasetInfo(vocab_size=40_479, context_length=256, n_train=9_205)
    text = {"task.kind": "text", "task.length": 256, "train.batch_size": 16}
    assert Settings.from_flat(text | {"train.steps": 777}).n_steps() == 777
    assert Settings.from_flat(text | {"train.epochs": 10}).n_steps(info) == 5_760
    assert Settings.from_flat(text | {"train.epochs": 10, "train.accumulate": 4}).n_steps(info) == 10 * 144
    assert Settings.from_flat(text | {"train.max_tokens": 16 * 256 * 3 + 1}).n_steps() == 4
    with pytest.raises(ValueError, match="its dataset's info"):
        Settings.from_flat(text | {"train.epochs": 1}).n_steps()


# ---- conflicts ----


@pytest.mark.parametrize(
    ("values", "blamed", "reason"),
    [
        ({"task.kind": "labels"}, "model.kind", "gpt predicts the next token only; task.kind = labels needs encoder"),
        ({"task.kind": "labels", "model.kind": "lstm"}, "model.kind", "model.kind = lstm predicts the next token only"),
        ({"model.kind": "encoder"}, "model.kind", "predicts labels only; task.kind = arithmetic needs gpt or "),
        ({"task.kind": "text", "model.kind": "encoder"}, "model.kind", "task.kind = text needs gpt or lstm"),
        ({"model.positions": "rotary", "model.dim": 12}, "model.heads", "model.dim / model.heads = 3 is odd"),
        ({"task.kind": "labels", "model.kind": "encoder", "model.heads": 3}, "model.heads", "does not divide"),
        ({"model.kind": "lstm", "model.tied": True, "model.projection": 7}, "model.tied", "needs model.projection = "),
        ({"task.kind": "text", "task.val_fraction": 0.6, "task.test_fraction": 0.4}, "task.val_fraction", "nothing"),
    ],
)  # fmt: skip
def test_conflicts_are_reported(values: dict[str, object], blamed: str, reason: str) -> None:
    [(name, message)] = Settings.from_flat(values).conflicts()
    assert name == blamed
    assert reason in message


def test_settings_of_another_task_are_dropped_with_one_warning_each(write: WriteStudy) -> None:
    found = plan(write, "seeds = 1\n[base.task]\nlength = 3\n[base.train]\nsample_every = 10\neval_batches = 2")
    assert found.warnings == (
        "task.length has no effect for task.kind = arithmetic",
        "train.sample_every has no effect for task.kind = arithmetic",
        "train.eval_batches has no effect for task.kind = arithmetic",
    )


def test_activation_needs_a_projection_in_the_lstm_only(write: WriteStudy) -> None:
    text = "seeds = 1\n[base.model]\nactivation = 'relu'\n[grid]\nmodel.kind = ['gpt', 'lstm']"
    found = plan(write, text)
    assert found.axes == ("model.kind",)
    assert plan(write, text, "model.projection=9").runs[1].settings.model.activation == "relu"
