"""Chooses how packs run: stacked or not and on how many threads on a CPU, compiled or not on a GPU; no torch.

A GPU replays an update of many small kernels; the compiler fuses them, but takes most of a minute, so only long packs
are compiled. On a CPU the cores are busy already, so stacking pays off for some shapes only, and idle cores do not make
every pack faster. Each such choice has two candidates; the default applies until both were timed here. Short packs
always use the default, so that the same study gives the same bytes whatever was timed before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from seedbed.engines.cost_estimator import CostEstimator
from seedbed.engines.machine import Machine
from seedbed.records import Pack, Placement, Run
from seedbed.study.pack import ShapeKey, pack_runs, shape_key

PlacedPack: TypeAlias = tuple[Pack, Placement]
MAX_TIME_RATIO = 0.95  # the alternative must take less than this fraction of the default's time
MIN_SECONDS_WORTH_PROBING = 100.0  # total time of a shape that justifies probes of about 5 s
COMPILE_SECONDS, COMPILE_SAVED_FRACTION = 45.0, 0.15  # time of the compiler; fraction of an update saved (docs/log.md)


def max_runs_by_shape(runs: Sequence[Run], machine: Machine, estimator: CostEstimator) -> dict[ShapeKey, int]:
    """One run per pack for the shapes where that was measured to be faster per run than stacking."""
    candidates = _stacking_candidates(runs, machine)
    return {
        key: 1
        for key, (stacked, single) in candidates.items()
        if _shape_seconds(stacked, runs, machine, estimator) > MIN_SECONDS_WORTH_PROBING
        and _is_faster_per_run(single, stacked, estimator)
    }


def choose_placement(pack: Pack, n_packs: int, machine: Machine, estimator: CostEstimator) -> Placement:
    """The default placement, or compiled if that saves time, or one thread despite idle cores if measured faster."""
    default = machine.default_placement(pack, n_packs)
    if machine.device != "cpu":
        # compiled packs of different sizes differ in rounding, and what was timed decides which are compiled
        may_compile = machine.mode is None and not pack.runs[0].settings.train.reproducible
        compiles = may_compile and _should_compile(pack, default, estimator)
        return replace(default, mode="compiled") if compiles else default
    single_thread = replace(default, threads=1)
    has_choice = (
        default.threads > 1
        and not default.exclusive
        and estimator.estimate_pack(pack, default).seconds > MIN_SECONDS_WORTH_PROBING
    )
    is_faster = has_choice and _is_faster_per_run((pack, single_thread), (pack, default), estimator)
    return single_thread if is_faster else default


def _should_compile(pack: Pack, default: Placement, estimator: CostEstimator) -> bool:
    """Whether faster updates save more time than the compiler takes; never for a long recurrence.

    Decided by what both modes took for this shape on this machine, or else by what compiling usually saves.
    """
    settings = pack.runs[0].settings
    max_positions = settings.model.max_compiled_positions
    if max_positions is not None and settings.task.dataset_info().context_length > max_positions:
        return False
    if settings.train.seconds is not None:
        return COMPILE_SAVED_FRACTION * settings.train.seconds > COMPILE_SECONDS
    # As if alone on the GPU: the time that other packs take of it is not saved by compiling.
    alone = replace(default, workers=1)
    captured, captured_basis = estimator.section_seconds(pack.runs, alone)
    compiled, compiled_basis = estimator.section_seconds(pack.runs, replace(alone, mode="compiled"))
    saved = COMPILE_SAVED_FRACTION * captured["compute"]
    if {captured_basis, compiled_basis} <= {"measured", "similar"}:
        saved = captured["compute"] - compiled["compute"]
    n_updates = max(run.settings.n_steps(run.dataset_info) for run in pack.runs)
    return n_updates * saved > COMPILE_SECONDS


def untimed_candidates(runs: Sequence[Run], machine: Machine, estimator: CostEstimator) -> list[PlacedPack]:
    """Candidates worth a probe: not timed yet, of shapes that take long here."""
    pairs = [*_stacking_candidates(runs, machine).values(), *_threading_candidates(runs, machine)]
    return [
        (pack, placement)
        for default, alternative in pairs
        if _shape_seconds(default, runs, machine, estimator) > MIN_SECONDS_WORTH_PROBING
        for pack, placement in (default, alternative)
        if estimator.estimate_pack(pack, placement).basis != "measured"
    ]


def _is_faster_per_run(alternative: PlacedPack, default: PlacedPack, estimator: CostEstimator) -> bool:
    """Whether the alternative takes clearly less time per run than the default; False unless both were timed."""
    estimates = [estimator.estimate_pack(*candidate) for candidate in (alternative, default)]
    if any(estimate.basis != "measured" for estimate in estimates):
        return False
    packs = (alternative[0], default[0])
    per_run = [estimate.seconds / len(pack.runs) for estimate, pack in zip(estimates, packs, strict=True)]
    return per_run[0] < MAX_TIME_RATIO * per_run[1]


def _stacking_candidates(runs: Sequence[Run], machine: Machine) -> Mapping[ShapeKey, tuple[PlacedPack, PlacedPack]]:
    """For each shape with stacked packs: its largest pack and a single run of it, both with all workers busy."""
    if machine.device != "cpu":
        return {}
    candidates: dict[ShapeKey, tuple[PlacedPack, PlacedPack]] = {}
    for pack in pack_runs(runs, machine.capacity()):
        key = shape_key(pack.runs[0].settings)
        if len(pack.runs) > 1 and (key not in candidates or len(pack.runs) > len(candidates[key][0][0].runs)):
            [single] = pack_runs(pack.runs[:1], machine.capacity())
            placement = machine.default_placement(pack, machine.n_workers)
            candidates[key] = (pack, placement), (single, placement)
    return candidates


def _threading_candidates(runs: Sequence[Run], machine: Machine) -> Iterator[tuple[PlacedPack, PlacedPack]]:
    """Packs that could use idle cores, with several threads and with one."""
    packs = pack_runs(runs, machine.capacity())
    for pack in packs:
        default = machine.default_placement(pack, len(packs))
        if default.threads > 1 and not default.exclusive:
            yield (pack, default), (pack, replace(default, threads=1))


def _shape_seconds(default: PlacedPack, runs: Sequence[Run], machine: Machine, estimator: CostEstimator) -> float:
    """Seconds that all runs of a pack's shape take on all workers."""
    pack, key = default[0], shape_key(default[0].runs[0].settings)
    n_packs = sum(shape_key(run.settings) == key for run in runs) / len(pack.runs)
    return n_packs * estimator.estimate_pack(*default).seconds / min(machine.n_workers, max(1.0, n_packs))
