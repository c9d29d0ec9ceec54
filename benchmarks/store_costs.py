"""What the records of a study cost: processor time of the process that writes and of the database server.

    with start_server() as server:
        print(measure_store(Meter(server.pid), server.new_store(home), home))

Processor time, since it is the same on a busy machine; the time on the clock stands beside it.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import psutil
from cluster_simulation import Cost, Costs
from sqlalchemy import Connection, Engine, event, insert
from tests.postgres_server import PostgresServer, start_postgres
from tests.store.toy import PLACEMENT, make_pack

from seedbed.records import CheckpointEvent, EvaluationEvent, FinishEvent, Plan, Run
from seedbed.store import Store, bind_store, open_store, postgres_database, schema
from seedbed.store.sql_store import SQLStore
from seedbed.study.plan import plan_named

TINY = ("task.p=5", "model.dim=8", "model.heads=2", "model.layers=1")
METRICS = ("train/loss", "train/accuracy", "val/loss", "val/accuracy")
DURABLE = ("shared_buffers=128MB", "max_connections=60")  # a commit is on the disk, as by default
SMALL, LARGE = 10, 100  # runs of a pack
CARRY_SECONDS = 0.0005  # of a coordinator for an event of a worker; benchmarks/cluster.py has between 0.4 and 1 ms
N_VALUES = 1_000  # parameters of a run, as float32


@contextmanager
def start_server() -> Iterator[tuple[PostgresServer, int]]:
    """A server that flushes its commits, and the id of its process."""
    with start_postgres(*DURABLE) as server:
        yield server, server._process.pid


def server_seconds(pid: int | None) -> float:
    """Processor time of a database server and all processes that it has started."""
    if pid is None:
        return 0.0
    main = psutil.Process(pid)
    own = main.cpu_times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in main.children():
        try:
            times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


class Meter:
    """Costs of calls; `server`: the process of the database server, if there is one."""

    def __init__(self, server: int | None = None) -> None:
        self._server, self.n_statements = server, 0
        event.listen(Engine, "before_cursor_execute", self._count)
        event.listen(Engine, "begin", self._count)
        event.listen(Engine, "commit", self._count)

    def _count(self, *_: Any) -> None:
        self.n_statements += 1

    def _read(self) -> np.ndarray:
        return np.array(
            [time.perf_counter(), time.process_time(), server_seconds(self._server), float(self.n_statements)]
        )

    def measure(self, call: Callable[[], object]) -> np.ndarray:
        """Wall, client and server seconds, and statements, of one call."""
        before = self._read()
        call()
        return self._read() - before


Measured = Mapping[str, list[float]]  # name: wall, client and server seconds, and statements


def make_plan(n_runs: int, study: str = "scale") -> Plan:
    """A plan of tiny runs that differ in their seed, with the settings that a real one has."""
    plan = plan_named("quickstart", (*TINY, "seeds=1"))
    [run] = plan.runs
    ids = (hashlib.blake2b(f"{study} {seed}".encode(), digest_size=6).hexdigest() for seed in range(n_runs))
    return replace(plan, study=study, runs=tuple(replace(run, id=key, seed=seed) for seed, key in enumerate(ids)))


def evaluation(step: int, size: int) -> EvaluationEvent:
    return EvaluationEvent(step, tuple(range(size)), METRICS, np.random.default_rng(step).random((size, len(METRICS))))


def checkpoint(step: int, size: int) -> CheckpointEvent:
    """The weights of all runs, and a state of three times their size."""
    weights = {slot: {"w": np.full(N_VALUES, step, np.float32)} for slot in range(size)}
    return CheckpointEvent(step, {"x": np.full((size, 3 * N_VALUES), step, np.float32)}, weights)


def claim(store: Store, runs: Sequence[Run], size: int) -> list[str]:
    """The ids of new packs of this many runs."""
    packs = [make_pack(runs[i : i + size]) for i in range(0, len(runs), size)]
    return [pack.id for pack in store.claim(packs, lambda _: PLACEMENT)]


def measure_pack(meter: Meter, store: Store, pack: str, size: int, n_commits: int) -> dict[str, np.ndarray]:
    """The costs of the transactions of one pack, from its resumption to its end; its lease is held."""
    found = {"resume": meter.measure(lambda: store.resume(pack, {"device": "cpu"}))}

    def commit() -> None:
        for step in range(1, n_commits + 1):
            store.record(pack, [evaluation(step, size)])

    def save() -> None:
        for step in (n_commits, n_commits + 1):
            store.save(pack, checkpoint(step, size))

    found["commit"] = meter.measure(commit) / n_commits
    found["save"] = meter.measure(save) / 2
    store.record(pack, [FinishEvent(slot, n_commits) for slot in range(size)])
    found["finish"] = meter.measure(lambda: store.finish(pack))
    return found


def measure_packs(meter: Meter, store: Store, runs: Sequence[Run], size: int, n_commits: int) -> dict[str, np.ndarray]:
    """The mean costs of the transactions of packs of this many runs."""
    packs: list[str] = []
    n = len(runs) // size
    spent = {"start": meter.measure(lambda: packs.extend(claim(store, runs, size)))}
    with ExitStack() as locks:

        def start() -> None:
            for pack in packs:
                locks.enter_context(store.lock(pack))
                store.pack_members(pack)

        spent["start"] = (spent["start"] + meter.measure(start)) / n
        found = [measure_pack(meter, store, pack, size, n_commits) for pack in packs]
    return spent | {name: np.mean([one[name] for one in found], axis=0) for name in found[0]}


def measure_open_packs(meter: Meter, store: Store, runs: Sequence[Run], n_open: int, n_ended: int) -> np.ndarray:
    """What the end of a pack costs beside this many others that have a saved state."""
    packs = claim(store, runs[: n_open + n_ended], 1)
    with ExitStack() as locks:
        for pack in packs:
            locks.enter_context(store.lock(pack))
            store.resume(pack)
            store.record(pack, [evaluation(1, 1)])
            store.save(pack, CheckpointEvent(1, {"x": np.zeros(3)}, {}))
        for pack in packs[:n_ended]:
            store.record(pack, [FinishEvent(0, 1)])
        spent = sum(meter.measure(lambda pack=pack: store.finish(pack)) for pack in packs[:n_ended]) / n_ended
        for pack in packs[n_ended:]:
            store.record(pack, [FinishEvent(0, 1)])
            store.finish(pack)
    return spent


def _processor(spent: np.ndarray) -> float:
    return float(spent[1] + spent[2])


def add_stored_runs(store: Store, n: int) -> None:
    """Rows of runs that some study has, which nobody reads."""
    ids = [f"stored {number}" for number in range(n)]
    constant = {"seed": 0, "settings": {}, "parameters": {}}

    def add(connection: Connection) -> None:
        connection.execute(insert(schema.runs), [{"id": one, **constant} for one in ids])
        links = [{"study": "scale", "run": one, "position": 10_000 + i} for i, one in enumerate(ids)]
        connection.execute(insert(schema.study_runs), links)

    assert isinstance(store, SQLStore)
    store._database.write(add)


def measure_renewal(meter: Meter, address: str, n_leases: int, seconds: float) -> np.ndarray:
    """What the renewal of a lease costs, of as many as are held together."""
    usual, postgres_database.RENEW_SECONDS = postgres_database.RENEW_SECONDS, 0.05
    try:
        with open_store(address) as store, ExitStack() as locks:
            for number in range(n_leases):
                locks.enter_context(store.lock(f"lease {number}"))
            before = meter.n_statements
            spent = meter.measure(lambda: time.sleep(seconds))
    finally:
        postgres_database.RENEW_SECONDS = usual
    n_renewals = (meter.n_statements - before) / 4  # BEGIN, limits, the renewals, COMMIT
    return spent / max(1.0, n_renewals) / n_leases


def measure_grant(meter: Meter, address: str, n_times: int) -> np.ndarray:
    """What it costs to take a lease and to hand its number to a worker that writes."""

    def hand_out() -> None:
        for number in range(n_times):
            with store.lock(f"grant {number}"):
                store.grant(f"grant {number}")

    with open_store(address) as store:
        return meter.measure(hand_out) / n_times


def view_study(home: Path, study: str) -> None:
    """What the page of a study asks for first, from a cache that has nothing."""
    from seedbed.web.store_cache import StoreCache
    from seedbed.web.study_page import StudyView, send_study

    assert b"figures" in send_study(StudyView(StoreCache(home), study)).body


def measure_store(meter: Meter, address: str, home: Path, n_stored: int) -> Measured:
    """The costs of every kind of transaction; the store grows to `n_stored` runs."""
    is_shared = not address.startswith("sqlite:")
    if is_shared:
        bind_store(home, address.partition("#")[0])
    found: dict[str, np.ndarray] = {}
    with open_store(address) as store:
        first = make_plan(2_000)
        found["register a run"] = meter.measure(lambda: store.register(first)) / 2_000
        small, large = first.runs[:500], first.runs[500:1500]
        for size, runs in ((SMALL, small), (LARGE, large)):
            for name, spent in measure_packs(meter, store, runs, size, n_commits=20).items():
                found[f"{name}, {size} runs"] = spent
        found["finish, 2,000 runs stored"] = measure_open_packs(meter, store, first.runs[1500:1600], 0, 20)
        some = [first.runs[i : i + 120] for i in (1600, 1720)]  # the smaller of two: a busy machine only adds
        found["finish, 100 packs open"] = min(
            (measure_open_packs(meter, store, one, 100, 20) for one in some), key=_processor
        )
        found["read a run"] = meter.measure(lambda: store.runs("scale")) / 2_000
        view_study(home, "scale")  # imports
        found["page view, 2,000 runs"] = meter.measure(lambda: view_study(home, "scale"))
        add_stored_runs(store, n_stored - 2_000)
        found[f"finish, {n_stored:,} runs stored"] = measure_open_packs(meter, store, first.runs[1900:], 0, 20)
    if is_shared:
        found["renew a lease"] = measure_renewal(meter, address, 200, 3.0)
        found["lease and grant"] = measure_grant(meter, address, 200)
        found["carry an event"] = np.array([0.0, CARRY_SECONDS, 0.0, 0.0])
    return {name: [float(one) for one in spent] for name, spent in found.items()}


def fit_costs(measured: Measured) -> Costs:
    """Costs for the simulation: what is measured for two sizes is taken to grow in proportion between and beyond."""

    def cost(name: str) -> Cost:
        return Cost(*measured[name][1:]) if name in measured else Cost()

    def fit(name: str) -> tuple[Cost, Cost]:
        """What a transaction costs by itself and for each run of its pack."""
        small, large = cost(f"{name}, {SMALL} runs"), cost(f"{name}, {LARGE} runs")
        return split(small, SMALL, large, LARGE)

    def split(low: Cost, n_low: int, high: Cost, n_high: int) -> tuple[Cost, Cost]:
        slope = (high + low * -1) * (1 / (n_high - n_low))
        slope = Cost(*(max(0.0, one) for one in (slope.client, slope.server, slope.trips)))
        base = low + slope * -n_low
        return Cost(*(max(0.0, one) for one in (base.client, base.server, base.trips))), slope

    (start, start_run), (resume, resume_run), (commit, row), (save, save_run), (finish, finish_run) = (
        fit(name) for name in ("start", "resume", "commit", "save", "finish")
    )
    few = cost("finish, 2,000 runs stored")
    many, n_many = next(
        (cost(name), int(name.split()[1].replace(",", "")))
        for name in measured if name.endswith(" runs stored") and name != "finish, 2,000 runs stored"
    )  # fmt: skip
    _, stored_run = split(few, 2_000, many, n_many)
    _, open_pack = split(few, 10, cost("finish, 100 packs open"), 110)  # the 20 that end count as well
    return Costs(
        cost("register a run"), cost("read a run"), start, start_run, resume, resume_run, commit, row, save, save_run,
        finish + stored_run * -2_000 if finish.server > stored_run.server * 2_000 else finish,
        finish_run, stored_run, open_pack, cost("renew a lease"),
        cost("lease and grant"), cost("carry an event"), cost("page view, 2,000 runs"),
    )  # fmt: skip


# ---- writers at once ----


@dataclass(frozen=True)
class Saturation:
    """What some writers do together in a second, and the processor time of one commit."""

    n_writers: int
    commits_per_second: float
    client: float
    server: float
    server_share: float  # processors that the server used


def _write(address: str, number: int, size: int, barrier: Any, results: Any, seconds: float) -> None:
    with open_store(address) as store:
        plan = make_plan(size, f"writer {number}")
        store.register(plan)
        [pack] = claim(store, plan.runs, size)
        with store.lock(pack):
            store.resume(pack)
            store.record(pack, [evaluation(0, size)])
            barrier.wait()
            end, n, before = time.monotonic() + seconds, 0, time.process_time()
            while time.monotonic() < end:
                n += 1
                store.record(pack, [evaluation(n, size)])
            results.put((n, time.process_time() - before))
            barrier.wait()


def measure_saturation(address: str, server: int, n_writers: int, size: int, seconds: float) -> Saturation:
    """Processes that commit an evaluation of their own pack as fast as they can."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(n_writers + 1), context.Queue()
    writers = [
        context.Process(target=_write, args=(address, number, size, barrier, results, seconds))
        for number in range(n_writers)
    ]
    for writer in writers:
        writer.start()
    barrier.wait()
    start, before = time.monotonic(), server_seconds(server)
    done = [results.get() for _ in writers]
    wall, spent = time.monotonic() - start, server_seconds(server) - before
    barrier.wait()
    for writer in writers:
        writer.join()
    n = sum(count for count, _ in done)
    return Saturation(n_writers, n / wall, sum(client for _, client in done) / n, spent / n, spent / wall)
