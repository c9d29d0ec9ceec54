"""Estimates the cost of packs on this machine from times measured here before; no torch.

    estimator = CostEstimator(read_rates(), machine_name("cpu"))
    estimator.estimate_pack(pack, placement).seconds

Cost of a timed pack: its last timing, rescaled by the measured GPU contention for the current number of concurrent
packs. For other shapes the time of an update is a + b·x, where x is the time that the cost model predicts; a and b are
fitted to the timed packs of the same task and model.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from statistics import median
from typing import NamedTuple

from seedbed.engines.cost_model import (
    STARTUP_SECONDS,
    concurrency_slowdown,
    largest_batch_run,
    predict_evaluation,
    predict_section_seconds,
    predict_update,
    scale_device_seconds,
)
from seedbed.engines.rates import MeasuredRate
from seedbed.models.model_size import effective_batch_size
from seedbed.records import Cost, EstimateBasis, Pack, PackEstimate, Placement, Run, StudyEstimate
from seedbed.settings import Settings, setting_traits
from seedbed.study.pack import extra_work, shape_key


def make_rate(cost: Cost, runs: Sequence[Run], placement: Placement, machine: str) -> MeasuredRate:
    """The rate of a pack, from its measured cost."""
    run = largest_batch_run(runs)
    update = predict_update(run, placement)
    evaluation = predict_evaluation(run, placement)
    seconds = {name: cost.seconds[name] / n for name, n in cost.counts.items() if n and name in cost.seconds}
    return MeasuredRate(
        machine, placement.device, placement.mode, placement.threads, placement.workers, rate_family(run.settings),
        shape_digest(runs), len(runs), update, evaluation, seconds, cost.steady_bytes, cost.peak_bytes,
    )  # fmt: skip


def rate_family(settings: Settings) -> str:
    return f"{settings.task.kind}/{settings.model.kind}/{settings.train.precision}"


def shape_digest(runs: Sequence[Run]) -> str:
    """A digest of all that the time of a pack's updates and evaluations depends on, except its number of runs."""
    settings = largest_batch_run(runs).settings
    shared = [
        entry for entry in shape_key(settings)
        if not isinstance(entry, tuple) or setting_traits(entry[0]).affects_step_time
    ]  # fmt: skip
    whole = [shared, effective_batch_size(settings, largest_batch_run(runs).dataset_info), any(extra_work(settings))]
    return blake2b(json.dumps(whole).encode(), digest_size=8).hexdigest()


