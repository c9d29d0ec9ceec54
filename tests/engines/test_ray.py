"""The Ray engine: the same bytes as on one machine, whatever is lost meanwhile; what it refuses, and in which words."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seedbed.api.planning import find_machine
from seedbed.engines.base import EngineResources, JobFailure
from seedbed.engines.machine import Machine
from seedbed.engines.ray import RayEngine, connect, describe_differences, detect_cluster
from seedbed.errors import MissingData, UsageError
from seedbed.pipeline import run_studies
from seedbed.records import CheckpointEvent, EvaluationEvent, Event, StoredRun
from seedbed.store import open_store
from seedbed.study.plan import plan_named
from tests.contracts.test_engine import EventLog, count, queue
from tests.ray_cluster import start_cluster

STUDY = (
    "task.p=5", "model.dim=8", "model.heads=2", "model.layers=1,2", "seeds=2",
    "train.steps=1000", "train.eval_every=20", "train.save_every=100",
)  # fmt: skip


class Recording:
    """The steps that each pack evaluated and saved, in the order in which they arrived; `on_step` is called then."""

    def __init__(self, on_step: Callable[[], None] = lambda: None) -> None:
        self.steps: dict[str, list[tuple[str, int]]] = {}
        self.reports: list[str] = []
        self._on_step = on_step

    def report(self, text: str) -> None:
        self.reports.append(text)

    def on_start(self, packs: Any) -> None: ...

    def on_split(self, pack: Any, parts: Any) -> None: ...

    def on_event(self, pack: Any, event: Event | JobFailure) -> None:
        if isinstance(event, EvaluationEvent | CheckpointEvent):
            kind = "saved" if isinstance(event, CheckpointEvent) else "evaluated"
            self.steps.setdefault(pack.stored.id, []).append((kind, event.step))
            self._on_step()

    def assert_nothing_saved_was_repeated(self, n_uncommitted: int = 0) -> None:
        """`n_uncommitted`: how many checkpoints a worker may not have committed yet when it is lost."""
        for steps in self.steps.values():
            for index, (_, step) in enumerate(steps):
                saved = sorted(each for kind, each in steps[:index] if kind == "saved")
                assert step >= max(saved[: len(saved) - n_uncommitted], default=0)


def stored_bytes(address: Any) -> dict[str, tuple[Any, ...]]:
    """Every metric and every checkpoint of all runs, which have finished."""
    with open_store(address, read_only=True) as store:
        runs = store.runs()
        assert {run.status for run in runs} == {"finished"}
        curves = store.curves([run.id for run in runs])
        return {
            run.id: (
                {name: (curve.steps.tobytes(), curve.values.tobytes()) for name, curve in curves[run.id].items()},
                [(checkpoint.step, checkpoint.digest) for checkpoint in store.checkpoints(run.id)],
            )
            for run in runs
        }


def worker_pids(raylet: int) -> list[int]:
    """The processes of workers on the node of a raylet."""
    import psutil

    children = psutil.Process(raylet).children(recursive=True)
    return [child.pid for child in children if "WorkerProcess" in " ".join(child.cmdline())]


def raylet_pid(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


@pytest.fixture(scope="module")
def local_bytes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, ...]]:
    """What the study leaves in a store when it is trained on two processes of this machine."""
    home = tmp_path_factory.mktemp("local")
    run_studies([plan_named("quickstart", STUDY)], home, Machine("cpu", 2), Recording(), lambda: False)
    return stored_bytes(home)


@pytest.fixture
def address(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Where the rows are: in a home, which the command writes, or in a database, which workers write themselves."""
    return tmp_path if store == "home" else request.getfixturevalue("postgres").new_store(tmp_path)


@pytest.mark.cluster
@pytest.mark.parametrize("store", ["home", "PostgreSQL"])
def test_two_nodes_give_the_bytes_of_one_machine(ray_cluster: str, local_bytes: Any, address: Any) -> None:
    machine = detect_cluster(ray_cluster, "cpu", None, None)
    assert (machine.n_workers, machine.node_cores) == (2, (1, 1))
    recording = Recording()
    run_studies([plan_named("quickstart", STUDY)], address, machine, recording, lambda: False)
    assert stored_bytes(address) == local_bytes
    assert recording.reports == []


