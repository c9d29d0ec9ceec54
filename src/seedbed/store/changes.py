"""The changes a transaction is made of; each takes the connection of a transaction that the store has begun.

`on conflict` is spelled alike by SQLite and PostgreSQL; its import below is the one line that names a dialect.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Table, bindparam, delete, func, or_, select, update
from sqlalchemy.dialects.sqlite import insert

from seedbed.records import Cost, Pack, Placement, Plan, Run
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
)

MAX_IN_LIST_VALUES = 10_000  # values in one IN list; SQLite takes 32,766
BEST_STEP_METRIC = "val/loss"

_PLANNED_RUN_COLUMNS = {"status": "planned", "settled": False, "step": 0, "pack": None, "cause": None, "best": None}


def batch_ids(ids: Iterable[str]) -> Iterator[list[str]]:
    """The ids in lists short enough for one statement."""
    left = iter(ids)
    while batch := list(islice(left, MAX_IN_LIST_VALUES)):
        yield batch


def upsert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, or replace those with the same key."""
    if rows:
        statement = insert(table)
        values = {column.name: statement.excluded[column.name] for column in table.columns if not column.primary_key}
        connection.execute(statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=values), rows)


# ---- planning ----


def upsert_study(connection: Connection, plan: Plan, now: str) -> None:
    """The study with this text and the axes of all its plans so far, in the order in which they came."""
    known = connection.execute(select(studies.c.axes, studies.c.created).where(studies.c.name == plan.study)).first()
    axes = list(dict.fromkeys([*(known.axes if known else ()), *plan.axes]))
    row = {"name": plan.study, "text": plan.text, "axes": axes, "created": known.created if known else now}
    upsert(connection, studies, [row])


def insert_runs(connection: Connection, plan: Plan) -> None:
    """Runs not known yet as planned, and all of them at the end of the study unless they are in it."""
    connection.execute(insert(runs).on_conflict_do_nothing(), [_run_row(run) for run in plan.runs])
    start = select(func.coalesce(func.max(study_runs.c.position) + 1, 0)).where(study_runs.c.study == plan.study)
    first = connection.execute(start).scalar_one()
    links = [{"study": plan.study, "run": run.id, "position": first + i} for i, run in enumerate(plan.runs)]
    connection.execute(insert(study_runs).on_conflict_do_nothing(), links)


def _run_row(run: Run) -> dict[str, Any]:
    settings, parameters = run.settings.non_default(), asdict(run.parameters)
    return {"id": run.id, "seed": run.seed, "settings": settings, "parameters": parameters}


def select_run_rows(connection: Connection, run_ids: Iterable[str]) -> dict[str, AnyRow]:
    """Rows of `runs` by id."""
    found = (connection.execute(select(runs).where(runs.c.id.in_(batch))) for batch in batch_ids(run_ids))
    return {row.id: row for rows in found for row in rows}


def insert_pack(connection: Connection, pack: Pack, placement: Placement) -> None:
    """A new pack, and its runs in it."""
    members = [run.id for run in pack.runs]
    connection.execute(insert(packs).values(id=pack.id, members=members, placement=asdict(placement)))
    connection.execute(insert(costs).values(pack=pack.id, predicted=pack.bytes))
    _assign_runs_to_pack(connection, members, pack.id)


def insert_split_pack(connection: Connection, part: Mapping[str, Any], cost: Mapping[str, Any]) -> None:
    """A pack that takes its members over from another one."""
    connection.execute(insert(packs).values(part))
    connection.execute(insert(costs).values(pack=part["id"], **cost))
    _assign_runs_to_pack(connection, part["members"], part["id"])


def _assign_runs_to_pack(connection: Connection, run_ids: Iterable[str], pack_id: str) -> None:
    for batch in batch_ids(run_ids):
        connection.execute(update(runs).where(runs.c.id.in_(batch)).values(pack=pack_id))


# ---- recording ----


def progress_by_slot(connection: Connection, pack_id: str) -> dict[int, SlotProgress]:
    """Where the runs that still belong to this pack are."""
    members = connection.execute(select(packs.c.members).where(packs.c.id == pack_id)).scalar_one()
    rows = connection.execute(select(runs).where(runs.c.pack == pack_id))
    found = {row.id: SlotProgress(row.id, row.status, row.step, row.cause) for row in rows}
    return {slot: found[run] for slot, run in enumerate(members) if run in found}


def update_progress(connection: Connection, slots: Iterable[SlotProgress]) -> None:
    """The new status, step and cause of these runs."""
    new: dict[str, Any] = {name: bindparam(f"new_{name}") for name in ("status", "step", "cause")}
    rows = [
        {"the_run": slot.run, "new_status": slot.status, "new_step": slot.step, "new_cause": slot.cause}
        for slot in slots
    ]
    if rows:
        connection.execute(update(runs).where(runs.c.id == bindparam("the_run")).values(new), rows)


