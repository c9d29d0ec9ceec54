"""Settings that differ between compared groups: which ones are named, and when they withhold the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from tests.charts.factories import make_run
from tests.corpora import require_corpora

from seedbed.models.model_size import count_parameters
from seedbed.records import Curve, StoredRun
from seedbed.settings import Settings, Value
from seedbed.specs import QuestionSpec
from seedbed.stats.answers import answer_question
from seedbed.stats.answers.best_group import compare_groups
from seedbed.stats.answers.defaults import default_questions
from seedbed.stats.answers.finding import MetricStatistic
from seedbed.stats.confounds import describe_confounds, find_confounds
from seedbed.stats.summary import RunCurves
from seedbed.study.plan import plan_named
from seedbed.study.read import read_study
from seedbed.study.study_files import shipped_studies

ACCURACY = MetricStatistic("val/accuracy", "best")
BETTER = QuestionSpec(between="model.kind")


def run(config: Mapping[str, Value], seed: int, value: float) -> RunCurves:
    settings = Settings.from_flat({"train.steps": 40, **config})
    stored = StoredRun(f"{config}{seed}", seed, settings, count_parameters(settings), "finished", 40)
    return RunCurves(stored, config, {"val/accuracy": Curve(np.array([40]), np.array([value]))})


def runs(configs: Sequence[Mapping[str, Value]], n: int = 6) -> list[RunCurves]:
    """The later a config, the higher its values."""
    return [run(config, seed, index / 10 + seed / 100) for index, config in enumerate(configs) for seed in range(n)]


def confounds(*configs: Mapping[str, Value], asked: Sequence[str] = ()) -> list[str]:
    groups = {str(index): {(): Settings.from_flat(dict(config))} for index, config in enumerate(configs)}
    return [confound.setting for confound in find_confounds(groups, asked)]


def test_all_other_settings_that_differ_are_found_and_described() -> None:
    one, other = {"train.steps": 1201, "model.dim": 64}, {"train.steps": 60, "model.dim": 32}
    assert confounds(one, other) == ["model.dim", "train.steps"]
    assert confounds(one, other, asked=["model.dim"]) == ["train.steps"]
    groups = {name: {(): Settings.from_flat(dict(config))} for name, config in (("a", one), ("b", other))}
    assert describe_confounds(find_confounds(groups)) == "width (64 vs 32) and steps (1,201 vs 60)"


@pytest.mark.parametrize(
    ("one", "other", "asked"),
    [
        ({"model.kind": "gpt"}, {"model.kind": "lstm"}, "model.kind"),  # heads, positions … exist for GPT alone
        ({"model.kind": "gpt"}, {"model.kind": "lstm", "model.activation": "relu"}, "model.kind"),
        ({"model.kind": "gpt", "model.hidden": 64}, {"model.kind": "lstm"}, "model.kind"),
        ({"train.optimizer": "adamw", "train.betas": (0.9, 0.95)}, {"train.optimizer": "sgd"}, "train.optimizer"),
        ({"train.schedule": "step", "train.lr_every": 9}, {"train.schedule": "constant"}, "train.schedule"),
        ({"model.dim": 32, "train.save_every": 7}, {"model.dim": 64}, "model.dim"),
        ({"model.dim": 32, "model.layers": 1}, {"model.dim": 64, "model.layers": 4}, "parameters"),
    ],
    ids=["kind", "activation", "hidden", "betas", "schedule", "saving", "size"],
)  # fmt: skip
def test_settings_that_follow_from_the_one_asked_about_are_no_confounds(
    one: Mapping[str, Value], other: Mapping[str, Value], asked: str
) -> None:
    assert confounds(one, other, asked=[asked]) == []


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ({"model.kind": "gpt", "model.dim": 64}, {"model.kind": "lstm", "model.dim": 32}, "model.dim"),
        ({"model.kind": "gpt", "train.epochs": 3}, {"model.kind": "lstm", "train.steps": 60}, "train.steps"),
        ({"model.kind": "gpt", "task.p": 29}, {"model.kind": "lstm"}, "task.p"),
    ],
)
def test_other_settings_are(one: Mapping[str, Value], other: Mapping[str, Value], found: str) -> None:
    assert found in confounds(one, other, asked=["model.kind"])


def test_a_question_with_a_confound_gets_its_numbers_but_no_verdict_unless_it_allows_it() -> None:
    given = runs([{"model.kind": "gpt", "train.steps": 60}, {"model.kind": "lstm", "train.steps": 1201}])
    found = answer_question(BETTER, given)
    assert found.sentence == (
        "No verdict: the groups also differ in steps (60 vs 1,201). Best validation accuracy is 0.025 for GPT "
        "and 0.125 for LSTM (difference 0.100 in every seed, 6 paired seeds, p = 0.031)."
    )
    assert found.verdict == "no verdict"
    assert found.numbers["confounds"] == [
        {"setting": "train.steps", "values": {"GPT": (60,), "LSTM": (1201,)}},
    ]
    allowed = answer_question(BETTER.model_copy(update={"allow_confounds": True}), given)
    assert allowed.sentence.startswith("LSTM is better than GPT in best validation accuracy (0.125 vs 0.025")
    assert (allowed.verdict, allowed.warning) == ("yes", "the groups also differ in steps (60 vs 1,201)")


def test_a_setting_that_varies_in_the_same_way_in_all_groups_is_balanced() -> None:
    kinds, rates = ("gpt", "lstm"), (1e-3, 1e-2)
    grid = [{"model.kind": kind, "train.lr": lr} for kind in kinds for lr in rates]
    assert answer_question(BETTER, runs(grid)).verdict == "yes"
    # one more config of one kind alone is left out, so it is no confound either
    extra = answer_question(BETTER, runs([*grid, {"model.kind": "gpt", "train.lr": 0.1}]))
    assert extra.verdict == "yes"
    assert "1 of 3 combinations of settings left out" in extra.warning


def test_the_same_values_in_other_combinations_are_a_confound() -> None:
    crossed = [
        {"model.kind": "gpt", "train.lr": 1e-3, "task.p": 29}, {"model.kind": "gpt", "train.lr": 1e-2, "task.p": 31},
        {"model.kind": "lstm", "train.lr": 1e-3, "task.p": 31}, {"model.kind": "lstm", "train.lr": 1e-2, "task.p": 29},
    ]  # fmt: skip
    found = answer_question(BETTER, runs(crossed))
    assert found.verdict == "no verdict"
    assert "the groups also differ in learning rate" in found.sentence


@pytest.mark.parametrize(
    "question",
    [
        QuestionSpec(ask="which scales better", between="model.kind", over="model.dim"),
        QuestionSpec(ask="smallest", over="model.dim", at_least=0.1),
        QuestionSpec(ask="how does it change", over="model.dim"),
    ],
    ids=lambda question: question.ask,
)
def test_a_setting_that_changes_along_with_the_one_asked_about_withholds_the_verdict(question: QuestionSpec) -> None:
    zipped = [
        {"model.kind": kind, "model.dim": dim, "train.lr": 1 / dim} for kind in ("gpt", "lstm") for dim in (32, 64, 128)
    ]
    found = answer_question(question, runs(zipped))
    assert found.sentence.startswith("No verdict: the groups also differ in learning rate (")
    assert found.verdict == "no verdict"
    straight = [{name: value for name, value in config.items() if name != "train.lr"} for config in zipped]
    assert answer_question(question, runs(straight)).verdict != "no verdict"


def test_groups_that_are_named_without_a_setting_may_differ_in_one() -> None:
    one, two = [{"model.dim": 32}, {"model.dim": 64}], [{"model.dim": 32}, {"model.dim": 64, "train.steps": 60}]
    groups = {"a": runs(one)[:6], "b": runs(one)[6:]}
    found = compare_groups(groups, ACCURACY)
    assert found.sentence.startswith("b is better than a in best validation accuracy")
    assert found.notes == ("the groups differ in width (32 vs 64)",)
    several = compare_groups({"a": runs(two)[:6], "b": runs(two)[6:]}, ACCURACY)
    assert several.sentence.startswith("No verdict: the groups differ in width (32 vs 64) and steps (40 vs 60). ")


@pytest.mark.parametrize("name", sorted(shipped_studies()))
def test_shipped_questions_are_not_confounded_unless_they_say_so(name: str) -> None:
    if not name.startswith(("quickstart", "addition", "arithmetic/")):
        require_corpora()
    plan, questions = plan_named(name), read_study(shipped_studies()[name]).questions
    metrics = {metric for one in questions for metric in (one.metric, one.and_metric) if metric}
    metrics |= {f"{split}/{quantity}" for split in ("train", "val") for quantity in ("loss", "accuracy")}
    given = [
        RunCurves(
            StoredRun(f"{one.id}{seed}", seed, one.settings, one.parameters, "finished", 9),
            one.config,
            {metric: Curve(np.array([9]), np.array([0.5 + seed / 100 + index / 1000])) for metric in metrics},
            {"compute": 1.0 + index},
        )
        for index, one in enumerate({run.settings: run for run in plan.runs}.values())
        for seed in range(6)
    ]
    for question in questions:
        answer = answer_question(question, given)
        assert answer.verdict != "no verdict", answer.sentence
        assert not answer.sentence.startswith("There is no"), answer.sentence


# ---- units ----


def moduli(metric: str) -> list[RunCurves]:
    """Runs mod 23 and 29, which predict different tokens."""
    return [make_run({"task.p": p}, seed, {metric: [9.0, value + seed / 10]}) for p, value in ((23, 1.0), (29, 2.0))
            for seed in range(6)]  # fmt: skip


def test_losses_of_different_tokens_are_not_ranked() -> None:
    question = QuestionSpec(ask="which is better", metric="val/loss", between="task.p")
    found = answer_question(question, moduli("val/loss"))
    assert found.verdict == "no verdict"
    assert found.sentence.startswith(
        "No verdict: validation loss is counted in tokens, which differ between the groups. Best"
    )
    allowed = answer_question(question.model_copy(update={"allow_confounds": True}), moduli("val/loss"))
    assert allowed.verdict == "yes"
    assert "counted in tokens" in allowed.warning


@pytest.mark.parametrize(("value", "metric"), [("best", "val/accuracy"), ("t_f", "val/loss")])
def test_shares_of_answers_and_steps_have_the_same_unit_for_all_tokens(value: str, metric: str) -> None:
    question = QuestionSpec(ask="which is better", metric=metric, between="task.p", value=value)
    assert answer_question(question, moduli(metric)).verdict != "no verdict"


def test_the_unit_may_vary_inside_the_groups() -> None:
    runs = [
        make_run({"task.p": p, "model.layers": layers}, seed, {"val/loss": [9.0, layers + seed / 10]})
        for p in (23, 29) for layers in (1, 2) for seed in range(6)
    ]  # fmt: skip
    question = QuestionSpec(ask="which is better", metric="val/loss", between="model.layers")
    assert answer_question(question, runs).verdict == "yes"


def test_default_questions_ask_about_a_metric_of_one_unit() -> None:
    curves = {
        name: [3.0, 2.0] for name in ("val/loss", "val/accuracy", "train/bits_per_character", "val/bits_per_character")
    }
    runs = [
        make_run({"task.kind": "text", "task.tokenizer": tokenizer}, seed, curves)
        for tokenizer in ("characters", "bytes") for seed in range(2)
    ]  # fmt: skip
    assert [question.metric for question in default_questions(runs)] == ["val/bits_per_character"]
    assert [question.metric for question in default_questions(runs[:2])] == ["val/loss"]
