"""How often the rule of `seedbed.stats.decision` errs, on simulated runs whose truth is known.

    python benchmarks/error_rates.py              # the tables of docs/answers.md, in some minutes
    python benchmarks/error_rates.py --trials 200

A value of a run is the effect of its seed, which groups share, plus noise of its own. Error: verdicts on groups that do
not differ. Coverage: intervals that hold the true difference. Power: verdicts on groups that differ by one standard
deviation of the noise. Everything is computed by the functions that answer questions. Cells of the first tables are
error / coverage / power.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seedbed.stats.comparison import clopper_pearson, compare_all_pairs, compare_by_seed
from seedbed.stats.decision import decide_claim, is_significant
from seedbed.stats.optimum import find_optimum
from seedbed.stats.permutation_tests import page_trend_test
from seedbed.stats.scaling_laws import fit_scaling_law
from seedbed.stats.survival import EventTime, median_time

Draw: TypeAlias = Callable[[np.random.Generator, int], NDArray[np.float64]]

# Each has a standard deviation of 1, but for Student's t with 2 degrees of freedom, which has none.
NOISE: Final[Mapping[str, Draw]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "skewed": lambda rng, n: rng.exponential(size=n) - 1,
    "heavy-tailed": lambda rng, n: rng.standard_t(2, size=n),
    "two-valued": lambda rng, n: (rng.random(n) < 0.2) / 0.4 - 0.5,
}


def lognormal_noise(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """A skewness of 6, that of the exponential distribution is 2."""
    return rng.lognormal(size=n) - np.exp(0.5)


SEED_COUNTS: Final = (2, 4, 6, 8, 12, 16)


@dataclass(frozen=True)
class Rates:
    """Shares of the trials; NaN where there was no interval."""

    error: float
    coverage: float
    power: float


def by_seed(values: NDArray[np.float64], first: int = 0) -> dict[int, float]:
    return {first + index: float(value) for index, value in enumerate(values)}


def paired_rates(noise: Draw, n: int, trials: int, rng: np.random.Generator) -> Rates:
    """Two groups of n seeds that match."""
    return _pair_rates(noise, n, 0, trials, rng)


def unpaired_rates(noise: Draw, n: int, trials: int, rng: np.random.Generator) -> Rates:
    """Two groups of n seeds each, without a common one."""
    return _pair_rates(noise, n, 1000, trials, rng)


def _pair_rates(noise: Draw, n: int, first_seed: int, trials: int, rng: np.random.Generator) -> Rates:
    counts = {"error": 0, "covered": 0, "power": 0, "intervals": 0}
    for _ in range(trials):
        seeds = np.zeros(n) if first_seed else rng.normal(size=n)
        one, other = seeds + noise(rng, n), seeds + noise(rng, n)
        same = compare_by_seed(by_seed(one), by_seed(other, first_seed))
        shifted = compare_by_seed(by_seed(one + 1), by_seed(other, first_seed))
        counts["error"] += same.is_significant
        counts["power"] += shifted.is_significant
        counts["intervals"] += shifted.has_interval
        counts["covered"] += shifted.has_interval and shifted.low - 1e-9 <= 1 <= shifted.high + 1e-9
    coverage = counts["covered"] / counts["intervals"] if counts["intervals"] else float("nan")
    return Rates(counts["error"] / trials, coverage, counts["power"] / trials)


def asymmetric_rates(noise: Draw, n: int, trials: int, rng: np.random.Generator) -> Rates:
    """Differences by seed that are themselves distributed like the noise, symmetric or not; their true mean is 0.

    Coverage is that of the intervals that are shown: differences that are all equal have none.
    """
    errors, covered, shown, told = 0, 0, 0, 0
    for _ in range(trials):
        differences, zeros = noise(rng, n), by_seed(np.zeros(n))
        same = compare_by_seed(by_seed(differences), zeros)
        errors += same.is_significant
        shown += same.shows_interval
        covered += same.shows_interval and same.low - 1e-9 <= 0 <= same.high + 1e-9
        told += compare_by_seed(by_seed(differences + 1), zeros).is_significant
    return Rates(errors / trials, covered / shown, told / trials)


def unequal_spread_rates(noise: Draw, n: int, m: int, ratio: float, trials: int, rng: np.random.Generator) -> Rates:
    """Unpaired groups of n and m runs, where the first one's noise is `ratio` times as large."""
    errors, covered, told = 0, 0, 0
    for _ in range(trials):
        one, other = ratio * noise(rng, n), by_seed(noise(rng, m), 1000)
        same = compare_by_seed(by_seed(one), other)
        errors += same.is_significant
        covered += same.low - 1e-9 <= 0 <= same.high + 1e-9
        told += compare_by_seed(by_seed(one + ratio), other).is_significant
    return Rates(errors / trials, covered / trials, told / trials)


