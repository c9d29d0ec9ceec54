"""The Ray engine: a long-lived worker for each GPU or CPU slot of a cluster, each of them a local engine of its own.

    RayEngine(EngineResources(n_workers=0, address="auto")).run(jobs, run_job, on_event, should_stop)

A worker is a Ray actor that time-slices the jobs it is sent and streams their events back. Ray retries nothing: a lost
worker is given up for good, and its jobs end as `JobFailure(worker_lost=True)`: what becomes of them is the caller's.
Nodes may come and go; each is used only if it has the same versions as this process. Ray is imported by `connect`.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import pickle
import platform
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar

import seedbed
from seedbed.engines.base import (
    REMOTE_PROGRESS_SECONDS,
    Engine,
    EventHandler,
    JobFailure,
    JobFunction,
    QueuedJob,
    ShouldStop,
)
from seedbed.engines.child_process import keep_freed_heap
from seedbed.engines.local import JobQueue, ReceivedJob, Worker, serve_jobs, start_next_job
from seedbed.engines.machine import USABLE_GPU_MEMORY_FRACTION, Machine, gpu_memory_bytes
from seedbed.errors import MissingData, UsageError
from seedbed.records import Event

DEFAULT_PORT = 6379  # of `ray start --head`
WORKER_BYTES = 2**29  # of a worker process with torch, beside its packs
MAX_UNREAD_EVENTS = 64  # of a worker: it waits until the caller has read some
NODE_POLL_SECONDS = 2.0  # between looks for nodes that came or went
EVENT_WAIT_SECONDS = 0.5
MAX_FAILED_STARTS = 3  # of workers on a node, before the node is left alone
SECONDS_WITHOUT_WORKERS = 10.0  # before it is said that the cluster has no room


def connect(address: str | None) -> Any:
    """The module `ray`, connected to the cluster at HOST:PORT or, if `auto`, to the one that runs on this machine."""
    address = address or os.environ.get("RAY_ADDRESS") or "auto"
    if address.startswith("ray://"):
        host = address.removeprefix("ray://").partition(":")[0]
        raise UsageError(
            f"{address} is an address of Ray Client, which would pass every event through one more process; "
            f"start this command on a node of the cluster, with --address {host}:{DEFAULT_PORT} or auto"
        )
    if address != "auto" and not re.fullmatch(r"[^\s/]+:\d+", address):
        raise UsageError(f"address {address}: expected auto or HOST:PORT, such as 10.0.0.1:{DEFAULT_PORT}")
    if find_spec("ray") is None:
        raise MissingData("--engine ray needs Ray, which is not installed: pip install 'seedbed[cluster]'")
    if (
        address == "auto"
        and (file := Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")).exists()
    ):
        address = file.read_text(encoding="utf-8").strip() or address
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with _keep_signal_handlers(), _explain_connection_errors(address):
        if address != "auto":
            _require_answer(address)
        ray: Any = importlib.import_module("ray")
        if not ray.is_initialized():
            # Ray prints the last log lines of a node that is gone to standard output, where results go.
            internals: Any = importlib.import_module("ray._private.worker")
            internals.print_to_stdstream = lambda *_, **__: None
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    connected = ray.get_runtime_context().gcs_address
    if address != "auto" and address.rpartition(":")[2] != connected.rpartition(":")[2]:
        raise UsageError(f"this process is connected to the Ray cluster at {connected}, not {address}: ray.shutdown()")
    return ray


def _require_answer(address: str) -> None:
    """OSError if nothing listens there, which Ray would take minutes to find out; also settles what 127.0.0.1 means."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), timeout=10).close()
    if host in ("127.0.0.1", "localhost"):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it only finds out this machine's own address
            own_address = probe.getsockname()[0]
        try:
            socket.create_connection((own_address, int(port)), timeout=2).close()
        except OSError:  # bound to 127.0.0.1 only; without this, Ray would replace it by this machine's own address
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"


