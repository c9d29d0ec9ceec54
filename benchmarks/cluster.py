"""The Ray engine on a cluster of two nodes on this machine: workers and nodes killed, overhead per pack, memory.

    python benchmarks/cluster.py --trials 10 --packs 1000 --store home --store postgresql

The rows are in a home, which this process writes, or in a PostgreSQL database, which workers write themselves. A trial
kills a worker, or a node with its workers, in the middle of a study of two packs, and compares every metric and every
checkpoint with those of the local engine. Then single runs of 3 steps are trained as packs of their own: what a pack
takes beside its training, and the memory of this process, which coordinates them. Last, with PostgreSQL: what this
process, the coordinator, spends on a pack with many evaluations if it writes them, and if the worker does.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import psutil
from tests.engines.test_ray import STUDY, Recording, raylet_pid, stored_bytes, worker_pids
from tests.postgres_server import PostgresServer, start_postgres
from tests.ray_cluster import NODE, start_cluster

from seedbed.engines.machine import Machine
from seedbed.engines.ray import RayEngine, detect_cluster
from seedbed.pipeline import run_studies
from seedbed.records import CostEvent
from seedbed.store import open_store
from seedbed.study.pack import Capacity
from seedbed.study.plan import plan_named

STEPS_BETWEEN_EVALUATIONS = 20  # of STUDY, which saves every 100
LONG_STUDY = (*(word for word in STUDY if not word.startswith("train.steps=")), "train.steps=4000")
TINY = ("task.p=5", "model.dim=8", "model.heads=2", "model.layers=1", "train.steps=3")


class SingleRuns(Machine):
    """Each run is a pack."""

    def capacity(self, *_: Any) -> Capacity:
        return Capacity(max_bytes=2**30, max_runs=1, min_packs=1)


@dataclass
class Trial:
    """What was killed, how often, and what of the study was lost, doubled or trained again."""

    n_lost: int
    n_differing_runs: int
    n_evaluations_lost: int
    n_evaluations_doubled: int
    n_steps_repeated: int
    seconds: float


def open_address(folder: str, server: PostgresServer | None) -> Any:
    """A new store with its files in a folder, and its rows on a server if there is one."""
    return Path(folder) if server is None else server.new_store(Path(folder))


def kill_during_study(cluster: Any, what: str, expected: dict[str, Any], server: PostgresServer | None) -> Trial:
    """Trains the study while a worker or a node is killed at a random step."""
    node, step, killed = cluster.list_all_nodes()[-1], random.randint(150, 2000), list[int]()

    def kill() -> None:
        last = [steps[-1][1] for steps in recording.steps.values()]
        if not killed and len(last) == 2 and min(last) > step:
            workers = worker_pids(raylet_pid(node))
            killed.extend([raylet_pid(node), *workers] if what == "node" else workers)
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    recording = Recording(kill)
    with tempfile.TemporaryDirectory() as folder:
        start, address = time.monotonic(), open_address(folder, server)
        machine = detect_cluster(cluster.address, "cpu", None, None)
        run_studies([plan_named("quickstart", LONG_STUDY)], address, machine, recording, lambda: False)
        seconds, found = time.monotonic() - start, stored_bytes(address)
    recording.assert_nothing_saved_was_repeated(n_uncommitted=0 if server is None else 2)
    lost = doubled = 0
    for run, (curves, _) in expected.items():
        for name, (steps, _) in curves.items():
            wanted, stored = (np.frombuffer(each, np.int64) for each in (steps, found[run][0][name][0]))
            lost += len(set(wanted) - set(stored))
            doubled += len(stored) - len(set(stored))
    evaluated = [[step for kind, step in kinds if kind == "evaluated"] for kinds in recording.steps.values()]
    repeated = sum(
        before - after + STEPS_BETWEEN_EVALUATIONS
        for steps in evaluated
        for before, after in itertools.pairwise(steps)
        if after <= before
    )
    n_differing = sum(found[run] != expected[run] for run in expected)
    return Trial(len(recording.reports), n_differing, lost, doubled, repeated, seconds)


def run_trials(n_trials: int, kinds: Sequence[str], server: PostgresServer | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_studies([plan_named("quickstart", LONG_STUDY)], Path(folder), Machine("cpu", 2), Recording(), lambda: False)
        expected = stored_bytes(Path(folder))
    for what in kinds:
        with start_cluster() as cluster:
            trials = []
            for number in range(n_trials):
                trials.append(kill_during_study(cluster, what, expected, server))
                print(f"{what} {number + 1}: {trials[-1]}", flush=True)
                if what == "node":
                    cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
                    cluster.add_node(**NODE)
        n_lost, n_differing, *evaluations = (
            sum(getattr(trial, name) for trial in trials)
            for name in ("n_lost", "n_differing_runs", "n_evaluations_lost", "n_evaluations_doubled")
        )
        print(
            f"{n_trials} trials, a {what} killed in each: {n_lost} packs went on elsewhere, {n_differing} runs differ, "
            f"{evaluations[0]} evaluations lost, {evaluations[1]} doubled, at most "
            f"{max(trial.n_steps_repeated for trial in trials)} steps trained again (a checkpoint every 100)"
        )


class PackTimes(Recording):
    """The cost of each pack, the time of the first event, and from time to time the memory of this process."""

    def __init__(self, n_packs: int) -> None:
        super().__init__()
        self.n_packs, self.costs, self.first_event = n_packs, dict[str, float](), 0.0

    def on_event(self, pack: Any, event: Any) -> None:
        self.first_event = self.first_event or time.monotonic()
        if isinstance(event, CostEvent) and event.step == 3 and pack.stored.id not in self.costs:
            self.costs[pack.stored.id] = sum(event.cost.seconds.values())
            if len(self.costs) % max(1, self.n_packs // 10) == 0:
                memory = psutil.Process().memory_info().rss / 2**20
                print(f"{len(self.costs):5} packs: {memory:.0f} MiB", flush=True)


def time_packs(n_packs: int, server: PostgresServer | None) -> None:
    with start_cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        address = open_address(folder, server)
        machine = detect_cluster(cluster.address, "cpu", None, None)
        single = SingleRuns(**{name: getattr(machine, name) for name in Machine.__dataclass_fields__})
        times = PackTimes(n_packs)
        before = time.process_time()
        run_studies([plan_named("quickstart", (*TINY, f"seeds={n_packs}"))], address, single, times, lambda: False)
        wall, own = time.monotonic() - times.first_event, sum(times.costs.values())
        coordinator = (time.process_time() - before) / n_packs
        with open_store(address, read_only=True) as store:
            statuses = Counter(run.status for run in store.runs())
    overhead = (machine.n_workers * wall - own) / n_packs
    print(f"{dict(statuses)} runs, each a pack, in {wall:.0f} s: {own / n_packs:.3f} s of training a pack, and "
          f"{overhead:.3f} s beside it on each of {machine.n_workers} warm workers; "
          f"{coordinator:.3f} s of processor time a pack in this process")  # fmt: skip


def time_coordinator(server: PostgresServer, n_runs: int = 64) -> None:
    """What an evaluation of a pack costs this process if it writes, and if its worker does."""
    words = ("task.p=5", "model.dim=8", "model.heads=2", "model.layers=1", f"seeds={n_runs}", "train.steps=2000",
             "train.eval_every=10", "train.save_every=500")  # fmt: skip
    for workers_write in (False, True):
        RayEngine.has_remote_workers = workers_write
        with start_cluster(1) as cluster, tempfile.TemporaryDirectory() as folder:
            machine, times = detect_cluster(cluster.address, "cpu", None, None), StartTimes()
            run_studies([plan_named("quickstart", words)], open_address(folder, server), machine, times, lambda: False)
            seconds = time.process_time() - times.processor
            wall = time.monotonic() - times.wall
        print(
            f"{'the worker' if workers_write else 'the coordinator'} writes 200 evaluations of {n_runs} runs and 4 "
            f"checkpoints: {seconds:.2f} s of processor time here, of {wall:.1f} s from the first event on",
            flush=True,
        )


class StartTimes(Recording):
    """When the first event arrived."""

    def __init__(self) -> None:
        super().__init__()
        self.wall = self.processor = 0.0

    def on_event(self, pack: Any, event: Any) -> None:
        if not self.wall:
            self.wall, self.processor = time.monotonic(), time.process_time()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--packs", type=int, default=1000)
    parser.add_argument("--kill", choices=("worker", "node"), action="append", help="default: both")
    parser.add_argument("--no-coordinator", action="store_false", dest="coordinator", help="do not time it")
    parser.add_argument("--store", choices=("home", "postgresql"), action="append", help="default: both")
    arguments = parser.parse_args()
    for kind in arguments.store or ["home", "postgresql"]:
        with nullcontext() if kind == "home" else start_postgres("max_connections=100") as server:
            print(f"store: {kind}", flush=True)
            if server is not None and arguments.coordinator:
                time_coordinator(server)
            if arguments.packs:
                time_packs(arguments.packs, server)
            if arguments.trials:
                run_trials(arguments.trials, arguments.kill or ["worker", "node"], server)
