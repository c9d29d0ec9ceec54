"""Prices: what was measured is believed, what was not is carried over and said to be so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from seedbed.engines.cost_estimator import (
    CostEstimator,
    estimate_packs,
    fit_line,
    make_rate,
    makespan,
    section_counts,
    shape_digest,
)
from seedbed.engines.cost_model import concurrency_slowdown
from seedbed.engines.machine import Machine
from seedbed.engines.placement import choose_placement, max_runs_by_shape, untimed_candidates
from seedbed.models.flops import evaluation_workload, update_workload
from seedbed.records import Cost, Pack, ParameterCounts, Placement, Run
from seedbed.settings import Settings
from seedbed.study.pack import Capacity, pack_runs, shape_key
from seedbed.study.plan import compute_run_id

HERE = Placement(workers=2)
CORES = Machine("cpu", 2)


def runs_of(n: int = 1, **dials: Any) -> list[Run]:
    settings = Settings.from_flat({name.replace("__", "."): value for name, value in dials.items()})
    return [Run(compute_run_id(settings, seed), seed, {}, settings, ParameterCounts(0, 0)) for seed in range(n)]


def one_pack(runs: list[Run]) -> Pack:
    [pack] = pack_runs(runs, Capacity(10**12, 1000, 1))
    return pack


def timed(runs: list[Run], update: float, record: float = 0.5, machine: str = "here", where: Placement = HERE) -> Any:
    cost = Cost(
        {"compute": 10 * update, "evaluate": 2 * record, "save": 3.0}, {"compute": 10, "evaluate": 2, "save": 1}
    )
    return make_rate(cost, runs, where, machine)


def test_a_pack_that_was_timed_costs_what_it_took() -> None:
    runs = runs_of(3, train__steps=1000, train__eval_first=0, train__eval_every=100, train__save_every=500)
    price = CostEstimator([timed(runs, update=0.25)], "here").estimate_pack(one_pack(runs), HERE)
    unmeasured = CostEstimator([], "here").section_seconds(runs, HERE)[0]
    others = unmeasured["prepare"] + unmeasured["compile"]
    assert price.seconds == pytest.approx(999 * 0.25 + 11 * 0.5 + 2 * 3.0 + others)
    assert price.basis == "measured"


def test_what_a_price_is_taken_from_is_said() -> None:
    runs = runs_of(4, model__dim=64)
    prices = CostEstimator([timed(runs, 0.2)], "here")
    assert prices.estimate_pack(one_pack(runs), HERE).basis == "measured"
    assert prices.estimate_pack(one_pack(runs), replace(HERE, workers=1)).basis == "similar"
    assert prices.estimate_pack(one_pack(runs[:2]), HERE).basis == "similar"
    assert prices.section_seconds(runs[:2], HERE)[0]["compute"] == pytest.approx(0.1)
    assert prices.estimate_pack(one_pack(runs_of(4, model__dim=32)), HERE).basis == "model"
    assert (
        CostEstimator([timed(runs, 0.2, machine="elsewhere")], "here").estimate_pack(one_pack(runs), HERE).basis
        == "guess"
    )
    assert prices.estimate_pack(one_pack(runs), Placement("cuda", mode="graph")).basis == "guess"


def test_times_carry_over_to_other_shapes_by_operations_and_bytes() -> None:
    """A machine that needs 10 ms an update and three times the closed form's seconds; two widths tell the third."""
    machine = [(runs, 0.01 + 3 * timed(runs, 1.0).update) for runs in (runs_of(1, model__dim=d) for d in (32, 64, 256))]
    known = [timed(runs, seconds) for runs, seconds in (machine[0], machine[2])]
    found = CostEstimator(known, "here").section_seconds(machine[1][0], HERE)[0]["compute"]
    assert found == pytest.approx(machine[1][1], rel=1e-6)


