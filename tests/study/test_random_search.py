from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from seedbed.errors import StudyError
from seedbed.records import Plan
from seedbed.study.plan import plan_named

from .conftest import WriteStudy

SEARCH = """
seeds = 1
[base]
train.steps = 5
[random]
n_configs = 20
train.lr = "log 1e-4..1e-1"
model.dropout = "0..0.5"
model.layers = "1..3"
model.dim = [32, 64]
"""
SETTINGS = ("train.lr", "model.dropout", "model.layers", "model.dim")


def configs_of(plan: Plan) -> list[tuple[object, ...]]:
    return [tuple(run.settings.get(name) for name in SETTINGS) for run in plan.runs]


def test_more_configs_leave_the_first_ones_as_they_are(write: WriteStudy) -> None:
    path = str(write(SEARCH))
    plan, larger = plan_named(path), plan_named(path, ["random.n_configs=40"])
    assert [len(set(configs_of(each))) for each in (plan, larger)] == [20, 40]
    assert [run.id for run in larger.runs[:20]] == [run.id for run in plan.runs]
    assert plan.axes == SETTINGS


def test_a_further_setting_or_another_seed(write: WriteStudy) -> None:
    path = str(write(SEARCH))
    more = plan_named(path, ["random.train.warmup=0..3"])
    assert configs_of(more) == configs_of(plan_named(path))
    assert {run.settings.train.warmup for run in more.runs} == {0, 1, 2, 3}
    other = plan_named(path, ["random.seed=1"])
    assert not set(configs_of(other)) & set(configs_of(plan_named(path)))


def test_draws_follow_their_distributions(write: WriteStudy) -> None:
    configs = configs_of(plan_named(str(write(SEARCH)), ["random.n_configs=2000"]))
    lr, dropout, layers, dim = (np.array(column, dtype=float) for column in zip(*configs, strict=True))
    assert stats.kstest(np.log10(lr), stats.uniform(-4, 3).cdf).pvalue > 1e-3
    assert stats.kstest(dropout, stats.uniform(0, 0.5).cdf).pvalue > 1e-3
    assert stats.chisquare([np.sum(layers == n) for n in (1, 2, 3)]).pvalue > 1e-3
    assert stats.chisquare([np.sum(dim == n) for n in (32, 64)]).pvalue > 1e-3
    assert stats.spearmanr(lr, dropout).pvalue > 1e-3  # every setting has draws of its own
    assert all(float(f"{value:.4g}") == value for value in lr)


def test_a_search_is_crossed_with_a_grid_and_excluded_from(write: WriteStudy) -> None:
    text = 'exclude = "dropout > 0.25"\n' + SEARCH + "[grid]\nmodel.norm = ['pre', 'post']\n"
    plan = plan_named(str(write(text)))
    every = configs_of(plan_named(str(write(SEARCH))))
    kept = [config for config in every if float(str(config[1])) <= 0.25]
    assert 0 < len(kept) < 20
    for norm in ("pre", "post"):
        assert [
            c for c, run in zip(configs_of(plan), plan.runs, strict=True) if run.settings.model.norm == norm
        ] == kept


def test_a_search_may_be_given_by_arguments_alone() -> None:
    plan = plan_named("quickstart", ["random.n_configs=3", "random.train.lr=log 1e-4..1e-1", "seeds=1"])
    assert len({run.settings.train.lr for run in plan.runs}) == 3
    fixed = plan_named(
        "quickstart", ["random.n_configs=3", "random.train.lr=log 1e-4..1e-1", "train.lr=0.5", "seeds=1"]
    )
    assert [run.settings.train.lr for run in fixed.runs] == [0.5]


@pytest.mark.parametrize(
    ("argument", "what"),
    [
        ("random.n_configs=0", "expected a whole number from 1 to 100,000"),
        ("random.n_configs=1,2", "expected a whole number"),
        ("random.seed=-1", "from 0 to"),
        ("random.train.lr=0..1", "train.lr = 0.0: expected a number above 0"),
        ("random.train.lr=fast", "expected a number above 0"),
        ("random.train.lrr=1", "did you mean train.lr?"),
        ("random.train.lr=log 1..", "expected a range"),
        ("train.dim=3", "did you mean model.dim?"),
    ],
)
def test_a_wrong_entry_says_what_is_accepted(write: WriteStudy, argument: str, what: str) -> None:
    with pytest.raises(StudyError) as error:
        plan_named(str(write(SEARCH)), [argument])
    assert what in str(error.value)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[random]\ntrain.lr = 'log 1e-4..1e-1'", ":2: a random search needs n_configs as well"),
        ("[random]\nn_configs = 3", ":2: a random search needs a setting to draw"),
        ("[random]\nn_configs = 3\nmodel.layers = [1, 2]", "only 2 different configs"),
        ("[random]\nn_configs = 3\nmodel.layers = 2", "expected a list of values, or a range"),
        ("[random]\nn_configs = 3\nmodel.dim = [32, 64]\n[grid]\nmodel.dim = [8]", "varies in two places"),
        ("random = 3", "expected a table such as [random]"),
    ],
)
def test_a_wrong_table_says_what_is_accepted(write: WriteStudy, text: str, what: str) -> None:
    with pytest.raises(StudyError) as error:
        plan_named(str(write(text)))
    assert what in str(error.value)
