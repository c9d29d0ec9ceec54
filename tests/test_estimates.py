"""A study is priced before it runs, and what it took prices the next one; choices are kept and used again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seedbed import estimates
from seedbed.engines import machine as machines
from seedbed.engines.rates import read_rates
from seedbed.estimates import PackTiming, estimate_study, load_estimator, place_packs, probe_packs, save_rates
from seedbed.pipeline import Machine, pack_plans, run_studies
from seedbed.records import Cost, CostEvent, Placement, Plan, Run, StoredRun
from seedbed.store.store import Store
from seedbed.study.plan import plan_named

SMALL = ("task.p=5", "train.eval_first=0", "train.eval_every=10")


class Nobody:
    def say(self, text: str) -> None: ...

    def begin(self, packs: Sequence[Any]) -> None: ...

    def see(self, pack: Any, event: Any) -> None: ...

    def split(self, pack: Any, parts: Sequence[Any]) -> None: ...


@pytest.fixture(autouse=True)
def _fresh_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDBED_RATES", str(tmp_path / "rates.json"))
    monkeypatch.setattr(machines, "n_cores", lambda: 1)


def plan(*words: str, steps: int = 20, dim: str = "4") -> Plan:
    return plan_named("quickstart", (*SMALL, f"train.steps={steps}", f"model.dim={dim}", *words))


def train(planned: Plan, home: Path, n_updates: int | None = None, machine: Machine | None = None) -> None:
    calls = iter(range(10**6))
    stop = (lambda: False) if n_updates is None else (lambda: next(calls) > n_updates)
    run_studies([planned], home, machine or Machine("cpu", 1, "plain"), Nobody(), stop)


def all_here(tasks: Any, work: Any, on_event: Any, *_: Any, **__: Any) -> None:
    """Does all tasks in this process, in their order."""
    for number, task in enumerate(tasks):
        for event in work(task.prepare(), lambda: False):
            on_event(number, event)


def test_a_study_that_ran_prices_the_next_one(tmp_path: Path) -> None:
    machine = Machine("cpu", 1, "plain")
    planned = plan("seeds=3")
    packs = pack_plans([planned], machine)
    assert estimate_study(packs, machine, {}).basis == "guess"
    train(planned, tmp_path / "lab")
    [rate] = read_rates()
    assert rate.n_runs == 3
    assert rate.steady is not None
    assert {"prepare", "compile", "compute", "evaluate", "save", "start"} <= set(rate.seconds)
    longer = plan("seeds=3", steps=200)
    found = estimate_study(pack_plans([longer], machine), machine, {})
    assert found.basis == "measured"
    assert found.seconds == pytest.approx(
        rate.seconds["start"]
        + rate.seconds["prepare"] + rate.seconds["compile"] + 199 * rate.seconds["compute"]
        + 21 * rate.seconds["evaluate"] + rate.seconds["save"]
    )  # fmt: skip


def test_what_is_done_already_costs_nothing_more(tmp_path: Path) -> None:
    machine, planned = Machine("cpu", 1, "plain"), plan("seeds=2")
    train(planned, tmp_path / "lab")
    with Store.open_read_only(tmp_path / "lab") as store:
        standing = {run.id: run for run in store.runs()}
    start = estimate_study([], machine, {}).seconds
    assert start == 0
    packs = pack_plans([planned], machine)
    done, all_of_it = estimate_study(packs, machine, standing).seconds, estimate_study(packs, machine, {}).seconds
    assert done < all_of_it
    half = {name: replace(run, status="stopped", step=run.settings.n_steps() // 2) for name, run in standing.items()}
    assert done < estimate_study(packs, machine, half).seconds < all_of_it


def test_a_probe_makes_the_price_a_measured_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pack of each shape, as many at a time as would train together; here without worker processes."""
    asked: list[tuple[int, int]] = []

    def measure(job: Any, _: Any) -> Iterator[CostEvent]:
        asked.append((len(job.seeds), job.placement.workers))
        counts = dict.fromkeys(("prepare", "compile", "compute", "evaluate", "save"), 2)
        yield CostEvent(0, Cost(dict.fromkeys(counts, float(len(asked))), counts, 5, 6))

    monkeypatch.setattr(pricing, "_measure", measure)
    monkeypatch.setattr(pricing, "run_jobs", all_here)
    machine = Machine("cpu", 2)
    planned = plan("seeds=6", "model.layers=1,2", "train.lr=0.1,0.2")
    packs = pack_plans([planned], machine)
    probe_packs(place_packs(packs, machine), machine)
    sizes = sorted({len(pack.runs) for pack in packs})
    assert sorted(set(asked)) == [(size, 2) for size in sizes]
    assert len(asked) == 2 * len({(len(pack.runs), pack.runs[0].settings.model.layers) for pack in packs})
    rates = read_rates()
    assert rates[0].seconds["compute"] == pytest.approx(
        (1 / 2 + 2 / 2) / 2
    )  # the mean of the two that ran side by side
    assert estimate_study(packs, machine, {}).basis == "measured"


