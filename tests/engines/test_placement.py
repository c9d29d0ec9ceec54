"""What is known to pay is taken where it takes long, and nowhere else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from seedbed.engines.cost_estimator import CostEstimator
from seedbed.engines.machine import Machine
from seedbed.engines.placement import MIN_SECONDS_WORTH_PROBING, choose_placement, max_runs_by_shape
from seedbed.records import Pack, ParameterCounts, Placement, Run
from seedbed.settings import Settings
from seedbed.study.pack import pack_runs
from seedbed.study.plan import plan_named

TINY = ("task.p=5", "model.dim=8", "model.heads=2", "model.layers=1")
MACHINE = Machine("cpu", 2, "plain")


def timed(basis: str = "measured", **seconds: float) -> CostEstimator:
    """Prices by `one` or `more` threads and `lone` or `stacked` runs."""

    def of(pack: Pack, placement: Placement) -> Any:
        threads, runs = "one" if placement.threads == 1 else "more", "lone" if len(pack.runs) == 1 else "stacked"
        return SimpleNamespace(basis=basis, seconds=seconds.get(threads, seconds.get(runs)))

    return cast(CostEstimator, SimpleNamespace(of=of))


@pytest.fixture
def pack(monkeypatch: pytest.MonkeyPatch) -> Pack:
    monkeypatch.setattr("seedbed.engines.machine.n_cores", lambda: 2)
    [found] = pack_runs(plan_named("quickstart", [*TINY, "seeds=1"]).runs, MACHINE.capacity())
    return found


@pytest.mark.parametrize(
    ("one", "more", "basis", "threads"),
    [
        (2 * MIN_SECONDS_WORTH_PROBING, 3 * MIN_SECONDS_WORTH_PROBING, "measured", 1),
        (3 * MIN_SECONDS_WORTH_PROBING, 2 * MIN_SECONDS_WORTH_PROBING, "measured", 2),
        (2 * MIN_SECONDS_WORTH_PROBING, 3 * MIN_SECONDS_WORTH_PROBING, "similar", 2),  # only what was timed counts
        (
            0.2 * MIN_SECONDS_WORTH_PROBING,
            0.3 * MIN_SECONDS_WORTH_PROBING,
            "measured",
            2,
        ),  # short: the same bytes whatever was timed
    ],
)
def test_idle_cores_are_left_alone_where_that_is_known_to_pay_and_takes_long(pack, one, more, basis, threads):
    assert choose_placement(pack, 1, MACHINE, timed(basis, one=one, more=more)).threads == threads


@pytest.mark.parametrize(
    ("lone", "stacked", "splits"),
    [(MIN_SECONDS_WORTH_PROBING, 6 * MIN_SECONDS_WORTH_PROBING, True), (0.01, 0.06, False), (9e3, 6e3, False)],
)
def test_runs_are_not_stacked_where_that_is_known_to_pay_and_takes_long(lone, stacked, splits):
    runs = plan_named("quickstart", [*TINY, "seeds=8"]).runs
    assert len(max_runs_by_shape(runs, MACHINE, timed(lone=lone, stacked=stacked))) == splits


TEXT = {"task.kind": "text", "model.kind": "lstm"}


@pytest.mark.parametrize(
    ("update", "dials", "engine"),
    [
        (1e-3, {"train.steps": 250_000}, "graph"),  # 250 s, of which compiling would save 37
        (1e-3, {"train.steps": 350_000}, "compiled"),
        (1e-2, {"train.steps": 35_000}, "compiled"),
        (1e-2, {"train.steps": 35_000, "model.kind": "lstm"}, "compiled"),
        (1e-2, {"train.seconds": 250.0}, "graph"),  # whatever an update takes
        (1e-2, {"train.seconds": 350.0}, "compiled"),
        (1e-2, {"train.steps": 35_000, "task.length": 16} | TEXT, "compiled"),
        (1e-2, {"train.steps": 35_000, "task.length": 17} | TEXT, "graph"),  # written out position by position
    ],
)
def test_packs_are_compiled_where_that_saves_more_than_it_takes(update, dials, engine):
    """Priced as if alone, since what others take of the GPU is not what compiling saves."""

    def each(runs: Any, placement: Placement) -> Any:
        assert (placement.mode, placement.workers) == ("graph", 1)
        return {"compute": update}, "measured"

    prices = cast(CostEstimator, SimpleNamespace(each=each))
    one = Pack("some", (Run("a", 0, {}, Settings.from_flat(dials), ParameterCounts(0, 0)),), 1)
    assert choose_placement(one, 31, Machine("cuda", 1), prices).mode == engine
    assert choose_placement(one, 31, Machine("cuda", 1), prices).workers == 12
    assert choose_placement(one, 31, Machine("cuda", 1, "graph"), prices).mode == "graph"


def test_packs_of_the_shipped_arithmetic_are_compiled_only_where_they_are_far_longer():
    """At round figures of a GPU 18 runs save less than the compiler takes in 10,001 updates, more in a million."""
    machine = Machine("cuda", 1)

    def engines(*words: str) -> set[str]:
        packs = pack_runs(plan_named("arithmetic/sanity", list(words)).runs, machine.capacity())
        return {choose_placement(pack, len(packs), machine, CostEstimator([], "here")).mode for pack in packs}

    assert engines("seeds=18") == {"graph"}
    assert engines("seeds=18", "train.steps=1000001") == {"compiled"}
