"""A study on a cluster as a discrete-event simulation: GPUs that fail, coordinators, and one PostgreSQL server.

    result = simulate(Scenario(n_runs=100_000, n_gpus=100), costs)

Times are seconds. A GPU trains a pack in segments of one commit each, and waits for a commit only if the one before it
is not done. A commit takes its writer, the only thread of the coordinator or a worker, until it is done, and meanwhile
the way to the server and a processor there. The end of a pack also holds the lock of the whole store.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

FLUSH_SECONDS = 0.5  # events of this time are committed together
PROGRESS_SECONDS = 2.0  # between the steps, and between the evaluations, that a worker sends for display
RENEW_SECONDS = 8.0  # between renewals of all leases of a coordinator
LEASE_SECONDS = 40.0


@dataclass(frozen=True)
class Cost:
    """Processor seconds of a transaction on the side of its writer and on the server's, and its statements."""

    client: float = 0.0
    server: float = 0.0
    trips: float = 0.0  # to the server and back

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.client + other.client, self.server + other.server, self.trips + other.trips)

    def __mul__(self, factor: float) -> Cost:
        return Cost(self.client * factor, self.server * factor, self.trips * factor)


@dataclass(frozen=True)
class Costs:
    """What the records of a study cost; see `benchmarks/scale.py measure`."""

    register_run: Cost = Cost()  # of a study, for each of its runs
    read_run: Cost = Cost()  # before and after training, for each run of the study
    start_pack: Cost = Cost()  # claimed, leased and read, before any pack is trained
    start_run: Cost = Cost()  # the same, for each run of a pack
    resume: Cost = Cost()
    resume_run: Cost = Cost()
    commit: Cost = Cost()
    commit_evaluation: Cost = Cost()  # for each run of each evaluation in a commit
    save: Cost = Cost()
    save_run: Cost = Cost()
    finish: Cost = Cost()  # holds the lock of the whole store, as does the next
    finish_run: Cost = Cost()
    finish_stored_run: Cost = Cost()  # for each run of the whole store
    finish_open_pack: Cost = Cost()  # for each other pack that has a saved state
    renew_lease: Cost = Cost()
    grant: Cost = Cost()  # of a pack to a worker that writes
    carry_event: Cost = Cost()  # from a worker to its coordinator
    page_view: Cost = Cost()


