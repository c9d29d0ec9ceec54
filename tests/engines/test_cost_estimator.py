"""Estimates: measured times are used as they are, others are extrapolated and labelled as such."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
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
from seedbed.engines.cost_model import GPU_SPEED_BY_MODE, concurrency_slowdown, update_work_seconds
from seedbed.engines.machine import Machine
from seedbed.engines.placement import choose_placement, max_runs_by_shape, untimed_candidates
from seedbed.engines.rates import MeasuredRate
from seedbed.estimates import estimate_study
from seedbed.models.model_size import evaluation_workload, update_workload
from seedbed.records import Cost, Pack, ParameterCounts, Placement, Run
from seedbed.settings import Settings
from seedbed.study.pack import Capacity, pack_runs, shape_key
from seedbed.study.plan import compute_run_id, plan_named
from seedbed.study.study_files import shipped_studies
from tests.corpora import require_corpora

CPU = Placement(workers=2)
CPU_MACHINE = Machine("cpu", 2)


def make_runs(n: int = 1, **overrides: Any) -> list[Run]:
    settings = Settings.from_flat({name.replace("__", "."): value for name, value in overrides.items()})
    return [Run(compute_run_id(settings, seed), seed, {}, settings, ParameterCounts(0, 0)) for seed in range(n)]


def make_pack(runs: list[Run]) -> Pack:
    [pack] = pack_runs(runs, Capacity(10**12, 1000, 1))
    return pack


def measured_rate(
    runs: list[Run], update: float, evaluation: float = 0.5, machine: str = "here", placement: Placement = CPU
) -> MeasuredRate:
    seconds = {"compute": 10 * update, "evaluate": 2 * evaluation, "save": 3.0}
    return make_rate(Cost(seconds, {"compute": 10, "evaluate": 2, "save": 1}), runs, placement, machine)


def test_the_estimate_of_a_timed_pack_is_its_measured_time() -> None:
    runs = make_runs(3, train__steps=1000, train__eval_first=0, train__eval_every=100, train__save_every=500)
    estimate = CostEstimator([measured_rate(runs, update=0.25)], "here").estimate_pack(make_pack(runs), CPU)
    predicted = CostEstimator([], "here").section_seconds(runs, CPU)[0]
    others = predicted["prepare"] + predicted["compile"]
    assert estimate.seconds == pytest.approx(999 * 0.25 + 11 * 0.5 + 2 * 3.0 + others)
    assert estimate.basis == "measured"


def test_an_estimate_states_its_basis() -> None:
    runs = make_runs(4, model__dim=64)
    estimator = CostEstimator([measured_rate(runs, 0.2)], "here")
    assert estimator.estimate_pack(make_pack(runs), CPU).basis == "measured"
    assert estimator.estimate_pack(make_pack(runs), replace(CPU, workers=1)).basis == "similar"
    assert estimator.estimate_pack(make_pack(runs[:2]), CPU).basis == "similar"
    assert estimator.section_seconds(runs[:2], CPU)[0]["compute"] == pytest.approx(0.1)
    assert estimator.estimate_pack(make_pack(make_runs(4, model__dim=32)), CPU).basis == "model"
    elsewhere = CostEstimator([measured_rate(runs, 0.2, machine="elsewhere")], "here")
    assert elsewhere.estimate_pack(make_pack(runs), CPU).basis == "guess"
    assert estimator.estimate_pack(make_pack(runs), Placement("cuda", mode="graph")).basis == "guess"


def test_times_are_extrapolated_to_other_shapes_by_flops_and_bytes() -> None:
    """An update takes 10 ms and three times the cost model's seconds; two widths determine the third."""
    shapes = [make_runs(1, model__dim=dim) for dim in (32, 64, 256)]
    true_seconds = [0.01 + 3 * measured_rate(runs, 1.0).update for runs in shapes]
    rates = [measured_rate(shapes[i], true_seconds[i]) for i in (0, 2)]
    estimated = CostEstimator(rates, "here").section_seconds(shapes[1], CPU)[0]["compute"]
    assert estimated == pytest.approx(true_seconds[1], rel=1e-6)


