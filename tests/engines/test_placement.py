"""Alternatives that were measured to be faster are used for long packs, and only for those."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from seedbed.engines.cost_estimator import CostEstimator
from seedbed.engines.machine import Machine
from seedbed.engines.placement import (
    MIN_SECONDS_WORTH_PROBING,
    choose_placement,
    max_runs_by_shape,
)
from seedbed.records import Pack, ParameterCounts, Placement, Run
from seedbed.settings import Settings
from seedbed.study.pack import pack_runs
from seedbed.study.plan import plan_named

TINY = ("task.p=5", "model.dim=8", "model.heads=2", "model.layers=1")
MACHINE = Machine("cpu", 2, "plain")


def fake_estimator(basis: str = "measured", **seconds: float) -> CostEstimator:
    """Estimates by `one` or `more` threads and `single` or `stacked` runs."""

    def estimate_pack(pack: Pack, placement: Placement) -> Any:
        threads, runs = "one" if placement.threads == 1 else "more", "single" if len(pack.runs) == 1 else "stacked"
        return SimpleNamespace(basis=basis, seconds=seconds.get(threads, seconds.get(runs)))

    return cast(CostEstimator, SimpleNamespace(estimate_pack=estimate_pack))


@pytest.fixture
def pack(monkeypatch: pytest.MonkeyPatch) -> Pack:
    monkeypatch.setattr("seedbed.engines.machine.n_cores", lambda: 2)
    [pack] = pack_runs(plan_named("quickstart", [*TINY, "seeds=1"]).runs, MACHINE.capacity())
    return pack


@pytest.mark.parametrize(
    ("one", "more", "basis", "threads"),
    [
        (2 * MIN_SECONDS_WORTH_PROBING, 3 * MIN_SECONDS_WORTH_PROBING, "measured", 1),
        (3 * MIN_SECONDS_WORTH_PROBING, 2 * MIN_SECONDS_WORTH_PROBING, "measured", 2),
        (2 * MIN_SECONDS_WORTH_PROBING, 3 * MIN_SECONDS_WORTH_PROBING, "similar", 2),  # not timed
        # short: the default, for the same bytes whatever was timed
        (0.2 * MIN_SECONDS_WORTH_PROBING, 0.3 * MIN_SECONDS_WORTH_PROBING, "measured", 2),
    ],
)
def test_long_packs_use_one_thread_where_that_was_measured_to_be_faster(pack, one, more, basis, threads):
    assert choose_placement(pack, 1, MACHINE, fake_estimator(basis, one=one, more=more)).threads == threads


@pytest.mark.parametrize(
    ("single", "stacked", "splits"),
    [(MIN_SECONDS_WORTH_PROBING, 6 * MIN_SECONDS_WORTH_PROBING, True), (0.01, 0.06, False), (9e3, 6e3, False)],
)
def test_long_shapes_are_not_stacked_where_that_was_measured_to_be_slower(single, stacked, splits):
    runs = plan_named("quickstart", [*TINY, "seeds=8"]).runs
    assert len(max_runs_by_shape(runs, MACHINE, fake_estimator(single=single, stacked=stacked))) == splits


TEXT = {"task.kind": "text", "model.kind": "lstm"}


@pytest.mark.parametrize(
    ("update", "settings", "mode"),
    [
        (1e-3, {"train.steps": 250_000}, "graph"),  # 250 s, of which compiling would save 37
        (1e-3, {"train.steps": 350_000}, "compiled"),
        (1e-2, {"train.steps": 35_000}, "compiled"),
        (1e-2, {"train.steps": 35_000, "model.kind": "lstm"}, "compiled"),
        (1e-2, {"train.seconds": 250.0}, "graph"),  # whatever the time of an update
        (1e-2, {"train.seconds": 350.0}, "compiled"),
        (1e-2, {"train.steps": 35_000, "task.length": 16} | TEXT, "compiled"),
        (1e-2, {"train.steps": 35_000, "task.length": 17} | TEXT, "graph"),  # the compiler would unroll it
    ],
)
def test_packs_are_compiled_where_that_saves_more_time_than_it_takes(update, settings, mode):
    """Estimated as if alone, since compiling does not save the time that other packs take of the GPU."""

    def section_seconds(runs: Any, placement: Placement) -> Any:
        assert placement.workers == 1
        return {"compute": update}, "measured" if placement.mode == "graph" else "guess"

    estimator = cast(CostEstimator, SimpleNamespace(section_seconds=section_seconds))
    pack = Pack("some", (Run("a", 0, {}, Settings.from_flat(settings), ParameterCounts(0, 0)),), 1)
    assert choose_placement(pack, 31, Machine("cuda", 1), estimator).mode == mode
    assert choose_placement(pack, 31, Machine("cuda", 1), estimator).workers == 12
    assert choose_placement(pack, 31, Machine("cuda", 1, "graph"), estimator).mode == "graph"


@pytest.mark.parametrize(("compiled", "mode"), [(2.4e-3, "graph"), (0.5e-3, "compiled")])
def test_packs_are_compiled_by_what_both_modes_took_here(compiled, mode):
    """20,000 updates of 3 ms: compiling is usually not worth it, but a faster one may be known from here."""

    def section_seconds(runs: Any, placement: Placement) -> Any:
        return {"compute": compiled if placement.mode == "compiled" else 3e-3}, "measured"

    estimator = cast(CostEstimator, SimpleNamespace(section_seconds=section_seconds))
    settings = Settings.from_flat({"train.steps": 20_000})
    pack = Pack("some", (Run("a", 0, {}, settings, ParameterCounts(0, 0)),), 1)
    assert choose_placement(pack, 1, Machine("cuda", 1), estimator).mode == mode


def test_the_shipped_arithmetic_study_is_compiled_only_with_far_more_steps():
    """At typical speeds of a GPU 18 runs save less than the compiler takes in 10,001 updates, more in a million."""
    machine = Machine("cuda", 1)

    def modes(*overrides: str) -> set[str]:
        packs = pack_runs(plan_named("arithmetic/sanity", list(overrides)).runs, machine.capacity())
        return {choose_placement(pack, len(packs), machine, CostEstimator([], "here")).mode for pack in packs}

    assert modes("seeds=18") == {"graph"}
    assert modes("seeds=18", "train.steps=1000001") == {"compiled"}
