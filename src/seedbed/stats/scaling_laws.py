"""Scaling laws: loss = E + Σ Aᵢ·xᵢ^−aᵢ fitted to data points, with confidence intervals over seeds.

    law = fit_scaling_law({"parameters": [...], "steps": [...]}, losses_by_seed)

`compute_budget` takes data points from runs and finds the best use of a budget. One variable gives L = E + A·x^−a,
several the joint form (Hoffmann et al. 2022, eq. 2, with one term per variable). The fit minimises squared relative
errors. Intervals come from a bootstrap over whole seeds: the std of the refitted values times Student's t for that many
seeds, on the scale on which each value is unconstrained (logarithms for A and a).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import isfinite, nan, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seedbed.errors import UsageError
from seedbed.format import format_number
from seedbed.stats.decision import SIGNIFICANCE_LEVEL
from seedbed.stats.t_tests import student_t_quantile

Floats = NDArray[np.float64]

N_RESAMPLES = 200
MIN_GOOD_R_SQUARED = 0.9  # a lower R² gives a warning
_INITIAL_EXPONENTS = (0.1, 0.3, 0.7, 1.5)  # starting values of the fit
MIN_EXPONENT, MAX_EXPONENT = 1e-3, 10.0  # bounds of the fitted exponents
_N_ITERATIONS = 80


@dataclass(frozen=True)
class FittedValue:
    """A fitted value and its 95 % confidence interval; the bounds are NaN for a single seed."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """`0.5 (95 % CI 0.4 to 0.6)`."""
        return self.format(3)

    def format(self, digits: int) -> str:
        """The value with its interval, each with so many significant digits."""
        value, low, high = (format_number(one, digits) for one in (self.value, self.low, self.high))
        return value + (f" (95 % CI {low} to {high})" if isfinite(self.low) else "")


@dataclass(frozen=True)
class ScalingLaw:
    """loss = floor + Σ scale·x^−exponent, its goodness of fit, and the bootstrap refits behind the intervals."""

    variables: tuple[str, ...]
    floor: FittedValue
    scales: Mapping[str, FittedValue]
    exponents: Mapping[str, FittedValue]
    r_squared: float
    ranges: Mapping[str, tuple[float, float]]
    n_points: int
    n_seeds: int
    warnings: tuple[str, ...]
    refits: Floats = field(repr=False)  # rows: the fit, then one per resample; columns: see `unpack_parameters`
    log_centres: Floats = field(repr=False)  # mean log of each variable, subtracted before fitting

    def predict(self, values: Mapping[str, ArrayLike]) -> Floats:
        """Predicted loss at these values of the variables."""
        columns = [np.asarray(values[name], dtype=float) for name in self.variables]
        x = np.log(np.stack(columns, axis=-1)) - self.log_centres
        flat = _predict_losses(self.refits[:1], x.reshape(-1, len(self.variables)))[0]
        return np.asarray(flat.reshape(x.shape[:-1]))

    def predict_interval(self, values: Mapping[str, float]) -> FittedValue:
        """Predicted loss at one combination of values, with its confidence interval."""
        x = np.log(np.array([[values[name] for name in self.variables]], dtype=float)) - self.log_centres
        return fitted_value_from_logs(np.log(_predict_losses(self.refits, x)[:, 0]), self.n_seeds)


# ---- fitting ----


def fit_scaling_law(
    variables: Mapping[str, Sequence[float]], losses: Mapping[int, Sequence[float]], n_resamples: int = N_RESAMPLES
) -> ScalingLaw:
    """The law fitted to data points: the value of each variable at every point, and each seed's losses there."""
    names = tuple(variables)
    log_values = np.log(np.array([variables[name] for name in names], dtype=float).T)
    by_seed = np.array([losses[seed] for seed in losses], dtype=float)
    _check_fit_input(names, log_values, by_seed)
    centres = log_values.mean(0)  # centring makes the scale and the exponent of a term nearly uncorrelated
    x, mean = log_values - centres, by_seed.mean(0)
    best = _fit_from_initial_exponents(x, mean)
    samples = _bootstrap_means(by_seed, n_resamples)
    refits = np.concatenate([best, _levenberg_marquardt(np.repeat(best, len(samples), 0), x, samples)])
    return _build_law(names, log_values, centres, mean, refits, len(by_seed))


