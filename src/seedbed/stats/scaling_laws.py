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
from seedbed.stats.comparison import student_t_quantile
from seedbed.stats.format import format_interval, format_number

Floats = NDArray[np.float64]

N_RESAMPLES = 200
MIN_GOOD_R_SQUARED = 0.9  # R² below this is called bad
_INITIAL_EXPONENTS = (0.1, 0.3, 0.7, 1.5)  # exponents that fitting begins from
MIN_EXPONENT, MAX_EXPONENT = 1e-3, 10.0  # exponents stay in between
_N_ITERATIONS = 80


@dataclass(frozen=True)
class FittedValue:
    """A fitted number and its 95 % interval; NaN bounds where one seed allows none."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return (
            f"{format_number(self.value)} {format_interval(self.low, self.high)}"
            if isfinite(self.low)
            else format_number(self.value)
        )


@dataclass(frozen=True)
class ScalingLaw:
    """loss = floor + Σ scale·x^−exponent, how well it fits, and the refits that intervals are made of."""

    variables: tuple[str, ...]
    floor: FittedValue
    scales: Mapping[str, FittedValue]
    exponents: Mapping[str, FittedValue]
    r_squared: float
    ranges: Mapping[str, tuple[float, float]]
    n_points: int
    n_seeds: int
    warnings: tuple[str, ...]
    refits: Floats = field(repr=False)  # rows: the fit, then each resample; columns as `unpack` reads them
    log_centres: Floats = field(repr=False)

    def predict(self, values: Mapping[str, ArrayLike]) -> Floats:
        """The loss at these values of the variables."""
        x = (
            np.log(np.stack([np.asarray(values[name], dtype=float) for name in self.variables], axis=-1))
            - self.log_centres
        )
        flat = _predict_losses(self.refits[:1], x.reshape(-1, len(self.variables)))[0]
        return np.asarray(flat.reshape(x.shape[:-1]))

    def predict_interval(self, values: Mapping[str, float]) -> FittedValue:
        """The loss at one place, with its interval."""
        x = np.log(np.array([[values[name] for name in self.variables]], dtype=float)) - self.log_centres
        return fitted_value_from_logs(np.log(_predict_losses(self.refits, x)[:, 0]), self.n_seeds)


# ---- fitting ----


def fit_scaling_law(
    variables: Mapping[str, Sequence[float]], losses: Mapping[int, Sequence[float]], n_resamples: int = N_RESAMPLES
) -> ScalingLaw:
    """The law of some points: each variable's value at every point, and each seed's losses there."""
    names = tuple(variables)
    raw = np.log(np.array([variables[name] for name in names], dtype=float).T)
    table = np.array([losses[seed] for seed in losses], dtype=float)
    _check_fit_input(names, raw, table)
    centres = raw.mean(0)  # about their middle, the scale and the exponent of a term are nearly independent
    mean = table.mean(0)
    best = _fit_from_initial_exponents(raw - centres, mean)
    samples = _bootstrap_means(table, n_resamples)
    refits = np.concatenate([best, _levenberg_marquardt(np.repeat(best, len(samples), 0), raw - centres, samples)])
    return _build_law(names, raw, centres, mean, refits, len(table))


def _check_fit_input(names: tuple[str, ...], log_values: Floats, losses: Floats) -> None:
    needed = 2 * len(names) + 1
    if losses.size == 0 or len(log_values) < needed:
        n_points = 0 if losses.size == 0 else len(log_values)
        raise UsageError(f"a law of {', '.join(names)} has {needed} numbers to fit and {n_points} points; add points")
    if not (np.isfinite(losses).all() and (losses > 0).all() and np.isfinite(log_values).all()):
        raise UsageError("a law of scale needs losses and sizes above 0; leave out runs that diverged")
    if (np.ptp(log_values, axis=0) == 0).any():
        constant = [name for name, spread in zip(names, np.ptp(log_values, axis=0), strict=True) if spread == 0]
        raise UsageError(f"{', '.join(constant)} has one value at all points; leave it out of the law")


def _bootstrap_means(losses: Floats, n_resamples: int) -> Floats:
    """Mean losses over seeds drawn with replacement, the same draw at every point."""
    n_seeds = len(losses)
    if n_seeds < 2:
        return np.empty((0, losses.shape[1]))
    draws = np.random.default_rng(20250404).integers(0, n_seeds, (n_resamples, n_seeds))
    return np.asarray(losses[draws].mean(1))


def unpack_parameters(rows: Floats) -> tuple[Floats, Floats, Floats]:
    """log floor (R,), log scales (R, V), log exponents (R, V)."""
    n = (rows.shape[1] - 1) // 2
    return rows[:, 0], rows[:, 1 : 1 + n], rows[:, 1 + n :]


def _power_terms(rows: Floats, x: Floats) -> Floats:
    """Each term's share of the loss at each point: (R, K, V)."""
    _, scales, exponents = unpack_parameters(rows)
    return np.exp(scales[:, None] - np.exp(exponents)[:, None] * x)


def _predict_losses(rows: Floats, x: Floats) -> Floats:
    return np.asarray(np.exp(rows[:, :1]) + _power_terms(rows, x).sum(2))


def _fit_from_initial_exponents(x: Floats, mean: Floats) -> Floats:
    """The best of the fits that begin from every combination of some exponents."""
    n = x.shape[1]
    starts = []
    for exponents in product(_INITIAL_EXPONENTS, repeat=n):
        for share in (0.1, 0.9):  # of the lowest loss, taken as floor
            floor = share * mean.min()
            scales = np.full(n, np.log((mean.mean() - floor) / n))
            starts.append(np.concatenate([[np.log(floor)], scales, np.log(exponents)]))
    rows = _levenberg_marquardt(np.array(starts), x, np.repeat(mean[None], len(starts), 0))
    errors = (((_predict_losses(rows, x) - mean) / mean) ** 2).sum(1)
    return rows[[int(np.argmin(errors))]]


