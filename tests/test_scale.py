"""The simulation behind docs/scale.md agrees with what can be calculated."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from cluster_simulation import Clock, Cost, Costs, Scenario, Server, capacities, demand, saturates_first, simulate

PACKS = Scenario(n_runs=200, n_gpus=1, runs_per_pack=10, pack_seconds=50.0, n_evaluations=10, n_saves=5)
COSTS = Costs(
    register_run=Cost(0.001, 0.0005),
    start_pack=Cost(0.02, 0.01),
    resume=Cost(0.01, 0.004),
    commit=Cost(0.01, 0.002),
    commit_evaluation=Cost(0.0001, 0.00005),
    save=Cost(0.02, 0.003),
    finish=Cost(0.05, 0.01),
    finish_stored_run=Cost(0.0, 0.00001),
    renew_lease=Cost(0.0, 0.0001),
)
FAILING = replace(PACKS, n_gpus=7, gpu_failure_seconds=300.0, repair_seconds=20.0, coordinator_failure_seconds=400.0)


def test_one_worker_that_never_fails_takes_the_sum_of_the_work() -> None:
    result = simulate(PACKS, Costs())
    assert result.makespan == pytest.approx(20 * 50.0)
    assert (result.lost_work, result.n_failures, result.n_commits) == (0.0, 0, 200)
    assert result.gpus == pytest.approx(1.0)


def test_workers_share_the_work_in_whole_packs() -> None:
    assert simulate(replace(PACKS, n_gpus=8), Costs()).makespan == pytest.approx(3 * 50.0)  # 20 packs: 8, 8 and 4


@pytest.mark.parametrize("n_processors", [1, 2])
def test_a_queue_is_as_long_as_queueing_theory_says(n_processors: int) -> None:
    """M/D/1: utilisation is ρ = λs, and the mean wait ρs / 2(1 − ρ); with two processors it is much shorter."""
    clock, arrivals, service, n = Clock(), random.Random(1), 0.7, 20_000
    server, time = Server(clock, n_processors), 0.0
    for _ in range(n):
        time += arrivals.expovariate(1.0)
        clock.after(time, partial(server.serve, service, lambda: None))
    clock.run()
    assert server.n_served == n
    assert server.busy / clock.now / n_processors == pytest.approx(service / n_processors, rel=0.02)
    wait, expected = server.waited / n, service * service / 2 / (1 - service)
    if n_processors == 1:
        assert wait == pytest.approx(expected, rel=0.1)
    else:
        assert wait < expected / 5


@pytest.mark.parametrize("workers_write", [False, True])
def test_a_failure_costs_at_most_the_work_since_the_last_checkpoint(workers_write: bool) -> None:
    """Five checkpoints a pack, so at most 10 s; a checkpoint that is on its way at that moment adds its own time."""
    scenario = replace(PACKS, gpu_failure_seconds=400.0, repair_seconds=20.0, workers_write=workers_write)
    results = [simulate(replace(scenario, seed=seed), COSTS) for seed in range(20)]
    assert sum(result.n_failures for result in results) > 20
    for result in results:
        assert result.lost_work <= result.n_failures * (10.0 + 2 * result.longest_commit)
    assert sum(result.lost_work for result in results) > 0
    rare, often = (
        sum(simulate(replace(scenario, n_saves=n, seed=seed), COSTS).lost_work for seed in range(20)) for n in (1, 5)
    )
    assert rare > 2 * often  # negative control: without checkpoints in between a failure costs more


def test_everything_ends_whatever_fails_and_equal_seeds_give_equal_results() -> None:
    first, again = simulate(FAILING, COSTS), simulate(FAILING, COSTS)
    assert first == again
    assert first.n_failures > 0
    assert first.makespan > simulate(replace(PACKS, n_gpus=7), COSTS).makespan
    assert simulate(replace(FAILING, seed=1), COSTS) != first


def test_a_saturated_coordinator_sets_the_makespan() -> None:
    """1,000 GPUs, of which one coordinator can serve about 125: it is busy all the time, and the GPUs wait."""
    scenario = replace(PACKS, n_runs=10_000, n_gpus=1000, n_saves=0)
    costs = Costs(commit=Cost(0.04, 0.0))
    assert capacities(scenario, costs)["coordinator"] == 125
    result = simulate(scenario, costs)
    assert result.coordinator == pytest.approx(1.0, abs=0.1)
    assert result.makespan == pytest.approx(1000 * 10 * 0.04, rel=0.1)
    assert saturates_first(scenario, costs) == "coordinator"
    by_workers = simulate(replace(scenario, workers_write=True), costs)
    assert by_workers.makespan < result.makespan / 5
    assert by_workers.coordinator == 0.0


def test_events_that_are_carried_to_the_coordinator_saturate_it_where_workers_write() -> None:
    """A step and an evaluation every two seconds, each 40 ms: 25 GPUs are all that it serves."""
    scenario = replace(PACKS, n_runs=2_000, n_gpus=100, n_saves=0, n_evaluations=1000, workers_write=True)
    costs = Costs(carry_event=Cost(0.04))
    assert scenario.n_carried == 50.0 / 2.0 * 2
    assert capacities(scenario, costs)["coordinator"] == 25
    result = simulate(scenario, costs)
    assert result.coordinator == pytest.approx(1.0, abs=0.1)
    assert capacities(scenario, Costs())["coordinator"] > 1000


def test_utilisation_of_a_busy_but_unsaturated_database_is_its_demand() -> None:
    scenario = replace(PACKS, n_runs=20_000, n_gpus=100, workers_write=True, database_cores=2)
    costs = Costs(commit=Cost(0.0, 0.05))
    expected = demand(scenario, costs)["database"]
    assert expected == pytest.approx(0.5)
    assert simulate(scenario, costs).database == pytest.approx(expected, rel=0.05)
