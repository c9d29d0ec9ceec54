"""What a study cost: time by what it went to, memory predicted and measured; for `show --timing` and the report.

Runs of a pack train as one program, so a run's share is its pack's cost over their number. Warm-up is not among the
updates: the first one of each session, with compiling and capturing, is counted as compile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from seedbed.measures.compare import Interval, interval
from seedbed.measures.summary import RunCurves
from seedbed.records import Cost, StoredPack, StoredRun
from seedbed.report.overview import point_in_words
from seedbed.report.tables import Table
from seedbed.store.store import Store

KINDS = ("prepare", "compile", "compute", "evaluate", "write", "save")
NOTES = (
    "Seconds by what they went to. compile: the first update of each session, with compiling and capturing where the "
    "engine does so; compute: all other updates; evaluate: records; write: samples; save: checkpoints; prepare: models "
    "and data made ready.",
    "Memory in MiB, without what the bare process has: predicted from the settings; steady: held between updates; "
    "peak: held at most.",
)
SHARES = "A run's share of its pack: its cost over its number of runs."


def cost_tables(store: Store, study: str, runs: Sequence[RunCurves]) -> list[Table]:
    """What each point cost, with intervals over its seeds, and what each pack did."""
    packs = _packs_of(store, study, runs)
    return [_points_table(runs, packs), _packs_table(packs)] if packs else []


def cost_as_json(store: Store, study: str, runs: Sequence[RunCurves]) -> dict[str, Any]:
    """`show --timing --json`."""
    packs = _packs_of(store, study, runs)
    by_run = _by_run(packs)
    return {
        "study": study,
        "packs": [_pack_as_json(pack) for pack in packs],
        "runs": [
            {"id": run.run.id, "point": run.point, "seed": run.run.seed, **_share_as_json(by_run.get(run.run.id))}
            for run in runs
        ],
    }


def run_cost_as_json(store: Store, run: StoredRun) -> dict[str, Any]:
    """`show RUN --timing --json`."""
    return {"id": run.id, "seed": run.seed, **_share_as_json(_pack_of(store, run))}


def _share_as_json(pack: StoredPack | None) -> dict[str, Any]:
    if pack is None:
        return {"pack": None}
    share = pack.cost.share(len(pack.runs))
    each, memory = share.each("compute"), _memory(pack)
    return {"pack": pack.id, "seconds": share.seconds, "seconds_per_update": each, "memory": memory}


def run_cost_table(store: Store, run: StoredRun) -> list[Table]:
    """One run's share of its pack's cost, as rows; nothing where it has not begun."""
    pack = _pack_of(store, run)
    if pack is None or not pack.cost.seconds:
        return []
    n, share = len(pack.runs), pack.cost.share(len(pack.runs))
    rows = [(f"{name}, s", _number(share.seconds[name])) for name in KINDS if name in share.seconds]
    rows += [("an update, ms", _milliseconds(share))]
    rows += [(f"memory {name}, MiB", _mebibytes(held)) for name, held in _memory(pack).items()]
    where = f"pack {pack.id} of {n} run{'s' * (n != 1)}: {_where(pack)}"
    return [Table("cost", ("what", "share of this run"), tuple(rows), (where, SHARES))]


def _pack_of(store: Store, run: StoredRun) -> StoredPack | None:
    return None if run.pack is None else store.pack(run.pack)


def _packs_of(store: Store, study: str, runs: Sequence[RunCurves]) -> list[StoredPack]:
    wanted = {run.run.pack for run in runs}
    return [pack for pack in store.packs_of(study) if pack.id in wanted and pack.cost.seconds]


def _by_run(packs: Sequence[StoredPack]) -> dict[str, StoredPack]:
    return {run: pack for pack in packs for run in pack.runs}


def _points_table(runs: Sequence[RunCurves], packs: Sequence[StoredPack]) -> Table:
    by_run = _by_run(packs)
    points: dict[str, list[StoredPack]] = {}
    for run in runs:
        if run.run.id in by_run and run.run.pack == by_run[run.run.id].id:
            points.setdefault(point_in_words(run.point) or "all", []).append(by_run[run.run.id])
    kinds = _kinds(packs)
    rows = tuple((name, *_point_cells(own, kinds)) for name, own in points.items())
    columns = ("point", "n", "ms an update", "95 % interval", *kinds, "predicted", "steady", "peak")
    return Table("Cost of a run", columns, rows, (SHARES, *NOTES))


def _point_cells(packs: Sequence[StoredPack], kinds: Sequence[str]) -> tuple[str, ...]:
    """Means over a point's runs."""
    shares = [pack.cost.share(len(pack.runs)) for pack in packs]
    update = interval([1000 * each for share in shares if (each := share.each("compute")) is not None])
    seconds = [interval([share.seconds.get(kind, 0.0) for share in shares]).mean for kind in kinds]
    memory = [_mean([_memory(pack)[name] for pack in packs]) for name in ("predicted", "steady", "peak")]
    return (str(len(packs)), _number(update.mean), _bounds(update), *map(_number, seconds), *map(_mebibytes, memory))


def _mean(held: Sequence[float | None]) -> float | None:
    known = [each for each in held if each is not None]
    return sum(known) / len(known) if known else None


def _packs_table(packs: Sequence[StoredPack]) -> Table:
    kinds = _kinds(packs)
    rows = []
    for pack in packs:
        seconds = [_number(pack.cost.seconds.get(kind, 0.0)) for kind in kinds]
        memory = [_mebibytes(held) for held in (pack.bytes, pack.cost.steady, pack.cost.peak)]
        rows.append((pack.id, str(len(pack.runs)), _where(pack), _milliseconds(pack.cost), *seconds, *memory))
    columns = ("pack", "runs", "where", "ms an update", *kinds, "predicted", "steady", "peak")
    return Table("Cost of packs", columns, tuple(rows))


def _kinds(packs: Sequence[StoredPack]) -> tuple[str, ...]:
    return tuple(kind for kind in KINDS if any(kind in pack.cost.seconds for pack in packs))


def _where(pack: StoredPack) -> str:
    """`cpu plain, 1 thread, 2 side by side`."""
    placement = pack.placement
    threads = f", {placement.threads} thread{'s' * (placement.threads != 1)}" if placement.device == "cpu" else ""
    beside = ", alone" if placement.alone else f", {placement.workers} side by side" if placement.workers > 1 else ""
    return f"{placement.device} {placement.engine}{threads}{beside}"


def _memory(pack: StoredPack) -> Mapping[str, float | None]:
    """A run's share of what its pack was to hold, and held."""
    share, predicted = pack.cost.share(len(pack.runs)), None if pack.bytes is None else pack.bytes / len(pack.runs)
    return {"predicted": predicted, "steady": share.steady, "peak": share.peak}


def _milliseconds(cost: Cost) -> str:
    each = cost.each("compute")
    return "–" if each is None else _number(1000 * each)


def _pack_as_json(pack: StoredPack) -> dict[str, Any]:
    return {
        "id": pack.id, "runs": pack.runs, "placement": asdict(pack.placement), "seconds": pack.cost.seconds,
        "counts": pack.cost.counts,
        "memory": {"predicted": pack.bytes, "steady": pack.cost.steady, "peak": pack.cost.peak},
    }  # fmt: skip


def _mebibytes(held: float | None) -> str:
    return "–" if held is None else _number(held / 2**20)


def _number(value: float) -> str:
    """Three digits: 0.0123, 1.23, 1,230."""
    if not isfinite(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _bounds(found: Interval) -> str:
    return f"{_number(found.low)} to {_number(found.high)}" if isfinite(found.low) else "–"
