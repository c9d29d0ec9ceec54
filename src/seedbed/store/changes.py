"""The statements that transactions consist of; each function takes the connection of an open transaction.

SQLite and PostgreSQL share the `ON CONFLICT` syntax; the import of `insert` below is the only dialect-specific line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Table, bindparam, delete, func, or_, select, update
from sqlalchemy.dialects.sqlite import insert

from seedbed.records import Cost, Pack, Placement, Plan, Run
from seedbed.settings import Settings, UnreadableSettings
from seedbed.store.checkpoints import run_fingerprint
from seedbed.store.event_rows import ENDED_STATUSES, EvaluationRows, MetricNames, MetricValues, SlotProgress
from seedbed.store.schema import (
    AnyRow,
    checkpoints,
    costs,
    evaluations,
    metric_names,
    packs,
    runs,
    samples,
    studies,
    study_runs,
    vocabularies,
)
from seedbed.study.expand import find_axes

MAX_IN_LIST_VALUES = 10_000  # SQLite accepts 32,766 bound values per statement
MAX_COMPARED_CONFIGS = 1_000
BEST_STEP_METRIC = "val/loss"

_PLANNED_RUN_COLUMNS = {"status": "planned", "settled": False, "step": 0, "pack": None, "cause": None, "best": None}


def batch_ids(ids: Iterable[str]) -> Iterator[list[str]]:
    """The ids in lists short enough for one IN clause."""
    remaining = iter(ids)
    while batch := list(islice(remaining, MAX_IN_LIST_VALUES)):
        yield batch


def upsert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, or update those with the same primary key."""
    if rows:
        statement = insert(table)
        values = {column.name: statement.excluded[column.name] for column in table.columns if not column.primary_key}
        connection.execute(statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=values), rows)


# ---- planning ----


def upsert_study(connection: Connection, plan: Plan, now: str) -> None:
    """Insert or update a study; its axes are the settings that vary over all its runs, in order of first appearance."""
    known = connection.execute(select(studies.c.axes, studies.c.created).where(studies.c.name == plan.study)).first()
    axes = list(dict.fromkeys([*(known.axes if known else ()), *plan.axes]))
    if known:  # runs of an earlier plan may differ in what neither plan varied: a default that has changed since
        ids = set(select_run_rows(connection, [run.id for run in plan.runs]))  # they have stored settings
        planned = list({id(run.settings): run.settings for run in plan.runs if run.id not in ids}.values())
        axes = list(dict.fromkeys([*axes, *find_axes([*planned, *stored_configs(connection, plan.study)])]))
    row = {"name": plan.study, "text": plan.text, "axes": axes, "created": known.created if known else now}
    upsert(connection, studies, [row])


def stored_configs(connection: Connection, study: str) -> list[Settings]:
    """Up to MAX_COMPARED_CONFIGS configs that a study has stored, without those that cannot be read."""
    stored = (
        select(runs.c.settings)
        .join_from(study_runs, runs, study_runs.c.run == runs.c.id)
        .where(study_runs.c.study == study)
        .distinct()
        .limit(MAX_COMPARED_CONFIGS)
    )
    configs = []
    for settings in connection.execute(stored).scalars():
        with suppress(UnreadableSettings):
            configs.append(Settings.from_stored(settings))
    return configs


def insert_runs(connection: Connection, plan: Plan) -> None:
    """Insert unknown runs as planned, and append all runs to the study unless they are in it."""
    columns = {id(run.settings): _settings_columns(run) for run in plan.runs}  # once for all seeds of a config
    rows = [{"id": run.id, "seed": run.seed, **columns[id(run.settings)]} for run in plan.runs]
    for row, run in zip(rows, plan.runs, strict=True):
        row["fingerprint"] = run_fingerprint(run.seed, row.pop("identity"))
    connection.execute(insert(runs).on_conflict_do_nothing(), rows)
    link_runs(connection, plan.study, [run.id for run in plan.runs])


def link_runs(connection: Connection, study: str, run_ids: Sequence[str]) -> None:
    """Append runs to a study, unless they are in it."""
    start = select(func.coalesce(func.max(study_runs.c.position) + 1, 0)).where(study_runs.c.study == study)
    first = connection.execute(start).scalar_one()
    links = [{"study": study, "run": run, "position": first + i} for i, run in enumerate(run_ids)]
    if links:
        connection.execute(insert(study_runs).on_conflict_do_nothing(), links)


def _settings_columns(run: Run) -> dict[str, Any]:
    return {
        "settings": run.settings.to_stored(),
        "parameters": asdict(run.parameters),
        "dataset": None if run.dataset_info is None else asdict(run.dataset_info),
        "identity": run.settings.identity(),
    }