def test_the_fitted_line_is_never_negative() -> None:
    assert fit_line([(1.0, 5.0), (2.0, 4.0)]).slope == 0
    assert fit_line([(1.0, 1.0), (2.0, 4.0)]).intercept == 0
    assert fit_line([(2.0, 6.0)])(4.0) == 12.0
    assert fit_line([(2.0, 6.0), (2.0, 6.0)])(1.0) == pytest.approx(3.0)


def test_larger_settings_have_larger_workloads() -> None:
    small = Settings()
    for overrides in ({"model.layers": 3}, {"model.dim": 256}, {"task.p": 61}, {"task.orders": (3,)}):
        large = Settings.from_flat(overrides)
        assert update_workload(large).flops > update_workload(small).flops
        assert evaluation_workload(large).bytes > evaluation_workload(small).bytes
    once, twice = (Settings.from_flat({"train.batch_size": 100, "train.accumulate": n}) for n in (1, 2))
    assert update_workload(twice).flops == 2 * update_workload(once).flops


def test_flops_equal_a_hand_count() -> None:
    """p = 31, 480 samples of 6 tokens, two layers of width 128: 2 · 6 · 2 · 12 d² + attention + two scored tokens.

    The first three tokens are computed for 31 beginnings instead of every sample; not with dropout.
    """
    forward = 2 * (2 * 6 * 12 * 128**2 + 4 * 6**2 * 128) + 2 * 2 * 128 * 36
    n_computed = {n: (31 * 3 + n * 3) / 6 for n in (480, 961)}
    assert update_workload(Settings()).flops == pytest.approx(3 * n_computed[480] * forward, rel=1e-12)
    assert evaluation_workload(Settings()).flops == pytest.approx(n_computed[961] * forward, rel=1e-12)
    dropped = Settings.from_flat({"model.dropout": 0.1})
    assert update_workload(dropped).flops == 3 * 480 * forward
    text = Settings.from_flat({"task.kind": "text"})
    assert text.task.computed_fraction(480) == 1
    small = Settings.from_flat({"task.p": 31, "train.batch_size": 32})
    assert small.task.computed_fraction(32) == (31 * 3 + 32 * 3) / (32 * 6)
    assert small.task.computed_fraction(8) == 1


def test_the_shape_digest_depends_on_what_changes_the_time_of_an_update_only() -> None:
    default = shape_digest(make_runs())
    same = make_runs(3, train__steps=5, train__eval_every=9, train__lr=3.0, train__exclusive=True)
    assert shape_digest(same) == default
    for overrides in (
        {"train__batch_size": 100},
        {"model__dropout": 0.1},
        {"model__layers": 1},
        {"train__precision": "bf16"},
    ):
        assert shape_digest(make_runs(1, **overrides)) != default


def test_packs_start_in_order_on_free_workers_and_exclusive_ones_at_the_end() -> None:
    assert makespan([3.0, 1.0, 1.0, 2.0], 2) == 4.0
    shared = [make_pack(make_runs(1, model__dim=dim, train__steps=100)) for dim in (32, 64)]
    exclusive = make_pack(make_runs(1, train__steps=100, train__exclusive=True))
    estimator = CostEstimator([], "here")
    placed = [(pack, CPU) for pack in shared] + [(exclusive, replace(CPU, exclusive=True))]
    whole = estimate_packs(placed, estimator, {}, 2)
    seconds = [whole.packs[pack.id].seconds for pack in (*shared, exclusive)]
    assert whole.seconds == pytest.approx(estimator.startup_seconds("cpu") + max(seconds[:2]) + seconds[2])
    half = estimate_packs(placed, estimator, {exclusive.id: 0.5}, 2)
    assert whole.seconds - half.seconds == pytest.approx(seconds[2] / 2)