class CostEstimator:
    """Estimates for one machine from its measured rates."""

    def __init__(self, rates: Iterable[MeasuredRate], machine: str) -> None:
        self._rates = [rate for rate in rates if rate.machine == machine]
        self._by_shape: dict[tuple[str | int, ...], list[MeasuredRate]] = {}
        for rate in self._rates:
            self._by_shape.setdefault((rate.shape, rate.device, rate.mode, rate.threads), []).append(rate)

    def estimate_pack(self, pack: Pack, placement: Placement) -> PackEstimate:
        """Expected seconds and bytes of a whole pack."""
        seconds, basis = self.section_seconds(pack.runs, placement)
        run = max(pack.runs, key=lambda run: run.settings.n_steps(run.dataset_info))
        counts = section_counts(run)
        total = sum(seconds.get(name, 0.0) * n for name, n in counts.items())
        if run.settings.train.seconds is not None:
            total = seconds["prepare"] + seconds["compile"] + run.settings.train.seconds
        return PackEstimate(total, self._peak_bytes(pack, placement) or pack.bytes, basis)

    def section_seconds(self, runs: Sequence[Run], placement: Placement) -> tuple[Mapping[str, float], EstimateBasis]:
        """Seconds of each section of a pack per execution, and what they are based on."""
        same_shape = self._rates_of_shape(runs, placement)
        same_pack = [rate for rate in same_shape if rate.n_runs == len(runs)]
        exact = [rate for rate in same_pack if rate.workers == placement.workers]
        predicted = predict_section_seconds(runs, placement)  # for sections that were not timed
        if same_pack:
            return predicted | dict((exact or same_pack)[-1].seconds), "measured" if exact else "similar"
        if same_shape:
            nearest = min(same_shape, key=lambda rate: abs(rate.n_runs - len(runs)))
            return predicted | _rescale_for_runs(nearest, len(runs)), "similar"
        if related := self._related_rates(runs, placement):
            return predicted | self._extrapolate(related, runs, placement), "model"
        return predicted, "guess"

    def _rates_of_shape(self, runs: Sequence[Run], placement: Placement) -> Sequence[MeasuredRate]:
        """Rates of packs with this shape, device, mode and threads, with any number of runs."""
        key = (shape_digest(runs), placement.device, placement.mode, placement.threads)
        return [_rescale_for_contention(rate, placement.workers) for rate in self._by_shape.get(key, ())]

    def _related_rates(self, runs: Sequence[Run], placement: Placement) -> Sequence[MeasuredRate]:
        """Rates with this device and mode of the same task and model, or of any if there are none."""
        same_mode = [rate for rate in self._rates if (rate.device, rate.mode) == (placement.device, placement.mode)]
        related = [rate for rate in same_mode if rate.family == rate_family(runs[0].settings)] or same_mode
        return [_rescale_for_contention(rate, placement.workers) for rate in related]

    def _peak_bytes(self, pack: Pack, placement: Placement) -> int | None:
        """Measured peak memory of such a pack; None if it was never trained here."""
        peaks = [rate.peak for rate in self._rates_of_shape(pack.runs, placement) if rate.n_runs == len(pack.runs)]
        return peaks[-1] if peaks else None

    def _extrapolate(
        self, related: Sequence[MeasuredRate], runs: Sequence[Run], placement: Placement
    ) -> dict[str, float]:
        """Section times from other shapes: updates and evaluations by fitted lines, the rest as medians."""
        run, n_runs = largest_batch_run(runs), len(runs)
        seconds = {
            name: median(rate.seconds[name] for rate in related if name in rate.seconds)
            for name in ("prepare", "compile", "save")
            if any(name in rate.seconds for rate in related)
        }
        updates = [
            (rate.n_runs * rate.update, rate.seconds["compute"]) for rate in related if "compute" in rate.seconds
        ]
        evaluations = [
            (rate.n_runs * rate.record, rate.seconds["evaluate"]) for rate in related if "evaluate" in rate.seconds
        ]
        if updates:
            predicted = predict_update(run, placement)
            seconds["compute"] = fit_line(updates)(n_runs * predicted)
        if evaluations:
            predicted = predict_evaluation(run, placement)
            seconds["evaluate"] = fit_line(evaluations)(n_runs * predicted)
        return seconds

    def startup_seconds(self, device: str) -> float:
        """Seconds before the first update of a study, as last measured on this device, else a typical value."""
        measured = [rate.seconds["start"] for rate in self._rates if rate.device == device and "start" in rate.seconds]
        return measured[-1] if measured else STARTUP_SECONDS[device]


class _Line(NamedTuple):
    intercept: float
    slope: float

    def __call__(self, x: float) -> float:
        return self.intercept + self.slope * x


