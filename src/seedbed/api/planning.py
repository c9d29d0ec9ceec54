"""What a plan will take on this machine, given what is stored already."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seedbed.api.table_views import tables_as_html, tables_as_text
from seedbed.engines import find_engine
from seedbed.engines.machine import Machine
from seedbed.engines.ray import detect_cluster
from seedbed.errors import StudyError, UsageError
from seedbed.estimates import estimate_study, place_packs, probe_candidates, probe_packs
from seedbed.pipeline import pack_plans
from seedbed.records import ENDED_STATUSES, Pack, Plan, Run, StoredRun, StudyEstimate
from seedbed.report.overview import plan_as_json, plan_tables
from seedbed.report.study_runs import run_facts
from seedbed.report.tables import Table
from seedbed.store import open_store, store_exists
from seedbed.study.conditions import NO_FACTS, RunFacts
from seedbed.study.definition import Study
from seedbed.study.read import parse_study, read_study
from seedbed.study.study_files import find_study, shipped_studies


@dataclass(frozen=True)
class StudyPlan:
    """What `run` would train: the runs of one or more plans in packs, and an estimate of time and memory."""

    plans: tuple[Plan, ...]
    packs: tuple[Pack, ...]
    estimate: StudyEstimate
    statuses: Mapping[str, str]  # of the stored runs, by id
    device: str

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple({run.id: run for plan in self.plans for run in plan.runs}.values())

    @property
    def seconds(self) -> float:
        """Estimated seconds of what is left to train."""
        return self.estimate.seconds

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def tables(self) -> list[Table]:
        return plan_tables(self.plans, self.packs, self.statuses, self.device, self.estimate)

    def to_json(self) -> list[dict[str, Any]]:
        """One document for each plan."""
        return [plan_as_json(plan, self.packs, self.statuses, self.estimate) for plan in self.plans]

    def __repr__(self) -> str:
        return tables_as_text(self.tables)

    def _repr_html_(self) -> str:
        return tables_as_html(self.tables)


def find_machine(
    device: str | None = None,
    workers: int | None = None,
    mode: str | None = None,
    engine: str | None = None,
    address: str | None = None,
) -> Machine:
    """This machine, or the cluster at an address; SEEDBED_DEVICE names the device where none is given."""
    device, engine = device or os.environ.get("SEEDBED_DEVICE") or None, engine or os.environ.get("SEEDBED_ENGINE")
    if engine == "ray":
        return detect_cluster(address, device, workers, mode)
    if address is not None:
        raise UsageError(f"address {address} has an effect only with the engine ray: --engine ray")
    find_engine(engine)  # refuses a name that is none, before anything is stored
    return replace(Machine.detect(device, workers, mode), engine=engine or "local")


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


def find_study_definition(source: str, overrides: Sequence[str], home: Path) -> tuple[Study, bool]:
    """The study of a file, a shipped name, or else a stored name; and whether it is read from the store."""
    try:
        return read_study(find_study(source), overrides), False
    except StudyError:
        if os.path.exists(source) or source in shipped_studies() or not store_exists(home):
            raise
        with open_store(home, read_only=True) as store:
            if source not in {study.name for study in store.studies()}:
                raise
        return read_stored_study(source, overrides, home), True


def read_stored_study(name: str, overrides: Sequence[str], home: Path) -> Study:
    """The study that is stored under a name, as it was planned last."""
    with open_store(home, read_only=True) as store:
        return parse_study(store.study(name).text, name, overrides, stored=True)


def estimate_plans(plans: Sequence[Plan], home: Path, machine: Machine, with_ended: bool = False) -> StudyPlan:
    """The plans with the packs and the estimate of what is left to train; `with_ended`: packs have all runs."""
    stored = load_stored_runs(home)
    statuses = {name: run.status for name, run in stored.items()}
    packs = pack_plans(plans, machine, lambda run: not with_ended and statuses.get(run) in ENDED_STATUSES)
    return StudyPlan(tuple(plans), tuple(packs), estimate_study(packs, machine, stored), statuses, machine.device)


def probe_plans(plans: Sequence[Plan], machine: Machine, start_time: float) -> None:
    """Times each pack for a second, for better estimates; `start_time`: `perf_counter()` when the command began."""
    runs = {run.id: run for plan in plans for run in plan.runs}
    probe_candidates(list(runs.values()), machine, lambda _: None, lambda: False)
    probe_packs(place_packs(pack_plans(plans, machine), machine), machine, start_time=start_time)