@contextmanager
def _keep_signal_handlers() -> Iterator[None]:
    """Ray replaces the handler of SIGTERM, which would end a command without saving."""
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT) if is_main}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@contextmanager
def _explain_connection_errors(address: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # ConnectionError, RuntimeError and errors of Ray's own, depending on the version
        text = " ".join(str(error).split())
        if "token" in text.lower() or type(error).__name__ == "AuthenticationError":
            raise UsageError(
                f"the Ray cluster at {address} did not accept this process's token; "
                "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH, as on its nodes"
            ) from None
        if "version mismatch" in text.lower():
            raise UsageError(
                f"the Ray cluster at {address} has other versions of Ray or Python: {text[:300]}"
            ) from None
        if type(error).__name__ == "ConnectionError" and address != "auto":  # something listens there
            raise MissingData(
                f"what answers at {address} is no Ray cluster that this process may join: the version of Ray or the "
                "token differs (RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH, as on its nodes)"
            ) from None
        raise MissingData(
            f"no Ray cluster answers at {address} ({text[:200] or type(error).__name__}); start one with "
            f"ray start --head --port={DEFAULT_PORT}, or name its address with --address HOST:{DEFAULT_PORT}"
        ) from None


# ---- nodes ----


@dataclass(frozen=True)
class NodeDescription:
    """What a node has, and what the bytes of a result may depend on."""

    versions: Mapping[str, str]
    gpu_bytes: int | None = None  # memory of its smallest GPU


def describe_node() -> NodeDescription:
    """Describes the node where it is called."""
    versions = {name: version(name).partition("+")[0] for name in ("torch", "numpy")}
    python = ".".join(platform.python_version_tuple()[:2])
    memory = gpu_memory_bytes()
    return NodeDescription({"seedbed": _source_version(), **versions, "Python": python}, memory)


def _source_version() -> str:
    """This version with a digest of its source files, since an installation may have been edited."""
    root, digest = Path(seedbed.__file__).parent, hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{seedbed.__version__} (source {digest.hexdigest()[:8]})"


def describe_differences(node: str, theirs: Mapping[str, str], ours: Mapping[str, str]) -> str | None:
    """A sentence about a node with other versions than this process; None if they are the same."""
    different = [name for name in ours if theirs.get(name) != ours[name]]
    if not different:
        return None
    there, here = (", ".join(f"{name} {versions[name]}" for name in different) for versions in (theirs, ours))
    return f"node {node} has {there}, but this process {here}; it is not used until both are the same"


@dataclass(frozen=True)
class Node:
    """A node of the cluster that can be used."""

    id: str
    address: str
    cpus: float
    gpus: int
    memory: int  # bytes that Ray may reserve
    gpu_bytes: int | None = None

    def n_slots(self, on_gpus: bool, cpus: int, n_bytes: int) -> int:
        """How many workers it has room for."""
        return self.gpus if on_gpus else int(min(self.cpus // min(cpus, self.cpus or 1), self.memory // n_bytes))


class Nodes:
    """The usable nodes of the cluster, as they come and go; what is wrong with others is reported once."""

    _descriptions: ClassVar[dict[str, Any]] = {}  # by node id: a reference, then a NodeDescription or None

    def __init__(self, ray: Any, report: Any) -> None:
        self._ray, self._report, self._here = ray, report, describe_node()
        self._alive: dict[str, Mapping[str, Any]] = {}
        self._last_poll = 0.0
        self._failed_starts: dict[str, int] = {}

    def usable(self) -> list[Node]:
        """The nodes that are there now and have been found to be the same."""
        if time.monotonic() - self._last_poll > NODE_POLL_SECONDS:
            self._poll()
        for node_id, pending in list(self._descriptions.items()):
            if isinstance(pending, self._ray.ObjectRef) and self._ray.wait([pending], timeout=0)[0]:
                self._descriptions[node_id] = self._check(node_id, pending)
        described = {name: self._descriptions.get(name) for name in self._alive}
        return [
            _make_node(self._alive[name], description)
            for name, description in described.items()
            if isinstance(description, NodeDescription) and self._failed_starts.get(name, 0) < MAX_FAILED_STARTS
        ]

    def wait_for_all(self, timeout: float = 60.0) -> list[Node]:
        """The usable nodes, once all that are there have answered."""
        self._poll()
        pending = [each for each in self._descriptions.values() if isinstance(each, self._ray.ObjectRef)]
        if pending:
            self._ray.wait(pending, num_returns=len(pending), timeout=timeout)
        return self.usable()

    def is_alive(self, node_id: str) -> bool:
        self._poll()
        return node_id in self._alive

    def note_failed_start(self, node_id: str, cause: str) -> None:
        """Counts a worker that died before it was ready; after a few the node is not used any more."""
        self._failed_starts[node_id] = self._failed_starts.get(node_id, 0) + 1
        if self._failed_starts[node_id] == MAX_FAILED_STARTS and node_id in self._alive:
            self._report(f"workers do not start on node {self._alive[node_id]['NodeManagerAddress']}: {cause}")

    def exclude(self, node_id: str, cause: str) -> None:
        """Uses the node no more."""
        if self._failed_starts.get(node_id, 0) < MAX_FAILED_STARTS and node_id in self._alive:
            self._report(f"node {self._alive[node_id]['NodeManagerAddress']} is not used: {cause}")
        self._failed_starts[node_id] = MAX_FAILED_STARTS

    def _poll(self) -> None:
        self._last_poll = time.monotonic()
        self._alive = {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"]}
        for node_id in self._alive.keys() - self._descriptions.keys():
            affinity = _affinity(node_id)
            remote = self._ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=affinity)(describe_node)
            self._descriptions[node_id] = remote.remote()

    def _check(self, node_id: str, pending: Any) -> NodeDescription | None:
        name = self._alive.get(node_id, {}).get("NodeManagerAddress", node_id[:8])
        try:
            description: NodeDescription = self._ray.get(pending)
        except Exception as error:
            cause = " ".join(str(error).split())[-200:]
            if node_id in self._alive:
                self._report(f"node {name} is not used, since seedbed could not be loaded there: {cause}")
            return None
        difference = describe_differences(name, description.versions, self._here.versions)
        if difference is not None:
            self._report(difference)
            return None
        return description


def _make_node(node: Mapping[str, Any], description: NodeDescription) -> Node:
    resources = node["Resources"]
    memory, gpus = int(resources.get("memory", 2**62)), int(resources.get("GPU", 0))
    return Node(
        node["NodeID"], node["NodeManagerAddress"], resources.get("CPU", 0.0), gpus, memory, description.gpu_bytes
    )


def _affinity(node_id: str) -> Any:
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    return strategies.NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)


def detect_cluster(address: str | None, device: str | None, n_workers: int | None, mode: str | None) -> Machine:
    """The nodes of the cluster at an address as one machine: of their GPUs if there are any, or else of their CPUs."""
    local, problems = Machine.detect("cpu", n_workers, mode), list[str]()
    nodes = Nodes(connect(address), problems.append).wait_for_all()
    for problem in problems:
        print(f"seedbed: warning: {problem}", file=sys.stderr)
    if not nodes:
        raise MissingData(f"no node of the cluster can be used{'' if problems else ': none of them answered'}")
    n_gpus = sum(node.gpus for node in nodes)
    cores = tuple(max(1, int(node.cpus)) for node in nodes if node.cpus >= 1 or n_gpus) or (1,)
    cluster = replace(local, engine="ray", address=address, node_cores=cores, n_workers=n_workers or sum(cores))
    if device not in (None, "cpu", "cuda"):
        raise UsageError(f"device {device}: with --engine ray, expected cpu or cuda (all GPUs of the cluster)")
    if device == "cuda" and not n_gpus:
        raise UsageError("no node of the cluster has a GPU; start its nodes with ray start --num-gpus, or use cpu")
    if device == "cpu" or not n_gpus:
        return cluster
    memories = [node.gpu_bytes for node in nodes if node.gpus and node.gpu_bytes is not None]
    usable = int(USABLE_GPU_MEMORY_FRACTION * min(memories)) if memories else None
    n_used = min(n_gpus, n_workers or n_gpus)
    return replace(cluster, device="cuda", n_workers=n_used, memory_bytes=usable, gpus=("cuda",) * n_used)


# ---- workers ----


class WorkerProcess:
    """The actor: jobs are added and stopped in a concurrency group of its own while `serve` streams events."""

    def __init__(self, environment: Mapping[str, str], folder: str) -> None:
        os.environ.update(environment)
        with suppress(OSError):  # paths of corpora are relative to it, where the nodes share a disk
            os.chdir(folder)
        keep_freed_heap()
        self._received: SimpleQueue[ReceivedJob] = SimpleQueue()
        self._stop = threading.Event()

    def add(self, job_index: int, n_time_slices: int | None, pickled: bytes) -> None:
        self._received.put((job_index, n_time_slices, pickled))

    def stop(self) -> None:
        self._stop.set()

    def serve(self, run_job: JobFunction, check: Callable[[], object] | None) -> Iterator[Any]:
        if check is not None:
            check()
        yield None  # it has started
        yield from serve_jobs(run_job, self._received, self._stop.is_set, REMOTE_PROGRESS_SECONDS)


class RayWorker(Worker):
    """The caller's side of a worker; `stream` has its messages."""

    def __init__(self, ray: Any, node: Node, options: Mapping[str, Any], functions: Any, n_slots: int) -> None:
        super().__init__(None, n_slots)
        actor_class = ray.remote(
            max_restarts=0,
            max_task_retries=0,
            concurrency_groups={"control": 1},
            scheduling_strategy=_affinity(node.id),
            **options,
        )(WorkerProcess)
        self.node, self.options, self.is_ready = node, options, False
        environment = {name: value for name, value in os.environ.items() if name.startswith("SEEDBED_")}
        self._ray, self._actor = ray, actor_class.remote(environment, os.getcwd())
        serve = self._actor.serve.options(_generator_backpressure_num_objects=MAX_UNREAD_EVENTS)
        self.stream = serve.remote(*functions)

    def start(self, job_index: int, job: QueuedJob) -> None:
        prepared = job.prepare(self.device)
        self.running[job_index] = job
        self._send_job(job_index, job.n_time_slices, pickle.dumps(prepared, protocol=pickle.HIGHEST_PROTOCOL))

    def _send_job(self, job_index: int, n_time_slices: int | None, pickled: bytes | memoryview) -> None:
        self._control("add", job_index, n_time_slices, pickled)

    def _send_stop(self) -> None:
        self._control("stop")

    def _control(self, method: str, *args: Any) -> None:
        # If the worker has just died, its stream says so.
        with suppress(self._ray.exceptions.RayError):
            getattr(self._actor, method).options(concurrency_group="control").remote(*args)

    def forward_message(self, on_event: EventHandler) -> None:
        """Passes one message to `on_event`; raises if the worker is lost."""
        message: tuple[int, Event | JobFailure | None] | None = self._ray.get(next(self.stream))
        if message is None:
            self.is_ready = True
        else:
            self.pass_on(*message, on_event)

    def terminate(self) -> None:
        """Gives the worker up, wherever it is; nothing that it may still send is read."""
        with suppress(Exception):
            self._ray.kill(self._actor, no_restart=True)


class _Pool:
    """The workers: as many as there are jobs for and as the nodes have room for."""

    def __init__(self, ray: Any, engine: Engine, run_job: JobFunction) -> None:
        self._ray, self._resources, self._report = ray, engine.resources, engine.report
        self._functions = (ray.put(run_job), engine.check_worker)
        self._nodes = Nodes(ray, engine.report)
        self.workers: list[RayWorker] = []
        self._last_with_workers = time.monotonic()
        self._has_said_full = False

    @property
    def ready(self) -> list[RayWorker]:
        return [worker for worker in self.workers if worker.is_ready]

    def running(self) -> list[int]:
        return [index for worker in self.workers for index in worker.running]

    def resize(self, jobs: Sequence[QueuedJob], pending: Sequence[int]) -> None:
        """Starts workers for the pending jobs; idle ones that have another size than these need are ended."""
        open_jobs = [jobs[index] for index in (*self.running(), *pending)]
        if not pending:
            return
        # Exclusive jobs come last and alone, often with all cores of a node.
        shared = [job for job in open_jobs if not job.exclusive] or open_jobs
        n_bytes = WORKER_BYTES + max(job.bytes for job in shared) * self._resources.n_slots
        cpus, on_gpus = max(job.threads for job in shared), bool(self._resources.devices)
        wanted = min(self._resources.n_workers or len(open_jobs), len(open_jobs))
        for node in self._nodes.usable():
            options = _worker_options(node, on_gpus, cpus, n_bytes)
            for worker in [each for each in self.workers if each.node.id == node.id and each.options != options]:
                if not worker.running:
                    self._drop(worker)
            n_here = sum(worker.node.id == node.id for worker in self.workers)
            n_new = min(node.n_slots(on_gpus, cpus, n_bytes) - n_here, wanted - len(self.workers))
            for _ in range(n_new):
                self.workers.append(RayWorker(self._ray, node, options, self._functions, self._resources.n_slots))
        self._report_if_full(cpus)

    def _report_if_full(self, cpus: int) -> None:
        if self.ready:
            self._last_with_workers, self._has_said_full = time.monotonic(), False
        elif not self._has_said_full and time.monotonic() - self._last_with_workers > SECONDS_WITHOUT_WORKERS:
            self._has_said_full = True
            kind = "GPU" if self._resources.devices else "CPU" if cpus == 1 else f"{cpus} CPUs"
            self._report(f"waiting: no usable node of the cluster has a free {kind}")

    def forward_messages(self, on_event: EventHandler) -> None:
        """Waits for messages of any worker, and passes one of each on."""
        if not self.workers:
            time.sleep(EVENT_WAIT_SECONDS)
            return
        by_stream = {worker.stream: worker for worker in self.workers}
        self._ray.wait(list(by_stream), num_returns=1, timeout=EVENT_WAIT_SECONDS)
        ready, _ = self._ray.wait(list(by_stream), num_returns=len(by_stream), timeout=0)
        for stream in ready:
            worker = by_stream[stream]
            try:
                worker.forward_message(on_event)
            except self._ray.exceptions.RayTaskError as error:  # such as an event that cannot be pickled
                self._drop(worker)
                cause = " ".join(str(error.cause or error).split())[-300:]
                if not worker.is_ready:  # its check has failed
                    self._nodes.exclude(worker.node.id, cause)
                worker.fail_jobs(JobFailure(f"its worker failed: {cause}"), on_event)
            except (self._ray.exceptions.RayError, StopIteration) as error:
                self._drop(worker)
                failure = self._describe_loss(worker, error)
                if not worker.is_ready:
                    self._nodes.note_failed_start(worker.node.id, failure.cause)
                worker.fail_jobs(failure, on_event)

    def abandon_overdue(self, on_event: EventHandler) -> None:
        for worker in [each for each in self.workers if each.running and each.is_overdue]:
            self.workers.remove(worker)
            worker.abandon_jobs(on_event)

    def _describe_loss(self, worker: RayWorker, error: Exception) -> JobFailure:
        preempted = bool(getattr(error, "preempted", False))
        no_memory = type(error).__name__ == "OutOfMemoryError" or "low on memory" in str(error)
        event = "was preempted" if preempted else "ran out of memory" if no_memory else "was lost"
        if not (preempted or self._nodes.is_alive(worker.node.id)):
            event += ", and so was the node"
        cause = f"its worker on node {worker.node.address} {event}"
        return JobFailure(cause, str(error), no_memory, worker.is_stopping, worker_lost=True, preempted=preempted)

    def _drop(self, worker: RayWorker) -> None:
        worker.terminate()
        self.workers.remove(worker)

    def close(self) -> None:
        for worker in list(self.workers):
            self._drop(worker)


def _worker_options(node: Node, on_gpus: bool, cpus: int, n_bytes: int) -> dict[str, Any]:
    if on_gpus:
        return {"num_gpus": 1, "num_cpus": min(1.0, node.cpus / node.gpus)}
    # A pack that was started with more threads than any node has keeps them: its sums have their order.
    return {"num_cpus": min(cpus, node.cpus), "memory": n_bytes}


class RayEngine(Engine):
    """Runs jobs on the nodes of a Ray cluster."""

    has_remote_workers = True

    def run(self, jobs: list[QueuedJob], run_job: JobFunction, on_event: EventHandler, should_stop: ShouldStop) -> None:
        if not jobs:
            return
        queue = JobQueue(jobs)
        pool = _Pool(connect(self.resources.address), self, run_job)
        try:
            while (pending := queue.pending()) or pool.running():
                if should_stop():
                    for worker in pool.workers:
                        worker.stop_jobs()
                    pool.abandon_overdue(on_event)
                    if not pool.running():
                        return
                else:
                    pool.resize(jobs, pending)
                    while start_next_job(queue, jobs, pool.ready):
                        pass
                pool.forward_messages(on_event)
        finally:
            pool.close()
