"""What a plan will take on this machine, given what is stored already."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seedbed.api.table_views import tables_as_html, tables_as_text
from seedbed.engines.machine import Machine
from seedbed.estimates import estimate_study, place_packs, probe_candidates, probe_packs
from seedbed.pipeline import pack_plans
from seedbed.records import Pack, Plan, Run, StoredRun, StudyEstimate
from seedbed.report.overview import plan_tables
from seedbed.report.study_runs import run_facts
from seedbed.report.tables import Table
from seedbed.store import open_store, store_exists
from seedbed.study.run_filter import NO_FACTS, RunFacts


@dataclass(frozen=True)
class StudyPlan:
    """What `study.run()` would train: runs in packs, and an estimate of time and memory."""

    plan: Plan
    packs: tuple[Pack, ...]
    estimate: StudyEstimate
    statuses: Mapping[str, str]  # of the stored runs, by id
    device: str

    @property
    def runs(self) -> tuple[Run, ...]:
        return self.plan.runs

    @property
    def seconds(self) -> float:
        """Estimated seconds of what is left to train."""
        return self.estimate.seconds

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def tables(self) -> list[Table]:
        return plan_tables([self.plan], self.packs, self.statuses, self.device, self.estimate)

    def __repr__(self) -> str:
        return tables_as_text(self.tables)

    def _repr_html_(self) -> str:
        return tables_as_html(self.tables)


def find_machine(device: str | None = None, workers: int | None = None, mode: str | None = None) -> Machine:
    """This machine; SEEDBED_DEVICE names the device where none is given."""
    return Machine.detect(device or os.environ.get("SEEDBED_DEVICE") or None, workers, mode)


def load_stored_runs(home: Path) -> dict[str, StoredRun]:
    """Stored runs by id; empty if there is no store yet."""
    if not store_exists(home):
        return {}
    with open_store(home, read_only=True) as store:
        return {run.id: run for run in store.runs()}


def load_run_facts(home: Path) -> RunFacts:
    """The status and tags of stored runs; none if there is no store yet."""
    if not store_exists(home):
        return NO_FACTS
    with open_store(home, read_only=True) as store:
        return run_facts(store)


def make_plan_view(plan: Plan, home: Path, machine: Machine, probe: bool = False) -> StudyPlan:
    """The plan with its packs and estimate; `probe` times each pack for a second first."""
    if probe:
        probe_candidates(plan.runs, machine, lambda _: None, lambda: False)
        probe_packs(place_packs(pack_plans([plan], machine), machine), machine, start_time=time.perf_counter())
    stored = load_stored_runs(home)
    statuses = {name: run.status for name, run in stored.items()}
    packs = pack_plans([plan], machine, lambda run: statuses.get(run) in ("finished", "diverged"))
    return StudyPlan(plan, tuple(packs), estimate_study(packs, machine, stored), statuses, machine.device)