def select_run_rows(connection: Connection, run_ids: Iterable[str]) -> dict[str, AnyRow]:
    """Rows of `runs` by id."""
    results = (connection.execute(select(runs).where(runs.c.id.in_(batch))) for batch in batch_ids(run_ids))
    return {row.id: row for rows in results for row in rows}


def insert_pack(connection: Connection, pack: Pack, placement: Placement) -> None:
    """Insert a new pack and assign its runs to it."""
    members = [run.id for run in pack.runs]
    connection.execute(insert(packs).values(id=pack.id, members=members, placement=asdict(placement)))
    connection.execute(insert(costs).values(pack=pack.id, predicted=pack.bytes))
    _assign_runs_to_pack(connection, members, pack.id)


def insert_split_pack(connection: Connection, part: Mapping[str, Any], cost: Mapping[str, Any]) -> None:
    """Insert a pack that takes over its members from another one."""
    connection.execute(insert(packs).values(part))
    connection.execute(insert(costs).values(pack=part["id"], **cost))
    _assign_runs_to_pack(connection, part["members"], part["id"])


def _assign_runs_to_pack(connection: Connection, run_ids: Iterable[str], pack_id: str) -> None:
    for batch in batch_ids(run_ids):
        connection.execute(update(runs).where(runs.c.id.in_(batch)).values(pack=pack_id))


# ---- recording ----


def progress_by_slot(connection: Connection, pack_id: str) -> dict[int, SlotProgress]:
    """Progress of the runs that still belong to this pack, by slot."""
    members = connection.execute(select(packs.c.members).where(packs.c.id == pack_id)).scalar_one()
    rows = connection.execute(select(runs).where(runs.c.pack == pack_id))
    by_run = {row.id: SlotProgress(row.id, row.status, row.step, row.cause) for row in rows}
    return {slot: by_run[run] for slot, run in enumerate(members) if run in by_run}


def update_progress(connection: Connection, slots: Iterable[SlotProgress]) -> None:
    """Write status, step and cause of these runs."""
    new: dict[str, Any] = {name: bindparam(f"new_{name}") for name in ("status", "step", "cause")}
    rows = [
        {"the_run": slot.run, "new_status": slot.status, "new_step": slot.step, "new_cause": slot.cause}
        for slot in slots
    ]
    if rows:
        connection.execute(update(runs).where(runs.c.id == bindparam("the_run")).values(new), rows)


def upsert_evaluations(connection: Connection, pack_id: str, rows: EvaluationRows) -> None:
    """Insert metrics; a stored value of the same run, step and metric is replaced."""
    if not rows:
        return
    stored = (
        select(evaluations.c.run, evaluations.c.step, metric_names.c.names, evaluations.c.numbers)
        .join_from(evaluations, runs, evaluations.c.run == runs.c.id)
        .join(metric_names, evaluations.c.names == metric_names.c.id)
        .where(runs.c.pack == pack_id, evaluations.c.step.in_({step for _, step in rows}))
    )
    for run, step, stored_names, numbers in connection.execute(stored):
        if (run, step) in rows:
            rows[run, step] = MetricValues(tuple(json.loads(stored_names)), numbers).merged_with(rows[run, step])
    ids = intern_metric_names(connection, {numbers.names for numbers in rows.values()})
    new = [
        {"run": run, "step": step, "names": ids[new.names], "numbers": new.data} for (run, step), new in rows.items()
    ]
    upsert(connection, evaluations, new)


def intern_metric_names(connection: Connection, wanted: Iterable[MetricNames]) -> dict[MetricNames, int]:
    """The ids of these lists of metric names; unknown ones are added."""
    texts = {json.dumps(each): each for each in sorted(wanted)}
    connection.execute(insert(metric_names).on_conflict_do_nothing(), [{"names": text} for text in texts])
    rows = connection.execute(select(metric_names).where(metric_names.c.names.in_(texts)))
    return {texts[row.names]: row.id for row in rows}


def upsert_cost(connection: Connection, pack_id: str, cost: Cost) -> None:
    """Replace the stored cost of a pack."""
    connection.execute(update(packs).where(packs.c.id == pack_id).values(seconds=dict(cost.seconds)))
    known = connection.execute(select(costs.c.predicted).where(costs.c.pack == pack_id)).scalar()
    row = {
        "pack": pack_id,
        "predicted": known,
        "counts": dict(cost.counts),
        "steady": cost.steady_bytes,
        "peak": cost.peak_bytes,
    }
    upsert(connection, costs, [row])