def _check_fit_input(names: tuple[str, ...], log_values: Floats, losses: Floats) -> None:
    needed = 2 * len(names) + 1
    if losses.size == 0 or len(log_values) < needed:
        n_points = 0 if losses.size == 0 else len(log_values)
        raise UsageError(f"a law in {', '.join(names)} has {needed} parameters but {n_points} data points; add sizes")
    if not (np.isfinite(losses).all() and (losses > 0).all() and np.isfinite(log_values).all()):
        raise UsageError("a scaling law needs losses and sizes above 0; leave out runs that diverged")
    if (np.ptp(log_values, axis=0) == 0).any():
        constant = [name for name, spread in zip(names, np.ptp(log_values, axis=0), strict=True) if spread == 0]
        raise UsageError(f"{', '.join(constant)} has the same value at all data points; leave it out of the law")


def _bootstrap_means(losses: Floats, n_resamples: int) -> Floats:
    """Mean losses over seeds drawn with replacement, the same draw at every data point."""
    n_seeds = len(losses)
    if n_seeds < 2:
        return np.empty((0, losses.shape[1]))
    draws = np.random.default_rng(20250404).integers(0, n_seeds, (n_resamples, n_seeds))
    return np.asarray(losses[draws].mean(1))


def unpack_parameters(rows: Floats) -> tuple[Floats, Floats, Floats]:
    """log floor (R,), log scales (R, V) and log exponents (R, V) of parameter rows (R, 2V + 1)."""
    n = (rows.shape[1] - 1) // 2
    return rows[:, 0], rows[:, 1 : 1 + n], rows[:, 1 + n :]


def _power_terms(rows: Floats, x: Floats) -> Floats:
    """Each variable's term of the loss at each data point: (R, K, V)."""
    _, scales, exponents = unpack_parameters(rows)
    return np.exp(scales[:, None] - np.exp(exponents)[:, None] * x)


def _predict_losses(rows: Floats, x: Floats) -> Floats:
    return np.asarray(np.exp(rows[:, :1]) + _power_terms(rows, x).sum(2))


def _fit_from_initial_exponents(x: Floats, mean: Floats) -> Floats:
    """The best fit over all combinations of initial exponents and floors."""
    n = x.shape[1]
    starts = []
    for exponents in product(_INITIAL_EXPONENTS, repeat=n):
        for share in (0.1, 0.9):  # initial floor as a share of the lowest loss
            floor = share * mean.min()
            scales = np.full(n, np.log((mean.mean() - floor) / n))
            starts.append(np.concatenate([[np.log(floor)], scales, np.log(exponents)]))
    rows = _levenberg_marquardt(np.array(starts), x, np.repeat(mean[None], len(starts), 0))
    errors = (((_predict_losses(rows, x) - mean) / mean) ** 2).sum(1)
    return rows[[int(np.argmin(errors))]]


def _levenberg_marquardt(rows: Floats, x: Floats, targets: Floats) -> Floats:
    """Batched Levenberg–Marquardt: fits each row of parameters to its row of targets."""
    damping = np.full(len(rows), 1e-2)
    residuals = _predict_losses(rows, x) / targets - 1
    for _ in range(_N_ITERATIONS if len(rows) else 0):
        jacobian = _jacobian(rows, x) / targets[:, :, None]
        hessian = np.einsum("rkp,rkq->rpq", jacobian, jacobian)  # Gauss–Newton approximation
        gradient = np.einsum("rkp,rk->rp", jacobian, residuals)
        ridge = damping[:, None, None] * (np.eye(hessian.shape[1]) * (hessian.diagonal(0, 1, 2)[:, None] + 1e-9))
        step = np.clip(np.linalg.solve(hessian + ridge, gradient[:, :, None])[:, :, 0], -1.0, 1.0)
        candidate = _clip_parameters(rows - step)
        errors = _predict_losses(candidate, x) / targets - 1
        better = (errors**2).sum(1) < (residuals**2).sum(1)
        rows, residuals = np.where(better[:, None], candidate, rows), np.where(better[:, None], errors, residuals)
        damping = np.clip(np.where(better, damping / 3, damping * 4), 1e-9, 1e9)
    return rows


