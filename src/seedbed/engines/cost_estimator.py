"""What packs will cost on this machine: times measured here before, carried over to other shapes; no torch.

    prices = Prices(read_rates(), machine_name("cpu"))
    prices.of(pack, placement).seconds

A pack that was timed before costs what it did; beside another number of packs on a GPU, as much more or less as such
packs slow each other down there. Else the time of an update is a + b·x, x being what its operations and
bytes would take at round figures; a and b are fitted to the packs of the same task and model that were timed here.
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
    predict_seconds,
    predict_section_seconds,
    scale_device_seconds,
)
from seedbed.engines.rates import MeasuredRate
from seedbed.models.flops import evaluation_workload, update_workload
from seedbed.models.model_size import effective_batch_size
from seedbed.records import Cost, EstimateBasis, Pack, PackEstimate, Placement, Run, StudyEstimate
from seedbed.settings import Settings, setting_traits
from seedbed.study.pack import shape_key


def make_rate(cost: Cost, runs: Sequence[Run], placement: Placement, machine: str) -> MeasuredRate:
    """What is kept of a pack that was timed."""
    run = largest_batch_run(runs)
    each = {name: cost.seconds[name] / n for name, n in cost.counts.items() if n and name in cost.seconds}
    return MeasuredRate(
        machine, placement.device, placement.mode, placement.threads, placement.workers, rate_family(run.settings),
        shape_digest(runs), len(runs), predict_seconds(update_workload(run.settings, run.dataset_info), placement),
        predict_seconds(evaluation_workload(run.settings, run.dataset_info), placement), each, cost.steady_bytes, cost.peak_bytes,
    )  # fmt: skip


def rate_family(settings: Settings) -> str:
    return f"{settings.task.kind}/{settings.model.kind}/{settings.train.precision}"


def shape_digest(runs: Sequence[Run]) -> str:
    """A name of everything that decides how long a pack's updates and records take, but for how many runs it has."""
    settings = largest_batch_run(runs).settings
    shared = [
        entry for entry in shape_key(settings)
        if not isinstance(entry, tuple) or setting_traits(entry[0]).affects_step_time
    ]  # fmt: skip
    has_dropout = any(value for name, value in settings.flat().items() if setting_traits(name).nonzero_adds_work)
    whole = [shared, effective_batch_size(settings, largest_batch_run(runs).dataset_info), has_dropout]
    return blake2b(json.dumps(whole).encode(), digest_size=8).hexdigest()


class CostEstimator:
    """Prices on one machine."""

    def __init__(self, rates: Iterable[MeasuredRate], machine: str) -> None:
        self._rates = [rate for rate in rates if rate.machine == machine]
        self._by_shape: dict[tuple[str | int, ...], list[MeasuredRate]] = {}
        for rate in self._rates:
            self._by_shape.setdefault((rate.shape, rate.device, rate.mode, rate.threads), []).append(rate)

    def estimate_pack(self, pack: Pack, placement: Placement) -> PackEstimate:
        """What a whole pack is expected to cost."""
        seconds, basis = self.section_seconds(pack.runs, placement)
        run = max(pack.runs, key=lambda run: run.settings.n_steps(run.dataset_info))
        counts = section_counts(run)
        total = sum(seconds.get(name, 0.0) * n for name, n in counts.items())
        if run.settings.train.seconds is not None:
            total = seconds["prepare"] + seconds["compile"] + run.settings.train.seconds
        return PackEstimate(total, self._peak_bytes(pack, placement) or pack.bytes, basis)

    def section_seconds(self, runs: Sequence[Run], placement: Placement) -> tuple[Mapping[str, float], EstimateBasis]:
        """Seconds that everything a pack does takes a time, and what they are taken from."""
        shape = self._rates_of_shape(runs, placement)
        same = [rate for rate in shape if rate.n_runs == len(runs)]
        exact = [rate for rate in same if rate.workers == placement.workers]
        rough = predict_section_seconds(runs, placement)
        if same:
            return rough | dict((exact or same)[-1].seconds), "measured" if exact else "similar"
        if shape:
            nearest = min(shape, key=lambda rate: abs(rate.n_runs - len(runs)))
            return rough | _rescale_for_runs(nearest, len(runs)), "similar"
        kin = self._related_rates(runs, placement)
        return (rough | self._extrapolate(kin, runs, placement), "model") if kin else (rough, "guess")

    def _rates_of_shape(self, runs: Sequence[Run], placement: Placement) -> Sequence[MeasuredRate]:
        """Packs of this shape that were timed in the same way, of however many runs."""
        key = (shape_digest(runs), placement.device, placement.mode, placement.threads)
        return [_rescale_for_contention(rate, placement.workers) for rate in self._by_shape.get(key, ())]

    def _related_rates(self, runs: Sequence[Run], placement: Placement) -> Sequence[MeasuredRate]:
        """Packs that were timed in the same way: of the same task and model, or of any where there are none."""
        way = [rate for rate in self._rates if (rate.device, rate.mode) == (placement.device, placement.mode)]
        kin = [rate for rate in way if rate.family == rate_family(runs[0].settings)] or way
        return [_rescale_for_contention(rate, placement.workers) for rate in kin]

    def _peak_bytes(self, pack: Pack, placement: Placement) -> int | None:
        """Bytes that such a pack held at most when it was trained here."""
        peaks = [rate.peak for rate in self._rates_of_shape(pack.runs, placement) if rate.n_runs == len(pack.runs)]
        return peaks[-1] if peaks else None

    def _extrapolate(
        self, related: Sequence[MeasuredRate], runs: Sequence[Run], placement: Placement
    ) -> dict[str, float]:
        """Times of other shapes brought over: updates and records by their laws, the rest as it was."""
        run, n = largest_batch_run(runs), len(runs)
        found = {
            name: median(rate.seconds[name] for rate in related if name in rate.seconds)
            for name in ("prepare", "compile", "save")
            if any(name in rate.seconds for rate in related)
        }
        updates = [
            (rate.n_runs * rate.update, rate.seconds["compute"]) for rate in related if "compute" in rate.seconds
        ]
        records = [
            (rate.n_runs * rate.record, rate.seconds["evaluate"]) for rate in related if "evaluate" in rate.seconds
        ]
        if updates:
            found["compute"] = fit_line(updates)(
                n * predict_seconds(update_workload(run.settings, run.dataset_info), placement)
            )
        if records:
            found["evaluate"] = fit_line(records)(
                n * predict_seconds(evaluation_workload(run.settings, run.dataset_info), placement)
            )
        return found

    def startup_seconds(self, device: str) -> float:
        """Seconds before the first update of a study, as last measured here."""
        known = [rate.seconds["start"] for rate in self._rates if rate.device == device and "start" in rate.seconds]
        return known[-1] if known else STARTUP_SECONDS[device]