def _levenberg_marquardt(rows: Floats, x: Floats, targets: Floats) -> Floats:
    """Levenberg and Marquardt's method for all rows at once: each row of parameters to its row of targets."""
    damping = np.full(len(rows), 1e-2)
    residuals = _predict_losses(rows, x) / targets - 1
    for _ in range(_N_ITERATIONS if len(rows) else 0):
        slopes = _jacobian(rows, x) / targets[:, :, None]
        square = np.einsum("rkp,rkq->rpq", slopes, slopes)
        pull = np.einsum("rkp,rk->rp", slopes, residuals)
        ridge = damping[:, None, None] * (np.eye(square.shape[1]) * (square.diagonal(0, 1, 2)[:, None] + 1e-9))
        step = np.clip(np.linalg.solve(square + ridge, pull[:, :, None])[:, :, 0], -1.0, 1.0)
        tried = _clip_parameters(rows - step)
        errors = _predict_losses(tried, x) / targets - 1
        better = (errors**2).sum(1) < (residuals**2).sum(1)
        rows, residuals = np.where(better[:, None], tried, rows), np.where(better[:, None], errors, residuals)
        damping = np.clip(np.where(better, damping / 3, damping * 4), 1e-9, 1e9)
    return rows


def _clip_parameters(rows: Floats) -> Floats:
    n = (rows.shape[1] - 1) // 2
    exponents = np.clip(rows[:, 1 + n :], np.log(MIN_EXPONENT), np.log(MAX_EXPONENT))
    return np.concatenate([np.clip(rows[:, : 1 + n], -40, 40), exponents], axis=1)


def _jacobian(rows: Floats, x: Floats) -> Floats:
    """Derivatives of the losses by every parameter: (R, K, P)."""
    terms = _power_terms(rows, x)
    by_exponent = -terms * np.exp(unpack_parameters(rows)[2])[:, None] * x
    floor = np.broadcast_to(np.exp(rows[:, :1, None]), (*terms.shape[:2], 1))
    return np.concatenate([floor, terms, by_exponent], axis=2)


# ---- intervals and warnings ----


def fitted_value_from_logs(logarithms: Floats, n_seeds: int) -> FittedValue:
    """The first value, ± t times the spread of the refits that follow it, on the scale of logarithms."""
    half = _half_width(logarithms, n_seeds)
    return FittedValue(*(float(np.exp(logarithms[0] + side)) for side in (0.0, -half, half)))


def _half_width(values: Floats, n_seeds: int) -> float:
    """`n/(n−1)` makes up for resampling from the sample."""
    if n_seeds < 2:
        return nan
    return student_t_quantile(n_seeds - 1) * sqrt(n_seeds / (n_seeds - 1)) * float(values[1:].std(ddof=1))


def _fitted_floor(values: Floats, n_seeds: int) -> FittedValue:
    """The floor may be 0, so its interval is on its own scale and ends there."""
    value, half = float(values[0]), _half_width(values, n_seeds)
    return FittedValue(value, value - half if half < value or half != half else 0.0, value + half)


def _build_law(
    names: tuple[str, ...], raw: Floats, centres: Floats, mean: Floats, refits: Floats, n_seeds: int
) -> ScalingLaw:
    log_floor, log_scales, log_exponents = unpack_parameters(refits)
    at_one = log_scales + np.exp(log_exponents) * centres  # back from the middle to x = 1
    r_squared = _r_squared(_predict_losses(refits[:1], raw - centres)[0], mean)
    exponents = {name: fitted_value_from_logs(log_exponents[:, place], n_seeds) for place, name in enumerate(names)}
    return ScalingLaw(
        variables=names,
        floor=_fitted_floor(np.exp(log_floor), n_seeds),
        scales={name: fitted_value_from_logs(at_one[:, place], n_seeds) for place, name in enumerate(names)},
        exponents=exponents,
        r_squared=r_squared,
        ranges={name: _value_range(raw[:, place]) for place, name in enumerate(names)},
        n_points=len(mean),
        n_seeds=n_seeds,
        warnings=tuple(_fit_warnings(exponents, r_squared, len(mean), n_seeds)),
        refits=refits,
        log_centres=centres,
    )


def _value_range(logarithms: Floats) -> tuple[float, float]:
    return float(np.exp(logarithms.min())), float(np.exp(logarithms.max()))


def _r_squared(fitted: Floats, mean: Floats) -> float:
    total = float(((mean - mean.mean()) ** 2).sum())
    return 1 - float(((fitted - mean) ** 2).sum()) / total if total else nan


def _fit_warnings(exponents: Mapping[str, FittedValue], r_squared: float, n_points: int, n_seeds: int) -> Iterator[str]:
    if not r_squared >= MIN_GOOD_R_SQUARED:
        yield f"the fit is bad (R² = {format_number(r_squared)}): the points do not follow this law"
    if n_points <= 2 * len(exponents) + 1:
        yield f"{n_points} points for {2 * len(exponents) + 1} numbers: the law fits whatever the points are"
    if n_seeds < 2:
        yield "one seed: no interval can be given"
    for name, exponent in exponents.items():
        if exponent.value <= 2 * MIN_EXPONENT or (exponent.high / exponent.low > 100):
            yield f"the exponent of {name} is not determined ({exponent}): the loss hardly depends on it here"
