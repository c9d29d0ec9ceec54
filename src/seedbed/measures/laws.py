"""Laws of scale: loss = E + Σ Aᵢ·xᵢ^−aᵢ fitted to points, with intervals over seeds.

    law = fit_law({"parameters": [...], "steps": [...]}, losses_by_seed)

Taking points from runs, and the best use of a budget, is `scaling`'s. One variable gives L = E + A·x^−a, several the
joint form (Hoffmann et al. 2022, eq. 2, with as many terms as variables). Errors count relative to the loss. Intervals
come from resampling whole seeds: the standard deviation of the refitted values, times Student's t for that many seeds,
on the scale on which each value is free (logarithms for A and a).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import isfinite, nan, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seedbed.errors import UsageError
from seedbed.measures.compare import t_quantile
from seedbed.measures.words import bracket, number

Floats = NDArray[np.float64]

RESAMPLES = 200
GOOD_FIT = 0.9  # R² below this is called bad
_STARTS = (0.1, 0.3, 0.7, 1.5)  # exponents that fitting begins from
LOWEST, HIGHEST = 1e-3, 10.0  # exponents stay in between
_ROUNDS = 80


@dataclass(frozen=True)
class Estimate:
    """A fitted number and its 95 % interval; NaN bounds where one seed allows none."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{number(self.value)} {bracket(self.low, self.high)}" if isfinite(self.low) else number(self.value)


@dataclass(frozen=True)
class Law:
    """loss = floor + Σ scale·x^−exponent, how well it fits, and the refits that intervals are made of."""

    variables: tuple[str, ...]
    floor: Estimate
    scales: Mapping[str, Estimate]
    exponents: Mapping[str, Estimate]
    r_squared: float
    ranges: Mapping[str, tuple[float, float]]
    n_points: int
    n_seeds: int
    warnings: tuple[str, ...]
    refits: Floats = field(repr=False)  # rows: the fit, then each resample; columns as `unpack` reads them
    centres: Floats = field(repr=False)

    def predict(self, at: Mapping[str, ArrayLike]) -> Floats:
        """The loss at these values of the variables."""
        x = np.log(np.stack([np.asarray(at[name], dtype=float) for name in self.variables], axis=-1)) - self.centres
        flat = _losses(self.refits[:1], x.reshape(-1, len(self.variables)))[0]
        return np.asarray(flat.reshape(x.shape[:-1]))

    def predict_interval(self, at: Mapping[str, float]) -> Estimate:
        """The loss at one place, with its interval."""
        x = np.log(np.array([[at[name] for name in self.variables]], dtype=float)) - self.centres
        return estimate(np.log(_losses(self.refits, x)[:, 0]), self.n_seeds)


# ---- fitting ----


def fit_law(
    variables: Mapping[str, Sequence[float]], losses: Mapping[int, Sequence[float]], resamples: int = RESAMPLES
) -> Law:
    """The law of some points: each variable's value at every point, and each seed's losses there."""
    names = tuple(variables)
    raw = np.log(np.array([variables[name] for name in names], dtype=float).T)
    table = np.array([losses[seed] for seed in losses], dtype=float)
    _refuse(names, raw, table)
    centres = raw.mean(0)  # about their middle, the scale and the exponent of a term are nearly independent
    mean = table.mean(0)
    best = _fit_from_starts(raw - centres, mean)
    samples = _resampled(table, resamples)
    refits = np.concatenate([best, _fit(np.repeat(best, len(samples), 0), raw - centres, samples)])
    return _law(names, raw, centres, mean, refits, len(table))


def _refuse(names: tuple[str, ...], raw: Floats, table: Floats) -> None:
    needed = 2 * len(names) + 1
    if table.size == 0 or len(raw) < needed:
        n_points = 0 if table.size == 0 else len(raw)
        raise UsageError(f"a law of {', '.join(names)} has {needed} numbers to fit and {n_points} points; add points")
    if not (np.isfinite(table).all() and (table > 0).all() and np.isfinite(raw).all()):
        raise UsageError("a law of scale needs losses and sizes above 0; leave out runs that diverged")
    if (np.ptp(raw, axis=0) == 0).any():
        constant = [name for name, spread in zip(names, np.ptp(raw, axis=0), strict=True) if spread == 0]
        raise UsageError(f"{', '.join(constant)} has one value at all points; leave it out of the law")


def _resampled(table: Floats, resamples: int) -> Floats:
    """Mean losses over seeds drawn with replacement, the same draw at every point."""
    n_seeds = len(table)
    if n_seeds < 2:
        return np.empty((0, table.shape[1]))
    draws = np.random.default_rng(20250404).integers(0, n_seeds, (resamples, n_seeds))
    return np.asarray(table[draws].mean(1))


def unpack(rows: Floats) -> tuple[Floats, Floats, Floats]:
    """log floor (R,), log scales (R, V), log exponents (R, V)."""
    n = (rows.shape[1] - 1) // 2
    return rows[:, 0], rows[:, 1 : 1 + n], rows[:, 1 + n :]


def _terms(rows: Floats, x: Floats) -> Floats:
    """Each term's share of the loss at each point: (R, K, V)."""
    _, scales, exponents = unpack(rows)
    return np.exp(scales[:, None] - np.exp(exponents)[:, None] * x)


def _losses(rows: Floats, x: Floats) -> Floats:
    return np.asarray(np.exp(rows[:, :1]) + _terms(rows, x).sum(2))