def test_the_law_is_never_negative() -> None:
    assert fit_line([(1.0, 5.0), (2.0, 4.0)]).slope == 0
    assert fit_line([(1.0, 1.0), (2.0, 4.0)]).intercept == 0
    assert fit_line([(2.0, 6.0)])(4.0) == 12.0
    assert fit_line([(2.0, 6.0), (2.0, 6.0)])(1.0) == pytest.approx(3.0)


def test_more_work_is_counted_as_more() -> None:
    small = Settings()
    for dials in ({"model.layers": 3}, {"model.dim": 256}, {"task.p": 61}, {"task.orders": (3,)}):
        large = Settings.from_flat(dials)
        assert update_workload(large).flops > update_workload(small).flops
        assert evaluation_workload(large).bytes > evaluation_workload(small).bytes
    twice = Settings.from_flat({"train.accumulate": 2})
    assert update_workload(twice).flops == 2 * update_workload(small).flops


def test_operations_are_those_of_a_hand_count() -> None:
    """p = 31, 480 samples of 6 tokens, two layers of width 128: 2 · 6 · 2 · 12 d² + attention + two scored tokens."""
    forward = 2 * (2 * 6 * 12 * 128**2 + 4 * 6**2 * 128) + 2 * 2 * 128 * 36
    assert update_workload(Settings()).flops == 3 * 480 * forward
    assert evaluation_workload(Settings()).flops == 961 * forward


def test_a_shape_is_what_decides_times_and_not_when_things_are_done() -> None:
    plain = shape_digest(runs_of())
    assert shape_digest(runs_of(3, train__steps=5, train__eval_every=9, train__lr=3.0, train__alone=True)) == plain
    for dials in (
        {"train__batch_size": 100},
        {"model__dropout": 0.1},
        {"model__layers": 1},
        {"train__precision": "bf16"},
    ):
        assert shape_digest(runs_of(1, **dials)) != plain


def test_workers_take_jobs_in_turn_and_those_alone_come_after() -> None:
    assert makespan([3.0, 1.0, 1.0, 2.0], 2) == 4.0
    shared = [one_pack(runs_of(1, model__dim=dim, train__steps=100)) for dim in (32, 64)]
    alone = one_pack(runs_of(1, train__steps=100, train__alone=True))
    prices = CostEstimator([], "here")
    placed = [(pack, HERE) for pack in shared] + [(alone, replace(HERE, alone=True))]
    found = estimate_packs(placed, prices, {}, 2)
    each = [found.packs[pack.id].seconds for pack in (*shared, alone)]
    assert found.seconds == pytest.approx(prices.startup_seconds("cpu") + max(each[:2]) + each[2])
    half = estimate_packs(placed, prices, {alone.id: 0.5}, 2)
    assert found.seconds - half.seconds == pytest.approx(each[2] / 2)


def test_on_a_gpu_packs_slow_each_other_down_and_still_gain() -> None:
    """Of 12 packs an update takes 12 / 3.5 times as long as alone, of 4 it takes 4 / 2.2; saves take what they did."""
    runs, twelve = runs_of(2, model__dim=64), Placement("cuda", mode="graph", workers=12)
    four, alone = replace(twelve, workers=4), replace(twelve, workers=1)
    known = CostEstimator([timed(runs, 0.2, record=0.5, where=twelve)], "here")
    assert known.section_seconds(runs, twelve)[0]["compute"] == pytest.approx(0.2)
    for placement, factor in ((alone, 3.5 / 12), (four, 4 / 2.2 * 3.5 / 12), (twelve, 1.0)):
        found = known.section_seconds(runs, placement)[0]
        assert found["compute"] == pytest.approx(0.2 * factor)
        assert found["evaluate"] == pytest.approx(0.5 * factor)
        assert found["save"] == 3.0
        more = known.section_seconds(runs_of(6, model__dim=64), placement)[0]
        assert (more["compute"], more["save"]) == pytest.approx((0.2 * factor, 9.0))
    others = runs_of(2, model__dim=32)
    for prices in (known, CostEstimator([], "here")):  # carried over from another shape, and guessed
        ratio = (
            prices.section_seconds(others, twelve)[0]["compute"] / prices.section_seconds(others, alone)[0]["compute"]
        )
        assert ratio == pytest.approx(12 / 3.5)
    cores = CostEstimator([timed(runs, 0.2)], "here")
    assert cores.section_seconds(runs, replace(HERE, workers=7))[0]["compute"] == pytest.approx(0.2)


