"""The shipped studies match the reports' experiments, and the example study plans."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from seedbed.interp.analysis import is_analysis_metric
from seedbed.records import Plan
from seedbed.settings import matches_value
from seedbed.specs import FigureSpec
from seedbed.stats.metric_registry import training_metric
from seedbed.study.pack import shape_key
from seedbed.study.plan import plan_named, plan_study
from seedbed.study.read import read_study
from seedbed.study.study_files import load_example_study, shipped_studies
from seedbed.training.evaluate import compute_metrics
from seedbed.training.trainer import Trainer
from tests.corpora import require_corpora

from .conftest import WriteStudy

FORMER_IDS_OF_SANITY = ["23952e83f3ea9106", "7a058d1f21ed717d", "3bf82c08fe48c230", "27987feb9ed56b59"]
REPORT = ("sanity", "data-size", "mixed-orders", "model-size", "compute", "weight-decay")


def plan_shipped(name: str, *overrides: str) -> Plan:
    if name.startswith(("characters/", "speeches/", "wikitext/")):
        require_corpora()
    return plan_named(name, overrides)


@pytest.mark.parametrize("name", shipped_studies())
def test_every_shipped_study_plans_without_warnings_and_asks_a_question(name: str) -> None:
    plan = plan_shipped(name)
    assert plan.study == name
    assert plan.warnings == ()
    assert read_study(shipped_studies()[name]).question.endswith("?")
    assert shipped_studies()[name].read_text(encoding="utf-8").startswith("# ")


def test_experiments_of_the_report_share_common_runs() -> None:
    """The defaults of both models are in sanity, data-size and model-size; each order alone adds four configs."""
    runs = [run for name in REPORT for run in plan_named(f"arithmetic/{name}").runs]
    assert (len(runs), len({run.id for run in runs})) == (348, 324)
    as_assigned = [run for run in runs if run.settings.task.p == 31 or run.settings.task.orders == (2, 3)]
    assert (len(as_assigned), len({run.id for run in as_assigned})) == (324, 300)


@pytest.mark.parametrize(
    ("name", "kinds", "steps", "grid"),
    [
        ("sanity", ["lstm", "gpt"], 10_001, {}),
        ("data-size", ["lstm", "gpt"], 10_001, {"task.train_fraction": [k / 10 for k in range(1, 10)]}),
        ("mixed-orders", ["lstm", "gpt"], 10_001, {"task.orders": [(2,), (3,), (2, 3)]}),
        ("model-size", ["lstm", "gpt"], 10_001, {"model.layers": [1, 2, 3], "model.dim": [64, 128, 256]}),
        ("compute", ["lstm", "gpt"], 20_001, {"train.batch_size": [32, 64, 128, 256, 512]}),
        ("weight-decay", ["lstm"], 40_001, {"train.weight_decay": [0.25, 0.5, 0.75, 1.0]}),
    ],
)
def test_grids_steps_and_seeds_match_the_report(name: str, kinds: list[str], steps: int, grid: dict[str, Any]) -> None:
    runs = plan_named(f"arithmetic/{name}").runs
    found = {name: list(dict.fromkeys(run.settings.flat()[name] for run in runs)) for name in grid}
    assert found == grid
    assert list(dict.fromkeys(run.settings.model.kind for run in runs)) == kinds
    assert {run.settings.train.steps for run in runs} == {steps}
    assert {run.seed for run in runs} == {0, 1, 2, 3, 4, 42}  # the report's 0 and 42, and as many as a test needs
    assert {run.settings.task.p for run in runs} == {11 if name == "mixed-orders" else 31}


def test_the_example_plans_without_problems(write: WriteStudy) -> None:
    plan = plan_study(read_study(write(load_example_study())))
    assert (plan.axes, len(plan.runs), plan.warnings) == (("train.weight_decay",), 8, ())


def test_commented_parts_of_the_example_plan_too(write: WriteStudy) -> None:
    head, tables = load_example_study().split("# Lists that go together")
    code = ("# [", "# model.", "# train.", "# n_configs")
    tables = "\n".join(line.removeprefix("# ") for line in tables.splitlines() if line.startswith(code))
    plan = plan_study(read_study(write(f'exclude = ["model.layers == 3 and model.dim > 128"]\n{head}{tables}')))
    assert len(plan.runs) == (3 + 3) * 2 * 4 * 20


@pytest.mark.parametrize(
    "name", [name for name in shipped_studies() if name.startswith(("characters", "speeches", "wiki"))]
)
def test_a_tiny_scale_has_the_same_configs_with_far_less_work(name: str) -> None:
    whole, tiny = plan_shipped(name), plan_shipped(name, "scale=tiny")
    assert tiny.warnings == ()
    assert len(tiny.runs) == len(whole.runs)
    work = [
        sum(run.settings.n_steps(run.dataset_info) * run.settings.train.batch_size for run in plan.runs)
        for plan in (whole, tiny)
    ]
    assert work[0] > 20 * work[1]


@pytest.mark.parametrize(
    ("name", "totals", "n_runs"),
    [
        ("characters/shakespeare", {5_388_738}, 3),
        ("characters/hebrew", {5_424_543}, 6),
        ("characters/layers", {2_719_554, 5_388_738, 10_727_106}, 9),
        ("speeches/classifier", {576_539, 576_339}, 12),
        ("speeches/language-model", {943_611}, 6),
        ("speeches/hidden-size", {943_611, 863_115}, 12),
        ("speeches/alibi", {576_539, 576_539 - 2_048, 943_611, 943_611 - 2_048}, 24),
        ("speeches/regularised", {576_539, 576_339}, 72),
        ("wikitext/optimizers", {34_107_392, 38_372_352}, 8),
        ("wikitext/depth", {34_107_392, 36_208_640, 40_411_136, 38_372_352, 45_460_224, 59_635_968}, 6),
        ("wikitext/cost", {34_107_392, 36_208_640, 40_411_136, 38_372_352, 45_460_224, 59_635_968}, 72),
    ],
)
def test_text_studies_have_the_reports_models(name: str, totals: set[int], n_runs: int) -> None:
    runs = plan_shipped(name).runs
    assert ({run.parameters.total for run in runs}, len(runs)) == (totals, n_runs)


def test_wikitext_studies_share_common_runs() -> None:
    plans = [plan_shipped(f"wikitext/{name}") for name in ("optimizers", "depth")]
    assert len({run.id for plan in plans for run in plan.runs}) == 12


@pytest.mark.parametrize("name", ["speeches/alibi", "wikitext/optimizers", "wikitext/depth", "wikitext/cost"])
def test_studies_that_compare_timings_run_exclusively(name: str) -> None:
    assert {run.settings.train.exclusive for run in plan_shipped(name).runs} == {True}


@pytest.mark.parametrize(
    ("name", "steps"),
    [("characters/shakespeare", 7_500), ("speeches/classifier", 15 * 131), ("speeches/language-model", 500),
     ("wikitext/depth", 10 * 576)],
)  # fmt: skip
def test_budgets_match_the_reports_numbers_of_updates(name: str, steps: int) -> None:
    assert {run.settings.n_steps(run.dataset_info) for run in plan_shipped(name).runs} == {steps}


@pytest.mark.parametrize("name", shipped_studies())
def test_every_metric_of_a_figure_or_question_is_recorded(name: str) -> None:
    """Of the runs that an item selects, each records its metrics; groups such as [order=2] only those that have them.

    A gap needs a training metric as well. What analyses and samples add is computed afterwards.
    """
    plan = plan_shipped(name, *(["scale=tiny"] if "scales.tiny" in shipped_studies()[name].read_text() else []))
    recorded: dict[str, set[str]] = {}
    by_shape: dict[object, set[str]] = {}
    for run in plan.runs:
        key = shape_key(run.settings)
        if key not in by_shape:
            by_shape[key] = set(compute_metrics(Trainer([run.settings], [run.seed], "cpu", torch.float32)))
        recorded[run.id] = by_shape[key]
    study = read_study(shipped_studies()[name])
    assert study.figures
    assert study.questions
    for item in (*study.figures, *study.questions):
        selected = [
            recorded[run.id]
            for run in plan.runs
            if all(matches_value(run.settings.get(setting), value) for setting, value in item.only.items())
        ]
        assert selected
        metrics = item.metrics if isinstance(item, FigureSpec) else tuple(filter(None, (item.metric, item.and_metric)))
        if isinstance(item, FigureSpec) and item.kind in ("attention", "fourier"):
            continue
        for metric in metrics:
            if is_analysis_metric(metric) or metric.startswith("copied"):
                continue
            names = {metric.replace("gap/", f"{split}/") for split in ("train", "val")}
            if metric.startswith("gap/") or item.value in ("gap", "delta_t"):
                names = {training_metric(metric.rpartition("/")[2], selected[0]), f"val/{metric.rpartition('/')[2]}"}
            for wanted in names:
                having = [wanted in found for found in selected]
                assert any(having) if "[" in wanted else all(having), (wanted, item)


def test_precisions_are_those_of_the_decision() -> None:
    """Those of docs/decisions/0010; with fp32 the runs are those of earlier versions."""
    by_folder = {"arithmetic": "tf32", "characters": "bf16", "wikitext": "bf16"}
    for name in shipped_studies():
        expected = by_folder.get(name.partition("/")[0], "fp32")
        assert {run.settings.train.precision for run in plan_shipped(name).runs} == {expected}, name
    ids = [run.id for run in plan_named("arithmetic/sanity", ["train.precision=fp32", "seeds=0,42"]).runs]
    assert ids == FORMER_IDS_OF_SANITY
