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

from seedbed.engines.machine import Machine
from seedbed.engines.price import Prices
from seedbed.records import Pack, Placement, Run
from seedbed.settings import LSTM, Labels, Text
from seedbed.study.pack import ShapeKey, pack_runs, shape_key

Placed: TypeAlias = tuple[Pack, Placement]
CLEARLY = 0.95  # the unusual way must take less than this share of the usual one's time
LONG = 100.0  # seconds of a shape that a probe of some 5 s, and another way, are worth
COMPILING, SAVED = 45.0, 0.15  # seconds that the compiler takes, and the share of an update that it saves (docs/log.md)
UNROLLED = 16  # positions of a recurrence that may be compiled


def stacking(runs: Sequence[Run], machine: Machine, prices: Prices) -> dict[ShapeKey, int]:
    """Shapes of which one run alone is known to be faster than a stacked one: one run a pack."""
    candidates = _stacks(runs, machine)
    return {
        key: 1
        for key, (stacked, lone) in candidates.items()
        if _seconds_left(stacked, runs, machine, prices) > LONG and _is_faster(lone, stacked, prices)
    }


def place(pack: Pack, n_packs: int, machine: Machine, prices: Prices) -> Placement:
    """Where a pack runs: compiled first where that pays; on one thread although others are idle, where that is known
    to be faster."""
    usual = machine.placement(pack, n_packs)
    if machine.device != "cpu":
        compiles = machine.engine is None and _pays_to_compile(pack, usual, prices)
        return replace(usual, engine="compiled") if compiles else usual
    single = replace(usual, threads=1)
    has_choice = usual.threads > 1 and not usual.alone and prices.of(pack, usual).seconds > LONG
    return single if has_choice and _is_faster((pack, single), (pack, usual), prices) else usual


def _pays_to_compile(pack: Pack, usual: Placement, prices: Prices) -> bool:
    """Whether a faster update earns back the compiler's time; a long recurrence it would write out position by
    position."""
    settings = pack.runs[0].settings
    if (
        isinstance(settings.model, LSTM)
        and isinstance(settings.task, Text | Labels)
        and settings.task.length > UNROLLED
    ):
        return False
    if settings.train.seconds is not None:
        return SAVED * settings.train.seconds > COMPILING
    seconds, _ = prices.each(pack.runs, replace(usual, workers=1))
    n_updates = max(run.settings.n_steps(run.facts) for run in pack.runs)
    return SAVED * n_updates * seconds["compute"] > COMPILING


def undecided(runs: Sequence[Run], machine: Machine, prices: Prices) -> list[Placed]:
    """Candidates that are worth a probe: of choices about what takes long here, and not timed yet."""
    pairs = [*_stacks(runs, machine).values(), *_threads(runs, machine)]
    return [
        (pack, placement)
        for usual, other in pairs
        if _seconds_left(usual, runs, machine, prices) > LONG
        for pack, placement in (usual, other)
        if prices.of(pack, placement).basis != "measured"
    ]


def _is_faster(one: Placed, other: Placed, prices: Prices) -> bool:
    """Whether a run is clearly faster in one way than in another, both of which were timed."""
    found = [prices.of(*way) for way in (one, other)]
    if any(price.basis != "measured" for price in found):
        return False
    each = [price.seconds / len(pack.runs) for price, (pack, _) in zip(found, (one, other), strict=True)]
    return each[0] < CLEARLY * each[1]


def _stacks(runs: Sequence[Run], machine: Machine) -> Mapping[ShapeKey, tuple[Placed, Placed]]:
    """Each shape's largest pack and its first run alone, all workers being busy; of shapes that would be stacked."""
    if machine.device != "cpu":
        return {}
    found: dict[ShapeKey, tuple[Placed, Placed]] = {}
    for pack in pack_runs(runs, machine.room()):
        key = shape_key(pack.runs[0].settings)
        if len(pack.runs) > 1 and (key not in found or len(pack.runs) > len(found[key][0][0].runs)):
            [lone] = pack_runs(pack.runs[:1], machine.room())
            placement = machine.placement(pack, machine.n_workers)
            found[key] = (pack, placement), (lone, placement)
    return found


def _threads(runs: Sequence[Run], machine: Machine) -> Iterator[tuple[Placed, Placed]]:
    """Packs that would have idle cores to themselves, with and without using them."""
    packs = pack_runs(runs, machine.room())
    for pack in packs:
        usual = machine.placement(pack, len(packs))
        if usual.threads > 1 and not usual.alone:
            yield (pack, usual), (pack, replace(usual, threads=1))


def _seconds_left(usual: Placed, runs: Sequence[Run], machine: Machine, prices: Prices) -> float:
    """What all runs of a pack's shape take on all workers."""
    pack, key = usual[0], shape_key(usual[0].runs[0].settings)
    n_packs = sum(shape_key(run.settings) == key for run in runs) / len(pack.runs)
    return n_packs * prices.of(*usual).seconds / min(machine.n_workers, max(1.0, n_packs))