@dataclass(frozen=True)
class Scenario:
    """A study, the machines that train it and what goes wrong."""

    n_runs: int
    n_gpus: int
    runs_per_pack: int = 128
    pack_seconds: float = 60.0  # of training, without commits
    n_evaluations: int = 100  # of each pack
    n_saves: int = 10
    n_coordinators: int = 1
    workers_write: bool = False  # otherwise their coordinator does
    database_cores: int = 8
    round_trip_seconds: float = 0.0  # to the server and back
    start_seconds: float = 0.0  # of a pack on a GPU: models built, programs compiled or taken from the cache
    gpu_failure_seconds: float | None = None  # mean time between the failures of a GPU; None: it never fails
    coordinator_failure_seconds: float | None = None
    repair_seconds: float = 300.0
    detect_seconds: float = LEASE_SECONDS  # before a lost pack is handed on
    page_views_per_second: float = 0.0
    seed: int = 0

    @property
    def n_packs(self) -> int:
        return -(-self.n_runs // self.runs_per_pack)

    @property
    def n_commits(self) -> int:
        """Of a pack: events are collected for some time, and committed before each save."""
        return max(1, self.n_saves, min(self.n_evaluations, round(self.pack_seconds / FLUSH_SECONDS)))

    @property
    def n_carried(self) -> float:
        """Events of a pack that its worker sends to the coordinator: with each save comes what the pack has cost."""
        n_steps = self.pack_seconds / PROGRESS_SECONDS
        n_evaluations = min(self.n_evaluations, n_steps) if self.workers_write else self.n_evaluations
        return n_steps + n_evaluations + 2 * self.n_saves

    @property
    def evaluations_per_commit(self) -> float:
        return self.n_evaluations / self.n_commits


@dataclass(frozen=True)
class Result:
    """What a simulation found; utilisations are shares of the makespan."""

    makespan: float
    ideal_makespan: float  # the work, evenly spread over GPUs that never wait or fail
    startup: float  # before the first pack is trained
    gpus: float  # utilisation by work that was kept
    coordinator: float  # its thread, also while it waits for the store lock or the server
    database: float
    store_lock: float  # held, also while its holder waits for the server
    lost_work: float  # GPU seconds that were trained again
    n_failures: int
    n_commits: int
    client_seconds: float  # processor time of all writers
    server_seconds: float  # processor time of the server
    longest_commit: float  # from the end of its segment to its commit
    renewal: float  # the longest time between two renewals of a coordinator's leases


class Clock:
    """Calls functions in the order of their times, and in the order in which they were scheduled at equal times."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), call))

    def run(self, is_done: Callable[[], bool] = lambda: False) -> None:
        while self._events and not is_done():
            self.now, _, call = heapq.heappop(self._events)
            call()


class Server:
    """Processors that serve requests in the order of their arrival."""

    def __init__(self, clock: Clock, n_processors: int = 1) -> None:
        self._clock, self._n_free = clock, n_processors
        self._waiting: deque[tuple[float, float, Callable[[], None]]] = deque()
        self.busy = self.waited = 0.0  # seconds of service, and of waiting for it
        self.n_served = 0

    def serve(self, seconds: float, then: Callable[[], None]) -> None:
        self._waiting.append((self._clock.now, seconds, then))
        self._start()

    def _start(self) -> None:
        while self._n_free and self._waiting:
            arrival, seconds, then = self._waiting.popleft()
            self._n_free -= 1
            self.busy += seconds
            self.waited += self._clock.now - arrival
            self.n_served += 1
            self._clock.after(seconds, partial(self._end, then))

    def _end(self, then: Callable[[], None]) -> None:
        self._n_free += 1
        then()
        self._start()


class Lock:
    """What one holds at a time, in the order of asking, until it is released."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: float | None = None  # when it was taken; None: it is free
        self._waiting: deque[Callable[[], None]] = deque()
        self.busy = 0.0

    def acquire(self, then: Callable[[], None]) -> None:
        self._waiting.append(then)
        self._grant()

    def release(self) -> None:
        assert self._since is not None
        self.busy += self._clock.now - self._since
        self._since = None
        self._grant()

    def _grant(self) -> None:
        if self._since is None and self._waiting:
            self._since = self._clock.now
            self._clock.after(0.0, self._waiting.popleft())


@dataclass(eq=False)
class _Pack:
    saved: int = 0  # segments that the next attempt need not do again
    segment: int = 0  # segments that this attempt has done, and what it went on from
    partial: float = 0.0  # seconds of the segment in which it was lost
    attempt: int = 0


@dataclass(eq=False)
class _GPU:
    coordinator: _Coordinator
    pack: _Pack | None = None
    is_up: bool = True
    segment_start: float | None = None  # None: it waits
    is_committing: bool = False


@dataclass(eq=False)
class _Coordinator:
    thread: Lock
    packs: deque[_Pack]
    n_open: int
    gpus: list[_GPU] = field(default_factory=list)
    idle: deque[_GPU] = field(default_factory=deque)
    life: int = 0  # how often it has been started
    is_up: bool = False
    last_renewal: float = 0.0


@dataclass(frozen=True)
class Transactions:
    """The costs of the transactions of a scenario."""

    start_study: Cost  # before what each pack costs
    start_pack: Cost
    resume: Cost
    commit: Cost
    save: Cost
    finish: Cost
    carry: Cost  # of the events of a segment

    @classmethod
    def of(cls, scenario: Scenario, costs: Costs) -> Transactions:
        size, n_stored = scenario.runs_per_pack, scenario.n_runs
        finish = costs.finish + costs.finish_run * size + costs.finish_stored_run * n_stored
        return cls(
            costs.read_run * n_stored,
            costs.start_pack + costs.start_run * size,
            costs.resume + costs.resume_run * size + costs.grant * scenario.workers_write,
            costs.commit + costs.commit_evaluation * (size * scenario.evaluations_per_commit),
            costs.save + costs.save_run * size,
            finish + costs.finish_open_pack * min(scenario.n_gpus, scenario.n_packs) * (scenario.n_saves > 0),
            costs.carry_event * (scenario.n_carried / scenario.n_commits),
        )


class _Cluster:
    """The state of one simulation."""

    def __init__(self, scenario: Scenario, costs: Costs) -> None:
        self.scenario, self.costs, self.random = scenario, costs, random.Random(scenario.seed)
        self.transactions = Transactions.of(scenario, costs)
        self.clock = Clock()
        self.database, self.store_lock = Server(self.clock, scenario.database_cores), Lock(self.clock)
        self.segment_seconds = scenario.pack_seconds / scenario.n_commits
        self.n_left, self.n_failures, self.n_commits, self.client_seconds = scenario.n_packs, 0, 0, 0.0
        self.lost_work = self.startup = self.longest_commit = self.renewal = 0.0
        n = scenario.n_coordinators
        shares = [len(range(i, scenario.n_packs, n)) for i in range(n)]
        self.coordinators = [
            _Coordinator(Lock(self.clock), deque(_Pack() for _ in range(share)), share) for share in shares
        ]
        for i in range(scenario.n_gpus):
            self.coordinators[i % n].gpus.append(_GPU(self.coordinators[i % n]))

    # ---- transactions ----

    def send(self, cost: Cost, then: Callable[[], None]) -> None:
        """The time of a transaction, for its writer and on the server."""
        self.client_seconds += cost.client
        before = cost.client + cost.trips * self.scenario.round_trip_seconds
        self.clock.after(before, partial(self.database.serve, cost.server, then))

    def send_from(
        self, coordinator: _Coordinator, cost: Cost, then: Callable[[], None], locks_store: bool = False
    ) -> None:
        """The same for a coordinator, which does one thing at a time."""

        def done() -> None:
            if locks_store:
                self.store_lock.release()
            coordinator.thread.release()
            then()

        def lock() -> None:
            self.store_lock.acquire(partial(self.send, cost, done))

        coordinator.thread.acquire(lock if locks_store else partial(self.send, cost, done))

    # ---- coordinators ----

    def start(self) -> None:
        for number, coordinator in enumerate(self.coordinators):
            self.start_coordinator(coordinator, is_first=number == 0)
            self.expect(self.scenario.coordinator_failure_seconds, partial(self.lose_coordinator, coordinator))
            for gpu in coordinator.gpus:
                self.expect(self.scenario.gpu_failure_seconds, partial(self.lose_gpu, gpu))
        if self.scenario.page_views_per_second:
            self.view_page()

    def start_coordinator(self, coordinator: _Coordinator, is_first: bool = False) -> None:
        """Registers or reads the whole study, and claims the packs that are left."""
        cost = self.transactions.start_study + self.transactions.start_pack * coordinator.n_open
        if is_first:
            cost += self.costs.register_run * self.scenario.n_runs

        def begin() -> None:
            self.startup = self.startup or self.clock.now
            coordinator.is_up, coordinator.last_renewal = True, self.clock.now
            coordinator.life += 1
            coordinator.idle = deque(gpu for gpu in coordinator.gpus if gpu.is_up)
            self.hand_out(coordinator)
            self.clock.after(RENEW_SECONDS, partial(self.renew, coordinator, coordinator.life))

        self.send_from(coordinator, cost, begin, locks_store=True)

    def renew(self, coordinator: _Coordinator, life: int) -> None:
        """Renews the leases of all packs that the coordinator has left, in a thread of its own."""

        def renewed() -> None:
            self.renewal = max(self.renewal, self.clock.now - coordinator.last_renewal)
            coordinator.last_renewal = self.clock.now
            self.clock.after(RENEW_SECONDS, partial(self.renew, coordinator, life))

        if coordinator.is_up and coordinator.life == life:
            self.send(self.costs.renew_lease * coordinator.n_open, renewed)

    def hand_out(self, coordinator: _Coordinator) -> None:
        """Gives packs to idle GPUs."""
        while coordinator.is_up and coordinator.packs and coordinator.idle:
            gpu, pack = coordinator.idle.popleft(), coordinator.packs.popleft()
            self.lost_work += (pack.segment - pack.saved) * self.segment_seconds + pack.partial
            pack.attempt += 1
            pack.segment, pack.partial = pack.saved, 0.0
            gpu.pack, gpu.is_committing = pack, False
            self.send_from(coordinator, self.transactions.resume, partial(self.begin_pack, gpu, pack, pack.attempt))

    def begin_pack(self, gpu: _GPU, pack: _Pack, attempt: int) -> None:
        self.clock.after(self.scenario.start_seconds, partial(self.train, gpu, pack, attempt))

    # ---- training ----

    def train(self, gpu: _GPU, pack: _Pack, attempt: int) -> None:
        """Trains one segment."""
        if gpu.pack is pack and pack.attempt == attempt:
            gpu.segment_start = self.clock.now
            self.clock.after(self.segment_seconds, partial(self.end_segment, gpu, pack, attempt))

    def end_segment(self, gpu: _GPU, pack: _Pack, attempt: int) -> None:
        if gpu.pack is pack and pack.attempt == attempt:
            gpu.segment_start = None
            pack.segment += 1
            if not gpu.is_committing:
                self.commit(gpu, pack)

    def commit(self, gpu: _GPU, pack: _Pack) -> None:
        """Sends the events of a segment, and trains the next one meanwhile."""
        segment, n, coordinator = pack.segment, self.scenario.n_commits, gpu.coordinator
        is_saved = segment * self.scenario.n_saves // n > (segment - 1) * self.scenario.n_saves // n
        cost = self.transactions.commit + (self.transactions.save if is_saved else Cost())
        keeps = is_saved or segment == n
        done = partial(self.end_commit, gpu, pack, pack.attempt, segment, keeps, coordinator.life, self.clock.now)
        gpu.is_committing = True
        if self.transactions.carry.client:
            self.send_from(coordinator, self.transactions.carry, lambda: None)
        if self.scenario.workers_write:
            self.send(cost, done)
        else:
            self.send_from(coordinator, cost, done)
        if segment < n:
            self.train(gpu, pack, pack.attempt)

    def end_commit(
        self, gpu: _GPU, pack: _Pack, attempt: int, segment: int, keeps: bool, life: int, began: float
    ) -> None:
        self.n_commits += 1
        self.longest_commit = max(self.longest_commit, self.clock.now - began)
        if pack.attempt != attempt or (gpu.coordinator.life != life or not gpu.coordinator.is_up):
            return  # given up meanwhile: refused by its fencing number
        if keeps:
            pack.saved = segment
        if gpu.pack is pack:
            gpu.is_committing = False
            if segment == self.scenario.n_commits:
                gpu.pack = None
                gpu.coordinator.idle.append(gpu)
                self.end_pack(gpu.coordinator)
            elif gpu.segment_start is None:  # it waited for this commit
                self.commit(gpu, pack)

    def end_pack(self, coordinator: _Coordinator) -> None:
        """That a pack is finished is recorded while the GPU takes its next one."""
        coordinator.n_open -= 1

        def finished() -> None:
            self.n_left -= 1

        self.hand_out(coordinator)
        self.send_from(coordinator, self.transactions.finish, finished, locks_store=True)

    # ---- failures ----

    def expect(self, mean: float | None, call: Callable[[], None]) -> None:
        """Something that happens at random, after this time on average; None: never."""
        if mean is not None:
            self.clock.after(self.random.expovariate(1 / mean), call)

    def lose_gpu(self, gpu: _GPU) -> None:
        self.n_failures += 1
        self.drop_pack(gpu)
        gpu.is_up = False
        self.clock.after(self.scenario.repair_seconds, partial(self.restore_gpu, gpu))

    def restore_gpu(self, gpu: _GPU) -> None:
        gpu.is_up = True
        self.expect(self.scenario.gpu_failure_seconds, partial(self.lose_gpu, gpu))
        if gpu.coordinator.is_up:
            gpu.coordinator.idle.append(gpu)
            self.hand_out(gpu.coordinator)

    def drop_pack(self, gpu: _GPU) -> None:
        """The pack of a lost GPU, if it has one, is queued again once the loss is noticed."""
        pack, gpu.pack, coordinator = gpu.pack, None, gpu.coordinator
        if gpu in coordinator.idle:
            coordinator.idle.remove(gpu)
        if pack is not None:
            if gpu.segment_start is not None:
                pack.partial = self.clock.now - gpu.segment_start
            gpu.segment_start = None
            self.clock.after(self.scenario.detect_seconds, partial(self.requeue, coordinator, pack))

    def requeue(self, coordinator: _Coordinator, pack: _Pack) -> None:
        if pack.saved == self.scenario.n_commits:  # its last commit arrived after all
            self.end_pack(coordinator)
        else:
            coordinator.packs.append(pack)
            self.hand_out(coordinator)

    def lose_coordinator(self, coordinator: _Coordinator) -> None:
        """All its workers end with it; the same command is given again once its leases are over."""
        if coordinator.is_up:
            self.n_failures += 1
            coordinator.is_up = False
            for gpu in coordinator.gpus:
                self.drop_pack(gpu)
            pause = max(self.scenario.repair_seconds, LEASE_SECONDS)
            self.clock.after(pause, partial(self.start_coordinator, coordinator))
        self.expect(self.scenario.coordinator_failure_seconds, partial(self.lose_coordinator, coordinator))

    def view_page(self) -> None:
        self.database.serve(self.costs.page_view.server, lambda: None)
        self.expect(1 / self.scenario.page_views_per_second, self.view_page)


def simulate(scenario: Scenario, costs: Costs) -> Result:
    """Trains a study on a simulated cluster; equal scenarios give equal results."""
    cluster = _Cluster(scenario, costs)
    cluster.start()
    cluster.clock.run(lambda: cluster.n_left == 0)
    last = costs.read_run * scenario.n_runs  # the outcome is counted at the end
    makespan = cluster.clock.now + last.client + last.server
    work = scenario.n_packs * scenario.pack_seconds
    return Result(
        makespan=makespan,
        ideal_makespan=work / scenario.n_gpus,
        startup=cluster.startup,
        gpus=work / scenario.n_gpus / makespan,
        coordinator=max(one.thread.busy for one in cluster.coordinators) / makespan,
        database=cluster.database.busy / scenario.database_cores / makespan,
        store_lock=cluster.store_lock.busy / makespan,
        lost_work=cluster.lost_work,
        n_failures=cluster.n_failures,
        n_commits=cluster.n_commits,
        client_seconds=cluster.client_seconds + last.client,
        server_seconds=cluster.database.busy + last.server,
        longest_commit=cluster.longest_commit,
        renewal=cluster.renewal,
    )


RESOURCES = ("coordinator", "database", "store lock")


def demand(scenario: Scenario, costs: Costs) -> dict[str, float]:
    """How busy each resource is with the packs of all GPUs while none waits, without failures; 1 is all of it."""
    of = Transactions.of(scenario, costs)
    commits = of.commit * scenario.n_commits + of.save * scenario.n_saves
    once = of.resume + of.finish
    carried = of.carry * scenario.n_commits

    def seconds(cost: Cost) -> float:
        return cost.client + cost.server + cost.trips * scenario.round_trip_seconds

    per_pack = {
        "coordinator": (seconds(once if scenario.workers_write else once + commits) + carried.client)
        / scenario.n_coordinators,
        "database": (once + commits).server / scenario.database_cores,
        "store lock": seconds(of.finish),
    }
    packs_per_second = scenario.n_gpus / (scenario.pack_seconds + scenario.start_seconds)
    return {name: per_pack[name] * packs_per_second for name in RESOURCES}


def saturates_first(scenario: Scenario, costs: Costs) -> str:
    """The resource that is asked for most."""
    asked = demand(scenario, costs)
    return max(asked, key=lambda name: asked[name])


def capacities(scenario: Scenario, costs: Costs, most: int = 1_000_000) -> dict[str, int]:
    """The most GPUs that each resource can serve, by `demand`; what more of them do is wait."""

    def fits(name: str, n_gpus: int) -> bool:
        return demand(replace(scenario, n_gpus=n_gpus), costs)[name] <= 1

    found = {}
    for name in RESOURCES:
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fits(name, middle) else (low, middle - 1)
        found[name] = low
    return found
