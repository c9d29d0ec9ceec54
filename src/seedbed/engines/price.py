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
from typing import Final, NamedTuple

from seedbed.engines.guess import START, expected, guess, on_device, slowdown, widest
from seedbed.engines.rates import Rate
from seedbed.models.count import effective_batch
from seedbed.models.work import record_work, update_work
from seedbed.records import Basis, Cost, Estimate, Pack, Placement, Price, Run
from seedbed.settings import Settings
from seedbed.study.pack import shape_key

# Dials that say when something is done, not how long it takes.
CALENDAR: Final = frozenset({
    "train.steps", "train.epochs", "train.tokens", "train.seconds", "train.eval_first", "train.eval_every",
    "train.save_every", "train.sample_every", "train.prompt", "train.closing_record", "train.stop_after",
    "train.stop_metric", "train.alone",
})  # fmt: skip
DROPOUTS: Final = tuple(
    f"model.{name}dropout" for name in ("", "embedding_", "attention_", "mlp_", "residual_", "classifier_")
)


def rate_of(cost: Cost, runs: Sequence[Run], placement: Placement, machine: str) -> Rate:
    """What is kept of a pack that was timed."""
    run = widest(runs)
    each = {name: cost.seconds[name] / n for name, n in cost.counts.items() if n and name in cost.seconds}
    return Rate(
        machine, placement.device, placement.engine, placement.threads, placement.workers, family(run.settings),
        shape_of(runs), len(runs), expected(update_work(run.settings, run.facts), placement),
        expected(record_work(run.settings, run.facts), placement), each, cost.steady, cost.peak,
    )  # fmt: skip


def family(settings: Settings) -> str:
    return f"{settings.task.kind}/{settings.model.kind}/{settings.train.precision}"


def shape_of(runs: Sequence[Run]) -> str:
    """A name of everything that decides how long a pack's updates and records take, but for how many runs it has."""
    settings = widest(runs).settings
    alike = [entry for entry in shape_key(settings) if not (isinstance(entry, tuple) and entry[0] in CALENDAR)]
    dials = settings.dials()
    drops = any(dials.get(name) for name in DROPOUTS)
    whole = [alike, effective_batch(settings, widest(runs).facts), drops]
    return blake2b(json.dumps(whole).encode(), digest_size=8).hexdigest()


class Prices:
    """Prices on one machine."""

    def __init__(self, rates: Iterable[Rate], machine: str) -> None:
        self._rates = [rate for rate in rates if rate.machine == machine]
        self._by_shape: dict[tuple[str | int, ...], list[Rate]] = {}
        for rate in self._rates:
            self._by_shape.setdefault((rate.shape, rate.device, rate.engine, rate.threads), []).append(rate)

    def of(self, pack: Pack, placement: Placement) -> Price:
        """What a whole pack is expected to cost."""
        seconds, basis = self.each(pack.runs, placement)
        run = max(pack.runs, key=lambda run: run.settings.n_steps(run.facts))
        counts = calendar(run)
        total = sum(seconds.get(name, 0.0) * n for name, n in counts.items())
        if run.settings.train.seconds is not None:
            total = seconds["prepare"] + seconds["compile"] + run.settings.train.seconds
        return Price(total, self._peak(pack, placement) or pack.bytes, basis)

    def each(self, runs: Sequence[Run], placement: Placement) -> tuple[Mapping[str, float], Basis]:
        """Seconds that everything a pack does takes a time, and what they are taken from."""
        shape = self._of_shape(runs, placement)
        same = [rate for rate in shape if rate.n_runs == len(runs)]
        exact = [rate for rate in same if rate.workers == placement.workers]
        rough = guess(runs, placement)
        if same:
            return rough | dict((exact or same)[-1].seconds), "measured" if exact else "similar"
        if shape:
            nearest = min(shape, key=lambda rate: abs(rate.n_runs - len(runs)))
            return rough | _for_more(nearest, len(runs)), "similar"
        kin = self._kin(runs, placement)
        return (rough | self._carried(kin, runs, placement), "model") if kin else (rough, "guess")

    def _of_shape(self, runs: Sequence[Run], placement: Placement) -> Sequence[Rate]:
        """Packs of this shape that were timed in the same way, of however many runs."""
        key = (shape_of(runs), placement.device, placement.engine, placement.threads)
        return [_beside(rate, placement.workers) for rate in self._by_shape.get(key, ())]

    def _kin(self, runs: Sequence[Run], placement: Placement) -> Sequence[Rate]:
        """Packs that were timed in the same way: of the same task and model, or of any where there are none."""
        way = [rate for rate in self._rates if (rate.device, rate.engine) == (placement.device, placement.engine)]
        kin = [rate for rate in way if rate.family == family(runs[0].settings)] or way
        return [_beside(rate, placement.workers) for rate in kin]

    def _peak(self, pack: Pack, placement: Placement) -> int | None:
        """Bytes that such a pack held at most when it was trained here."""
        peaks = [rate.peak for rate in self._of_shape(pack.runs, placement) if rate.n_runs == len(pack.runs)]
        return peaks[-1] if peaks else None

    def _carried(self, kin: Sequence[Rate], runs: Sequence[Run], placement: Placement) -> dict[str, float]:
        """Times of other shapes brought over: updates and records by their laws, the rest as it was."""
        run, n = widest(runs), len(runs)
        found = {
            name: median(rate.seconds[name] for rate in kin if name in rate.seconds)
            for name in ("prepare", "compile", "save")
            if any(name in rate.seconds for rate in kin)
        }
        updates = [(rate.n_runs * rate.update, rate.seconds["compute"]) for rate in kin if "compute" in rate.seconds]
        records = [(rate.n_runs * rate.record, rate.seconds["evaluate"]) for rate in kin if "evaluate" in rate.seconds]
        if updates:
            found["compute"] = law(updates)(n * expected(update_work(run.settings, run.facts), placement))
        if records:
            found["evaluate"] = law(records)(n * expected(record_work(run.settings, run.facts), placement))
        return found

    def start(self, device: str) -> float:
        """Seconds before the first update of a study, as last measured here."""
        known = [rate.seconds["start"] for rate in self._rates if rate.device == device and "start" in rate.seconds]
        return known[-1] if known else START[device]