def test_times_are_rescaled_for_the_number_of_packs_that_share_a_gpu() -> None:
    """The overhead of an update takes 12 / 3.5 times as long with 12 packs, its work 12 times; saves take the same."""
    runs, twelve = make_runs(2, model__dim=64), Placement("cuda", mode="graph", workers=12)
    four, alone = replace(twelve, workers=4), replace(twelve, workers=1)
    overhead = GPU_SPEED_BY_MODE["graph"].update_overhead_seconds

    def slowdown(runs: Sequence[Run], n_packs: int, speedup: float) -> float:
        work = update_work_seconds(runs, alone)
        return n_packs * (overhead / speedup + work) / (overhead + work)

    at_12, at_4 = slowdown(runs, 12, 3.5), slowdown(runs, 4, 2.2)
    assert 12 / 3.5 < at_12 < 12
    measured = CostEstimator([measured_rate(runs, 0.2, evaluation=0.5, placement=twelve)], "here")
    assert measured.section_seconds(runs, twelve)[0]["compute"] == pytest.approx(0.2)
    for placement, factor in ((alone, 1 / at_12), (four, at_4 / at_12), (twelve, 1.0)):
        seconds = measured.section_seconds(runs, placement)[0]
        assert seconds["compute"] == pytest.approx(0.2 * factor)
        assert seconds["evaluate"] == pytest.approx(0.5 * factor)
        assert seconds["save"] == 3.0
        more_runs = measured.section_seconds(make_runs(6, model__dim=64), placement)[0]
        assert (more_runs["compute"], more_runs["save"]) == pytest.approx((0.2 * factor, 9.0))
    others = make_runs(2, model__dim=32)
    # A pack of another shape slows down as the pack does from which it is extrapolated; otherwise as predicted for it.
    for estimator, factor in ((measured, at_12), (CostEstimator([], "here"), slowdown(others, 12, 3.5))):
        shared, single = (estimator.section_seconds(others, placement)[0]["compute"] for placement in (twelve, alone))
        assert shared / single == pytest.approx(factor)
    on_cpu = CostEstimator([measured_rate(runs, 0.2)], "here")
    assert on_cpu.section_seconds(runs, replace(CPU, workers=7))[0]["compute"] == pytest.approx(0.2)


def test_more_concurrent_packs_take_longer_each_and_less_time_in_all() -> None:
    on_gpu = Placement("cuda", mode="graph")
    factors = [concurrency_slowdown(on_gpu, 0.0, n) for n in range(1, 25)]
    assert factors[0] == 1.0
    assert factors == sorted(factors)
    together = [factor / n for n, factor in enumerate(factors, start=1)]
    assert together[:12] == sorted(together[:12], reverse=True)
    assert together[11:] == pytest.approx([1 / 3.5] * 13)
    assert concurrency_slowdown(on_gpu, 0.0, 0) == concurrency_slowdown(CPU, 0.0, 12) == 1.0


def test_packs_that_fill_the_gpu_gain_nothing_from_one_another() -> None:
    on_gpu = Placement("cuda", mode="graph")
    assert concurrency_slowdown(on_gpu, 10.0, 12) == pytest.approx(12, rel=1e-3)