@pytest.mark.parametrize("machine", [Machine("cpu", 2), Machine("cuda", 1)])
def test_the_longest_packs_come_first_so_that_nobody_waits_for_them(machine: Machine) -> None:
    packs = pack_plans([plan("seeds=2", dim="4,64,16")], machine)
    widths = [pack.runs[0].settings.model.dim for pack, _ in place_packs(packs, machine)]
    assert widths == sorted(widths, reverse=True)


def test_on_a_gpu_packs_are_probed_alone_and_priced_as_beside_those_that_share_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four packs: each update takes 4 / 2.2 times as long as alone, and all four take as long as one."""
    machine = Machine("cuda", 1, "graph")
    packs = pack_plans([plan("seeds=1", steps=101, dim="4,8,16,32")], machine)
    asked: list[Any] = []

    def measure(job: Any, _: Any) -> Iterator[CostEvent]:
        asked.append(job)
        counts = dict.fromkeys(("prepare", "compile", "compute", "evaluate", "save"), 1)
        yield CostEvent(0, Cost(dict.fromkeys(counts, 1.0), counts, 5, 6))

    monkeypatch.setattr(pricing, "_measure", measure)
    monkeypatch.setattr(pricing, "run_jobs", all_here)
    probe_packs(place_packs(packs, machine), machine)
    assert len(asked) == 4
    for rate in read_rates():
        times = {name: rate.seconds[name] for name in ("prepare", "compile", "compute", "evaluate", "save")}
        assert times == pytest.approx(
            {
                "prepare": 1,
                "compile": 1,
                "compute": 4 / 2.2,
                "evaluate": 4 / 2.2,
                "save": 1 + 2 * estimates.SAVE_SECONDS_PER_FILE,
            }
        )
    found = estimate_study(packs, machine, {})
    each = [one.seconds for one in found.packs.values()]
    assert found.basis == "measured"
    assert found.seconds == pytest.approx(load_estimator("cuda").startup_seconds("cuda") + max(each))


def test_what_a_gpu_command_took_besides_training_is_its_start(tmp_path: Path) -> None:
    """13 packs of 10 s on 12 lanes and one of 5 s alone are 25 of 32 s."""
    runs = [as_stored(run) for run in plan("seeds=1").runs]
    shared, alone = Placement("cuda", workers=12), Placement("cuda", workers=1, exclusive=True)
    packs = [PackTiming(runs, shared, Cost({"compute": 10.0}, {"compute": 9}), Cost()) for _ in range(13)]
    packs += [PackTiming(runs, alone, Cost({"compute": 15.0}, {"compute": 9}), Cost({"compute": 10.0}, {"compute": 6}))]
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
    def refuse(*_: Any) -> None:
        raise AssertionError("probed")

    monkeypatch.setattr(pricing, "probe", refuse)
    estimates.probe_candidates(plan("seeds=8").runs, Machine("cpu", 2), lambda _: None, lambda: False)
    long = plan("seeds=8", steps=10**8).runs
    with pytest.raises(AssertionError, match="probed"):
        estimates.probe_candidates(long, Machine("cpu", 2), lambda _: None, lambda: False)


def test_what_was_chosen_is_kept_with_the_pack_and_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned, home = plan("seeds=4"), tmp_path / "lab"
    train(planned, home, n_updates=5, machine=Machine("cpu", 1, "plain"))
    with Store.open_read_only(home) as store:
        [before] = store.study_packs("quickstart")
    assert (before.placement.workers, before.placement.threads, before.placement.mode) == (1, 1, "plain")
    asked: list[int] = []
    original = run_studies.__globals__["run_jobs"]

    def noted(tasks: Any, work: Any, on_event: Any, n_workers: int, *rest: Any) -> None:
        asked.append(n_workers)
        original(tasks, work, on_event, n_workers, *rest)

    monkeypatch.setitem(run_studies.__globals__, "run_jobs", noted)
    train(planned, home, machine=Machine("cpu", 3, workers_requested=False))
    with Store.open_read_only(home) as store:
        [after] = store.study_packs("quickstart")
        assert {run.status for run in store.runs()} == {"finished"}
    assert (asked, after.id, after.placement) == ([1], before.id, before.placement)


def test_a_run_alone_has_all_cores_and_nothing_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "n_cores", lambda: 4)
    machine = Machine("cpu", 4)
    packs = pack_plans([plan("seeds=4", "train.exclusive=true")], machine)
    placements = [machine.default_placement(pack, len(packs)) for pack in packs]
    assert [(one.threads, one.workers, one.exclusive) for one in placements] == [(4, 1, True)] * 4
    assert [len(pack.runs) for pack in packs] == [1] * 4
    shared = pack_plans([plan("seeds=4")], machine)
    assert [machine.default_placement(pack, 4).threads for pack in shared] == [1] * 4
    assert machine.default_placement(shared[0], 1).threads == 4