def optimum_coverage(noise: Draw, spreads: Sequence[float], n: int, trials: int, rng: np.random.Generator) -> float:
    """How often the confidence set of the best value holds a given one of several equally good ones."""
    held = 0
    for _ in range(trials):
        table = rng.normal(size=(n, 1)) + noise(rng, n * len(spreads)).reshape(n, -1) * np.array(spreads)
        held += 2 in find_optimum(table, "max").confidence_set
    return held / trials


def median_coverage(n: int, censored: float, trials: int, rng: np.random.Generator) -> float:
    """Coverage of the Kaplan–Meier median of exponential times, of which this share is not reached at the end."""
    end = -np.log(censored) if censored else np.inf
    samples = [[EventTime(min(time, end), time <= end) for time in rng.exponential(size=n)] for _ in range(trials)]
    medians = [median_time(times) for times in samples]
    return float(np.mean([one.low <= np.log(2) <= one.high for one in medians]))


def law_coverage(n_sizes: int, n: int, noise: float, trials: int, rng: np.random.Generator) -> tuple[float, float]:
    """Coverage of a law's exponent, and of its prediction for the next size; noise of a point is relative."""
    sizes = 2.0 ** np.arange(4, 4 + n_sizes)
    next_size, exponents, predictions = 2 * float(sizes[-1]), 0, 0
    for _ in range(trials):
        losses = (1 + 3 * sizes**-0.5) * (1 + noise * rng.normal(size=(n, n_sizes)))
        law = fit_scaling_law({"x": list(sizes)}, {seed: list(row) for seed, row in enumerate(losses)})
        predicted = law.predict_interval({"x": next_size})
        exponents += law.exponents["x"].low <= 0.5 <= law.exponents["x"].high
        predictions += predicted.low <= 1 + 3 * next_size**-0.5 <= predicted.high
    return exponents / trials, predictions / trials


def family_rates(noise: Draw, n_groups: int, n: int, trials: int, rng: np.random.Generator) -> Rates:
    """All pairs of groups: any false verdict, coverage of all intervals, and the last group, which is ahead, told."""
    errors, covered, intervals, told = 0, 0, 0, 0
    for _ in range(trials):
        seeds = rng.normal(size=n)
        groups = {group: seeds + noise(rng, n) for group in range(n_groups)}
        same = compare_all_pairs({group: by_seed(values) for group, values in groups.items()})
        errors += any(one.is_significant for one in same.values())
        with_interval = [one for one in same.values() if one.has_interval]
        intervals += len(with_interval)
        covered += sum(one.low - 1e-9 <= 0 <= one.high + 1e-9 for one in with_interval)
        groups[n_groups - 1] = groups[n_groups - 1] + 1
        ahead = compare_all_pairs({group: by_seed(values) for group, values in groups.items()})
        told += all(ahead[group, n_groups - 1].is_significant for group in range(n_groups - 1))
    return Rates(errors / trials, covered / intervals if intervals else float("nan"), told / trials)


def trend_rates(noise: Draw, n_levels: int, n: int, trials: int, rng: np.random.Generator) -> Rates:
    """Page's test along levels; the trend is one standard deviation of the noise from the first level to the last."""
    errors, told = 0, 0
    slope = np.linspace(0, 1, n_levels)
    for _ in range(trials):
        table = rng.normal(size=(n, 1)) + noise(rng, n * n_levels).reshape(n, n_levels)
        errors += is_significant(page_trend_test(list(table)).value)
        told += is_significant(page_trend_test(list(table + slope)).value)
    return Rates(errors / trials, float("nan"), told / trials)