# ---- saving and resuming ----


def settle_ended_runs(connection: Connection, pack_id: str) -> None:
    """Mark the ended runs of a pack as settled: a saved state includes their end, so no resume undoes it."""
    connection.execute(
        update(runs).where(runs.c.pack == pack_id, runs.c.status.in_(ENDED_STATUSES)).values(settled=True)
    )


def update_best_steps(connection: Connection, pack_id: str, step: int, saved: Collection[str]) -> None:
    """Update the best step of each run saved at this step: lowest finite validation loss, earliest on ties."""
    statement = (
        select(evaluations.c.run, evaluations.c.step, metric_names.c.names, evaluations.c.numbers)
        .join_from(evaluations, runs, evaluations.c.run == runs.c.id)
        .join(metric_names, evaluations.c.names == metric_names.c.id)
        .where(runs.c.pack == pack_id, or_(evaluations.c.step == step, evaluations.c.step == runs.c.best))
        .order_by(evaluations.c.step)
    )
    best: dict[str, tuple[float, int]] = {}
    for run, row_step, stored_names, numbers in connection.execute(statement):
        loss = dict(zip(json.loads(stored_names), MetricValues((), numbers).to_array(), strict=True)).get(
            BEST_STEP_METRIC, math.nan
        )
        if run in saved and math.isfinite(loss):
            best[run] = min(best.get(run, (math.inf, row_step)), (float(loss), row_step))
    for run, (_, best_step) in best.items():
        connection.execute(update(runs).where(runs.c.id == run).values(best=best_step))


def rewind_pack(connection: Connection, pack_id: str, step: int | None) -> None:
    """Delete what the unsettled runs of a pack recorded after this step (None: everything); they are running again."""
    unsettled = (runs.c.pack == pack_id) & ~runs.c.settled
    last = -1 if step is None else step
    for table in (evaluations, samples, checkpoints):
        connection.execute(
            delete(table).where(table.c.run.in_(select(runs.c.id).where(unsettled)), table.c.step > last)
        )
    connection.execute(update(runs).where(unsettled).values(status="running", step=max(last, 0), cause=None))


def record_environment(connection: Connection, pack_id: str, environment: Mapping[str, str]) -> None:
    """Append the software environment from the saved step on, if it has changed."""
    row = connection.execute(select(packs.c.environment, packs.c.step).where(packs.c.id == pack_id)).one()
    entry = {"step": row.step or 0, **environment}
    if not row.environment or {**row.environment[-1], "step": entry["step"]} != entry:
        entries = [*row.environment, entry]
        connection.execute(update(packs).where(packs.c.id == pack_id).values(environment=entries))


# ---- ending and removing ----


def reset_runs(connection: Connection, run_ids: Iterable[str]) -> None:
    """Reset runs to planned: no metrics, samples, checkpoints or pack."""
    for batch in batch_ids(run_ids):
        for table in (evaluations, samples, checkpoints):
            connection.execute(delete(table).where(table.c.run.in_(batch)))
        connection.execute(update(runs).where(runs.c.id.in_(batch)).values(_PLANNED_RUN_COLUMNS))


def close_packs(connection: Connection, pack_ids: Iterable[str]) -> None:
    """Close packs with nothing left to train; deletes packs without runs, and runs that nothing refers to."""
    for pack_id in pack_ids:
        owned = connection.execute(select(runs.c.settled).where(runs.c.pack == pack_id)).scalars().all()
        if not owned:
            connection.execute(delete(packs).where(packs.c.id == pack_id))
        elif all(owned):
            connection.execute(update(packs).where(packs.c.id == pack_id).values(open=False, step=None, digest=None))
    _delete_orphan_runs(connection)


def _delete_orphan_runs(connection: Connection) -> None:
    """Delete runs that no study has, unless an open pack still trains their slot."""
    members = connection.execute(select(packs.c.members).where(packs.c.open)).scalars()
    needed = {run for pack in members for run in pack}
    orphans = connection.execute(select(runs.c.id).where(runs.c.id.not_in(select(study_runs.c.run)))).scalars().all()
    for batch in batch_ids(run for run in orphans if run not in needed):
        connection.execute(delete(runs).where(runs.c.id.in_(batch)))


def delete_unused_vocabularies(connection: Connection) -> None:
    """Delete the vocabularies of datasets that no run was trained on."""
    used = select(runs.c.dataset["digest"].as_string()).where(runs.c.dataset["digest"].as_string().is_not(None))
    connection.execute(delete(vocabularies).where(vocabularies.c.dataset.not_in(used)))
