"""Whether any shipped study is slower than a plain loop on this machine's CPU: `make bench-studies`.

    time_studies(report, only="arithmetic", save=lambda: …)

For each kind of model in every study, the runs whose update has the fewest and the most FLOPs are timed: theirs is a
plain loop with all threads, ours the pack that `run` would put that run into, with the same workers and threads. Runs
of equal cost in several studies are timed once. A run that shares its pack with larger ones is timed together with
them, so that ours has no unfair advantage. If both sides together would not fit into memory, both use a smaller batch,
and the row says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compare import STEPS_PER_SECOND, Scenario, compare, start_sides
from loops import find_unsupported_setting
from scenarios import N_CORES, select_names
from sides import SideError, SideSpec

from seedbed.engines.machine import Machine
from seedbed.estimates import place_packs, probe_candidates
from seedbed.models.model_size import effective_batch_size, estimate_training_bytes, update_workload
from seedbed.pipeline import pack_plans
from seedbed.records import Pack, Placement, Run
from seedbed.settings import Settings
from seedbed.study.pack import shape_key
from seedbed.study.plan import plan_named
from seedbed.study.study_files import shipped_studies

TURN_SECONDS = 0.4  # an update that takes longer is a turn by itself
SLOW_UPDATE_FLOPS = 1e11  # larger updates are timed in two rounds only
MAX_MEMORY_SHARE = 0.5  # of the machine's memory, for both sides together
BATCH_SETTING = "train.batch_size"
INIT_SETTINGS = ("init", "init_scale", "gate_init")  # model settings that do not affect the cost of an update
OPTIMIZERS_BY_COST = ("sgd", "momentum", "lion", "adam", "adamw", "muon")  # cheapest first


@dataclass(frozen=True)
class Case:
    """One run of a study, in the pack that it would be trained in."""

    study: str
    which: str
    run: Run
    pack: Pack
    placement: Placement

    @property
    def flops(self) -> float:
        return update_workload(self.run.settings, self.run.dataset_info).flops

    @property
    def cost_key(self) -> str:
        """Equal for cases whose updates cost the same."""
        packed = sorted(_cost_key(run) for run in self.pack.runs)
        return repr((_cost_key(self.run), packed, self.placement))

    @property
    def batch_size(self) -> int:
        """Batch size, halved until both sides together fit into memory if the run is alone in its pack."""
        settings, n_models = self.run.settings, self.placement.workers + 1
        size = effective_batch_size(settings, self.run.dataset_info)
        while len(self.pack.runs) == 1 and size > 1:
            model_bytes = estimate_training_bytes(_with_batch_size(settings, size), self.run.dataset_info)
            if n_models * model_bytes <= MAX_MEMORY_SHARE * _machine_memory():
                break
            size //= 2
        return size

    def scenario(self) -> Scenario:
        full_batch = effective_batch_size(self.run.settings, self.run.dataset_info)
        reduced = {} if self.batch_size == full_batch else {BATCH_SETTING: self.batch_size}
        plain = SideSpec("plain", "plain", _overrides(self.run.settings) | reduced, threads=N_CORES)
        ours = _seedbed_spec(self.pack.runs, self.placement, reduced)
        return Scenario(self.study, self.describe(), STEPS_PER_SECOND, 1, self.flops, [plain, ours])

    def describe(self) -> str:
        """Model, batch and optimizer in one line."""
        settings, dataset_info = self.run.settings, self.run.dataset_info
        model, full_batch = settings.model, effective_batch_size(settings, dataset_info)
        samples = f"{full_batch} × {dataset_info.context_length}" + (
            "" if full_batch == self.batch_size else f" (timed {self.batch_size})"
        )
        dropout = ", dropout" if _has_dropout(settings) else ""
        return f"{model.kind} {model.layers} × {model.dim}, batch {samples}, {settings.train.optimizer}{dropout}"


def time_studies(report: dict[str, Any], only: str, save: Callable[[], None]) -> None:
    """Checks and times every case, the cheapest first, and prints a table by study; calls `save` after each."""
    report["studies"], report["left_out"] = [], []
    cases = [case for name in select_names(list(shipped_studies()), only) for case in make_cases(name)]
    for group in _group_by_cost(cases):
        row = _reason_to_skip(group[0]) or _time_case(group[0])
        rows = [{"study": case.study, "which": case.which, "model": case.describe(), **row} for case in group]
        report["left_out" if "reason" in row else "studies"] += rows
        for one in rows:
            print(_format_row(one), flush=True)
        save()
    print_studies(report)


def make_cases(name: str) -> Iterator[Case]:
    """The smallest and largest run of every kind of model in a study, in the packs that `run` would train."""
    plan, machine = plan_named(name), Machine.detect("cpu")
    selected = list(smallest_and_largest(plan.runs))
    shapes = {shape_key(run.settings) for _, run in selected}
    probe_candidates([run for run in plan.runs if shape_key(run.settings) in shapes], machine, print, lambda: False)
    packs = {
        run.id: (pack, placement)
        for pack, placement in place_packs(pack_plans([plan], machine), machine)
        for run in pack.runs
    }
    yield from (Case(name, which, run, *packs[run.id]) for which, run in selected)


def smallest_and_largest(runs: Iterable[Run]) -> Iterator[tuple[str, Run]]:
    """The cheapest and the most expensive run of each kind of task and model, with and without dropout."""
    kinds: dict[tuple[str, str, bool], list[Run]] = {}
    for run in runs:
        settings = run.settings
        kinds.setdefault((settings.task.kind, settings.model.kind, _has_dropout(settings)), []).append(run)
    for group in kinds.values():
        distinct = list({_cost_key(run): run for run in sorted(group, key=_update_cost)}.values())
        if len(distinct) == 1:
            yield "only", distinct[0]
        else:
            yield f"smallest of {len(distinct)}", distinct[0]
            yield f"largest of {len(distinct)}", distinct[-1]


def _update_cost(run: Run) -> tuple[float, int]:
    return update_workload(run.settings, run.dataset_info).flops, OPTIMIZERS_BY_COST.index(run.settings.train.optimizer)


def _cost_key(run: Run) -> str:
    """What determines the cost of an update: model, batch, tokens and optimizer."""
    settings, dataset_info = run.settings, run.dataset_info
    model = {name: value for name, value in settings.model if name not in INIT_SETTINGS}
    train = settings.train
    updates = train.optimizer, train.clip > 0, train.label_smoothing > 0, train.ema > 0, train.accumulate
    tokens = (
        effective_batch_size(settings, dataset_info),
        dataset_info.context_length,
        dataset_info.vocab_size,
        getattr(settings.task, "orders", None),
    )
    return repr((model, tokens, updates))


def _group_by_cost(cases: Sequence[Case]) -> list[list[Case]]:
    """Groups of cases of equal cost, the cheapest first."""
    groups: dict[str, list[Case]] = {}
    for case in sorted(cases, key=lambda case: case.flops):
        groups.setdefault(case.cost_key, []).append(case)
    return list(groups.values())


def _reason_to_skip(case: Case) -> dict[str, Any] | None:
    """Why a case is not timed, or None."""
    from check import MAX_RELATIVE_DIFFERENCE, relative_difference

    reason = find_unsupported_setting(case.run.settings)
    if reason is None:
        difference = relative_difference("plain", case.run.settings, "cpu")
        if difference >= MAX_RELATIVE_DIFFERENCE:
            reason = f"the plain model computes another function ({difference:.1e})"
    return None if reason is None else {"reason": reason}


def _time_case(case: Case) -> dict[str, Any]:
    scenario = case.scenario()
    try:
        comparison = compare(scenario, start_sides(scenario), 2 if case.flops > SLOW_UPDATE_FLOPS else 4, TURN_SECONDS)
    except SideError as failure:
        return {"reason": str(failure).strip().splitlines()[-1]}
    plain, ours = comparison["sides"]
    return {**ours["against"]["plain"], "plain": plain["rate"], "ours": ours["rate"], "comparison": comparison}


def _seedbed_spec(runs: Sequence[Run], placement: Placement, reduced: Mapping[str, Any]) -> SideSpec:
    settings = [run.settings.flat() for run in runs]
    differing = [name for name in settings[0] if any(overrides[name] != settings[0][name] for overrides in settings)]
    return SideSpec(
        "seedbed", "ours", _overrides(runs[0].settings) | reduced, placement.workers, placement.threads,
        mode=placement.mode, n_runs=len(runs),
        per_run={name: [overrides[name] for overrides in settings] for name in differing},
    )  # fmt: skip


def _overrides(settings: Settings) -> dict[str, Any]:
    return {"task.kind": settings.task.kind, "model.kind": settings.model.kind, **settings.non_default()}


def _with_batch_size(settings: Settings, size: int) -> Settings:
    return settings.model_copy(update={"train": settings.train.model_copy(update={"batch_size": size})})


def _has_dropout(settings: Settings) -> bool:
    return any(rate for name, rate in settings.model if name.endswith("dropout"))


def _machine_memory() -> int:
    """Physical memory of this machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def print_studies(report: dict[str, Any]) -> None:
    """Prints all cases by study, then those that are slower or skipped."""
    print("\nupdates per second of a model, ours over a plain loop with all threads: by wall clock and by CPU time")
    print(f"{'study':26} {'run':16} {'model':54} {'ours':>16} {'ratio':>24} {'CPU':>8}")
    for row in sorted(report["studies"], key=lambda row: row["study"]):
        print(_format_row(row))
    slower = [row for row in report["studies"] if row["ratio"] < 1]
    print(f"\n{len(report['studies'])} timed, {len(slower)} of them slower than a plain loop")
    for row in [*slower, *report["left_out"]]:
        print(_format_row(row))


def _format_row(row: dict[str, Any]) -> str:
    begin = f"{row['study']:26} {row['which']:16} {row['model']:54}"
    if "reason" in row:
        return f"{begin} skipped: {row['reason']}"
    plan = row["comparison"]["sides"][1]["plan"]
    where = f"{plan['n_processes']} × {plan['n_runs']}, {plan['threads']} thr."
    spread = f"{row['ratio']:6.2f} ({row['lowest']:.2f}–{row['highest']:.2f})"
    return f"{begin} {where:>16} {spread:>24} {row['processor_ratio']:8.2f}"
