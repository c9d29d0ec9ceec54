"""A study is estimated before it runs, and its measured times improve the next estimate; placements are stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seedbed import estimates
from seedbed.engines import machine as machines
from seedbed.engines.local import LocalEngine
from seedbed.engines.rates import read_rates
from seedbed.estimates import PackTiming, estimate_study, load_estimator, place_packs, probe_packs, save_rates
from seedbed.pipeline import Machine, SilentObserver, pack_plans, run_studies
from seedbed.records import Cost, CostEvent, Placement, Plan, Run, StoredRun
from seedbed.store import open_store
from seedbed.study.plan import plan_named

SMALL = ("task.p=5", "train.eval_first=0", "train.eval_every=10")


@pytest.fixture(autouse=True)
def _fresh_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDBED_RATES", str(tmp_path / "rates.json"))
    monkeypatch.setattr(machines, "n_cores", lambda: 1)


def plan(*overrides: str, steps: int = 20, dim: str = "4") -> Plan:
    return plan_named("quickstart", (*SMALL, f"train.steps={steps}", f"model.dim={dim}", *overrides))


def train(study_plan: Plan, home: Path, n_updates: int | None = None, machine: Machine | None = None) -> None:
    calls = iter(range(10**6))
    should_stop = (lambda: False) if n_updates is None else (lambda: next(calls) > n_updates)
    run_studies([study_plan], home, machine or Machine("cpu", 1, "plain"), SilentObserver(), should_stop)


def run_in_this_process(_: LocalEngine, jobs: Any, run_job: Any, on_event: Any, __: Any) -> None:
    """Runs all jobs in this process, in order."""
    for index, queued in enumerate(jobs):
        for event in run_job(queued.prepare(None), lambda: False):
            on_event(index, event)


def test_a_trained_study_makes_the_next_estimate_a_measured_one(tmp_path: Path) -> None:
    machine = Machine("cpu", 1, "plain")
    study_plan = plan("seeds=3")
    packs = pack_plans([study_plan], machine)
    assert estimate_study(packs, machine, {}).basis == "guess"
    train(study_plan, tmp_path / "lab")
    [rate] = read_rates()
    assert rate.n_runs == 3
    assert rate.steady is not None
    assert {"prepare", "compile", "compute", "evaluate", "save", "start"} <= set(rate.seconds)
    longer = plan("seeds=3", steps=200)
    estimate = estimate_study(pack_plans([longer], machine), machine, {})
    assert estimate.basis == "measured"
    assert estimate.seconds == pytest.approx(
        rate.seconds["start"]
        + rate.seconds["prepare"] + rate.seconds["compile"] + 199 * rate.seconds["compute"]
        + 21 * rate.seconds["evaluate"] + rate.seconds["save"]
    )  # fmt: skip


def test_steps_that_are_done_are_not_estimated_again(tmp_path: Path) -> None:
    machine, study_plan = Machine("cpu", 1, "plain"), plan("seeds=2")
    train(study_plan, tmp_path / "lab")
    with open_store(tmp_path / "lab", read_only=True) as store:
        finished = {run.id: run for run in store.runs()}
    assert estimate_study([], machine, {}).seconds == 0
    packs = pack_plans([study_plan], machine)
    rest, whole = estimate_study(packs, machine, finished).seconds, estimate_study(packs, machine, {}).seconds
    assert rest < whole
    half = {name: replace(run, status="stopped", step=run.settings.n_steps() // 2) for name, run in finished.items()}
    assert rest < estimate_study(packs, machine, half).seconds < whole


def test_a_probe_makes_the_estimate_a_measured_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pack of each shape, as many at once as would train concurrently; here without worker processes."""
    probed: list[tuple[int, int]] = []

    def measure(job: Any, _: Any) -> Iterator[CostEvent]:
        probed.append((len(job[0].runs), job[1].workers))
        counts = dict.fromkeys(("prepare", "compile", "compute", "evaluate", "save"), 2)
        yield CostEvent(0, Cost(dict.fromkeys(counts, float(len(probed))), counts, 5, 6))

    monkeypatch.setattr(estimates, "_run_probe", measure)
    monkeypatch.setattr(LocalEngine, "run", run_in_this_process)
    machine = Machine("cpu", 2)
    study_plan = plan("seeds=6", "model.layers=1,2", "train.lr=0.1,0.2")
    packs = pack_plans([study_plan], machine)
    probe_packs(place_packs(packs, machine), machine)
    sizes = sorted({len(pack.runs) for pack in packs})
    assert sorted(set(probed)) == [(size, 2) for size in sizes]
    assert len(probed) == 2 * len({(len(pack.runs), pack.runs[0].settings.model.layers) for pack in packs})
    rates = read_rates()
    assert rates[0].seconds["compute"] == pytest.approx((1 / 2 + 2 / 2) / 2)  # the mean of two concurrent probes
    assert estimate_study(packs, machine, {}).basis == "measured"


@pytest.mark.parametrize("machine", [Machine("cpu", 2), Machine("cuda", 1)])
def test_the_longest_packs_come_first(machine: Machine) -> None:
    packs = pack_plans([plan("seeds=2", dim="4,64,16")], machine)
    widths = [pack.runs[0].settings.model.dim for pack, _ in place_packs(packs, machine)]
    assert widths == sorted(widths, reverse=True)