def _clip_parameters(rows: Floats) -> Floats:
    n = (rows.shape[1] - 1) // 2
    exponents = np.clip(rows[:, 1 + n :], np.log(MIN_EXPONENT), np.log(MAX_EXPONENT))
    return np.concatenate([np.clip(rows[:, : 1 + n], -40, 40), exponents], axis=1)


def _jacobian(rows: Floats, x: Floats) -> Floats:
    """Derivatives of the predicted losses with respect to every parameter: (R, K, P)."""
    terms = _power_terms(rows, x)
    by_exponent = -terms * np.exp(unpack_parameters(rows)[2])[:, None] * x
    floor = np.broadcast_to(np.exp(rows[:, :1, None]), (*terms.shape[:2], 1))
    return np.concatenate([floor, terms, by_exponent], axis=2)


# ---- intervals and warnings ----


def fitted_value_from_logs(logs: Floats, n_seeds: int) -> FittedValue:
    """The fit (first entry) with an interval of t times the std of the refits that follow, computed on log scale."""
    half = _half_width(logs, n_seeds)
    return FittedValue(*(float(np.exp(logs[0] + offset)) for offset in (0.0, -half, half)))


def _half_width(values: Floats, n_seeds: int) -> float:
    """Half width of the bootstrap interval; NaN for a single seed."""
    if n_seeds < 2:
        return nan
    # the bootstrap draws n seeds from a sample of n, which underestimates the variance by (n − 1) / n
    correction = sqrt(n_seeds / (n_seeds - 1))
    return student_t_quantile(n_seeds - 1, SIGNIFICANCE_LEVEL) * correction * float(values[1:].std(ddof=1))


def _fitted_floor(values: Floats, n_seeds: int) -> FittedValue:
    """The floor with its interval on linear scale, cut off at 0: a floor may be 0, which has no logarithm."""
    value, half = float(values[0]), _half_width(values, n_seeds)
    return FittedValue(value, value - half if half < value or half != half else 0.0, value + half)


def _build_law(
    names: tuple[str, ...], log_values: Floats, centres: Floats, mean: Floats, refits: Floats, n_seeds: int
) -> ScalingLaw:
    log_floor, log_scales, log_exponents = unpack_parameters(refits)
    at_one = log_scales + np.exp(log_exponents) * centres  # undo the centring: scales at x = 1
    r_squared = _r_squared(_predict_losses(refits[:1], log_values - centres)[0], mean)
    exponents = {name: fitted_value_from_logs(log_exponents[:, i], n_seeds) for i, name in enumerate(names)}
    return ScalingLaw(
        variables=names,
        floor=_fitted_floor(np.exp(log_floor), n_seeds),
        scales={name: fitted_value_from_logs(at_one[:, i], n_seeds) for i, name in enumerate(names)},
        exponents=exponents,
        r_squared=r_squared,
        ranges={
            name: (float(np.exp(logs.min())), float(np.exp(logs.max())))
            for name, logs in zip(names, log_values.T, strict=True)
        },
        n_points=len(mean),
        n_seeds=n_seeds,
        warnings=tuple(_fit_warnings(exponents, r_squared, len(mean), n_seeds)),
        refits=refits,
        log_centres=centres,
    )


def _r_squared(fitted: Floats, mean: Floats) -> float:
    total = float(((mean - mean.mean()) ** 2).sum())
    return 1 - float(((fitted - mean) ** 2).sum()) / total if total else nan


def _fit_warnings(exponents: Mapping[str, FittedValue], r_squared: float, n_points: int, n_seeds: int) -> Iterator[str]:
    if not r_squared >= MIN_GOOD_R_SQUARED:
        yield f"poor fit (R² = {format_number(r_squared)}): the data do not follow this law"
    if n_points <= 2 * len(exponents) + 1:
        yield f"{n_points} data points for {2 * len(exponents) + 1} parameters: any data would fit"
    if n_seeds < 2:
        yield "one seed: no confidence intervals"
    for name, exponent in exponents.items():
        if exponent.value <= 2 * MIN_EXPONENT or (exponent.high / exponent.low > 100):
            yield f"the exponent of {name} is not determined ({exponent}): the loss hardly depends on it in this range"
