"""Estimates what a study takes on this machine, probes packs to measure it, and saves measured rates after a study.

    estimate = estimate_study(packs, machine, stored_runs)
    probe_packs(place_packs(packs, machine), machine)

Estimates need no torch; a probe trains for about a second in worker processes, as many at once as the study would use.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from seedbed.engines import ENGINES
from seedbed.engines.base import JobFailure, QueuedJob, ShouldStop
from seedbed.engines.cost_estimator import CostEstimator, estimate_packs, make_rate, shape_digest, wall_seconds
from seedbed.engines.cost_model import concurrency_slowdown, scale_device_seconds, update_work_seconds
from seedbed.engines.machine import Machine, machine_name
from seedbed.engines.placement import PlacedPack, choose_placement, untimed_candidates
from seedbed.engines.rates import MeasuredRate, add_rates, read_rates
from seedbed.records import (
    ENDED_STATUSES,
    Cost,
    CostEvent,
    Event,
    Pack,
    Placement,
    Run,
    StoredPack,
    StoredRun,
    StudyEstimate,
)

PROBE_SECONDS = 1.0  # of updates, and of an evaluation
SAVE_SECONDS_PER_FILE = 0.02  # added to probes, which write no files; several files are written concurrently


def load_estimator(device: str) -> CostEstimator:
    """An estimator with all rates measured on this machine."""
    return CostEstimator(read_rates(), machine_name(device))


def estimate_study(packs: Sequence[Pack], machine: Machine, stored_runs: Mapping[str, StoredRun]) -> StudyEstimate:
    """The estimate of each pack, and of the time that the study still takes given the progress of its runs."""
    remaining, machine = {pack.id: _remaining_fraction(pack, stored_runs) for pack in packs}, machine.fit_slots(packs)
    estimator = load_estimator(machine.device)
    return estimate_packs(place_packs(packs, machine), estimator, remaining, machine.n_concurrent_packs)


def place_packs(packs: Sequence[Pack], machine: Machine) -> list[PlacedPack]:
    """These packs with their placements, longest first, so that no long pack is left over at the end."""
    estimator, machine = load_estimator(machine.device), machine.fit_slots(packs)
    placed = [(pack, choose_placement(pack, len(packs), machine, estimator)) for pack in packs]
    return sorted(placed, key=lambda pack: -estimator.estimate_pack(*pack).seconds)


def remaining_seconds(stored: StoredPack, runs: Sequence[StoredRun], estimator: CostEstimator) -> float:
    """The time that a stored pack still takes."""
    pack = Pack(stored.id, tuple(_to_run(run) for run in runs), stored.predicted_bytes or 0)
    return estimator.estimate_pack(pack, stored.placement).seconds * _remaining_fraction(
        pack, {run.id: run for run in runs}
    )


def _remaining_fraction(pack: Pack, stored_runs: Mapping[str, StoredRun]) -> float:
    """The fraction of a pack that is still to be trained: the largest among its runs that have not ended."""
    fractions = []
    for run in pack.runs:
        stored = stored_runs.get(run.id)
        if stored is None or stored.status not in ENDED_STATUSES:
            fractions.append(1.0 if stored is None else 1 - stored.step / run.settings.n_steps(run.dataset_info))
    return max(fractions, default=0.0)


# ---- probing ----


def _run_probe(job: PlacedPack, _: ShouldStop) -> Iterator[Event]:
    from seedbed.training.timing_probe import probe_pack

    pack, placement = job
    settings, seeds = [run.settings for run in pack.runs], [run.seed for run in pack.runs]
    yield CostEvent(0, probe_pack(settings, seeds, placement, PROBE_SECONDS))


def probe_packs(
    packs: Sequence[PlacedPack],
    machine: Machine,
    should_stop: ShouldStop = lambda: False,
    start_time: float | None = None,
) -> None:
    """Times one pack of every shape among these, as many at once as would train concurrently, and saves the rates."""
    start_time = time.perf_counter() if start_time is None else start_time
    probed = _distinct_packs(packs, machine)
    costs: dict[int, Cost] = {}
    startup_seconds: list[float] = []

    def on_event(job_index: int, event: Event | JobFailure) -> None:
        if isinstance(event, CostEvent):
            costs[job_index] = event.cost
            startup_seconds.append(time.perf_counter() - start_time - sum(event.cost.seconds.values()))

    def queue(job: PlacedPack) -> QueuedJob:
        return QueuedJob(prepare=lambda _: job, exclusive=job[1].exclusive)

    one_slot_each = replace(machine.resources(), n_slots=1, needs_processes=True)
    ENGINES["local"](one_slot_each).run([*map(queue, probed)], _run_probe, on_event, should_stop)
    rates = [
        make_rate(_adjust_to_training(cost, pack, placement), pack.runs, placement, machine_name(machine.device))
        for (pack, placement), cost in ((probed[index], costs[index]) for index in sorted(costs))
    ]
    if rates:
        rates[-1] = replace(rates[-1], seconds={**rates[-1].seconds, "start": startup_seconds[0]})
    add_rates(_average_by_key(rates))


def _distinct_packs(packs: Sequence[PlacedPack], machine: Machine) -> list[PlacedPack]:
    """One pack of each shape and size; on a CPU as many copies as would train concurrently."""
    distinct: dict[tuple[str, int, Placement], Pack] = {}
    for pack, placement in packs:
        distinct.setdefault((shape_digest(pack.runs), len(pack.runs), placement), pack)
    n_copies = {key: key[2].workers if machine.device == "cpu" else 1 for key in distinct}
    return [(pack, key[2]) for key, pack in distinct.items() for _ in range(n_copies[key])]


def _adjust_to_training(cost: Cost, pack: Pack, placement: Placement) -> Cost:
    """A probe's cost as it would be in training, where saves write files and GPU packs share the device."""
    # On a GPU packs are probed one at a time.
    slowdown = concurrency_slowdown(placement, update_work_seconds(pack.runs, placement))
    seconds = scale_device_seconds(cost.seconds, slowdown)
    seconds["save"] += SAVE_SECONDS_PER_FILE * (1 + len(pack.runs))
    return replace(cost, seconds=seconds)


