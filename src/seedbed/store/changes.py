"""The statements that transactions consist of; each function takes the connection of an open transaction.

Every row is verified before it is changed, and gets its new digest with the change (digests.py).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from typing import Any, TypeAlias

from sqlalchemy import Connection, Table, Text, bindparam, cast, delete, exists, func, insert, select, update

from seedbed.records import Cost, Pack, Placement, Plan, Run
from seedbed.settings import Settings, UnreadableSettings
from seedbed.store.checkpoints import run_fingerprint
from seedbed.store.dialects import insert_missing, upsert
from seedbed.store.digests import (
    PROGRESS_COLUMNS,
    RUN_COLUMNS,
    DamagedRow,
    RowChain,
    RunRows,
    changed_lists,
    damage_of,
    decode_json,
    digest_names,
    digest_pack,
    select_members,
    select_packs,
    select_run_contents,
    stored_run_rows,
    verified,
    verified_run,
    verify_absent,
    with_digest,
    with_run_digests,
)
from seedbed.store.event_rows import ENDED_STATUSES, EvaluationRows, MetricNames, MetricValues
from seedbed.store.schema import (
    AnyRow,
    checkpoints,
    costs,
    evaluations,
    metric_names,
    notes,
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

RunContents: TypeAlias = dict[str, dict[str, Any]]  # what is in the column of this name, by run

PLANNED_RUN_COLUMNS = {
    "status": "planned", "settled": False, "step": 0, "pack": None, "cause": None, "best": None, "contents": {},
}  # fmt: skip


def batch_ids(ids: Iterable[str]) -> Iterator[list[str]]:
    """The ids in lists short enough for one IN clause."""
    remaining = iter(ids)
    while batch := list(islice(remaining, MAX_IN_LIST_VALUES)):
        yield batch


# ---- planning ----


def register_plan(connection: Connection, plan: Plan, now: str) -> None:
    """Insert or update a study; its axes are the settings that vary over all its runs, in order of first appearance."""
    known = select_study(connection, plan.study)
    axes = list(dict.fromkeys([*(known.axes if known else ()), *plan.axes]))
    if known:  # runs of an earlier plan may differ in what neither plan varied: a default that has changed since
        ids = set(select_progress(connection, [run.id for run in plan.runs]))  # they have stored settings
        planned = list({id(run.settings): run.settings for run in plan.runs if run.id not in ids}.values())
        axes = list(dict.fromkeys([*axes, *find_axes([*planned, *stored_configs(connection, plan.study)])]))
    _insert_runs(connection, plan)
    row = {"name": plan.study, "text": plan.text, "axes": axes, "created": known.created if known else now}
    write_study(connection, row, [run.id for run in plan.runs])


def select_study(connection: Connection, name: str) -> AnyRow | None:
    """The row of a study, verified."""
    rows = verified(studies, connection.execute(select(studies).where(studies.c.name == name)))
    if not rows:
        verify_absent(connection, studies, name)
    return rows[0] if rows else None


def write_study(connection: Connection, row: Mapping[str, Any], run_ids: Sequence[str]) -> None:
    """Insert or update a study, and append runs to it unless they are in it."""
    known = select_study(connection, row["name"])
    members = [] if known is None else select_members(connection, known)
    present = {*members}
    added = [run for run in dict.fromkeys(run_ids) if run not in present]
    digest = digest_names([*members, *added])
    with changed_lists(connection, *([studies] if known is None else [])):
        upsert(connection, studies, [with_digest(studies, {**row, "members": digest})])
    start = select(func.coalesce(func.max(study_runs.c.position) + 1, 0)).where(study_runs.c.study == row["name"])
    first = connection.execute(start).scalar_one()
    if links := [{"study": row["name"], "run": run, "position": first + i} for i, run in enumerate(added)]:
        connection.execute(insert(study_runs), links)


def remove_from_study(connection: Connection, study: str, run_ids: Collection[str]) -> None:
    """Take runs out of a study, and delete it if none is left."""
    row = select_study(connection, study)
    if row is None:
        return
    left = [run for run in select_members(connection, row) if run not in run_ids]
    for batch in batch_ids(run_ids):
        connection.execute(delete(study_runs).where(study_runs.c.study == study, study_runs.c.run.in_(batch)))
    if left:
        upsert(connection, studies, [with_digest(studies, {**row._mapping, "members": digest_names(left)})])
    else:
        with changed_lists(connection, studies, notes):
            connection.execute(delete(studies).where(studies.c.name == study))


def stored_configs(connection: Connection, study: str) -> list[Settings]:
    """Up to MAX_COMPARED_CONFIGS configs that a study has stored, without those that cannot be read."""
    stored = (
        select(cast(runs.c.settings, Text))  # PostgreSQL cannot compare JSON
        .join_from(study_runs, runs, study_runs.c.run == runs.c.id)
        .where(study_runs.c.study == study)
        .distinct()
        .limit(MAX_COMPARED_CONFIGS)
    )
    configs = []
    for settings in connection.execute(stored).scalars():
        with suppress(UnreadableSettings):
            configs.append(Settings.from_stored(decode_json(settings)))
    return configs


def _insert_runs(connection: Connection, plan: Plan) -> None:
    """Insert unknown runs as planned."""
    columns = {id(run.settings): _settings_columns(run) for run in plan.runs}  # once for all seeds of a config
    rows = [{"id": run.id, "seed": run.seed, **columns[id(run.settings)]} for run in plan.runs]
    for row, run in zip(rows, plan.runs, strict=True):
        row["fingerprint"] = run_fingerprint(run.seed, row.pop("identity"))
    insert_missing(connection, runs, [with_run_digests(row) for row in rows])


def _settings_columns(run: Run) -> dict[str, Any]:
    return {
        "settings": run.settings.to_stored(),
        "parameters": asdict(run.parameters),
        "dataset": None if run.dataset_info is None else asdict(run.dataset_info),
        "identity": run.settings.identity(),
    }


def select_run_rows(connection: Connection, run_ids: Iterable[str]) -> dict[str, AnyRow]:
    """Whole rows of `runs` by id, verified."""
    results = (connection.execute(select(runs).where(runs.c.id.in_(batch))) for batch in batch_ids(run_ids))
    found = {row.id: row for rows in results for row in rows}
    for row in found.values():
        verified_run(row)
    return found


def select_progress(connection: Connection, run_ids: Iterable[str]) -> dict[str, AnyRow]:
    """Rows of `runs` by id, without what never changes, verified."""
    results = (connection.execute(select(*PROGRESS_COLUMNS).where(runs.c.id.in_(one))) for one in batch_ids(run_ids))
    return {row.id: row for rows in results for row in verified(runs, rows)}


def select_contents(connection: Connection, table: Table, rows: Mapping[str, AnyRow]) -> dict[str, RunRows]:
    """What runs have in a table, verified, by id; `rows` are those of `runs`."""
    found: dict[str, RunRows] = {}
    for batch in batch_ids(rows):
        found |= select_run_contents(connection, table, {run: rows[run] for run in batch})
    return found


def change_runs(
    connection: Connection, rows: Iterable[AnyRow], change: Callable[[AnyRow], Mapping[str, Any]] | Mapping[str, Any]
) -> None:
    """Change columns of verified rows of `runs`."""
    new = {f"new_{name}": runs.c[name] for name in _CHANGING}
    values = []
    for row in rows:
        changed = with_digest(runs, {**row._mapping, **(change if isinstance(change, Mapping) else change(row))})
        values.append({"the_run": row.id} | {key: changed[column.name] for key, column in new.items()})
    if values:
        binds: dict[str, Any] = {column.name: bindparam(key) for key, column in new.items()}
        connection.execute(update(runs).where(runs.c.id == bindparam("the_run")).values(binds), values)


_CHANGING = ("status", "settled", "step", "pack", "cause", "best", "fingerprint", "contents", "row_digest")


# ---- packs ----


def select_pack(connection: Connection, pack_id: str) -> tuple[AnyRow, AnyRow | None] | None:
    """A pack and its cost, verified; None if there is no such pack."""
    found = select_packs(connection, packs.c.id == pack_id)
    return found[0] if found else None


def pack_progress(connection: Connection, pack: AnyRow) -> dict[int, AnyRow]:
    """Rows of the runs that still belong to a pack, by slot; while it is open, all of its members are there."""
    rows = select_progress(connection, pack.members)
    if pack.open and (missing := [run for run in pack.members if run not in rows]):
        raise DamagedRow(f"run {missing[0]} of pack {pack.id} is missing")
    return {slot: rows[run] for slot, run in enumerate(pack.members) if run in rows and rows[run].pack == pack.id}


def insert_pack(connection: Connection, pack: Pack, placement: Placement) -> None:
    """Insert a new pack and assign its runs to it."""
    row = {"id": pack.id, "members": [run.id for run in pack.runs], "placement": asdict(placement)}
    insert_pack_row(connection, row, {"predicted": pack.bytes})


def insert_pack_row(connection: Connection, row: Mapping[str, Any], cost: Mapping[str, Any] | None) -> None:
    """Insert a pack, or replace the one with its id, and assign its members that exist to it."""
    known = select_progress(connection, row["members"])
    write_pack(connection, row, cost)
    change_runs(connection, known.values(), {"pack": row["id"]})


def write_pack(connection: Connection, row: Mapping[str, Any], cost: Mapping[str, Any] | None) -> None:
    """Insert or replace a pack with its cost."""
    defaults: dict[str, Any] = {
        "open": True,
        "step": None,
        "digest": None,
        "previous": None,
        "seconds": {},
        "environment": [],
    }
    full = {**defaults, **row}
    spent = None if cost is None else {"predicted": None, "counts": {}, "steady": None, "peak": None, **cost}
    full["row_digest"] = digest_pack(full, spent)
    upsert(connection, packs, [full])
    if spent is not None:
        upsert(connection, costs, [{**spent, "pack": full["id"]}])


def change_pack(
    connection: Connection, found: tuple[AnyRow, AnyRow | None], values: Mapping[str, Any], cost: Mapping[str, Any] = {}
) -> None:
    """Change columns of a verified pack and of its cost."""
    pack, spent = found
    new_cost = {**spent._mapping, **cost} if spent is not None else (cost or None)
    write_pack(connection, {**pack._mapping, **values}, new_cost)


# ---- recording ----


def add_run_rows(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], owners: Mapping[str, AnyRow],
    contents: RunContents,
) -> None:  # fmt: skip
    """Insert rows of runs, or replace those with the same key, and update the digests in `contents`, by run."""
    by_run: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_run.setdefault(row["run"], []).append(row)
    keys = [column.name for column in table.primary_key][1:]
    late = {}  # runs that have rows of these steps or later ones
    for run, own in by_run.items():
        own.sort(key=lambda row: [row[key] for key in keys])
        if own[0]["step"] <= RowChain(*contents[run].get(table.name, ())).last_step:
            late[run] = owners[run]
    if late:
        select_run_contents(connection, table, late)
    upsert(connection, table, rows)
    names = RUN_COLUMNS[table]
    for run, own in by_run.items():
        if run in late:
            chain = stored_run_rows(connection, table, run).chain()
        else:
            columns = [[row[name] for row in own] for name in names[1:]]
            chain = RunRows(columns[0], columns[1], columns[2:]).chain(RowChain(*contents[run].get(table.name, ())))
        contents[run][table.name] = list(chain)


def record_rows(
    connection: Connection,
    owners: Mapping[str, AnyRow],
    evaluated: EvaluationRows,
    sampled: Sequence[Mapping[str, Any]],
) -> RunContents:
    """Insert metrics and samples of runs; returns the new `contents` of these runs."""
    contents = {run: dict(row.contents) for run, row in owners.items()}
    rows = _evaluation_rows(connection, evaluated, contents)
    add_run_rows(connection, evaluations, rows, owners, contents)
    add_run_rows(connection, samples, sampled, owners, contents)
    return contents


def _evaluation_rows(connection: Connection, rows: EvaluationRows, contents: RunContents) -> list[dict[str, Any]]:
    """The rows of `evaluations`; a stored value of the same run, step and metric is replaced."""
    late = {(run, step) for run, step in rows if step <= RowChain(*contents[run].get(evaluations.name, ())).last_step}
    if late:
        stored = (
            select(evaluations.c.run, evaluations.c.step, metric_names.c.names, evaluations.c.numbers)
            .join_from(evaluations, metric_names, evaluations.c.names == metric_names.c.id)
            .where(evaluations.c.run.in_({run for run, _ in late}), evaluations.c.step.in_({step for _, step in late}))
        )
        for run, step, stored_names, numbers in connection.execute(stored):
            if (run, step) in rows:
                rows[run, step] = MetricValues(tuple(json.loads(stored_names)), numbers).merged_with(rows[run, step])
    ids = intern_metric_names(connection, {numbers.names for numbers in rows.values()})
    return [
        {"run": run, "step": step, "names": ids[new.names], "numbers": new.data} for (run, step), new in rows.items()
    ]


def select_metric_names(connection: Connection) -> dict[int, MetricNames]:
    """The lists of metric names by id, verified."""
    rows = verified(metric_names, connection.execute(select(metric_names)))
    found = {row.id: tuple(json.loads(row.names)) for row in rows}
    if len(found) != len(rows):
        raise DamagedRow("the table of metric names")
    return found


def intern_metric_names(connection: Connection, wanted: Iterable[MetricNames]) -> dict[MetricNames, int]:
    """The ids of these lists of metric names; unknown ones are added."""
    texts = {json.dumps(each): each for each in sorted(wanted)}
    if not texts:
        return {}
    known = select(metric_names).where(metric_names.c.names.in_(texts))
    rows = verified(metric_names, connection.execute(known))
    if len(rows) < len(texts):
        new = [with_digest(metric_names, {"names": text}) for text in texts]
        insert_missing(connection, metric_names, new)
        rows = verified(metric_names, connection.execute(known))
    return {texts[row.names]: row.id for row in rows}


def change_cost(connection: Connection, pack_id: str, cost: Cost) -> None:
    """Replace the stored cost of a pack, but not what was predicted."""
    if (found := select_pack(connection, pack_id)) is not None:
        spent = {"counts": dict(cost.counts), "steady": cost.steady_bytes, "peak": cost.peak_bytes}
        change_pack(connection, found, {"seconds": dict(cost.seconds)}, spent)


# ---- saving and resuming ----


def settle_ended_runs(connection: Connection, rows: Iterable[AnyRow]) -> None:
    """Mark the ended ones of these runs as settled: a saved state includes their end, so no resume undoes it."""
    ended = [row for row in rows if row.status in ENDED_STATUSES and not row.settled]
    change_runs(connection, ended, {"settled": True})


def commit_checkpoint(
    connection: Connection, pack_id: str, step: int, state_digest: str, weights: Sequence[Mapping[str, Any]]
) -> list[tuple[int, str]]:
    """Record the files of a checkpoint; returns step and digest of the states that the pack keeps: it and the last.

    The end of its runs is settled, and the best step of each run with weights is updated.
    """
    found = select_pack(connection, pack_id)
    if found is None:
        raise DamagedRow(f"pack {pack_id} is missing")
    pack = found[0]
    previous = pack.previous if pack.step in (None, step) else [pack.step, pack.digest]
    change_pack(connection, found, {"step": step, "digest": state_digest, "previous": previous})
    owners = {row.id: row for row in pack_progress(connection, pack).values()}
    contents = {run: dict(row.contents) for run, row in owners.items()}
    add_run_rows(connection, checkpoints, weights, owners, contents)
    best = _best_steps(connection, {row["run"]: owners[row["run"]] for row in weights}, step)
    change_runs(
        connection,
        owners.values(),
        lambda row: {
            "settled": row.settled or row.status in ENDED_STATUSES,
            "contents": contents[row.id],
            "best": best.get(row.id, row.best),
        },
    )
    return [(step, state_digest)] if previous is None else [(step, state_digest), (previous[0], previous[1])]


def _best_steps(connection: Connection, saved: Mapping[str, AnyRow], step: int) -> dict[str, int]:
    """The best step of runs saved at this step: lowest finite validation loss, earliest on ties."""
    steps = {step} | {row.best for row in saved.values() if row.best is not None}
    statement = (
        select(evaluations.c.run, evaluations.c.step, metric_names.c.names, evaluations.c.numbers)
        .join_from(evaluations, metric_names, evaluations.c.names == metric_names.c.id)
        .where(evaluations.c.run.in_(saved), evaluations.c.step.in_(steps))
        .order_by(evaluations.c.step)
    )
    best: dict[str, tuple[float, int]] = {}
    for run, row_step, stored_names, numbers in connection.execute(statement):
        with damage_of(f"the evaluations of run {run}"):
            values = dict(zip(json.loads(stored_names), MetricValues((), numbers).to_array(), strict=True))
        loss = values.get(BEST_STEP_METRIC, math.nan)
        if row_step in (step, saved[run].best) and math.isfinite(loss):
            best[run] = min(best.get(run, (math.inf, row_step)), (float(loss), row_step))
    return {run: best_step for run, (_, best_step) in best.items()}


def rewind_pack(connection: Connection, pack_id: str, step: int | None) -> None:
    """Delete what the unsettled runs of a pack recorded after this step (None: everything); they are running again.

    The pack goes on from this step, which may be that of the state before the last one.
    """
    found = select_pack(connection, pack_id)
    if found is None:
        raise DamagedRow(f"pack {pack_id} is missing")
    pack = found[0]
    if step != pack.step and step is not None:
        environment = [entry for entry in pack.environment if entry["step"] <= step]
        values = {"step": step, "digest": pack.previous[1], "previous": None, "environment": environment}
        change_pack(connection, found, values)
    unsettled = {row.id: row for row in pack_progress(connection, pack).values() if not row.settled}
    last = -1 if step is None else step
    contents = {run: dict(row.contents) for run, row in unsettled.items()}
    for table in (evaluations, samples, checkpoints):
        late = {run: row for run, row in unsettled.items() if RowChain.of(row, table).last_step > last}
        for run, rows in select_run_contents(connection, table, late).items():
            contents[run][table.name] = list(rows.up_to(last).chain())
            connection.execute(delete(table).where(table.c.run == run, table.c.step > last))
    values = {"status": "running", "step": max(last, 0), "cause": None}
    change_runs(connection, unsettled.values(), lambda row: {**values, "contents": contents[row.id]})


def record_environment(connection: Connection, pack_id: str, environment: Mapping[str, str]) -> None:
    """Append the software environment from the saved step on, if it has changed."""
    found = select_pack(connection, pack_id)
    if found is None:
        raise DamagedRow(f"pack {pack_id} is missing")
    row = found[0]
    entry = {"step": row.step or 0, **environment}
    if not row.environment or {**row.environment[-1], "step": entry["step"]} != entry:
        change_pack(connection, found, {"environment": [*row.environment, entry]})


# ---- ending and removing ----


def reset_runs(connection: Connection, run_ids: Iterable[str]) -> None:
    """Reset runs to planned: no metrics, samples, checkpoints or pack."""
    for batch in batch_ids(run_ids):
        for table in (evaluations, samples, checkpoints):
            connection.execute(delete(table).where(table.c.run.in_(batch)))
        change_runs(connection, select_progress(connection, batch).values(), PLANNED_RUN_COLUMNS)


def close_ended_packs(connection: Connection) -> None:
    """Close the open packs whose runs have all ended: a process that was killed has left them open."""
    close_packs(connection, [pack.id for pack, _ in select_packs(connection, packs.c.open)])


def close_packs(connection: Connection, pack_ids: Iterable[str]) -> None:
    """Close packs with nothing left to train; deletes packs without runs, and runs that nothing refers to."""
    for pack_id in pack_ids:
        if (found := select_pack(connection, pack_id)) is None:
            continue
        owned = pack_progress(connection, found[0]).values()
        if not owned:
            connection.execute(delete(packs).where(packs.c.id == pack_id))
        elif all(row.settled for row in owned):
            change_pack(connection, found, {"open": False, "step": None, "digest": None, "previous": None})
    _delete_orphan_runs(connection)


def _delete_orphan_runs(connection: Connection) -> None:
    """Delete runs that no study has, unless an open pack still trains their slot."""
    has_study = exists().where(study_runs.c.run == runs.c.id)  # not a list of ids, which may not fit into work_mem
    orphans = connection.execute(select(runs.c.id).where(~has_study)).scalars().all()
    if not orphans:
        return
    for study in verified(studies, connection.execute(select(studies))):  # a damaged list must not make a run an orphan
        select_members(connection, study)
    needed = {run for pack, _ in select_packs(connection, packs.c.open) for run in pack.members}
    with changed_lists(connection, notes):
        for batch in batch_ids(run for run in orphans if run not in needed):
            connection.execute(delete(runs).where(runs.c.id.in_(batch)))


def delete_unused_vocabularies(connection: Connection) -> None:
    """Delete the vocabularies of datasets that no run was trained on."""
    used = select(runs.c.dataset["digest"].as_string()).where(runs.c.dataset["digest"].as_string().is_not(None))
    with changed_lists(connection, vocabularies):
        connection.execute(delete(vocabularies).where(vocabularies.c.dataset.not_in(used)))