def test_more_lanes_take_longer_for_each_pack_and_less_for_all() -> None:
    factors = [concurrency_slowdown("cuda", n) for n in range(1, 25)]
    assert factors[0] == 1.0
    assert factors == sorted(factors)
    together = [factor / n for n, factor in enumerate(factors, start=1)]
    assert together[:12] == sorted(together[:12], reverse=True)
    assert together[11:] == pytest.approx([1 / 3.5] * 13)
    assert concurrency_slowdown("cuda", 0) == concurrency_slowdown("cpu", 12) == 1.0


def test_a_budget_of_seconds_costs_its_seconds() -> None:
    runs = runs_of(2, train__seconds=50.0)
    assert 50 <= CostEstimator([], "here").estimate_pack(one_pack(runs), HERE).seconds < 52
    assert section_counts(runs[0])["compute"] > 10**8


# ---- stacking ----


def both_timed(lone: float, stacked: float) -> tuple[list[Run], CostEstimator]:
    runs = runs_of(8, task__p=11, model__dim=16, train__steps=100_000)
    [pack, _] = pack_runs(runs, CORES.capacity())
    rates = [
        timed(list(pack.runs), 4 * stacked, record=1e-6, where=CORES.default_placement(pack, 2)),
        timed(runs[:1], lone, record=1e-6, where=CORES.default_placement(pack, 2)),
    ]
    return runs, CostEstimator(rates, "here")


def test_runs_are_stacked_unless_one_alone_is_clearly_faster() -> None:
    runs, prices = both_timed(lone=0.7, stacked=1.0)
    key = shape_key(runs[0].settings)
    assert max_runs_by_shape(runs, CORES, prices) == {key: 1}
    assert [len(pack.runs) for pack in pack_runs(runs, CORES.capacity({key: 1}))] == [1] * 8
    for lone in (0.97, 1.2):
        assert max_runs_by_shape(*both_timed(lone, 1.0)[:1], CORES, both_timed(lone, 1.0)[1]) == {}
    assert max_runs_by_shape(runs, CORES, CostEstimator([], "here")) == {}
    assert max_runs_by_shape(runs, Machine("cuda", 1), prices) == {}


def test_only_long_studies_are_probed_and_only_for_what_is_not_known() -> None:
    small = runs_of(8, task__p=11, model__dim=16, train__steps=1_000_000)
    assert [len(pack.runs) for pack, _ in untimed_candidates(small, CORES, CostEstimator([], "here"))] == [4, 1]
    assert (
        untimed_candidates(runs_of(8, task__p=11, model__dim=16, train__steps=100), CORES, CostEstimator([], "here"))
        == []
    )
    runs, prices = both_timed(0.7, 1.0)
    assert untimed_candidates(runs, CORES, prices) == []


def test_a_lone_pack_uses_idle_cores_unless_one_thread_is_known_to_be_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seedbed.engines.machine.n_cores", lambda: 2)
    runs = runs_of(1, train__steps=100_000)
    pack, usual = one_pack(runs), CORES.default_placement(one_pack(runs), 1)
    assert usual.threads == 2
    single = replace(usual, threads=1)
    assert [placement.threads for _, placement in untimed_candidates(runs, CORES, CostEstimator([], "here"))] == [2, 1]
    for on_one, chosen in ((0.5, 1), (0.99, 2), (1.6, 2)):
        prices = CostEstimator([timed(runs, 1.0, where=usual), timed(runs, on_one, where=single)], "here")
        assert choose_placement(pack, 1, CORES, prices).threads == chosen
        assert untimed_candidates(runs, CORES, prices) == []
    assert choose_placement(pack, 1, CORES, CostEstimator([timed(runs, 0.1, where=single)], "here")).threads == 2
