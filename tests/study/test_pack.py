from __future__ import annotations

from typing import Any

import pytest

from seedbed.models.model_size import effective_batch_size, estimate_peak_bytes
from seedbed.records import ParameterCounts, Run
from seedbed.settings import Settings, all_settings, setting_traits
from seedbed.study.pack import MIN_BATCH_USE, Capacity, pack_runs, shape_key
from seedbed.study.plan import compute_run_id, plan_named

UNLIMITED = Capacity(max_bytes=10**12, max_runs=10**6, min_packs=1)
# There batches of several sizes may share a pack; on a CPU see tests/test_placements.py.
ON_A_GPU = Capacity(max_bytes=10**12, max_runs=10**6, min_packs=1, device="cuda")


def make_runs(*configs: dict[str, Any], seeds: int = 1) -> list[Run]:
    found = [(Settings.from_flat(config), seed) for config in configs for seed in range(seeds)]
    return [Run(compute_run_id(settings, seed), seed, {}, settings, ParameterCounts(0, 0)) for settings, seed in found]


def sizes(runs: list[Run], capacity: Capacity = UNLIMITED) -> list[int]:
    return [len(pack.runs) for pack in pack_runs(runs, capacity)]


def test_runs_that_differ_in_per_run_settings_share_a_pack() -> None:
    runs = make_runs(
        {},
        {"train.lr": 0.1, "train.weight_decay": 0.0, "train.betas": [0.5, 0.5], "train.eps": 1e-6, "train.clip": 0.0},
        {"train.schedule": "cosine", "train.warmup": 5, "train.lr_floor": 0.1},
        {"train.schedule": "plateau", "train.plateau_metric": "val/loss", "train.patience": 3},
        {"model.dropout": 0.5, "model.init": "normal-0.02", "model.init_scale": 2.0},
        {"task.operator": "*", "task.train_fraction": 0.4},
        seeds=3,
    )
    [pack] = pack_runs(runs, ON_A_GPU)
    assert pack.runs == tuple(runs)
    [pack] = pack_runs(runs[:12], UNLIMITED)
    assert pack.runs == tuple(runs[:12])


@pytest.mark.parametrize(
    "changed",
    [
        {"model.kind": "lstm"},
        {"model.layers": 3},
        {"model.tied": True},
        {"task.p": 29},
        {"task.orders": [2, 3]},
        {"task.operator": "/"},
        {"train.optimizer": "sgd"},
        {"train.steps": 10},
        {"train.eval_every": 7},
    ],
)
def test_settings_that_change_shapes_or_program_separate_packs(changed: dict[str, Any]) -> None:
    assert sizes(make_runs({}, changed, {"train.lr": 1.0})) == [2, 1]


def test_per_run_settings_do_not_change_the_shape_key() -> None:
    assert {name for name in all_settings() if setting_traits(name).per_run} >= {"train.lr", "model.dropout"}
    assert shape_key(Settings.from_flat({"train.lr": 3.0})) == shape_key(Settings())
    assert shape_key(Settings.from_flat({"train.final_evaluation": False})) != shape_key(Settings())


def test_large_groups_are_split_evenly_in_order() -> None:
    runs = make_runs({}, seeds=7)
    packs = pack_runs(runs, Capacity(10**12, 4, 1))
    assert [[run.seed for run in pack.runs] for pack in packs] == [[0, 1, 2, 3], [4, 5, 6]]


def test_memory_limits_a_pack_and_an_oversized_run_gets_its_own() -> None:
    each = estimate_peak_bytes(Settings())
    packs = pack_runs(make_runs({}, seeds=5), Capacity(3 * each, 100, 1))
    assert [(len(pack.runs), pack.bytes) for pack in packs] == [(3, 3 * each), (2, 2 * each)]
    assert sizes(make_runs({}, seeds=3), Capacity(1, 100, 1)) == [1, 1, 1]


def test_an_exclusive_run_is_never_packed_with_others() -> None:
    assert sizes(make_runs({}, {"train.exclusive": True}, seeds=3)) == [3, 1, 1, 1]


def test_a_measured_shape_limits_the_pack_size() -> None:
    capacity = Capacity(10**12, 100, 1, measured_max_runs={shape_key(Settings()): 2})
    assert sizes(make_runs({}, {"model.dim": 32}, seeds=5), capacity) == [2, 2, 1, 5]
    assert sizes(make_runs({"train.exclusive": True}, seeds=2), capacity) == [1, 1]


def test_enough_packs_are_made_for_all_cores() -> None:
    assert sizes(make_runs({}, seeds=8), Capacity(10**12, 100, 3)) == [3, 3, 2]
    assert sizes(make_runs({}, seeds=2), Capacity(10**12, 100, 5)) == [1, 1]
    both = make_runs({"model.dim": 256}, {"model.dim": 32}, seeds=4)
    assert sizes(both, Capacity(10**12, 100, 3)) == [2, 2, 4]  # the heavier group is the one to split


def batch_use(runs: tuple[Run, ...]) -> float:
    batches = [effective_batch_size(run.settings) for run in runs]
    return sum(batches) / (len(batches) * max(batches))


def test_batch_sizes_share_a_pack_only_while_padding_wastes_little() -> None:
    similar = make_runs({"train.batch_size": 100}, {"train.batch_size": 60})
    assert sizes(similar, ON_A_GPU) == [2]
    unequal = make_runs({"train.batch_size": 100}, {"train.batch_size": 32}, {"train.batch_size": 39})
    assert sizes(unequal, ON_A_GPU) == [1, 2]
    capped = make_runs({"train.batch_size": 480}, {"train.batch_size": 100_000})
    assert sizes(capped) == [2]


@pytest.mark.parametrize(
    "capacity", [UNLIMITED, Capacity(10**12, 5, 1), Capacity(10**12, 8, 7), Capacity(30 * 10**6, 64, 2)]
)
@pytest.mark.parametrize("name", ["arithmetic/data-size", "arithmetic/compute", "arithmetic/model-size"])
def test_packs_hold_each_run_once_and_respect_all_limits(name: str, capacity: Capacity) -> None:
    runs = plan_named(name).runs
    packs = pack_runs(runs, capacity)
    assert sorted(run.id for pack in packs for run in pack.runs) == sorted(run.id for run in runs)
    for pack in packs:
        assert batch_use(pack.runs) >= MIN_BATCH_USE
        assert len(pack.runs) <= capacity.max_runs
        assert pack.bytes <= capacity.max_bytes or len(pack.runs) == 1
        assert len({shape_key(run.settings) for run in pack.runs}) == 1
        assert [runs.index(run) for run in pack.runs] == sorted(runs.index(run) for run in pack.runs)
    assert len(packs) >= capacity.min_packs


def test_parts_of_a_group_are_checked_again() -> None:
    """Ten large and five small batches waste little together, but the last five of them on their own would."""
    runs = make_runs({"train.batch_size": 480}, seeds=10) + make_runs({"train.batch_size": 120}, seeds=5)
    assert sizes(runs, ON_A_GPU) == [15]
    packs = pack_runs(runs, Capacity(10**12, 8, 1, device="cuda"))
    assert all(batch_use(pack.runs) >= MIN_BATCH_USE for pack in packs)


def test_a_pack_id_depends_on_its_members_in_order() -> None:
    runs = make_runs({}, seeds=2)
    first, again, other = (pack_runs(some, UNLIMITED)[0].id for some in (runs, list(runs), runs[::-1]))
    assert first == again != other
