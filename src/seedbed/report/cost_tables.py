"""The cost of a study: time by category, memory predicted and measured; for `show --timing` and the report.

The runs of a pack train as one program, so a run's share is its pack's cost divided by its number of runs. Warm-up is
kept out of `compute`: the first update of each session, with compilation and graph capture, counts as `compile`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from seedbed.format import format_config, pluralise
from seedbed.records import Cost, StoredPack, StoredRun
from seedbed.report.tables import Table
from seedbed.stats.comparison import mean_confidence_interval
from seedbed.stats.summary import RunCurves
from seedbed.store import Store

TIME_CATEGORIES = ("prepare", "compile", "compute", "evaluate", "write", "save")
COST_NOTES = (
    "Seconds by category. compile: the first update of each session, with compilation and graph capture if the mode "
    "has them; compute: all other updates; evaluate: evaluations; write: samples; save: checkpoints; prepare: building "
    "models and data.",
    "Memory in MiB, beyond that of the bare process: predicted from the settings; steady: between updates; peak: the "
    "maximum.",
)
INTERVAL_NOTE = "The 95 % interval is Student's t over runs."
SHARE_NOTE = "A run's share of its pack: the cost of the pack divided by its number of runs."


def cost_tables(store: Store, study: str, runs: Sequence[RunCurves]) -> list[Table]:
    """The cost of each config, with intervals over its seeds, and of each pack."""
    packs = _packs_of(store, study, runs)
    return [_configs_table(runs, packs), _packs_table(packs)] if packs else []


def cost_as_json(store: Store, study: str, runs: Sequence[RunCurves]) -> dict[str, Any]:
    """`show --timing --json`."""
    packs = _packs_of(store, study, runs)
    by_run = _pack_by_run(packs)
    return {
        "study": study,
        "packs": [_pack_as_json(pack) for pack in packs],
        "runs": [
            {"id": run.run.id, "config": run.config, "seed": run.run.seed, **_share_as_json(by_run.get(run.run.id))}
            for run in runs
        ],
    }


def run_cost_as_json(store: Store, run: StoredRun) -> dict[str, Any]:
    """`show RUN --timing --json`."""
    return {"id": run.id, "seed": run.seed, **_share_as_json(_pack_of(store, run))}


def _share_as_json(pack: StoredPack | None) -> dict[str, Any]:
    if pack is None:
        return {"pack": None}
    share = pack.cost.per_run(len(pack.runs))
    seconds_per_update, memory = share.mean_seconds("compute"), _memory_share(pack)
    return {"pack": pack.id, "seconds": share.seconds, "seconds_per_update": seconds_per_update, "memory": memory}


def run_cost_table(store: Store, run: StoredRun) -> list[Table]:
    """One run's share of its pack's cost; empty if it has not started."""
    pack = _pack_of(store, run)
    if pack is None or not pack.cost.seconds:
        return []
    n, share = len(pack.runs), pack.cost.per_run(len(pack.runs))
    rows = [(f"{name}, s", _format_number(share.seconds[name])) for name in TIME_CATEGORIES if name in share.seconds]
    rows += [("per update, ms", _format_ms_per_update(share))]
    rows += [(f"memory {name}, MiB", _format_mebibytes(n_bytes)) for name, n_bytes in _memory_share(pack).items()]
    pack_note = f"pack {pack.id} of {pluralise(n, 'run')}: {_format_placement(pack)}"
    return [Table("cost", ("quantity", "share of this run"), tuple(rows), (pack_note, SHARE_NOTE))]


def _pack_of(store: Store, run: StoredRun) -> StoredPack | None:
    return None if run.pack is None else store.pack(run.pack)


def _packs_of(store: Store, study: str, runs: Sequence[RunCurves]) -> list[StoredPack]:
    wanted = {run.run.pack for run in runs}
    return [pack for pack in store.study_packs(study) if pack.id in wanted and pack.cost.seconds]


def _pack_by_run(packs: Sequence[StoredPack]) -> dict[str, StoredPack]:
    return {run: pack for pack in packs for run in pack.runs}


def _configs_table(runs: Sequence[RunCurves], packs: Sequence[StoredPack]) -> Table:
    by_run = _pack_by_run(packs)
    packs_by_config: dict[str, list[StoredPack]] = {}
    for run in runs:
        if run.run.id in by_run and run.run.pack == by_run[run.run.id].id:
            packs_by_config.setdefault(format_config(run.config) or "all", []).append(by_run[run.run.id])
    categories = _used_categories(packs)
    rows = tuple((name, *_config_cells(run_packs, categories)) for name, run_packs in packs_by_config.items())
    columns = ("config", "n", "ms per update", "95 % interval", *categories, "predicted", "steady", "peak")
    return Table("Cost of a run", columns, rows, (SHARE_NOTE, INTERVAL_NOTE, *COST_NOTES))


def _config_cells(packs: Sequence[StoredPack], categories: Sequence[str]) -> tuple[str, ...]:
    """Means over the runs of a config."""
    shares = [pack.cost.per_run(len(pack.runs)) for pack in packs]
    update = mean_confidence_interval(
        [1000 * seconds for share in shares if (seconds := share.mean_seconds("compute")) is not None]
    )
    mean_seconds = [
        mean_confidence_interval([share.seconds.get(category, 0.0) for share in shares]).mean for category in categories
    ]
    memory = [_mean_of_known([_memory_share(pack)[name] for pack in packs]) for name in ("predicted", "steady", "peak")]
    return (
        str(len(packs)),
        _format_number(update.mean),
        f"{_format_number(update.low)} to {_format_number(update.high)}" if isfinite(update.low) else "–",
        *map(_format_number, mean_seconds),
        *map(_format_mebibytes, memory),
    )


def _mean_of_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _packs_table(packs: Sequence[StoredPack]) -> Table:
    categories = _used_categories(packs)
    rows = []
    for pack in packs:
        seconds = [_format_number(pack.cost.seconds.get(category, 0.0)) for category in categories]
        memory = [
            _format_mebibytes(n_bytes)
            for n_bytes in (pack.predicted_bytes, pack.cost.steady_bytes, pack.cost.peak_bytes)
        ]
        rows.append(
            (pack.id, str(len(pack.runs)), _format_placement(pack), _format_ms_per_update(pack.cost), *seconds, *memory)
        )
    columns = ("pack", "runs", "placement", "ms per update", *categories, "predicted", "steady", "peak")
    return Table("Cost of packs", columns, tuple(rows))


def _used_categories(packs: Sequence[StoredPack]) -> tuple[str, ...]:
    return tuple(category for category in TIME_CATEGORIES if any(category in pack.cost.seconds for pack in packs))


def _format_placement(pack: StoredPack) -> str:
    """`cpu plain, 1 thread, 2 side by side`."""
    placement = pack.placement
    threads = f", {pluralise(placement.threads, 'thread')}" if placement.device == "cpu" else ""
    concurrency = (
        ", exclusive" if placement.exclusive else f", {placement.workers} side by side" if placement.workers > 1 else ""
    )
    return f"{placement.device} {placement.mode}{threads}{concurrency}"


def _memory_share(pack: StoredPack) -> Mapping[str, float | None]:
    """A run's share of its pack's memory in bytes, predicted and measured."""
    share, predicted = (
        pack.cost.per_run(len(pack.runs)),
        None if pack.predicted_bytes is None else pack.predicted_bytes / len(pack.runs),
    )
    return {"predicted": predicted, "steady": share.steady_bytes, "peak": share.peak_bytes}


def _format_ms_per_update(cost: Cost) -> str:
    seconds = cost.mean_seconds("compute")
    return "–" if seconds is None else _format_number(1000 * seconds)


def _pack_as_json(pack: StoredPack) -> dict[str, Any]:
    return {
        "id": pack.id, "runs": pack.runs, "placement": asdict(pack.placement), "seconds": pack.cost.seconds,
        "counts": pack.cost.counts,
        "memory": {"predicted": pack.predicted_bytes, "steady": pack.cost.steady_bytes, "peak": pack.cost.peak_bytes},
    }  # fmt: skip


def _format_mebibytes(n_bytes: float | None) -> str:
    return "–" if n_bytes is None else _format_number(n_bytes / 2**20)


def _format_number(value: float) -> str:
    """Three digits: 0.0123, 1.23, 1,230."""
    if not isfinite(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
