"""The best config and the importance of settings: grids with known effects, and what chance alone would show."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats
from tests.charts.factories import make_run

from seedbed.report.summary_tables import config_tables
from seedbed.stats.answers.finding import MetricStatistic
from seedbed.stats.importance import ConfigValues, describe_best, describe_best_config, setting_importance
from seedbed.stats.summary import RunCurves, summarise

SUBJECT = MetricStatistic("val/accuracy", "best")


def grid(n_seeds: int = 6, noise: float = 0.001) -> list[RunCurves]:
    """The width matters most, the learning rate a little, and 24 with 0.2 is best."""
    rng = np.random.default_rng(0)
    accuracies = {(dim, lr): 0.3 + dim / 50 + lr / 5 for dim, lr in product((8, 16, 24), (0.1, 0.2))}
    return [
        make_run({"model.dim": dim, "train.lr": lr}, seed, {"val/accuracy": [0.1, accuracy + error]})
        for (dim, lr), accuracy in accuracies.items()
        for seed, error in enumerate(noise * rng.normal(size=n_seeds))
    ]


def test_the_best_config_is_named_with_its_spread_and_what_matters() -> None:
    best, importance = describe_best(grid(), SUBJECT)
    assert best.startswith("The config with the best validation accuracy is width 24, learning rate 0.2 (0.82 ± ")
    assert best.endswith("the next best is width 24, learning rate 0.1 (0.8), significantly worse, as are all others.")
    assert importance.startswith(
        "Of the variance of best validation accuracy over 6 configs, width explains 99 % (main effects)"
    )


def test_noise_hides_which_config_is_best() -> None:
    best, _ = describe_best(grid(noise=0.1), SUBJECT)
    assert "other configs cannot be told from the best." in best
    assert "a test needs 6 seeds" in describe_best(grid(n_seeds=3), SUBJECT)[0]


def test_three_configs_and_metrics_without_a_direction_need_no_summary() -> None:
    assert describe_best(grid()[:18], SUBJECT) == ()
    assert describe_best(grid(), MetricStatistic("val/accuracy", "t_f")) == ()


def test_a_main_effect_is_that_of_an_analysis_of_variance() -> None:
    rng = np.random.default_rng(1)
    values = {(a, b): 2.0 * a + 0.5 * b + rng.normal() for a in range(3) for b in range(4)}
    configs = [ConfigValues({"a": a, "b": b}, {0: value}) for (a, b), value in values.items()]
    f = stats.f_oneway(*([values[a, b] for b in range(4)] for a in range(3))).statistic
    epsilon_squared = 2 * (f - 1) / (2 * f + 9)  # Kelley 1935, from F with 2 and 9 degrees of freedom
    assert setting_importance(configs)["a"] == pytest.approx(epsilon_squared)


def test_settings_without_effect_explain_nothing_on_average() -> None:
    rng = np.random.default_rng(2)
    shares = []
    for _ in range(300):
        configs = [ConfigValues({"x": float(rng.uniform()), "y": i % 4}, {0: float(rng.normal())}) for i in range(40)]
        shares.append(setting_importance(configs))
    assert np.mean([share["x"] for share in shares]) < 0.04
    assert np.mean([share["y"] for share in shares]) < 0.04


def test_a_random_search_finds_the_number_that_matters() -> None:
    rng = np.random.default_rng(3)
    configs = []
    for _ in range(60):
        config = {"lr": float(rng.uniform()), "decay": float(rng.uniform())}
        configs.append(ConfigValues(config, {0: (config["lr"] - 0.5) ** 2 + 0.01 * float(rng.normal())}))
    shares = setting_importance(configs)
    assert next(iter(shares)) == "lr"
    assert shares["lr"] > 0.5 > 0.1 > shares["decay"]


def test_settings_that_vary_together_overlap() -> None:
    configs = [ConfigValues({"a": i, "b": 10 * i}, {0: float(i), 1: i + 0.1}) for i in (0, 1, 2, 0, 1, 2)]
    assert describe_best_config(configs, "val/loss", "min")[1].endswith(
        "; shares overlap, since settings vary together."
    )


def test_the_table_of_many_configs_names_the_best() -> None:
    values, steps = config_tables(summarise(grid()))
    assert any(note.startswith("The config with the best validation accuracy is width 24") for note in values.notes)
    assert not any(note.startswith("Best config") for note in steps.notes)