def bound_error(n: int) -> float:
    """Verdicts on a bound that half of all runs meet, whatever their distribution: the exact share of all outcomes."""
    verdicts = [decide_claim(*(np.array(clopper_pearson(met, n)) - 0.5), "higher") for met in range(n + 1)]
    return sum(comb(n, met) for met, verdict in enumerate(verdicts) if verdict != "cannot tell") / 2**n


# ---- tables ----


def make_tables(trials: int) -> Iterator[str]:
    """The tables of docs/answers.md, as Markdown."""
    rng = np.random.default_rng(20261116)
    few = max(1, trials // 4)  # where a trial takes long

    def pair(rates: Callable[..., Rates]) -> dict[str, list[str]]:
        return {
            name: [_format(rates(noise, n, trials=few if n > 8 else trials, rng=rng)) for n in SEED_COUNTS]
            for name, noise in NOISE.items()
        }

    yield _table("Paired seeds", SEED_COUNTS, pair(paired_rates))
    yield _table("Unpaired, n in each group", SEED_COUNTS, pair(unpaired_rates))
    sizes = (6, 8, 10, 12)
    groups = {name: [_format(family_rates(noise, 4, n, few, rng)) for n in sizes] for name, noise in NOISE.items()}
    yield _table("Four groups, six pairs (Holm)", sizes, groups)
    sizes = (2, 4, 6, 8)
    trends = {name: [_format(trend_rates(noise, 4, n, few // 2, rng)) for n in sizes] for name, noise in NOISE.items()}
    yield _table("Trend along 4 values (Page)", sizes, trends)
    sizes = (6, 8, 12, 16)
    yield _table("Bound (sign test), error", sizes, {"any": [f"{bound_error(n):.1%}" for n in sizes]})
    asymmetric = {
        name: [_format(asymmetric_rates(noise, n, few if n > 8 else trials, rng)) for n in sizes]
        for name, noise in (NOISE | {"very skewed": lognormal_noise}).items()
        if name in ("skewed", "very skewed", "two-valued")
    }
    yield _table("Differences that are not symmetric", sizes, asymmetric)
    groups_of = ((4, 4), (8, 8), (4, 12), (12, 4))
    columns = ("4 and 4", "8 and 8", "4 noisy and 12", "12 noisy and 4")
    unequal = {
        name: [_format(unequal_spread_rates(NOISE[name], n, m, 3.0, few, rng)) for n, m in groups_of]
        for name in ("normal", "skewed", "heavy-tailed")
    }
    yield _table("Unpaired, one group 3 times as noisy", columns, unequal)
    sizes = (6, 8, 12)
    for title, spreads in (("5 equally good values", (1, 1, 1, 1, 1)), ("of different spread", (0.1, 0.1, 1, 3, 0.1))):
        sets = {
            name: [f"{optimum_coverage(noise, spreads, n, few, rng):.1%}" for n in sizes]
            for name, noise in NOISE.items()
        }
        yield _table(f"Confidence set of the best value, {title}", sizes, sets)
    sizes = (6, 7, 8, 12, 16)
    medians = {
        ("none" if not censored else f"{100 * censored:.0f} %"): [
            f"{median_coverage(n, censored, trials, rng):.1%}" for n in sizes
        ]
        for censored in (0, 0.45)
    }
    yield _table("Median time, runs that never get there", sizes, medians)
    sizes = (2, 3, 5, 8)
    laws = {
        f"{n_sizes} sizes, noise {noise:.1%}": [
            " / ".join(f"{share:.1%}" for share in law_coverage(n_sizes, n, noise, few // 5, rng)) for n in sizes
        ]
        for n_sizes in (4, 8)
        for noise in (0.003, 0.03)
    }
    yield _table("Scaling law, coverage of exponent / of the next size", sizes, laws)


def _format(rates: Rates) -> str:
    return " / ".join("–" if np.isnan(rate) else f"{rate:.1%}" for rate in (rates.error, rates.coverage, rates.power))


def _table(title: str, columns: Sequence[object], rows: Mapping[str, Sequence[str]]) -> str:
    header = f"| {title} | {' | '.join(f'n = {one}' if isinstance(one, int) else str(one) for one in columns)} |"
    lines = [header, "| --- " * (len(columns) + 1) + "|"]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--trials", type=int, default=2_000, help="simulated comparisons per cell; fewer where each takes long"
    )
    for table in make_tables(parser.parse_args().trials):
        print(table, flush=True)


if __name__ == "__main__":
    main()