class _Law(NamedTuple):
    step: float
    slope: float

    def __call__(self, x: float) -> float:
        return self.step + self.slope * x


def law(points: Sequence[tuple[float, float]]) -> _Law:
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
    through_zero = _Law(0.0, sums["x"] / sums["xx"])
    determinant = sums["11"] * sums["xx"] - sums["1x"] ** 2
    if len(points) == 1 or determinant <= 1e-9 * sums["11"] * sums["xx"]:
        return through_zero
    step = (sums["1"] * sums["xx"] - sums["x"] * sums["1x"]) / determinant
    slope = (sums["x"] * sums["11"] - sums["1"] * sums["1x"]) / determinant
    if slope < 0:
        return _Law(sums["1"] / sums["11"], 0.0)
    return _Law(step, slope) if step >= 0 else through_zero


def _beside(rate: Rate, workers: int) -> Rate:
    """What a pack would have taken beside so many others."""
    factor = slowdown(rate.device, workers) / slowdown(rate.device, rate.workers)
    return rate if factor == 1 else replace(rate, seconds=on_device(rate.seconds, factor))


def _for_more(rate: Rate, n_runs: int) -> dict[str, float]:
    """Times of the same shape with another number of runs: on a CPU the work grows with it, a GPU has room."""
    growing = {"compute", "evaluate", "write", "save"} if rate.device == "cpu" else {"save"}
    return {name: spent * (n_runs / rate.n_runs if name in growing else 1.0) for name, spent in rate.seconds.items()}


def calendar(run: Run) -> dict[str, int]:
    """How often a run of this length prepares, updates, records, writes and saves."""
    train, n = run.settings.train, run.settings.n_steps(run.facts)
    first = min(train.eval_first, n)
    n_records = 1 + first + max(0, n // train.eval_every - first // train.eval_every)
    n_records += n > first and n % train.eval_every > 0
    n_saves = n // train.save_every + (n % train.save_every > 0)
    n_texts = n // train.sample_every if train.sample_every else 0
    return {
        "prepare": 1, "compile": 1, "compute": max(0, n - 1), "evaluate": n_records, "write": n_texts, "save": n_saves
    }  # fmt: skip


def estimate(
    packs: Sequence[tuple[Pack, Placement]], prices: Prices, left: Mapping[str, float], n_side_by_side: int
) -> Estimate:
    """What a study takes; `left` are the shares of packs that are still to be done."""
    priced = {pack.id: prices.of(pack, placement) for pack, placement in packs}
    seconds = [(priced[pack.id].seconds * left.get(pack.id, 1.0), placement) for pack, placement in packs]
    start = prices.start(packs[0][1].device) if packs else 0.0
    return Estimate(start + busy(seconds, n_side_by_side), priced)


def busy(seconds: Iterable[tuple[float, Placement]], n_side_by_side: int) -> float:
    """How long packs of these seconds take in all: side by side in their order, those alone after all others."""
    shared: list[float] = []
    alone: list[float] = []
    for spent, placement in seconds:
        (alone if placement.alone else shared).append(spent)
    return makespan(shared, n_side_by_side) + sum(alone)


def makespan(seconds: Iterable[float], n_workers: int) -> float:
    """When the last of these jobs is done, each taken up in turn by the worker that is free first.

    >>> makespan([3.0, 1.0, 1.0, 2.0], 2)
    4.0
    """
    free = [0.0] * n_workers
    for spent in seconds:
        heapq.heappush(free, heapq.heappop(free) + spent)
    return max(free)