def upsert_evaluations(connection: Connection, pack_id: str, rows: EvaluationRows) -> None:
    """Add readings; one that is there already under the same run, step and name is replaced."""
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
    ids = _intern_metric_names(connection, {numbers.names for numbers in rows.values()})
    new = [
        {"run": run, "step": step, "names": ids[new.names], "numbers": new.data} for (run, step), new in rows.items()
    ]
    upsert(connection, evaluations, new)


def _intern_metric_names(connection: Connection, wanted: Iterable[MetricNames]) -> dict[MetricNames, int]:
    texts = {json.dumps(each): each for each in sorted(wanted)}
    connection.execute(insert(metric_names).on_conflict_do_nothing(), [{"names": text} for text in texts])
    rows = connection.execute(select(metric_names).where(metric_names.c.names.in_(texts)))
    return {texts[row.names]: row.id for row in rows}


def upsert_cost(connection: Connection, pack_id: str, cost: Cost) -> None:
    """What a pack has cost so far, in place of what was known."""
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


# ---- saving and going on ----


def settle_ended_runs(connection: Connection, pack_id: str) -> None:
    """The ends of this pack's runs are in a saved state: nothing undoes them any more."""
    connection.execute(
        update(runs).where(runs.c.pack == pack_id, runs.c.status.in_(ENDED_STATUSES)).values(settled=True)
    )


def update_best_steps(connection: Connection, pack_id: str, step: int, saved: Collection[str]) -> None:
    """Point each run saved at this step to its saved step with the lowest finite loss, the first if equal."""
    statement = (
        select(evaluations.c.run, evaluations.c.step, metric_names.c.names, evaluations.c.numbers)
        .join_from(evaluations, runs, evaluations.c.run == runs.c.id)
        .join(metric_names, evaluations.c.names == metric_names.c.id)
        .where(runs.c.pack == pack_id, or_(evaluations.c.step == step, evaluations.c.step == runs.c.best))
        .order_by(evaluations.c.step)
    )
    best: dict[str, tuple[float, int]] = {}
    for run, at, stored_names, numbers in connection.execute(statement):
        loss = dict(zip(json.loads(stored_names), MetricValues((), numbers).to_array(), strict=True)).get(
            BEST_STEP_METRIC, math.nan
        )
        if run in saved and math.isfinite(loss):
            best[run] = min(best.get(run, (math.inf, at)), (float(loss), at))
    for run, (_, at) in best.items():
        connection.execute(update(runs).where(runs.c.id == run).values(best=at))


def rewind_pack(connection: Connection, pack_id: str, step: int | None) -> None:
    """Undo what the unsettled runs of a pack did after this step (None: everything) and let them run."""
    unsettled = (runs.c.pack == pack_id) & ~runs.c.settled
    last = -1 if step is None else step
    for table in (evaluations, samples, checkpoints):
        connection.execute(
            delete(table).where(table.c.run.in_(select(runs.c.id).where(unsettled)), table.c.step > last)
        )
    connection.execute(update(runs).where(unsettled).values(status="running", step=max(last, 0), cause=None))


def record_environment(connection: Connection, pack_id: str, environment: Mapping[str, str]) -> None:
    """Remember under what a pack runs from its saved step on, if that has changed."""
    row = connection.execute(select(packs.c.environment, packs.c.step).where(packs.c.id == pack_id)).one()
    entry = {"step": row.step or 0, **environment}
    if not row.environment or {**row.environment[-1], "step": entry["step"]} != entry:
        entries = [*row.environment, entry]
        connection.execute(update(packs).where(packs.c.id == pack_id).values(environment=entries))


# ---- ending and removing ----


def reset_runs(connection: Connection, run_ids: Iterable[str]) -> None:
    """Runs as if never started: no readings, no samples, no checkpoints, in no pack."""
    for batch in batch_ids(run_ids):
        for table in (evaluations, samples, checkpoints):
            connection.execute(delete(table).where(table.c.run.in_(batch)))
        connection.execute(update(runs).where(runs.c.id.in_(batch)).values(_PLANNED_RUN_COLUMNS))


def close_packs(connection: Connection, pack_ids: Iterable[str]) -> None:
    """Close those packs that have nothing left to train; a pack without runs vanishes, and so do runs nobody needs."""
    for pack_id in pack_ids:
        owned = connection.execute(select(runs.c.settled).where(runs.c.pack == pack_id)).scalars().all()
        if not owned:
            connection.execute(delete(packs).where(packs.c.id == pack_id))
        elif all(owned):
            connection.execute(update(packs).where(packs.c.id == pack_id).values(open=False, step=None, digest=None))
    _delete_orphan_runs(connection)


def _delete_orphan_runs(connection: Connection) -> None:
    """Delete runs that no study holds, but not while an open pack trains their slot along with its neighbours."""
    members = connection.execute(select(packs.c.members).where(packs.c.open)).scalars()
    needed = {run for pack in members for run in pack}
    lone = connection.execute(select(runs.c.id).where(runs.c.id.not_in(select(study_runs.c.run)))).scalars().all()
    for batch in batch_ids(run for run in lone if run not in needed):
        connection.execute(delete(runs).where(runs.c.id.in_(batch)))
