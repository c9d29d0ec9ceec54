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

from seedbed.data.facts import facts_of
from seedbed.engines.choice import Placed, place, undecided
from seedbed.engines.guess import on_device, slowdown
from seedbed.engines.local import Failed, Stop, Task, run_jobs
from seedbed.engines.machine import Machine, machine_name
from seedbed.engines.price import Prices, busy, estimate, rate_of, shape_of
from seedbed.engines.rates import Rate, add_rates, read_rates
from seedbed.records import Cost, Estimate, Event, Measured, Pack, Placement, Run, StoredRun
from seedbed.settings import Settings

PROBED = 1.0  # seconds of updates, and of a record
SAVING = 0.02  # seconds a file of a save, of which several are put in place at a time; a probe writes none


def known_prices(device: str) -> Prices:
    """Prices from all that was measured on this machine."""
    return Prices(read_rates(), machine_name(device))


def price_study(packs: Sequence[Pack], machine: Machine, standing: Mapping[str, StoredRun]) -> Estimate:
    """What these packs are expected to cost, and how long the study takes from where its runs stand."""
    left, machine = {pack.id: _left(pack, standing) for pack in packs}, machine.fitted(packs)
    return estimate(placed(packs, machine), known_prices(machine.device), left, machine.n_side_by_side)


def placed(packs: Sequence[Pack], machine: Machine) -> list[Placed]:
    """These packs where they would run; the longest first, so that nobody waits for it in the end."""
    prices, machine = known_prices(machine.device), machine.fitted(packs)
    found = [(pack, place(pack, len(packs), machine, prices)) for pack in packs]
    return sorted(found, key=lambda one: -prices.of(*one).seconds)


def _left(pack: Pack, standing: Mapping[str, StoredRun]) -> float:
    """The share of a pack that is still to be done: that of its run which is least far, among those not ended."""
    shares = []
    for run in pack.runs:
        known = standing.get(run.id)
        if known is None or known.status not in ("finished", "diverged"):
            shares.append(1.0 if known is None else 1 - known.step / run.settings.n_steps(run.facts))
    return max(shares, default=0.0)


# ---- probing ----


@dataclass(frozen=True)
class _Probe:
    settings: Sequence[Settings]
    seeds: Sequence[int]
    placement: Placement


def _measure(job: _Probe, _: Stop) -> Iterator[Event]:
    from seedbed.train.probe import probe_pack

    yield Measured(0, probe_pack(job.settings, job.seeds, job.placement, PROBED))


def probe(packs: Sequence[Placed], machine: Machine, stop: Stop = lambda: False, began: float | None = None) -> None:
    """Times packs of every shape among these, as many at a time as would train together, and keeps the rates."""
    began = time.perf_counter() if began is None else began
    timed = _distinct(packs, machine)
    costs: dict[int, Cost] = {}
    first: list[float] = []

    def on_event(number: int, event: Event | Failed) -> None:
        if isinstance(event, Measured):
            costs[number] = event.cost
            first.append(time.perf_counter() - began - sum(event.cost.seconds.values()))

    tasks = [Task(partial(_job, pack.runs, placement), placement.alone) for pack, placement in timed]
    run_jobs(tasks, _measure, on_event, machine.n_workers, stop, apart=True)
    rates = [
        rate_of(_as_trained(cost, pack, placement), pack.runs, placement, _name(machine))
        for (pack, placement), cost in ((timed[number], costs[number]) for number in sorted(costs))
    ]
    if rates:
        rates[-1] = replace(rates[-1], seconds={**rates[-1].seconds, "start": first[0]})
    add_rates(_averaged(rates))


def _distinct(packs: Sequence[Placed], machine: Machine) -> list[Placed]:
    """One pack of each shape and size, as often as such packs would train side by side."""
    found: dict[tuple[str, int, Placement], Pack] = {}
    for pack, placement in packs:
        found.setdefault((shape_of(pack.runs), len(pack.runs), placement), pack)
    copies = {key: key[2].workers if machine.device == "cpu" else 1 for key in found}
    return [(pack, key[2]) for key, pack in found.items() for _ in range(copies[key])]


def _job(runs: Sequence[Run], placement: Placement) -> _Probe:
    return _Probe([run.settings for run in runs], [run.seed for run in runs], placement)


def _as_trained(cost: Cost, pack: Pack, placement: Placement) -> Cost:
    """What a probe measured, as it is in training: a save also writes files and a transaction, and on a GPU, where
    packs are probed alone, others are beside it."""
    seconds = on_device(cost.seconds, slowdown(placement.device, placement.workers))
    seconds["save"] += SAVING * (1 + len(pack.runs))
    return replace(cost, seconds=seconds)


def _averaged(rates: Sequence[Rate]) -> list[Rate]:
    """One rate of each pack, where several were timed at a time."""
    alike: dict[tuple[str | int, ...], list[Rate]] = {}
    for rate in rates:
        alike.setdefault(rate.key, []).append(rate)
    return [_mean(some) for some in alike.values()]


def _mean(rates: Sequence[Rate]) -> Rate:
    names = dict.fromkeys(name for rate in rates for name in rate.seconds)
    known = {name: [rate.seconds[name] for rate in rates if name in rate.seconds] for name in names}
    return replace(rates[-1], seconds={name: sum(spent) / len(spent) for name, spent in known.items()})


def probe_undecided(runs: Sequence[Run], machine: Machine, say: Callable[[str], None], stop: Stop) -> float:
    """Before a long study on a CPU: finds out where stacking and more threads pay; the seconds that this took."""
    start = time.perf_counter()
    packs = undecided(runs, machine, known_prices(machine.device))
    if packs and not stop():
        say(f"measuring {len(packs)} ways to train for a second each, to take those that pay")
        probe(packs, machine, stop)
    return time.perf_counter() - start


# ---- after a study ----


@dataclass(frozen=True)
class Timed:
    """What a pack cost in all, and what of it a command before had spent."""

    runs: Sequence[StoredRun]
    placement: Placement
    cost: Cost
    before: Cost


def keep_rates(packs: Sequence[Timed], machine: Machine, seconds: float | None) -> None:
    """Keeps what packs took; `seconds` are those of the whole command, where it came to its end."""
    rates, spent = [], []
    for pack in packs:
        runs = [_as_planned(run) for run in pack.runs]
        rates.append(rate_of(pack.cost, runs, pack.placement, _name(machine)))
        spent.append((sum(pack.cost.seconds.values()) - sum(pack.before.seconds.values()), pack.placement))
    if rates and seconds is not None:
        start = max(0.0, seconds - busy(spent, machine.n_side_by_side))
        rates[-1] = replace(rates[-1], seconds={**rates[-1].seconds, "start": start})
    add_rates(_averaged(rates))


def _as_planned(run: StoredRun) -> Run:
    return Run(run.id, run.seed, {}, run.settings, run.parameters, facts_of(run.settings.task))


def _name(machine: Machine) -> str:
    return machine_name(machine.device)
