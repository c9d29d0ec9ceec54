"""The statements that dump a part of a database, and merge a dump into one; each takes an open connection.

A run that both have is kept as it was trained furthest: an ended run before an unended one, then the larger step, then
the one that has a saved state to go on from. An ended run is never changed, and no saved state is lost to a run without
one; where both are equally far, what is here stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from sqlalchemy import Connection, Table, insert, select

from seedbed.errors import MissingData
from seedbed.records import Annotation
from seedbed.store import changes
from seedbed.store.annotation_rows import read_annotation, write_annotation
from seedbed.store.dialects import insert_missing
from seedbed.store.digests import (
    COST_COLUMNS,
    DamagedRow,
    RunRows,
    changed_lists,
    select_members,
    select_packs,
    verified,
    verify_list,
    with_run_digests,
)
from seedbed.store.dump import (
    EvaluationRow,
    MergeOutcome,
    RunRow,
    StoreDump,
    StudyRow,
    VocabularyRow,
    WeightsChoice,
    relative_setting,
    relative_study_text,
    without_paths,
)
from seedbed.store.event_rows import ENDED_STATUSES
from seedbed.store.schema import (
    AnyRow,
    checkpoints,
    evaluations,
    notes,
    packs,
    runs,
    samples,
    studies,
    vocabularies,
)
from seedbed.store.vocabulary_rows import vocabulary_from_row, vocabulary_to_row
from seedbed.study.expand import find_axes

# ---- dumping ----


def select_dump(
    connection: Connection,
    selection: Mapping[str, Collection[str]],
    weights: WeightsChoice,
    unfinished: bool,
    address: str,
) -> dict[str, Any]:
    """The selected runs of each study, as the fields of a StoreDump; analyses are files, which the caller adds.

    `unfinished`: packs with a saved state travel with it and all their members. Otherwise unended runs lose their pack.
    """
    for table in (vocabularies, notes):  # rows that vanished are not left out of an archive unseen
        verify_list(connection, table)
    run_rows = changes.select_run_rows(connection, {run for ids in selection.values() for run in ids})
    if missing := sorted({run for ids in selection.values() for run in ids} - run_rows.keys()):
        raise DamagedRow(f"run {missing[0]} is missing")
    unsettled = {row.pack for row in run_rows.values() if row.pack and not row.settled} if unfinished else set()
    carried = {row.id: row for row, _ in _select_packs(connection, unsettled) if row.open and row.step is not None}
    run_rows |= changes.select_run_rows(connection, {run for row in carried.values() for run in row.members})
    ids = sorted(run_rows)
    dumped = [_dump_run(run_rows[run], carried) for run in ids]
    saved = changes.select_contents(connection, checkpoints, run_rows)
    sampled = changes.select_contents(connection, samples, run_rows)
    datasets = {run["dataset"]["digest"] for run in dumped if run["dataset"] is not None}
    files = _choose_checkpoints(saved, weights)
    return {
        "studies": [_dump_study(connection, name, selection[name]) for name in sorted(selection)],
        "runs": dumped,
        "packs": _dump_packs(connection, {run["pack"] for run in dumped if run["pack"]}, carried),
        "evaluations": _select_evaluations(connection, run_rows),
        "samples": [row for run in sorted(sampled) for row in sampled[run].as_dicts(samples, run)],
        "vocabularies": [
            VocabularyRow.from_vocabulary(row.dataset, row.created, vocabulary_from_row(row, address))
            for row in sorted(_select(connection, vocabularies, "dataset", datasets), key=lambda row: str(row.dataset))
        ],
        "notes": [
            {"study": row.study, "run": row.run, "note": without_paths(row.note), "tags": row.tags}
            for column, names in (("study", sorted(selection)), ("run", ids))
            for row in sorted(_select(connection, notes, column, names), key=lambda row: str(row.study or row.run))
        ],
        "files": files,
    }


def _select(connection: Connection, table: Table, column: str, values: Iterable[str]) -> list[AnyRow]:
    """Rows by the value of a column, verified; none if the store was created before the table was added."""
    if not connection.dialect.has_table(connection, table.name):
        return []
    wanted, rows = {*values}, connection.execute(select(table)).all()
    verify_list(connection, table, rows)
    return verified(table, [row for row in rows if getattr(row, column) in wanted])


def _select_packs(
    connection: Connection, ids: Iterable[str], may_be_missing: bool = False
) -> list[tuple[AnyRow, AnyRow | None]]:
    wanted = sorted(ids)
    found = [pair for batch in changes.batch_ids(wanted) for pair in select_packs(connection, packs.c.id.in_(batch))]
    if not may_be_missing and (missing := sorted({*wanted} - {pack.id for pack, _ in found})):
        raise DamagedRow(f"pack {missing[0]} is missing")
    return found


def _dump_study(connection: Connection, name: str, chosen: Collection[str]) -> dict[str, Any]:
    row = changes.select_study(connection, name)
    if row is None:
        raise MissingData(f"there is no study {name!r}")
    members = [run for run in select_members(connection, row) if run in {*chosen}]
    columns = {column: row._mapping[column] for column in ("name", "axes", "created")}
    return columns | {"text": relative_study_text(row.text), "runs": members}


def _dump_run(row: AnyRow, carried: Collection[str]) -> dict[str, Any]:
    run: dict[str, Any] = _without_digests(row)
    run["settings"] = {name: relative_setting(value) for name, value in row.settings.items()}
    run["cause"] = None if row.cause is None else without_paths(row.cause)
    run["status"] = "stopped" if row.status == "running" else row.status
    if not row.settled and row.pack not in carried:  # without the state that a resume would go back to
        run |= {"settled": True} if row.status in ENDED_STATUSES else {"pack": None}
    return run


def _dump_packs(connection: Connection, pack_ids: Collection[str], carried: Collection[str]) -> list[dict[str, Any]]:
    dumped, found = [], _select_packs(connection, pack_ids)
    if missing := sorted({*pack_ids} - {row.id for row, _ in found}):
        raise DamagedRow(f"pack {missing[0]} is missing")
    for row, cost in found:
        pack = _without_digests(row)
        if row.id not in carried:
            pack |= {"open": False, "step": None, "digest": None}
        dumped.append(
            pack | ({"has_cost": False} if cost is None else {name: getattr(cost, name) for name in COST_COLUMNS})
        )
    return dumped


def _without_digests(row: AnyRow) -> dict[str, Any]:
    """A row with what is the same in every store."""
    own = ("row_digest", "config_digest", "contents", "previous")
    return {name: value for name, value in row._mapping.items() if name not in own}


def _choose_checkpoints(saved: Mapping[str, RunRows], weights: WeightsChoice) -> list[dict[str, Any]]:
    chosen = [
        row
        for run in sorted(saved)
        for row in {
            "none": [],
            "last": saved[run].as_dicts(checkpoints, run)[-1:],
            "all": saved[run].as_dicts(checkpoints, run),
        }[weights]
    ]
    return [
        {"kind": "weights", "owner": row["run"], "step": row["step"], "bytes": row["bytes"], "digest": row["digest"]}
        for row in chosen
    ]


def _select_evaluations(connection: Connection, rows: Mapping[str, AnyRow]) -> list[EvaluationRow]:
    name_sets = changes.select_metric_names(connection)
    found: dict[tuple[str, tuple[str, ...]], list[tuple[int, bytes]]] = {}
    for run, own in changes.select_contents(connection, evaluations, rows).items():
        for step, names, numbers in zip(own.steps, own.tags, own.blobs[0], strict=True):
            found.setdefault((run, name_sets[names]), []).append((step, numbers))
    return [
        EvaluationRow(
            run=run,
            names=list(names),
            steps=[step for step, _ in found[run, names]],
            numbers=b"".join(data for _, data in found[run, names]),
        )
        for run, names in sorted(found)
    ]


# ---- merging ----


@dataclass(frozen=True)
class MergePlan:
    """What to do with the runs of a dump, and which of its packs are taken over with their state."""

    outcome: MergeOutcome
    packs_with_state: frozenset[str]
    replaced_packs: tuple[str, ...]  # of the runs that are updated, here


def plan_merge(connection: Connection, dump: StoreDump, analyses_here: Collection[tuple[str, int]]) -> MergePlan:
    """Compare a dump with what is here; analyses that are here are named by run and step."""
    here = changes.select_run_rows(connection, [run.id for run in dump.runs])
    packs_here = [row for row, _ in _select_packs(connection, {row.pack for row in here.values() if row.pack})]
    states_here = {row.id for row in packs_here if row.open and row.step is not None}
    states_there = {pack.id for pack in dump.packs if pack.open}
    evaluations_here = _by_run(_select_evaluations(connection, here))
    evaluations_there = _by_run(dump.evaluations)
    groups: dict[str, list[str]] = {}
    for run in dump.runs:
        kind = "new"
        if run.id in here:
            own = RunRow.model_construct(**_without_digests(here[run.id]))
            kind = _compare(run, own, run.pack in states_there, own.pack in states_here)
            if kind == "same" and evaluations_here.get(run.id) != evaluations_there.get(run.id):
                kind = "different"
        groups.setdefault(kind, []).append(run.id)
    texts = {row.name: row.text for row in _select(connection, studies, "name", [one.name for one in dump.studies])}
    others = [one.name for one in dump.studies if relative_study_text(texts.get(one.name, one.text)) != one.text]
    by_kind: dict[str, Any] = {name: tuple(ids) for name, ids in groups.items()}
    outcome = MergeOutcome(**by_kind, other_texts=tuple(others))
    unsettled = {run.id for run in dump.runs if not run.settled}
    whole = {pack.id for pack in dump.packs if pack.open and (unsettled & {*pack.members}) <= outcome.taken}
    saved = changes.select_contents(connection, checkpoints, {run: here[run] for run in outcome.same})
    weights_here = {(run, step) for run, rows in saved.items() for step in rows.steps}
    present = {"weights": weights_here, "analysis": {*analyses_here}}
    files = [
        file for file in dump.files
        if (file.owner in whole if file.kind == "state" else file.owner in outcome.taken
            or (file.owner in outcome.same and (file.owner, file.step) not in present[file.kind]))
    ]  # fmt: skip
    replaced = {here[run].pack for run in outcome.updated if here[run].pack}
    return MergePlan(replace(outcome, files=tuple(files)), frozenset(whole), tuple(sorted(replaced)))


def _by_run(rows: Iterable[EvaluationRow]) -> dict[str, list[EvaluationRow]]:
    found: dict[str, list[EvaluationRow]] = {}
    for row in rows:
        found.setdefault(row.run, []).append(row)
    return found


def _compare(
    there: RunRow, here: RunRow, has_state_there: bool, has_state_here: bool
) -> Literal["updated", "same", "behind"]:
    if here.has_ended:
        return "same" if there.has_ended else "behind"
    if there.has_ended:
        return "updated"
    if (there.step, has_state_there) == (here.step, has_state_here):
        return "same"
    is_further = (there.step, has_state_there) > (here.step, has_state_here)
    return "updated" if is_further and (has_state_there or not has_state_here) else "behind"


def merge_dump(connection: Connection, dump: StoreDump, plan: MergePlan) -> None:
    """Insert what is new, and replace what is further there; files are left to the caller."""
    changes.reset_runs(connection, plan.outcome.updated)
    changes.close_packs(connection, plan.replaced_packs)
    _insert_packs(connection, dump, plan)
    _insert_runs(connection, dump, plan)
    for study in dump.studies:
        _merge_study(connection, study)
    with changed_lists(connection, vocabularies):
        for row in dump.vocabularies:
            insert_missing(connection, vocabularies, [vocabulary_to_row(row.dataset, row.as_vocabulary(), row.created)])
    for note in dump.notes:
        kind, name = note.target
        old = read_annotation(connection, kind, name)
        merged = Annotation(old.note or note.note, tuple(sorted({*old.tags, *note.tags})))
        if merged != old:
            write_annotation(connection, kind, name, merged)


def _insert_packs(connection: Connection, dump: StoreDump, plan: MergePlan) -> None:
    needed = {run.pack for run in dump.runs if run.id in plan.outcome.taken and run.pack}
    known = {row.id for row, _ in _select_packs(connection, needed, may_be_missing=True)}
    for pack in dump.packs:
        carries_state = pack.id in plan.packs_with_state
        if pack.id in needed and (carries_state or not (pack.open or pack.id in known)):
            row = pack.model_dump(exclude={*COST_COLUMNS, "has_cost"})
            changes.write_pack(
                connection, row, {name: getattr(pack, name) for name in COST_COLUMNS} if pack.has_cost else None
            )


def _insert_runs(connection: Connection, dump: StoreDump, plan: MergePlan) -> None:
    stateless = {pack.id for pack in dump.packs if pack.open} - plan.packs_with_state
    named = {run.pack for run in dump.runs if run.pack}
    known_packs = {row.id for row, _ in _select_packs(connection, named, may_be_missing=True)}
    taken = [run for run in dump.runs if run.id in plan.outcome.taken]
    here = changes.select_progress(connection, [run.id for run in taken])
    for run in taken:
        pack = run.pack if run.pack in known_packs - stateless else None
        row = run.model_dump() | {"pack": pack, "settled": run.settled or (run.has_ended and pack is None)}
        # The settings of a run that was here stay: they may name a text by its path.
        changing = {name: row[name] for name in ("pack", "settled", "status", "step", "cause", "best", "fingerprint")}
        if run.id in here:
            changes.change_runs(connection, [here[run.id]], changing)
        else:
            connection.execute(insert(runs).values(with_run_digests(row)))
    blocks = [block for block in dump.evaluations if block.run in plan.outcome.taken]
    ids = changes.intern_metric_names(connection, {tuple(block.names) for block in blocks}) if blocks else {}
    rows = [
        {"run": block.run, "step": step, "names": ids[tuple(block.names)], "numbers": numbers}
        for block in blocks
        for step, numbers in block.by_step()
    ]
    saved = [asdict(file.as_checkpoint()) for file in plan.outcome.files if file.kind == "weights"]
    sampled = [row.model_dump() for row in dump.samples if row.run in plan.outcome.taken]
    owners = changes.select_progress(connection, {row["run"] for row in (*rows, *sampled, *saved)})
    contents = {run: dict(row.contents) for run, row in owners.items()}
    for table, new in ((evaluations, rows), (samples, sampled), (checkpoints, saved)):
        changes.add_run_rows(connection, table, new, owners, contents)
    changes.change_runs(connection, owners.values(), lambda row: {"contents": contents[row.id]})


def _merge_study(connection: Connection, study: StudyRow) -> None:
    """Add the runs to the study; its axes are those of both, and the settings in which its runs differ now."""
    known = changes.select_study(connection, study.name)
    row = {name: getattr(known or study, name) for name in ("name", "text", "created")}
    axes = [*(known.axes if known else ()), *study.axes]
    changes.write_study(connection, row | {"axes": list(dict.fromkeys(axes))}, study.runs)
    if known is not None:
        axes += find_axes(changes.stored_configs(connection, study.name))
        changes.write_study(connection, row | {"axes": list(dict.fromkeys(axes))}, ())
