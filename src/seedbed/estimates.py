"""What a study costs here: prices before it runs, probes where asked for or worth it, and rates kept after it.

    estimate = price_study(packs, machine, standing)
    probe(placed(packs, machine), machine)

Prices need no torch; a probe trains for about a second in worker processes, as many at a time as the study would have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from seedbed.data.dataset_info import get_dataset_info
from seedbed.engines.cost_estimator import CostEstimator, estimate_packs, make_rate, shape_digest, wall_seconds
from seedbed.engines.cost_model import concurrency_slowdown, scale_device_seconds
from seedbed.engines.local import JobFailure, QueuedJob, ShouldStop, run_jobs
from seedbed.engines.machine import Machine, machine_name
from seedbed.engines.placement import PlacedPack, choose_placement, untimed_candidates
from seedbed.engines.rates import MeasuredRate, add_rates, read_rates
from seedbed.records import Cost, CostEvent, Event, Pack, Placement, Run, StoredRun, StudyEstimate
from seedbed.settings import Settings

PROBE_SECONDS = 1.0  # seconds of updates, and of a record
SAVE_SECONDS_PER_FILE = (
    0.02  # seconds a file of a save, of which several are put in place at a time; a probe writes none
)


def load_estimator(device: str) -> CostEstimator:
    """Prices from all that was measured on this machine."""
    return CostEstimator(read_rates(), machine_name(device))


def estimate_study(packs: Sequence[Pack], machine: Machine, stored_runs: Mapping[str, StoredRun]) -> StudyEstimate:
    """What these packs are expected to cost, and how long the study takes from where its runs stand."""
    left, machine = {pack.id: _remaining_fraction(pack, stored_runs) for pack in packs}, machine.fit_slots(packs)
    return estimate_packs(place_packs(packs, machine), load_estimator(machine.device), left, machine.n_concurrent_packs)


def place_packs(packs: Sequence[Pack], machine: Machine) -> list[PlacedPack]:
    """These packs where they would run; the longest first, so that nobody waits for it in the end."""
    prices, machine = load_estimator(machine.device), machine.fit_slots(packs)
    found = [(pack, choose_placement(pack, len(packs), machine, prices)) for pack in packs]
    return sorted(found, key=lambda one: -prices.estimate_pack(*one).seconds)


def _remaining_fraction(pack: Pack, stored_runs: Mapping[str, StoredRun]) -> float:
    """The share of a pack that is still to be done: that of its run which is least far, among those not ended."""
    shares = []
    for run in pack.runs:
        known = stored_runs.get(run.id)
        if known is None or known.status not in ("finished", "diverged"):
            shares.append(1.0 if known is None else 1 - known.step / run.settings.n_steps(run.dataset_info))
    return max(shares, default=0.0)


# ---- probing ----


@dataclass(frozen=True)
class _ProbeJob:
    settings: Sequence[Settings]
    seeds: Sequence[int]
    placement: Placement


def _run_probe(job: _ProbeJob, _: ShouldStop) -> Iterator[Event]:
    from seedbed.training.timing_probe import probe_pack

    yield CostEvent(0, probe_pack(job.settings, job.seeds, job.placement, PROBE_SECONDS))


def probe_packs(
    packs: Sequence[PlacedPack],
    machine: Machine,
    should_stop: ShouldStop = lambda: False,
    start_time: float | None = None,
) -> None:
    """Times packs of every shape among these, as many at a time as would train together, and keeps the rates."""
    start_time = time.perf_counter() if start_time is None else start_time
    timed = _distinct_packs(packs, machine)
    costs: dict[int, Cost] = {}
    first: list[float] = []

    def on_event(number: int, event: Event | JobFailure) -> None:
        if isinstance(event, CostEvent):
            costs[number] = event.cost
            first.append(time.perf_counter() - start_time - sum(event.cost.seconds.values()))

    tasks = [
        QueuedJob(partial(_make_probe_job, pack.runs, placement), placement.exclusive) for pack, placement in timed
    ]
    run_jobs(tasks, _run_probe, on_event, machine.n_workers, should_stop, force_workers=True)
    rates = [
        make_rate(_adjust_to_training(cost, pack, placement), pack.runs, placement, _name_of_machine(machine))
        for (pack, placement), cost in ((timed[number], costs[number]) for number in sorted(costs))
    ]
    if rates:
        rates[-1] = replace(rates[-1], seconds={**rates[-1].seconds, "start": first[0]})
    add_rates(_average_by_key(rates))


def _distinct_packs(packs: Sequence[PlacedPack], machine: Machine) -> list[PlacedPack]:
    """One pack of each shape and size, as often as such packs would train side by side."""
    found: dict[tuple[str, int, Placement], Pack] = {}
    for pack, placement in packs:
        found.setdefault((shape_digest(pack.runs), len(pack.runs), placement), pack)
    copies = {key: key[2].workers if machine.device == "cpu" else 1 for key in found}
    return [(pack, key[2]) for key, pack in found.items() for _ in range(copies[key])]


def _make_probe_job(runs: Sequence[Run], placement: Placement) -> _ProbeJob:
    return _ProbeJob([run.settings for run in runs], [run.seed for run in runs], placement)


def _adjust_to_training(cost: Cost, pack: Pack, placement: Placement) -> Cost:
    """What a probe measured, as it is in training: a save also writes files and a transaction, and on a GPU, where
    packs are probed alone, others are beside it."""
    seconds = scale_device_seconds(cost.seconds, concurrency_slowdown(placement.device, placement.workers))
    seconds["save"] += SAVE_SECONDS_PER_FILE * (1 + len(pack.runs))
    return replace(cost, seconds=seconds)


def _average_by_key(rates: Sequence[MeasuredRate]) -> list[MeasuredRate]:
    """One rate of each pack, where several were timed at a time."""
    alike: dict[tuple[str | int, ...], list[MeasuredRate]] = {}
    for rate in rates:
        alike.setdefault(rate.key, []).append(rate)
    return [_mean_rate(some) for some in alike.values()]


def _mean_rate(rates: Sequence[MeasuredRate]) -> MeasuredRate:
    names = dict.fromkeys(name for rate in rates for name in rate.seconds)
    known = {name: [rate.seconds[name] for rate in rates if name in rate.seconds] for name in names}
    return replace(rates[-1], seconds={name: sum(spent) / len(spent) for name, spent in known.items()})


def probe_candidates(
    runs: Sequence[Run], machine: Machine, report: Callable[[str], None], should_stop: ShouldStop
) -> float:
    """Before a long study on a CPU: finds out where stacking and more threads pay; the seconds that this took."""
    start = time.perf_counter()
    packs = untimed_candidates(runs, machine, load_estimator(machine.device))
    if packs and not should_stop():
        report(f"measuring {len(packs)} ways to train for a second each, to take those that pay")
        probe_packs(packs, machine, should_stop)
    return time.perf_counter() - start


# ---- after a study ----


@dataclass(frozen=True)
class PackTiming:
    """What a pack cost in all, and what of it a command before had spent."""

    runs: Sequence[StoredRun]
    placement: Placement
    cost: Cost
    previous_cost: Cost


def save_rates(packs: Sequence[PackTiming], machine: Machine, seconds: float | None) -> None:
    """Keeps what packs took; `seconds` are those of the whole command, where it came to its end."""
    rates, spent = [], []
    for pack in packs:
        runs = [_to_run(run) for run in pack.runs]
        rates.append(make_rate(pack.cost, runs, pack.placement, _name_of_machine(machine)))
        spent.append((sum(pack.cost.seconds.values()) - sum(pack.previous_cost.seconds.values()), pack.placement))
    if rates and seconds is not None:
        start = max(0.0, seconds - wall_seconds(spent, machine.n_concurrent_packs))
        rates[-1] = replace(rates[-1], seconds={**rates[-1].seconds, "start": start})
    add_rates(_average_by_key(rates))


def _to_run(run: StoredRun) -> Run:
    return Run(run.id, run.seed, {}, run.settings, run.parameters, get_dataset_info(run.settings.task))


def _name_of_machine(machine: Machine) -> str:
    return machine_name(machine.device)
