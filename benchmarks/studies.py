"""Whether any shipped study is slower than a plain loop on this machine's CPU: `make bench-studies`.

    time_studies(report, only="arithmetic", keep=lambda: …)

Of every study and each of its kinds of model, the run whose update asks for the fewest operations and the one that asks
for the most: theirs is a plain loop with all threads, ours the pack that `run` would put such a run into, with as many
workers and threads as it would have here. What costs the same in several studies is timed once. A run that shares its
pack with larger ones is timed among them, so nothing flatters ours. Where both sides together would not fit into memory
both have a smaller batch, and the row says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compare import STEPS, Scenario, compare, start
from loops import not_covered
from scenarios import CORES, chosen
from sides import Plan, SideFailed

from seedbed.engines.machine import Machine
from seedbed.estimates import place_packs, probe_candidates
from seedbed.models.flops import update_workload
from seedbed.models.model_size import effective_batch_size, estimate_training_bytes
from seedbed.pipeline import pack_plans
from seedbed.records import Pack, Placement, Run
from seedbed.settings import Settings
from seedbed.study.pack import shape_key
from seedbed.study.plan import plan_named
from seedbed.study.study_files import shipped_studies

TURN = 0.4  # seconds; an update that takes longer is a turn by itself
SLOW = 1e11  # operations of an update from which on two rounds have to do
HELD = 0.5  # share of the machine's memory that both sides may hold together
BATCH = "train.batch_size"
STARTS = ("init", "init_scale", "gate_init")  # dials of a model that cost nothing later
MOMENTS = ("sgd", "momentum", "adam", "adamw")  # optimizers by what an update of theirs does


@dataclass(frozen=True)
class Case:
    """One run of a study, in the pack that it would be trained in."""

    study: str
    which: str
    run: Run
    pack: Pack
    placement: Placement

    @property
    def operations(self) -> float:
        return update_workload(self.run.settings, self.run.dataset_info).flops

    @property
    def cost(self) -> str:
        """Equal for runs whose updates do the same."""
        packed = sorted(_cost(run) for run in self.pack.runs)
        return repr((_cost(self.run), packed, self.placement))

    @property
    def batch(self) -> int:
        """Samples of an update, halved until both sides together fit into memory; of a run that has no neighbours."""
        settings, n_models = self.run.settings, self.placement.workers + 1
        size = effective_batch_size(settings, self.run.dataset_info)
        while len(self.pack.runs) == 1 and size > 1:
            if (
                n_models * estimate_training_bytes(_with_batch(settings, size), self.run.dataset_info)
                <= HELD * _memory()
            ):
                break
            size //= 2
        return size

    def scenario(self) -> Scenario:
        smaller = (
            {} if self.batch == effective_batch_size(self.run.settings, self.run.dataset_info) else {BATCH: self.batch}
        )
        plain = Plan("plain", "plain", _dials(self.run.settings) | smaller, threads=CORES)
        ours = _ours(self.pack.runs, self.placement, smaller)
        return Scenario(self.study, self.said(), STEPS, 1, self.operations, [plain, ours])

    def said(self) -> str:
        """The model, its samples and its optimizer in a few words."""
        settings, facts = self.run.settings, self.run.dataset_info
        model, whole = settings.model, effective_batch_size(settings, facts)
        samples = f"{whole} × {facts.context_length}" + ("" if whole == self.batch else f" (timed {self.batch})")
        drops = ", dropout" if _drops(settings) else ""
        return f"{model.kind} {model.layers} × {model.dim}, batch {samples}, {settings.train.optimizer}{drops}"


def time_studies(report: dict[str, Any], only: str, keep: Callable[[], None]) -> None:
    """Checks and times every case, the quick ones first, and prints a table by study; `keep` is called after each."""
    report["studies"], report["left_out"] = [], []
    cases = [case for name in chosen(list(shipped_studies()), only) for case in cases_of(name)]
    for alike in _alike(cases):
        row = _left_out(alike[0]) or _timed(alike[0])
        rows = [{"study": case.study, "which": case.which, "model": case.said(), **row} for case in alike]
        report["left_out" if "reason" in row else "studies"] += rows
        for one in rows:
            print(_line(one), flush=True)
        keep()
    print_studies(report)


def cases_of(name: str) -> Iterator[Case]:
    """The smallest and the largest run of every kind of model in a study, where `run` would train them."""
    plan, machine = plan_named(name), Machine.detect("cpu")
    wanted = list(ends(plan.runs))
    shapes = {shape_key(run.settings) for _, run in wanted}
    probe_candidates([run for run in plan.runs if shape_key(run.settings) in shapes], machine, print, lambda: False)
    where = {
        run.id: (pack, place) for pack, place in place_packs(pack_plans([plan], machine), machine) for run in pack.runs
    }
    yield from (Case(name, which, run, *where[run.id]) for which, run in wanted)


def ends(runs: Iterable[Run]) -> Iterator[tuple[str, Run]]:
    """Of each kind of task and model, with and without dropout: what asks for the least and for the most."""
    kinds: dict[tuple[str, str, bool], list[Run]] = {}
    for run in runs:
        settings = run.settings
        kinds.setdefault((settings.task.kind, settings.model.kind, _drops(settings)), []).append(run)
    for alike in kinds.values():
        distinct = list({_cost(run): run for run in sorted(alike, key=_asks)}.values())
        if len(distinct) == 1:
            yield "only", distinct[0]
        else:
            yield f"smallest of {len(distinct)}", distinct[0]
            yield f"largest of {len(distinct)}", distinct[-1]


def _asks(run: Run) -> tuple[float, int]:
    return update_workload(run.settings, run.dataset_info).flops, MOMENTS.index(run.settings.train.optimizer)


def _cost(run: Run) -> str:
    """What an update does: model, batch, tokens and optimizer."""
    settings, facts = run.settings, run.dataset_info
    model = {name: value for name, value in settings.model if name not in STARTS}
    train = settings.train
    updates = train.optimizer, train.clip > 0, train.label_smoothing > 0, train.ema > 0, train.accumulate
    tokens = (
        effective_batch_size(settings, facts),
        facts.context_length,
        facts.vocab_size,
        getattr(settings.task, "orders", None),
    )
    return repr((model, tokens, updates))


def _alike(cases: Sequence[Case]) -> list[list[Case]]:
    """Cases that cost the same together, the quickest first."""
    groups: dict[str, list[Case]] = {}
    for case in sorted(cases, key=lambda case: case.operations):
        groups.setdefault(case.cost, []).append(case)
    return list(groups.values())


def _left_out(case: Case) -> dict[str, Any] | None:
    """Why a case is not timed, or None."""
    from check import AGREE, difference_to

    reason = not_covered(case.run.settings)
    if reason is None:
        difference = difference_to("plain", case.run.settings, "cpu")
        reason = None if difference < AGREE else f"the plain model is another function ({difference:.1e})"
    return None if reason is None else {"reason": reason}


def _timed(case: Case) -> dict[str, Any]:
    scenario = case.scenario()
    try:
        comparison = compare(scenario, start(scenario), 2 if case.operations > SLOW else 4, TURN)
    except SideFailed as failure:
        return {"reason": str(failure).strip().splitlines()[-1]}
    plain, ours = comparison["sides"]
    return {**ours["against"]["plain"], "plain": plain["rate"], "ours": ours["rate"], "comparison": comparison}


def _ours(runs: Sequence[Run], place: Placement, smaller: Mapping[str, Any]) -> Plan:
    every = [run.settings.flat() for run in runs]
    differing = [name for name in every[0] if any(dials[name] != every[0][name] for dials in every)]
    return Plan(
        "seedbed", "ours", _dials(runs[0].settings) | smaller, place.workers, place.threads, engine=place.mode,
        n_runs=len(runs), each={name: [dials[name] for dials in every] for name in differing},
    )  # fmt: skip


def _dials(settings: Settings) -> dict[str, Any]:
    return {"task.kind": settings.task.kind, "model.kind": settings.model.kind, **settings.non_default()}


def _with_batch(settings: Settings, size: int) -> Settings:
    return settings.model_copy(update={"train": settings.train.model_copy(update={"batch_size": size})})


def _drops(settings: Settings) -> bool:
    return any(rate for name, rate in settings.model if name.endswith("dropout"))


def _memory() -> int:
    """Bytes of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def print_studies(report: dict[str, Any]) -> None:
    """All cases by study, and what is slower or left out."""
    print(
        "\nupdates of a model a second, ours over a plain loop's with all threads: by the clock, and by processor time"
    )
    print(f"{'study':26} {'run':16} {'model':54} {'ours':>16} {'ratio':>24} {'proc.':>8}")
    for row in sorted(report["studies"], key=lambda row: row["study"]):
        print(_line(row))
    slower = [row for row in report["studies"] if row["ratio"] < 1]
    print(f"\n{len(report['studies'])} timed, {len(slower)} of them slower than a plain loop")
    for row in [*slower, *report["left_out"]]:
        print(_line(row))


def _line(row: dict[str, Any]) -> str:
    begin = f"{row['study']:26} {row['which']:16} {row['model']:54}"
    if "reason" in row:
        return f"{begin} left out: {row['reason']}"
    plan = row["comparison"]["sides"][1]["plan"]
    where = f"{plan['n_processes']} × {plan['n_runs']}, {plan['threads']} thr."
    spread = f"{row['ratio']:6.2f} ({row['lowest']:.2f}–{row['highest']:.2f})"
    return f"{begin} {where:>16} {spread:>24} {row['processor_ratio']:8.2f}"