def test_on_a_gpu_packs_are_probed_alone_and_rescaled_for_contention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four concurrent packs with hardly any work: each update takes 4 / 2.2 times as long as alone."""
    machine = Machine("cuda", 1, "graph")
    packs = pack_plans([plan("seeds=1", steps=101, dim="4,8,16,32")], machine)
    probed: list[Any] = []

    def measure(job: Any, _: Any) -> Iterator[CostEvent]:
        probed.append(job)
        counts = dict.fromkeys(("prepare", "compile", "compute", "evaluate", "save"), 1)
        yield CostEvent(0, Cost(dict.fromkeys(counts, 1.0), counts, 5, 6))

    monkeypatch.setattr(estimates, "_run_probe", measure)
    monkeypatch.setattr(LocalEngine, "run", run_in_this_process)
    probe_packs(place_packs(packs, machine), machine)
    assert len(probed) == 4
    for rate in read_rates():
        seconds = {name: rate.seconds[name] for name in ("prepare", "compile", "compute", "evaluate", "save")}
        save = 1 + 2 * estimates.SAVE_SECONDS_PER_FILE
        expected = {"prepare": 1, "compile": 1, "compute": 4 / 2.2, "evaluate": 4 / 2.2, "save": save}
        assert seconds == pytest.approx(expected, rel=0.01)
    estimate = estimate_study(packs, machine, {})
    longest = max(pack.seconds for pack in estimate.packs.values())
    assert estimate.basis == "measured"
    assert estimate.seconds == pytest.approx(load_estimator("cuda").startup_seconds("cuda") + longest)


def test_the_startup_time_is_what_a_command_took_besides_training(tmp_path: Path) -> None:
    """13 packs of 10 s in 12 slots and an exclusive one of 5 s take 25 of 32 s."""
    runs = [as_stored(run) for run in plan("seeds=1").runs]
    shared, exclusive = Placement("cuda", workers=12), Placement("cuda", workers=1, exclusive=True)
    packs = [PackTiming(runs, shared, Cost({"compute": 10.0}, {"compute": 9}), Cost()) for _ in range(13)]
    total, previous = Cost({"compute": 15.0}, {"compute": 9}), Cost({"compute": 10.0}, {"compute": 6})
    packs += [PackTiming(runs, exclusive, total, previous)]
    save_rates(packs, Machine("cuda", 1), 32.0)
    assert load_estimator("cuda").startup_seconds("cuda") == pytest.approx(7.0)


def as_stored(run: Run) -> StoredRun:
    return StoredRun(run.id, run.seed, run.settings, run.parameters, "finished", 20)


def test_a_real_probe_runs_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine("cpu", 1)
    packs = pack_plans([plan("seeds=2")], machine)
    probe_packs(place_packs(packs, machine), machine)
    [rate] = read_rates()
    assert (rate.n_runs, rate.threads) == (2, 1)
    assert 0 < rate.seconds["compute"] < 1
    assert rate.seconds["start"] > 0


def test_a_short_study_is_not_probed_before_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError("probed")

    monkeypatch.setattr(estimates, "probe_packs", fail)
    estimates.probe_candidates(plan("seeds=8").runs, Machine("cpu", 2), lambda _: None, lambda: False)
    long = plan("seeds=8", steps=10**8).runs
    with pytest.raises(AssertionError, match="probed"):
        estimates.probe_candidates(long, Machine("cpu", 2), lambda _: None, lambda: False)


def test_a_placement_is_stored_with_the_pack_and_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study_plan, home = plan("seeds=4"), tmp_path / "lab"
    train(study_plan, home, n_updates=5, machine=Machine("cpu", 1, "plain"))
    with open_store(home, read_only=True) as store:
        [before] = store.study_packs("quickstart")
    assert (before.placement.workers, before.placement.threads, before.placement.mode) == (1, 1, "plain")
    used_workers: list[int] = []
    original = LocalEngine.run

    def recorded(engine: LocalEngine, *args: Any) -> None:
        used_workers.append(engine.resources.n_workers)
        original(engine, *args)

    monkeypatch.setattr(LocalEngine, "run", recorded)
    train(study_plan, home, machine=Machine("cpu", 3, workers_requested=False))
    with open_store(home, read_only=True) as store:
        [after] = store.study_packs("quickstart")
        assert {run.status for run in store.runs()} == {"finished"}
    assert (used_workers, after.id, after.placement) == ([1], before.id, before.placement)


def test_an_exclusive_run_has_all_cores_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "n_cores", lambda: 4)
    machine = Machine("cpu", 4)
    packs = pack_plans([plan("seeds=4", "train.exclusive=true")], machine)
    placements = [machine.default_placement(pack, len(packs)) for pack in packs]
    assert [(one.threads, one.workers, one.exclusive) for one in placements] == [(4, 1, True)] * 4
    assert [len(pack.runs) for pack in packs] == [1] * 4
    shared = pack_plans([plan("seeds=4")], machine)
    assert [machine.default_placement(pack, 4).threads for pack in shared] == [1] * 4
    assert machine.default_placement(shared[0], 1).threads == 4