@pytest.mark.parametrize(
    ("pattern", "measured_seconds"),
    [("arithmetic/", 421.0), ("speeches/", 130.8), ("characters/shakespeare", 111.9), ("wikitext/[do]", 541.0)],
)
def test_whole_studies_on_an_empty_h200_are_estimated_within_a_factor_of_1_5(
    pattern: str, measured_seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole commands as timed on one H200 (docs/log.md), from an empty rates file."""
    monkeypatch.setenv("SEEDBED_RATES", str(tmp_path / "rates.json"))
    if not pattern.startswith("arithmetic"):
        require_corpora()
    runs = {run.id: run for name in shipped_studies() if re.match(pattern, name) for run in plan_named(name).runs}
    machine = Machine("cuda", 1, memory_bytes=int(0.8 * 139 * 2**30))
    estimate = estimate_study(pack_runs(list(runs.values()), machine.capacity()), machine, {})
    assert 1 / 1.5 < estimate.seconds / measured_seconds < 1.5


def test_the_estimate_of_a_time_budget_is_that_time() -> None:
    runs = make_runs(2, train__seconds=50.0)
    assert 50 <= CostEstimator([], "here").estimate_pack(make_pack(runs), CPU).seconds < 52
    assert section_counts(runs[0])["compute"] > 10**8


# ---- stacking ----


def both_measured(single: float, stacked: float) -> tuple[list[Run], CostEstimator]:
    """Runs whose single and stacked packs were timed, with these seconds per run and update."""
    runs = make_runs(8, task__p=11, model__dim=16, train__steps=100_000)
    [pack, _] = pack_runs(runs, CPU_MACHINE.capacity())
    placement = CPU_MACHINE.default_placement(pack, 2)
    rates = [
        measured_rate(list(pack.runs), 4 * stacked, evaluation=1e-6, placement=placement),
        measured_rate(runs[:1], single, evaluation=1e-6, placement=placement),
    ]
    return runs, CostEstimator(rates, "here")


def test_runs_are_stacked_unless_single_runs_are_clearly_faster() -> None:
    runs, estimator = both_measured(single=0.7, stacked=1.0)
    key = shape_key(runs[0].settings)
    assert max_runs_by_shape(runs, CPU_MACHINE, estimator) == {key: 1}
    assert [len(pack.runs) for pack in pack_runs(runs, CPU_MACHINE.capacity({key: 1}))] == [1] * 8
    for single in (0.97, 1.2):
        same_runs, other_estimator = both_measured(single, 1.0)
        assert max_runs_by_shape(same_runs, CPU_MACHINE, other_estimator) == {}
    assert max_runs_by_shape(runs, CPU_MACHINE, CostEstimator([], "here")) == {}
    assert max_runs_by_shape(runs, Machine("cuda", 1), estimator) == {}


def test_only_untimed_candidates_of_long_studies_are_probed() -> None:
    no_rates = CostEstimator([], "here")
    long_runs = make_runs(8, task__p=11, model__dim=16, train__steps=1_000_000)
    assert [len(pack.runs) for pack, _ in untimed_candidates(long_runs, CPU_MACHINE, no_rates)] == [4, 1]
    short_runs = make_runs(8, task__p=11, model__dim=16, train__steps=100)
    assert untimed_candidates(short_runs, CPU_MACHINE, no_rates) == []
    runs, estimator = both_measured(0.7, 1.0)
    assert untimed_candidates(runs, CPU_MACHINE, estimator) == []


def test_a_single_pack_uses_idle_cores_unless_one_thread_was_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seedbed.engines.machine.n_cores", lambda: 2)
    runs = make_runs(1, train__steps=100_000)
    pack, default = make_pack(runs), CPU_MACHINE.default_placement(make_pack(runs), 1)
    assert default.threads == 2
    single = replace(default, threads=1)
    candidates = untimed_candidates(runs, CPU_MACHINE, CostEstimator([], "here"))
    assert [placement.threads for _, placement in candidates] == [2, 1]
    for seconds, chosen in ((0.5, 1), (0.99, 2), (1.6, 2)):
        rates = [measured_rate(runs, 1.0, placement=default), measured_rate(runs, seconds, placement=single)]
        estimator = CostEstimator(rates, "here")
        assert choose_placement(pack, 1, CPU_MACHINE, estimator).threads == chosen
        assert untimed_candidates(runs, CPU_MACHINE, estimator) == []
    only_single = CostEstimator([measured_rate(runs, 0.1, placement=single)], "here")
    assert choose_placement(pack, 1, CPU_MACHINE, only_single).threads == 2
