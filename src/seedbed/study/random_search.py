"""Random search: `[random]` of a study file, and `random.*` arguments of the command line.

    [random]
    n_configs = 40
    train.lr = "log 1e-4..1e-1"      # log-uniform
    model.dropout = "0..0.5"         # uniform
    model.dim = [32, 64]             # one of these

Every setting has its own stream of draws, by name: more configs, or another setting, change none of the draws that were
there before, so the first 20 of 40 configs are the configs of `n_configs = 20`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from seedbed.random_streams import make_generator
from seedbed.settings import Value, all_settings, to_tuples
from seedbed.study.definition import (
    MAX_RUNS,
    MAX_SEED,
    Assignment,
    Assignments,
    Distribution,
    Factor,
    Problems,
    RandomSearch,
    check_setting,
    check_values,
    format_assignment,
    is_int64,
)
from seedbed.study.ranges import InvalidRange, Range, is_range, number_type, parse_range

DISTRIBUTION_EXAMPLES: Final = 'a list of values, or a range such as "log 1e-4..1e-1" or "0..0.5"'
MAX_DRAWS_PER_CONFIG: Final = 100  # equal draws are skipped; after so many, there are too few different ones


def parse_random_entry(search: RandomSearch, name: str, value: Value, where: str, problems: Problems) -> RandomSearch:
    """The search with one more entry: `n_configs`, `seed` or a setting; an invalid one is reported and left out."""
    bounds = {"n_configs": (1, MAX_RUNS), "seed": (0, MAX_SEED)}
    if name in bounds:
        low, high = bounds[name]
        if not (is_int64(value) and low <= value <= high):
            problems.add(where, f"{format_assignment(name, value)}: expected a whole number from {low} to {high:,}")
            return search
        return replace(search, where=where, **{name: value})
    if name not in all_settings():
        problems.add_unknown(where, name, f"{name} is not a setting, nor n_configs or seed", [*all_settings(), *bounds])
        return search
    support = _parse_support(name, value, where, problems)
    if not support:
        return search
    others = tuple(one for one in search.distributions if one.name != name)
    return replace(search, where=search.where or where, distributions=(*others, Distribution(name, support, where)))


def _parse_support(name: str, value: Value, where: str, problems: Problems) -> Range | tuple[Value, ...] | None:
    """What a setting is drawn from; None, after adding a problem, if it is invalid."""
    if isinstance(value, list) and len(value) == 1:
        [value] = value if is_range(name, value[0]) else [value]
    if is_range(name, value):
        try:
            parsed = parse_range(value, whole=number_type(name) is int)
        except InvalidRange as reason:
            problems.add(where, f"{format_assignment(name, value)}: {reason}")
            return None
        if parsed.n is None:
            ends = [check_setting(name, parsed.draw(fraction), where, problems) for fraction in (0.0, 1.0)]
            return parsed if all(ends) else None
        value = [value]
    if not isinstance(value, list) or not value:
        problems.add(where, f"{format_assignment(name, value)}: expected {DISTRIBUTION_EXAMPLES}")
        return None
    return tuple(one.value for one in check_values(name, value, where, problems) if one)


def merge_random_searches(declared: RandomSearch, overrides: RandomSearch) -> RandomSearch:
    """The search of a study with what the command line overrides."""
    replaced = {one.name for one in overrides.distributions}
    kept = tuple(one for one in declared.distributions if one.name not in replaced)
    return RandomSearch(
        n_configs=declared.n_configs if overrides.n_configs is None else overrides.n_configs,
        seed=declared.seed if overrides.seed is None else overrides.seed,
        distributions=kept + overrides.distributions,
        where=overrides.where or declared.where,
    )


def draw_configs(search: RandomSearch, problems: Problems) -> tuple[Factor, ...]:
    """The drawn configs as one factor; none without a search, or after adding a problem."""
    if search.n_configs is None and not search.distributions:
        return ()
    if search.n_configs is None:
        problems.add(search.where, "a random search needs n_configs as well, the number of configs to draw")
        return ()
    if not search.distributions:
        problems.add(search.where, f"a random search needs a setting to draw: {DISTRIBUTION_EXAMPLES}")
        return ()
    drawn: dict[tuple[Value, ...], Assignments] = {}
    for level in _iter_draws(search, search.n_configs * MAX_DRAWS_PER_CONFIG):
        drawn.setdefault(to_tuples([one.value for one in level]), level)
        if len(drawn) == search.n_configs:
            return (tuple(drawn.values()),)
    problems.add(
        search.where,
        f"n_configs = {search.n_configs:,}: there are only {len(drawn):,} different configs to draw; "
        f"give at most {len(drawn):,}",
    )
    return ()


def _iter_draws(search: RandomSearch, n_draws: int) -> Iterator[Assignments]:
    generators = [make_generator(search.seed or 0, f"random/{one.name}") for one in search.distributions]
    for _ in range(n_draws):
        yield tuple(
            Assignment(one.name, _draw(one.support, generator.random()), one.where)
            for one, generator in zip(search.distributions, generators, strict=True)
        )


def _draw(support: Range | tuple[Value, ...], fraction: float) -> Value:
    return support.draw(fraction) if isinstance(support, Range) else support[int(fraction * len(support))]