@pytest.mark.cluster
@pytest.mark.parametrize(("store", "what"), [("home", "node"), ("PostgreSQL", "worker"), ("PostgreSQL", "node")])
def test_a_pack_goes_on_elsewhere_when_its_worker_or_node_is_killed(
    store: str, what: str, local_bytes: Any, address: Any
) -> None:
    with start_cluster() as cluster:
        [node] = cluster.worker_nodes
        killed = list[int]()

        def kill() -> None:
            last = [steps[-1][1] for steps in recording.steps.values()]
            if not killed and len(last) == 2 and min(last) > 150 and max(last) < 900:
                pids = worker_pids(raylet_pid(node))
                killed.extend(pids if what == "worker" else [raylet_pid(node), *pids])
                for pid in killed:
                    os.kill(pid, signal.SIGKILL)

        machine, recording = detect_cluster(cluster.address, "cpu", None, None), Recording(kill)
        run_studies([plan_named("quickstart", STUDY)], address, machine, recording, lambda: False)
    assert killed
    assert stored_bytes(address) == local_bytes
    recording.assert_nothing_saved_was_repeated(n_uncommitted=0 if store == "home" else 2)
    lost = r"a pack of 2 runs goes on from (the start|step \d+): its worker on node 127\.0\.0\.1 was lost"
    # A node that was killed may seem alive for a while, and that no worker starts there is then said too.
    assert sum(re.match(lost, report) is not None for report in recording.reports) == 1, recording.reports


def refuse() -> None:
    raise MissingData("the store cannot be reached from here")


@pytest.mark.cluster
def test_a_node_whose_check_fails_is_named_and_not_used(ray_cluster: str) -> None:
    engine, reports, log = RayEngine(EngineResources(n_workers=2, address=ray_cluster)), list[str](), EventLog()
    engine.check_worker, engine.report = refuse, reports.append
    engine.run(queue(3, 3), count, log, lambda: len(reports) == 2)
    assert reports == ["node 127.0.0.1 is not used: the store cannot be reached from here"] * 2
    assert log.by_job == {}


def test_a_node_with_other_versions_is_described_in_one_sentence() -> None:
    ours = {"seedbed": "1.0 (source ab)", "torch": "2.11", "Python": "3.12"}
    assert describe_differences("10.0.0.5", ours, dict(ours)) is None
    assert describe_differences("10.0.0.5", ours | {"torch": "2.12", "seedbed": "1.0 (source cd)"}, ours) == (
        "node 10.0.0.5 has seedbed 1.0 (source cd), torch 2.12, but this process seedbed 1.0 (source ab), torch 2.11; "
        "it is not used until both are the same"
    )


@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("ray://head:10001", "--address head:6379"),
        ("http://head:8265", "expected auto or HOST:PORT"),
        ("head", "expected auto or HOST:PORT"),
    ],
)
def test_an_address_of_another_form_is_refused(address: str, advice: str) -> None:
    with pytest.raises(UsageError, match=advice):
        connect(address)


def test_without_ray_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seedbed.engines.ray.find_spec", lambda name: None)
    with pytest.raises(MissingData, match=r"pip install 'seedbed\[cluster\]'"):
        find_machine(engine="ray", address="auto")


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_an_address_where_nothing_answers_is_told_at_once() -> None:
    with pytest.raises(MissingData, match=r"no Ray cluster answers at 127\.0\.0\.1:9 .* ray start --head --port=6379"):
        connect("127.0.0.1:9")


@pytest.mark.cluster
def test_the_command_trains_on_a_cluster_and_names_itself_when_it_is_stopped(ray_cluster: str, tmp_path: Path) -> None:
    words = ["run", "quickstart", *STUDY[:-3], "train.steps=100000", "--home", "lab", "--engine", "ray"]
    command = [sys.executable, "-m", "seedbed", *words, "--address", ray_cluster]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        database = tmp_path / "lab" / "store.db"
        while not database.exists() or not any(run.step >= 50 for run in stored_runs(tmp_path / "lab")):
            assert process.poll() is None
            time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        errors = process.stderr.read()
    assert process.returncode == 143
    assert f"--engine ray --address {ray_cluster}" in errors
    assert {run.status for run in stored_runs(tmp_path / "lab")} == {"stopped"}


def stored_runs(home: Path) -> list[StoredRun]:
    with open_store(home, read_only=True) as store:
        return store.runs()


def test_an_address_without_the_engine_is_refused() -> None:
    with pytest.raises(UsageError, match="--engine ray"):
        find_machine(address="10.0.0.1:6379")
