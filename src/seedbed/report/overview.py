"""Plans, studies and runs as tables, and as the stable JSON of `plan`, `ls` and `show RUN`."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from seedbed.format import format_config, format_duration, format_seeds, format_value, join_words, pluralise
from seedbed.models.parameter_formulas import parameter_formulas, symbols_of, total_formula
from seedbed.records import (
    Annotation,
    Annotations,
    Curve,
    EstimateBasis,
    Pack,
    Plan,
    Run,
    StoredRun,
    StoredStudy,
    StudyEstimate,
)
from seedbed.report.study_runs import planned_steps, run_configs
from seedbed.report.tables import Table
from seedbed.stats.curve_statistics import find_extremum
from seedbed.stats.metric_registry import metric_direction
from seedbed.store import Store
from seedbed.study.conditions import FilterTerm, format_filter_value

MAX_NAMED_VALUES = 6  # of a setting, in a sentence
MAX_ANNOTATION_LINES = 40
NO_ANNOTATIONS = Annotations()
BASIS_DESCRIPTIONS: Mapping[EstimateBasis, str] = {
    "measured": "from identical packs timed on this machine",
    "similar": "from packs of the same shape timed on this machine",
    "model": "from packs of other shapes timed on this machine",
    "guess": "a guess: nothing similar has been timed on this machine; --probe times each pack",
}


def plan_as_json(
    plan: Plan, packs: Sequence[Pack], statuses: Mapping[str, str], estimate: StudyEstimate | None = None
) -> dict[str, Any]:
    """`plan --json`: the runs of this plan and the packs that hold them; the estimate covers all requested plans."""
    by_pack = {} if estimate is None else {name: asdict(one) for name, one in estimate.packs.items()}
    total = {} if estimate is None else {"seconds": estimate.seconds, "basis": estimate.basis}
    pack_of = {run.id: pack.id for pack in packs for run in pack.runs}
    wanted = {run.id for run in plan.runs}
    return {
        "study": plan.study,
        "runs": [
            {
                "id": run.id, "seed": run.seed, "config": run.config, "settings": run.settings.model_dump(),
                "pack": pack_of[run.id], "parameters": _parameter_counts(run), "vocabulary": _vocab_size(run),
                "steps": run.settings.n_steps(run.dataset_info), "status": statuses.get(run.id, "planned"),
            }
            for run in plan.runs
        ],
        "packs": [
            {"id": pack.id, "runs": [run.id for run in pack.runs], "bytes": pack.bytes} | by_pack.get(pack.id, {})
            for pack in packs
            if not wanted.isdisjoint(run.id for run in pack.runs)
        ],
        **total,
    }  # fmt: skip


def plan_tables(
    plans: Sequence[Plan],
    packs: Sequence[Pack],
    statuses: Mapping[str, str],
    device: str,
    estimate: StudyEstimate | None = None,
) -> list[Table]:
    """The configs of each plan with their sizes, and the packs that are left to train with their estimate."""
    configs = [_configs_table(plan, statuses) for plan in plans]
    if packs:
        return [*configs, _packs_table(packs, device, estimate)]
    n_runs = len({run.id for plan in plans for run in plan.runs})
    configs[-1] = replace(configs[-1], notes=(f"nothing to do: {_describe_ended(plans, statuses, n_runs)}",))
    return configs


def breakdown_tables(plans: Sequence[Plan]) -> list[Table]:
    """The parameters of each model of these plans by module, as numbers and as formulas, one table per model."""
    tables: dict[tuple[object, ...], Table] = {}
    for run in (run for plan in plans for run in plan.runs):
        parts = parameter_formulas(run.settings, run.dataset_info)
        rows = []
        for part in parts:
            biases = (f"{part.n_biases:,}", str(part.biases))
            rows.append((part.module, str(part.copies), f"{part.count:,}", str(part.formula), *biases))
        key = (run.settings.model.kind, *rows)
        if key not in tables:
            count = sum(part.copies * part.count for part in parts)
            n_biases = sum(part.copies * part.n_biases for part in parts)
            total = ("all", "", f"{count:,}", str(total_formula(parts)), f"{n_biases:,}", "")
            sizes = symbols_of(run.settings, run.dataset_info or run.settings.task.dataset_info())
            title = f"{run.settings.model.kind}: {', '.join(f'{symbol} = {size:,}' for symbol, size in sizes.items())}"
            columns = ("module", "copies", "parameters", "formula", "of these biases", "formula of biases")
            without = f"Without biases: {count - n_biases:,} = {total_formula(parts, with_biases=False)}."
            frozen = " The tables are frozen: they are not trained." * (run.settings.model.embeddings is not None)
            tables[key] = Table(title, columns, (*rows, total), (without + frozen,))
    return list(tables.values())


def _describe_ended(plans: Sequence[Plan], statuses: Mapping[str, str], n_runs: int) -> str:
    """`all 24 runs are finished`, or how many finished and diverged."""
    counts = Counter(statuses[run] for run in {run.id for plan in plans for run in plan.runs})
    if len(counts) > 1:
        return join_words([f"{n} of {n_runs} runs {status}" for status, n in counts.items()])
    all_runs = "its only run is" if n_runs == 1 else f"all {n_runs:,} runs are"
    return f"{all_runs} {next(iter(counts))}"


def _configs_table(plan: Plan, statuses: Mapping[str, str]) -> Table:
    configs: dict[str, list[Run]] = {}
    for run in plan.runs:
        configs.setdefault(format_config(run.config) or format_value(run.settings.model.kind), []).append(run)
    has_corpus = any(run.settings.task.has_corpus for run in plan.runs)
    rows = []
    for name, runs in configs.items():
        states = Counter(statuses.get(run.id, "planned") for run in runs)
        sizes = runs[0].parameters
        size = (f"{runs[0].settings.n_steps(runs[0].dataset_info):,}", f"{sizes.total:,}", f"{sizes.non_embedding:,}")
        n_tokens = _vocab_size(runs[0])
        vocabulary = ("–" if n_tokens is None else f"{n_tokens:,}",) if has_corpus else ()
        rows.append((name, str(len(runs)), *vocabulary, *size, ", ".join(f"{n} {s}" for s, n in states.items())))
    seeds = sorted({run.seed for run in plan.runs})
    columns = ("config", "seeds", *["vocabulary"][:has_corpus], "steps", "parameters", "non-embedding", "status")
    counts = f"{pluralise(len(configs), 'config')}, {pluralise(len(plan.runs), 'run')}"
    title = f"{plan.study}: {counts}, {'seed' if len(seeds) == 1 else 'seeds'} {format_seeds(seeds)}"
    return Table(title, columns, tuple(rows))


def _packs_table(packs: Sequence[Pack], device: str, estimate: StudyEstimate | None) -> Table:
    shown = packs[:20]
    notes = (f"and {len(packs) - 20} more",) if len(packs) > 20 else ()
    title = f"{len(packs)} {'pack' if len(packs) == 1 else 'packs'} on {device}"
    if estimate is None:
        plain = tuple((pack.id, str(len(pack.runs)), f"{pack.bytes / 2**20:,.0f} MiB") for pack in shown)
        return Table(title, ("pack", "runs", "predicted memory"), plain, notes)
    estimates = [(pack, estimate.packs[pack.id]) for pack in shown]
    rows = tuple(
        (pack.id, str(len(pack.runs)), f"{cost.bytes / 2**20:,.0f} MiB", format_duration(cost.seconds), cost.basis)
        for pack, cost in estimates
    )
    basis = BASIS_DESCRIPTIONS[estimate.basis]
    in_all = f"`seedbed run` would take about {format_duration(estimate.seconds)} ({basis})."
    return Table(title, ("pack", "runs", "memory", "time", "basis"), rows, (*notes, in_all))


def studies_table(studies: Sequence[StoredStudy], annotations: Annotations = NO_ANNOTATIONS) -> Table:
    """One row per study: its number of runs by status, what varies, and its tags and note where any has them."""
    rows = [
        (
            one.name,
            str(one.n_runs),
            ", ".join(f"{n} {status}" for status, n in one.statuses.items()),
            ", ".join(one.axes),
        )
        for one in studies
    ]
    written = [annotations.studies.get(one.name, Annotation()) for one in studies]
    return _with_annotations(Table("studies", ("study", "runs", "status", "varies"), tuple(rows)), written)


def _with_annotations(table: Table, annotations: Sequence[Annotation]) -> Table:
    """The table with columns of tags and notes, if any row has one."""
    columns = {"tags": [", ".join(one.tags) for one in annotations], "note": [one.note for one in annotations]}
    for name, cells in columns.items():
        if any(cells):
            rows = tuple((*row, cell) for row, cell in zip(table.rows, cells, strict=True))
            table = replace(table, columns=(*table.columns, name), rows=rows)
    return table


def describe_annotations(annotations: Annotations, study: str, run_ids: Iterable[str]) -> list[str]:
    """The tags and note of a study, and one line for each of its runs that has any."""
    lines = annotation_lines(annotations.studies.get(study))
    for run in run_ids:
        if written := annotation_lines(annotations.runs.get(run)):
            lines.append(f"run {run[:8]}: {'; '.join(written)}")
    return lines[:MAX_ANNOTATION_LINES]


def annotation_lines(annotation: Annotation | None) -> list[str]:
    """`tags: …` and `note: …`, where there are any."""
    if annotation is None:
        return []
    tags = [f"tags: {', '.join(annotation.tags)}"] if annotation.tags else []
    return [*tags, *([f"note: {annotation.note}"] if annotation.note else [])]


def describe_added_configs(plan: Plan, stored: Sequence[StoredRun]) -> str | None:
    """What a plan adds to a stored study that has other configs; None if it adds no config, or has all of them.

    `mine has 8 runs with train.steps=2501, and this adds 8 with train.steps=1201; …`
    """
    planned_ids, known = {run.id for run in plan.runs}, {run.settings for run in stored}
    others = [run for run in stored if run.id not in planned_ids]
    stored_ids = {run.id for run in stored}
    added = [run for run in plan.runs if run.settings not in known and run.id not in stored_ids]
    if not others or not added:
        return None
    before, new = (_distinguishing_filter(one, two) for one, two in ((others, added), (added, others)))
    has = f"{plan.study} has {pluralise(len(others), 'other run')}" + (f" with {before}" if before else "")
    adds = f"this adds {len(added):,}" + (f" with {new}" if new else "")
    select = f"; to select these: --only {shlex.quote(new)}" if new else ""
    return f"{has}, and {adds}; show, compare and plot use all of them{select}"


def _distinguishing_filter(runs: Sequence[Run | StoredRun], others: Sequence[Run | StoredRun]) -> str:
    """A filter on one setting that selects these runs and none of the others; empty if no setting does."""
    own, other = ([run.settings.flat() for run in some] for some in (runs, others))
    for name in sorted(own[0], key=lambda name: (name != "task.kind", name != "model.kind")):
        values = dict.fromkeys(flat.get(name) for flat in own)
        if len(values) <= MAX_NAMED_VALUES and not any(flat.get(name) in values for flat in other):
            return str(FilterTerm(name, "=", tuple(values)))
    return ""


def _format_progress(run: StoredRun) -> str:
    """The step a run has reached, and of how many: `300 of 1,000`."""
    planned = planned_steps(run)
    return f"{run.step:,}" + ("" if planned is None else f" of {planned:,}")


def runs_table(store: Store, study: str, runs: Sequence[StoredRun]) -> Table:
    """One row per run: its status, progress and last metrics."""
    curves = store.curves([run.id for run in runs])
    rows, annotations = [], store.annotations().runs
    for run, config in zip(runs, run_configs(store, study, runs), strict=True):
        last = last_metrics(curves.get(run.id, {}))
        values = ", ".join(f"{name} {last[name]:.4g}" for name in ("val/loss", "val/accuracy") if name in last)
        rows.append(
            (run.id, format_config(config), str(run.seed), run.status, _format_progress(run), run.cause or values)
        )
    table = Table(study, ("run", "config", "seed", "status", "step", "last"), tuple(rows))
    return _with_annotations(table, [annotations.get(run.id, Annotation()) for run in runs])


def runs_as_json(store: Store, studies: Mapping[str, Sequence[StoredRun]]) -> dict[str, Any]:
    """`ls --json`."""
    entries, annotations = [], store.annotations().runs
    for study, runs in studies.items():
        curves = store.curves([run.id for run in runs])
        for run, config in zip(runs, run_configs(store, study, runs), strict=True):
            entry = {
                "id": run.id, "study": study, "seed": run.seed, "config": config, "status": run.status,
                "step": run.step, "last": last_metrics(curves.get(run.id, {})),
            }  # fmt: skip
            written = annotations.get(run.id)
            entry |= {} if written is None else {"tags": written.tags, "note": written.note}
            entries.append(entry | ({"cause": run.cause} if run.cause else {}))
    return {"runs": entries}


def run_as_json(store: Store, run: StoredRun) -> dict[str, Any]:
    """`show RUN --json`: everything stored about one run, including its curves."""
    return {
        "id": run.id, "seed": run.seed, "settings": run.settings.model_dump(),
        "parameters": _parameter_counts(run), "status": run.status, "step": run.step, "cause": run.cause,
        "best": run.best_step, **asdict(store.annotations().runs.get(run.id, Annotation())),
        "checkpoints": [
            {"step": one.step, "bytes": one.bytes, "digest": one.digest} for one in store.checkpoints(run.id)
        ],
        "curves": {
            name: {"steps": curve.steps, "values": curve.values}
            for name, curve in store.curves([run.id]).get(run.id, {}).items()
        },
    }  # fmt: skip


def run_tables(store: Store, run: StoredRun) -> list[Table]:
    """One run: its metrics and checkpoints, and its settings."""
    curves = store.curves([run.id]).get(run.id, {})
    settings = tuple((name, format_filter_value(value)) for name, value in run.settings.flat().items())
    rows = []
    for name, curve in curves.items():
        direction = metric_direction(name)
        best = find_extremum(curve, direction) if direction else None
        best_cells = ("", "") if best is None else (f"{best.value:.6g}", f"{best.step:,.0f}")
        rows.append((name, f"{curve.values[-1]:.6g}", *best_cells))
    checkpoint_steps = ", ".join(f"{one.step:,}" for one in store.checkpoints(run.id)) or "none"
    title = f"run {run.id}: {run.status} at step {_format_progress(run)}"
    notes = (
        f"checkpoints: {checkpoint_steps}",
        *((f"best checkpoint: {run.best_step:,}",) if run.best_step is not None else ()),
    )
    cause = (f"cause: {run.cause}",) if run.cause else ()
    written = tuple(annotation_lines(store.annotations().runs.get(run.id)))
    return [
        Table(title, ("metric", "last", "best", "at step"), tuple(rows), notes + cause + written),
        Table("settings", ("setting", "value"), (*settings, ("seed", str(run.seed)))),
    ]


def last_metrics(curves: Mapping[str, Curve]) -> dict[str, float]:
    return {name: float(curve.values[-1]) for name, curve in curves.items() if len(curve.values)}


def _vocab_size(run: Run) -> int | None:
    """The number of tokens of a task on a corpus, padding included."""
    return None if run.dataset_info is None else run.dataset_info.vocab_size


def _parameter_counts(run: Run | StoredRun) -> dict[str, int]:
    return {"total": run.parameters.total, "non_embedding": run.parameters.non_embedding}
