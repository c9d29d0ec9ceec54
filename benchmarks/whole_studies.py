"""Studies of tiny runs from their plan to their end, with the processor time of all that takes part.

found = train(10_000, home, "postgresql://…", server_pid)
"""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass
from pathlib import Path

from store_costs import server_seconds

from seedbed.engines.machine import Machine
from seedbed.pipeline import SilentObserver, pack_plans, run_studies
from seedbed.records import Plan
from seedbed.store import bind_store, open_store
from seedbed.study.plan import plan_named

N_WORKERS = 2
STUDY = (
    "task.p=5", "model.dim=8", "model.heads=2", "model.layers=1", "train.steps=20", "train.eval_every=10",
    "train.save_every=20",
)  # fmt: skip


@dataclass(frozen=True)
class Trained:
    """Seconds on the clock, and of processors."""

    n_finished: int
    wall: float
    workers: float
    coordinator: float
    server: float


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def make_plan(n_runs: int) -> Plan:
    return plan_named("quickstart", (*STUDY, f"seeds={n_runs}"))


def train(n_runs: int, home: Path, address: str | None = None, server: int | None = None) -> Trained:
    """Trains a study with two worker processes on this machine; its store is on PostgreSQL if there is an address."""
    if address is not None:
        bind_store(home, address.partition("#")[0])
    plan, machine = make_plan(n_runs), Machine("cpu", N_WORKERS)
    before = [time.perf_counter(), _children_seconds(), time.process_time(), server_seconds(server)]
    outcome = run_studies([plan], home, machine, SilentObserver(), lambda: False)
    after = [time.perf_counter(), _children_seconds(), time.process_time()]
    time.sleep(1.0)  # until the server has noted what its processes for the closed connections have used
    after.append(server_seconds(server))
    return Trained(outcome.counts["finished"], *(two - one for one, two in zip(before, after, strict=True)))


@dataclass(frozen=True)
class Calibration:
    """What the simulation must know of a study beside its records, from a small one in a store of its own."""

    runs_per_pack: int
    n_evaluations: int
    n_saves: int
    pack_seconds: float  # processor time of a worker for a pack
    start_seconds: float  # processor time of a worker before its first pack
    plan_run: float  # processor time of the coordinator to pack the runs, for each


def calibrate(folder: Path) -> Calibration:
    plan, machine = make_plan(1_280), Machine("cpu", N_WORKERS)
    start = time.process_time()
    packs = pack_plans([plan], machine)
    plan_run, size = (time.process_time() - start) / len(plan.runs), len(packs[0].runs)
    few, many = (train(n * N_WORKERS * size, folder / f"{n} packs a worker") for n in (1, 8))
    with open_store(folder / "1 packs a worker", read_only=True) as store:
        run = store.runs()[0].id
        n_evaluations, n_saves = store.curves([run])[run]["val/loss"].steps.size, len(store.checkpoints(run))
    pack_seconds = (many.workers - few.workers) / (7 * N_WORKERS)
    return Calibration(size, n_evaluations, n_saves, pack_seconds, few.workers / N_WORKERS - pack_seconds, plan_run)