def _fit_from_starts(x: Floats, mean: Floats) -> Floats:
    """The best of the fits that begin from every combination of some exponents."""
    n = x.shape[1]
    starts = []
    for exponents in product(_STARTS, repeat=n):
        for share in (0.1, 0.9):  # of the lowest loss, taken as floor
            floor = share * mean.min()
            scales = np.full(n, np.log((mean.mean() - floor) / n))
            starts.append(np.concatenate([[np.log(floor)], scales, np.log(exponents)]))
    rows = _fit(np.array(starts), x, np.repeat(mean[None], len(starts), 0))
    errors = (((_losses(rows, x) - mean) / mean) ** 2).sum(1)
    return rows[[int(np.argmin(errors))]]


def _fit(rows: Floats, x: Floats, targets: Floats) -> Floats:
    """Levenberg and Marquardt's method for all rows at once: each row of parameters to its row of targets."""
    damping = np.full(len(rows), 1e-2)
    residuals = _losses(rows, x) / targets - 1
    for _ in range(_ROUNDS if len(rows) else 0):
        slopes = _slopes(rows, x) / targets[:, :, None]
        square = np.einsum("rkp,rkq->rpq", slopes, slopes)
        pull = np.einsum("rkp,rk->rp", slopes, residuals)
        ridge = damping[:, None, None] * (np.eye(square.shape[1]) * (square.diagonal(0, 1, 2)[:, None] + 1e-9))
        step = np.clip(np.linalg.solve(square + ridge, pull[:, :, None])[:, :, 0], -1.0, 1.0)
        tried = _bounded(rows - step)
        errors = _losses(tried, x) / targets - 1
        better = (errors**2).sum(1) < (residuals**2).sum(1)
        rows, residuals = np.where(better[:, None], tried, rows), np.where(better[:, None], errors, residuals)
        damping = np.clip(np.where(better, damping / 3, damping * 4), 1e-9, 1e9)
    return rows


def _bounded(rows: Floats) -> Floats:
    n = (rows.shape[1] - 1) // 2
    exponents = np.clip(rows[:, 1 + n :], np.log(LOWEST), np.log(HIGHEST))
    return np.concatenate([np.clip(rows[:, : 1 + n], -40, 40), exponents], axis=1)


def _slopes(rows: Floats, x: Floats) -> Floats:
    """Derivatives of the losses by every parameter: (R, K, P)."""
    terms = _terms(rows, x)
    by_exponent = -terms * np.exp(unpack(rows)[2])[:, None] * x
    floor = np.broadcast_to(np.exp(rows[:, :1, None]), (*terms.shape[:2], 1))
    return np.concatenate([floor, terms, by_exponent], axis=2)


# ---- intervals and warnings ----


def estimate(logarithms: Floats, n_seeds: int) -> Estimate:
    """The first value, ± t times the spread of the refits that follow it, on the scale of logarithms."""
    half = _half_width(logarithms, n_seeds)
    return Estimate(*(float(np.exp(logarithms[0] + side)) for side in (0.0, -half, half)))


def _half_width(values: Floats, n_seeds: int) -> float:
    """`n/(n−1)` makes up for resampling from the sample."""
    if n_seeds < 2:
        return nan
    return t_quantile(n_seeds - 1) * sqrt(n_seeds / (n_seeds - 1)) * float(values[1:].std(ddof=1))


def _floor(values: Floats, n_seeds: int) -> Estimate:
    """The floor may be 0, so its interval is on its own scale and ends there."""
    value, half = float(values[0]), _half_width(values, n_seeds)
    return Estimate(value, value - half if half < value or half != half else 0.0, value + half)


def _law(names: tuple[str, ...], raw: Floats, centres: Floats, mean: Floats, refits: Floats, n_seeds: int) -> Law:
    log_floor, log_scales, log_exponents = unpack(refits)
    at_one = log_scales + np.exp(log_exponents) * centres  # back from the middle to x = 1
    r_squared = _r_squared(_losses(refits[:1], raw - centres)[0], mean)
    exponents = {name: estimate(log_exponents[:, place], n_seeds) for place, name in enumerate(names)}
    return Law(
        variables=names,
        floor=_floor(np.exp(log_floor), n_seeds),
        scales={name: estimate(at_one[:, place], n_seeds) for place, name in enumerate(names)},
        exponents=exponents,
        r_squared=r_squared,
        ranges={name: _range(raw[:, place]) for place, name in enumerate(names)},
        n_points=len(mean),
        n_seeds=n_seeds,
        warnings=tuple(_warnings(exponents, r_squared, len(mean), n_seeds)),
        refits=refits,
        centres=centres,
    )


def _range(logarithms: Floats) -> tuple[float, float]:
    return float(np.exp(logarithms.min())), float(np.exp(logarithms.max()))


def _r_squared(fitted: Floats, mean: Floats) -> float:
    total = float(((mean - mean.mean()) ** 2).sum())
    return 1 - float(((fitted - mean) ** 2).sum()) / total if total else nan


def _warnings(exponents: Mapping[str, Estimate], r_squared: float, n_points: int, n_seeds: int) -> Iterator[str]:
    if not r_squared >= GOOD_FIT:
        yield f"the fit is bad (R² = {number(r_squared)}): the points do not follow this law"
    if n_points <= 2 * len(exponents) + 1:
        yield f"{n_points} points for {2 * len(exponents) + 1} numbers: the law fits whatever the points are"
    if n_seeds < 2:
        yield "one seed: no interval can be given"
    for name, exponent in exponents.items():
        if exponent.value <= 2 * LOWEST or (exponent.high / exponent.low > 100):
            yield f"the exponent of {name} is not determined ({exponent}): the loss hardly depends on it here"
