"""How packs are made and placed: stacked and on how many threads on a CPU, compiled or not on a GPU; no torch.

A GPU replays an update of many small kernels; the compiler makes fewer of them, but works for most of a minute, so only
long packs are compiled. On a CPU the cores are busy already, so stacking pays for some shapes and not for others; and a
pack that may use idle cores is not always faster with them. Each such choice has two candidates, and the usual one
counts until both were timed here. What is short is always done the usual way, so that the same study gives the same
bytes whatever was timed before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from seedbed.engines.cost_estimator import CostEstimator
from seedbed.engines.machine import Machine
from seedbed.records import Pack, Placement, Run
from seedbed.settings import LabelsSettings, LSTMSettings, TextSettings
from seedbed.study.pack import ShapeKey, pack_runs, shape_key

PlacedPack: TypeAlias = tuple[Pack, Placement]
MAX_TIME_RATIO = 0.95  # the unusual way must take less than this share of the usual one's time
MIN_SECONDS_WORTH_PROBING = 100.0  # seconds of a shape that a probe of some 5 s, and another way, are worth
COMPILE_SECONDS, COMPILE_SAVED_FRACTION = (
    45.0,
    0.15,
)  # seconds that the compiler takes, and the share of an update that it saves (docs/log.md)
MAX_COMPILED_LSTM_POSITIONS = 16  # positions of a recurrence that may be compiled


def max_runs_by_shape(runs: Sequence[Run], machine: Machine, estimator: CostEstimator) -> dict[ShapeKey, int]:
    """Shapes of which one run alone is known to be faster than a stacked one: one run a pack."""
    candidates = _stacking_candidates(runs, machine)
    return {
        key: 1
        for key, (stacked, lone) in candidates.items()
        if _shape_seconds(stacked, runs, machine, estimator) > MIN_SECONDS_WORTH_PROBING
        and _is_faster_per_run(lone, stacked, estimator)
    }


def choose_placement(pack: Pack, n_packs: int, machine: Machine, estimator: CostEstimator) -> Placement:
    """Where a pack runs: compiled first where that pays; on one thread although others are idle, where that is known
    to be faster."""
    usual = machine.default_placement(pack, n_packs)
    if machine.device != "cpu":
        compiles = machine.mode is None and _should_compile(pack, usual, estimator)
        return replace(usual, mode="compiled") if compiles else usual
    single = replace(usual, threads=1)
    has_choice = (
        usual.threads > 1
        and not usual.exclusive
        and estimator.estimate_pack(pack, usual).seconds > MIN_SECONDS_WORTH_PROBING
    )
    return single if has_choice and _is_faster_per_run((pack, single), (pack, usual), estimator) else usual


def _should_compile(pack: Pack, default: Placement, estimator: CostEstimator) -> bool:
    """Whether a faster update earns back the compiler's time; a long recurrence it would write out position by
    position."""
    settings = pack.runs[0].settings
    if (
        isinstance(settings.model, LSTMSettings)
        and isinstance(settings.task, TextSettings | LabelsSettings)
        and settings.task.length > MAX_COMPILED_LSTM_POSITIONS
    ):
        return False
    if settings.train.seconds is not None:
        return COMPILE_SAVED_FRACTION * settings.train.seconds > COMPILE_SECONDS
    seconds, _ = estimator.section_seconds(pack.runs, replace(default, workers=1))
    n_updates = max(run.settings.n_steps(run.dataset_info) for run in pack.runs)
    return COMPILE_SAVED_FRACTION * n_updates * seconds["compute"] > COMPILE_SECONDS


def untimed_candidates(runs: Sequence[Run], machine: Machine, estimator: CostEstimator) -> list[PlacedPack]:
    """Candidates that are worth a probe: of choices about what takes long here, and not timed yet."""
    pairs = [*_stacking_candidates(runs, machine).values(), *_threading_candidates(runs, machine)]
    return [
        (pack, placement)
        for usual, other in pairs
        if _shape_seconds(usual, runs, machine, estimator) > MIN_SECONDS_WORTH_PROBING
        for pack, placement in (usual, other)
        if estimator.estimate_pack(pack, placement).basis != "measured"
    ]


def _is_faster_per_run(one: PlacedPack, other: PlacedPack, estimator: CostEstimator) -> bool:
    """Whether a run is clearly faster in one way than in another, both of which were timed."""
    found = [estimator.estimate_pack(*way) for way in (one, other)]
    if any(price.basis != "measured" for price in found):
        return False
    each = [price.seconds / len(pack.runs) for price, (pack, _) in zip(found, (one, other), strict=True)]
    return each[0] < MAX_TIME_RATIO * each[1]


def _stacking_candidates(runs: Sequence[Run], machine: Machine) -> Mapping[ShapeKey, tuple[PlacedPack, PlacedPack]]:
    """Each shape's largest pack and its first run alone, all workers being busy; of shapes that would be stacked."""
    if machine.device != "cpu":
        return {}
    found: dict[ShapeKey, tuple[PlacedPack, PlacedPack]] = {}
    for pack in pack_runs(runs, machine.capacity()):
        key = shape_key(pack.runs[0].settings)
        if len(pack.runs) > 1 and (key not in found or len(pack.runs) > len(found[key][0][0].runs)):
            [lone] = pack_runs(pack.runs[:1], machine.capacity())
            placement = machine.default_placement(pack, machine.n_workers)
            found[key] = (pack, placement), (lone, placement)
    return found


def _threading_candidates(runs: Sequence[Run], machine: Machine) -> Iterator[tuple[PlacedPack, PlacedPack]]:
    """Packs that would have idle cores to themselves, with and without using them."""
    packs = pack_runs(runs, machine.capacity())
    for pack in packs:
        usual = machine.default_placement(pack, len(packs))
        if usual.threads > 1 and not usual.exclusive:
            yield (pack, usual), (pack, replace(usual, threads=1))


def _shape_seconds(default: PlacedPack, runs: Sequence[Run], machine: Machine, estimator: CostEstimator) -> float:
    """What all runs of a pack's shape take on all workers."""
    pack, key = default[0], shape_key(default[0].runs[0].settings)
    n_packs = sum(shape_key(run.settings) == key for run in runs) / len(pack.runs)
    return n_packs * estimator.estimate_pack(*default).seconds / min(machine.n_workers, max(1.0, n_packs))
