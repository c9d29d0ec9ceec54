"""What a model that ignores its inputs achieves, counted over all equations."""

from __future__ import annotations

from itertools import product
from math import log, prod

import numpy as np
import pytest
from scipy.stats import binom

from seedbed.records import ParameterCounts, StoredRun
from seedbed.settings import Settings, Value
from seedbed.stats.chance import MAX_LUCK, binomial_tail, chance_level, is_above_chance, token_unit
from seedbed.tasks.arithmetic import ArithmeticSettings


def stored(**task: Value) -> StoredRun:
    settings = Settings.from_flat({f"task.{name}": value for name, value in task.items()})
    return StoredRun("a", 0, settings, ParameterCounts(7, 5), "finished", 100)


@pytest.mark.parametrize("operator", ["+", "-", "*", "/"])
@pytest.mark.parametrize("orders", [(2,), (3,), (2, 3)])
@pytest.mark.parametrize("p", [5, 7])
def test_chance_is_the_share_of_the_most_frequent_result(operator: str, orders: tuple[int, ...], p: int) -> None:
    task = ArithmeticSettings(p=p, operator=operator, orders=orders)
    table = task.build_table()
    results = table.tokens[np.arange(len(table.tokens)), table.scored_positions[:, 0] + 1]
    level = chance_level(stored(p=p, operator=operator, orders=orders))
    assert level is not None
    assert level.accuracy == pytest.approx(np.bincount(results).max() / len(results))
    assert level.loss == pytest.approx(log(p) / 2)


def test_a_composite_modulus_has_more_products_that_are_zero() -> None:
    level = chance_level(stored(p=12, operator="*"))
    assert level is not None
    assert level.accuracy == sum(prod(pair) % 12 == 0 for pair in product(range(12), repeat=2)) / 144


def test_the_best_of_many_guesses_is_still_chance() -> None:
    """Guesses mod 29 are right with 1 in 29; the best of 100 evaluations exceeds that by luck alone."""
    run = stored(p=29)
    rng = np.random.default_rng(0)
    best = (rng.binomial(421, 1 / 29, (200, 100)) / 421).max(1)
    assert (best > 1.5 / 29).mean() > 0.9
    assert sum(is_above_chance(run, "val/accuracy", value) for value in best) <= 10
    assert is_above_chance(run, "val/accuracy", 0.2)
    assert not is_above_chance(run, "train/accuracy", 1 / 29)


def test_addition_is_at_chance_with_its_most_frequent_sum() -> None:
    level = chance_level(stored(kind="addition", digits=2))
    sums = np.add.outer(np.arange(100), np.arange(100)).ravel()
    assert level is not None
    assert level.accuracy == np.bincount(sums).max() / 10_000


def test_losses_of_other_moduli_have_another_unit() -> None:
    assert token_unit(stored(p=23)) != token_unit(stored(p=29))
    assert token_unit(stored(p=23, train_fraction=0.3)) == token_unit(stored(p=23, operator="*"))


@pytest.mark.parametrize(
    ("k", "n", "p"), [(3, 7, 0.1), (7, 7, 0.5), (30, 421, 1 / 29), (16, 16, 0.5), (5000, 9000, 0.5)]
)
def test_the_tail_is_that_of_the_binomial_distribution(k: int, n: int, p: float) -> None:
    assert binomial_tail(k, n, p) == pytest.approx(binom.sf(k - 1, n, p), rel=1e-9)


def test_few_samples_that_are_all_right_exceed_chance_if_guesses_would_not_be() -> None:
    """Four standard errors above 1/2 are more than 1 for up to 16 samples, however good a model is."""
    assert next(n for n in range(1, 30) if binomial_tail(n, n, 0.5) < MAX_LUCK) == 16
