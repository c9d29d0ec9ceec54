from __future__ import annotations

from collections.abc import Mapping
from math import nan

import pytest
from tests.charts.factories import make_run

from seedbed.errors import UsageError
from seedbed.records import RunStatus
from seedbed.settings import Settings
from seedbed.stats.comparison import summarise_seeds
from seedbed.stats.successive_halving import (
    Candidate,
    HalvingResult,
    RankedConfig,
    Rung,
    count_kept,
    describe_search,
    rank_candidates,
    rung_steps,
)
from seedbed.stats.summary import RunCurves


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        ((900, 3, 3, 0, 1), (100, 300, 900)),
        ((1000, 3, 3, 0, 50), (150, 350, 1000)),  # 111.1 and 333.3, at the next evaluation
        ((1000, 3, 3, 120, 50), (112, 350, 1000)),  # every step up to 120 is evaluated
        ((1001, 2, 4, 0, 100), (300, 1001)),
    ],
)
def test_rungs_are_evaluated_steps_at_powers_of_the_factor(
    arguments: tuple[int, int, int, int, int], steps: tuple[int, ...]
) -> None:
    assert rung_steps(*arguments) == steps


@pytest.mark.parametrize("arguments", [(100, 3, 3, 0, 100), (10, 5, 2, 0, 5), (100, 1, 3, 0, 1), (100, 3, 1, 0, 1)])
def test_rungs_that_do_not_fit_are_refused(arguments: tuple[int, int, int, int, int]) -> None:
    with pytest.raises(UsageError, match="rungs"):
        rung_steps(*arguments)


def candidate(lr: float, run_ids: tuple[str, ...], n_steps: int = 90) -> Candidate:
    return Candidate(Settings.from_flat({"train.lr": lr}), {"train.lr": lr}, n_steps, run_ids)


def runs_of(
    values: dict[float, list[list[float]]], statuses: Mapping[tuple[float, int], RunStatus] | None = None
) -> tuple[list[Candidate], list[RunCurves]]:
    """Candidates and their runs; the values of each seed are at steps 0, 1, 2, …."""
    candidates, runs = [], []
    for lr, by_seed in values.items():
        own = [
            make_run(
                {"train.lr": lr},
                seed,
                {"val/loss": curve},
                range(len(curve)),
                (statuses or {}).get((lr, seed), "stopped"),
            )
            for seed, curve in enumerate(by_seed)
        ]
        candidates.append(candidate(lr, tuple(run.run.id for run in own)))
        runs += own
    return candidates, runs


def test_configs_are_ranked_by_the_mean_over_seeds_of_the_best_value_up_to_the_rung() -> None:
    candidates, runs = runs_of({
        0.1: [[9, 3, 5, 0], [9, 5, 5, 0]],  # best up to step 2: 3 and 5
        0.2: [[9, 9, 1, 9], [9, 9, 6, 9]],  # 1 and 6, the best
        0.3: [[9, 8, 7, 6], [9, 1, 1, 1]],  # 7 and 1
        0.4: [[2, 2, 2, 2], [9, 9, 9, 9]],  # 2 and 9
    })  # fmt: skip
    ranked = rank_candidates(candidates, runs, "val/loss", 2)
    assert [(one.candidate.config["train.lr"], one.value.mean) for one in ranked] == [
        (0.2, 3.5), (0.1, 4.0), (0.3, 4.0), (0.4, 5.5),
    ]  # fmt: skip
    assert rank_candidates(candidates, runs, "val/loss", 3)[0].candidate.config["train.lr"] == 0.1


def test_a_config_with_a_lost_run_ranks_last_and_one_without_values_behind_it() -> None:
    values = {0.1: [[1.0], [1.0]], 0.2: [[5.0], [5.0]], 0.3: [[0.0], [0.0]]}
    candidates, runs = runs_of(values, {(0.1, 1): "diverged", (0.3, 0): "failed", (0.3, 1): "diverged"})
    ranked = rank_candidates(candidates, runs, "val/loss", None)
    assert [(one.candidate.config["train.lr"], one.n_lost) for one in ranked] == [(0.2, 0), (0.1, 1), (0.3, 2)]


def make_result(*rungs: dict[float, float], steps: tuple[int, ...] = (10, 30, 90)) -> HalvingResult:
    made = []
    for step, values in zip(steps, rungs, strict=False):
        ranked = [
            RankedConfig(candidate(lr, ("a", "b")), summarise_seeds({0: value, 1: value}), 0)
            for lr, value in sorted(values.items(), key=lambda pair: pair[1])
        ]
        made.append(Rung(step, tuple(ranked), count_kept(len(ranked), 2)))
    return HalvingResult("study", "val/loss", 2, steps, tuple(made))


def test_the_steps_that_a_search_takes_are_summed_over_models() -> None:
    result = make_result({0.1: 1, 0.2: 2, 0.3: 3, 0.4: 4, 0.5: 5}, {0.1: 1, 0.2: 2, 0.3: 3}, {0.1: 1, 0.2: 2})
    assert result.n_all_steps() == 5 * 2 * 90
    assert result.n_trained_steps() == 2 * (2 * 90 + 1 * 30 + 2 * 10)
    assert "460 of the 900 model-steps" in describe_search(result)[0]


def test_the_correlation_of_ranks_is_that_of_the_configs_in_both_rungs() -> None:
    first = {0.1: 1.0, 0.2: 2.0, 0.3: 3.0, 0.4: 4.0, 0.5: 0.5}
    result = make_result(first, {0.1: 40.0, 0.2: 30.0, 0.3: 20.0, 0.4: 10.0}, {0.3: 1.0})
    assert result.rank_correlation(0) == (pytest.approx(-1.0), 4)
    assert result.rank_correlation(1)[0] != result.rank_correlation(1)[0]  # NaN: one config
    sentences = " ".join(describe_search(result))
    assert "Spearman correlation of −1.00" in sentences
    assert "Only 1 config went on from step 30 to step 90" in sentences
    assert "4 configs stopped early" in sentences


def test_a_search_that_is_not_complete_says_so() -> None:
    assert describe_search(make_result({0.1: 1.0, 0.2: nan})) == [
        "1 of 3 rungs are trained; the same command continues."
    ]