def fit_line(points: Sequence[tuple[float, float]]) -> _Line:
    """The line a + b·x with a, b ≥ 0 that minimizes the squared relative errors at these (x, seconds).

    >>> fit_line([(1.0, 3.0), (2.0, 5.0)])
    _Line(intercept=1.0, slope=2.0)
    """
    # Weighted least squares with weights 1 / seconds², by the normal equations.
    sums = {"1": 0.0, "x": 0.0, "11": 0.0, "1x": 0.0, "xx": 0.0}
    for x, seconds in points:
        one, scaled = 1 / seconds, x / seconds
        sums["1"] += one
        sums["x"] += scaled
        sums["11"] += one * one
        sums["1x"] += one * scaled
        sums["xx"] += scaled * scaled
    through_zero = _Line(0.0, sums["x"] / sums["xx"])
    determinant = sums["11"] * sums["xx"] - sums["1x"] ** 2
    if len(points) == 1 or determinant <= 1e-9 * sums["11"] * sums["xx"]:
        return through_zero
    intercept = (sums["1"] * sums["xx"] - sums["x"] * sums["1x"]) / determinant
    slope = (sums["x"] * sums["11"] - sums["1"] * sums["1x"]) / determinant
    if slope < 0:
        return _Line(sums["1"] / sums["11"], 0.0)
    return _Line(intercept, slope) if intercept >= 0 else through_zero


def _rescale_for_contention(rate: MeasuredRate, n_packs: int) -> MeasuredRate:
    """The rate that a pack would have had among that many concurrent packs."""
    placement = Placement(rate.device, rate.threads, rate.mode, workers=rate.workers)
    work = rate.n_runs * rate.update
    factor = concurrency_slowdown(placement, work, n_packs) / concurrency_slowdown(placement, work)
    return rate if factor == 1 else replace(rate, seconds=scale_device_seconds(rate.seconds, factor))


def _rescale_for_runs(rate: MeasuredRate, n_runs: int) -> dict[str, float]:
    """Section times of the same shape with another number of runs: proportional on a CPU, constant on a GPU."""
    proportional = {"compute", "evaluate", "write", "save"} if rate.device == "cpu" else {"save"}
    factor = n_runs / rate.n_runs
    return {name: value * (factor if name in proportional else 1.0) for name, value in rate.seconds.items()}


def section_counts(run: Run) -> dict[str, int]:
    """How many times each section is executed in a run."""
    train, n = run.settings.train, run.settings.n_steps(run.dataset_info)
    first = min(train.eval_first, n)
    n_evaluations = 1 + first + max(0, n // train.eval_every - first // train.eval_every)
    n_evaluations += n > first and n % train.eval_every > 0
    n_samples = n // train.sample_every if train.sample_every else 0
    counts = {"prepare": 1, "compile": 1, "compute": max(0, n - 1)}  # the first update counts as compile
    return counts | {"evaluate": n_evaluations, "write": n_samples, "save": train.n_kept_checkpoints(n)}


def estimate_packs(
    packs: Sequence[tuple[Pack, Placement]], estimator: CostEstimator, remaining: Mapping[str, float], n_concurrent: int
) -> StudyEstimate:
    """The estimate of a study; `remaining` are the fractions of packs that are still to be trained, by id."""
    estimates = {pack.id: estimator.estimate_pack(pack, placement) for pack, placement in packs}
    seconds = [(estimates[pack.id].seconds * remaining.get(pack.id, 1.0), placement) for pack, placement in packs]
    startup = estimator.startup_seconds(packs[0][1].device) if packs else 0.0
    return StudyEstimate(startup + wall_seconds(seconds, n_concurrent), estimates)


def wall_seconds(seconds: Iterable[tuple[float, Placement]], n_concurrent: int) -> float:
    """Wall-clock time of these packs: concurrently in their order, exclusive ones after all others."""
    shared: list[float] = []
    exclusive: list[float] = []
    for pack_seconds, placement in seconds:
        (exclusive if placement.exclusive else shared).append(pack_seconds)
    return makespan(shared, n_concurrent) + sum(exclusive)


def makespan(seconds: Iterable[float], n_workers: int) -> float:
    """Time at which the last of these jobs ends if each is started in order on the first free worker.

    >>> makespan([3.0, 1.0, 1.0, 2.0], 2)
    4.0
    """
    free_at = [0.0] * n_workers
    for job_seconds in seconds:
        heapq.heappush(free_at, heapq.heappop(free_at) + job_seconds)
    return max(free_at)