def _average_by_key(rates: Sequence[MeasuredRate]) -> list[MeasuredRate]:
    """One mean rate for each key, where copies of a pack were timed concurrently."""
    by_key: dict[tuple[str | int, ...], list[MeasuredRate]] = {}
    for rate in rates:
        by_key.setdefault(rate.key, []).append(rate)
    return [_mean_rate(group) for group in by_key.values()]


def _mean_rate(rates: Sequence[MeasuredRate]) -> MeasuredRate:
    names = dict.fromkeys(name for rate in rates for name in rate.seconds)
    measured = {name: [rate.seconds[name] for rate in rates if name in rate.seconds] for name in names}
    return replace(rates[-1], seconds={name: sum(values) / len(values) for name, values in measured.items()})


def probe_candidates(
    runs: Sequence[Run], machine: Machine, report: Callable[[str], None], should_stop: ShouldStop
) -> float:
    """Before a long study on a CPU, times stacking and threading alternatives; returns the seconds that this took."""
    start = time.perf_counter()
    packs = untimed_candidates(runs, machine, load_estimator(machine.device))
    if packs and not should_stop():
        report(f"timing {len(packs)} ways to train for a second each, to choose the fastest")
        probe_packs(packs, machine, should_stop)
    return time.perf_counter() - start


# ---- after a study ----


@dataclass(frozen=True)
class PackTiming:
    """The total cost of a pack, and the part of it that earlier commands spent."""

    runs: Sequence[StoredRun]
    placement: Placement
    cost: Cost
    previous_cost: Cost


def save_rates(packs: Sequence[PackTiming], machine: Machine, seconds: float | None) -> None:
    """Saves the rates of trained packs; `seconds` is the time of the whole command, None if it was interrupted."""
    rates, seconds_by_pack = [], []
    for pack in packs:
        runs = [_to_run(run) for run in pack.runs]
        rates.append(make_rate(pack.cost, runs, pack.placement, machine_name(machine.device)))
        pack_seconds = sum(pack.cost.seconds.values()) - sum(pack.previous_cost.seconds.values())
        seconds_by_pack.append((pack_seconds, pack.placement))
    if rates and seconds is not None:
        startup_seconds = max(0.0, seconds - wall_seconds(seconds_by_pack, machine.n_concurrent_packs))
        rates[-1] = replace(rates[-1], seconds={**rates[-1].seconds, "start": startup_seconds})
    add_rates(_average_by_key(rates))


def _to_run(run: StoredRun) -> Run:
    return Run(run.id, run.seed, {}, run.settings, run.parameters, run.settings.task.dataset_info())