class _Line(NamedTuple):
    intercept: float
    slope: float

    def __call__(self, x: float) -> float:
        return self.intercept + self.slope * x


def fit_line(points: Sequence[tuple[float, float]]) -> _Line:
    """The line a + b·x with a, b ≥ 0 whose relative errors at these (x, seconds) are least in square.

    >>> law([(1.0, 3.0), (2.0, 5.0)])
    _Law(step=1.0, slope=2.0)
    """
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
    step = (sums["1"] * sums["xx"] - sums["x"] * sums["1x"]) / determinant
    slope = (sums["x"] * sums["11"] - sums["1"] * sums["1x"]) / determinant
    if slope < 0:
        return _Line(sums["1"] / sums["11"], 0.0)
    return _Line(step, slope) if step >= 0 else through_zero


def _rescale_for_contention(rate: MeasuredRate, n_packs: int) -> MeasuredRate:
    """What a pack would have taken beside so many others."""
    factor = concurrency_slowdown(rate.device, n_packs) / concurrency_slowdown(rate.device, rate.workers)
    return rate if factor == 1 else replace(rate, seconds=scale_device_seconds(rate.seconds, factor))


def _rescale_for_runs(rate: MeasuredRate, n_runs: int) -> dict[str, float]:
    """Times of the same shape with another number of runs: on a CPU the work grows with it, a GPU has room."""
    growing = {"compute", "evaluate", "write", "save"} if rate.device == "cpu" else {"save"}
    return {name: spent * (n_runs / rate.n_runs if name in growing else 1.0) for name, spent in rate.seconds.items()}


def section_counts(run: Run) -> dict[str, int]:
    """How often a run of this length prepares, updates, records, writes and saves."""
    train, n = run.settings.train, run.settings.n_steps(run.dataset_info)
    first = min(train.eval_first, n)
    n_records = 1 + first + max(0, n // train.eval_every - first // train.eval_every)
    n_records += n > first and n % train.eval_every > 0
    n_saves = n // train.save_every + (n % train.save_every > 0)
    n_texts = n // train.sample_every if train.sample_every else 0
    return {
        "prepare": 1, "compile": 1, "compute": max(0, n - 1), "evaluate": n_records, "write": n_texts, "save": n_saves
    }  # fmt: skip


def estimate_packs(
    packs: Sequence[tuple[Pack, Placement]], estimator: CostEstimator, remaining: Mapping[str, float], n_concurrent: int
) -> StudyEstimate:
    """What a study takes; `left` are the shares of packs that are still to be done."""
    priced = {pack.id: estimator.estimate_pack(pack, placement) for pack, placement in packs}
    seconds = [(priced[pack.id].seconds * remaining.get(pack.id, 1.0), placement) for pack, placement in packs]
    start = estimator.startup_seconds(packs[0][1].device) if packs else 0.0
    return StudyEstimate(start + wall_seconds(seconds, n_concurrent), priced)


def wall_seconds(seconds: Iterable[tuple[float, Placement]], n_concurrent: int) -> float:
    """How long packs of these seconds take in all: side by side in their order, those alone after all others."""
    shared: list[float] = []
    alone: list[float] = []
    for spent, placement in seconds:
        (alone if placement.exclusive else shared).append(spent)
    return makespan(shared, n_concurrent) + sum(alone)


def makespan(seconds: Iterable[float], n_workers: int) -> float:
    """When the last of these jobs is done, each taken up in turn by the worker that is free first.

    >>> makespan([3.0, 1.0, 1.0, 2.0], 2)
    4.0
    """
    free = [0.0] * n_workers
    for spent in seconds:
        heapq.heappush(free, heapq.heappop(free) + spent)
    return max(free)
