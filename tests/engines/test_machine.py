"""Where packs run on this machine and on one with a GPU: how many at a time, and by which engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from seedbed.engines.machine import GPU_LANES, GPU_PACK, Machine
from seedbed.records import Pack, Parameters, Run
from seedbed.settings import Settings

GPU = Machine("cuda", 1)


def pack_of(**dials: Any) -> Pack:
    settings = Settings.of({name.replace("__", "."): value for name, value in dials.items()})
    return Pack("some", (Run("a", 0, {}, settings, Parameters(0, 0)),), 1)


def test_packs_share_a_gpu_as_far_as_there_are_lanes_and_packs() -> None:
    found = [GPU.placement(pack_of(), n_packs).workers for n_packs in (1, 5, 12, 31)]
    assert found == [1, 5, 12, 12]
    assert GPU.placement(pack_of(train__alone=True), 31).workers == 1
    assert Machine("cuda", 2).n_side_by_side == 24
    assert Machine("cpu", 2).n_side_by_side == 2


def test_all_lanes_full_of_the_largest_packs_leave_a_large_gpu_room() -> None:
    assert GPU_LANES * GPU_PACK <= 100 * 2**30


def test_an_update_is_a_graph_on_a_gpu_unless_another_way_is_asked_for() -> None:
    assert GPU.placement(pack_of(), 1).engine == "graph"
    assert Machine("cuda", 1, "plain").placement(pack_of(), 1).engine == "plain"
    assert Machine("cpu", 1).placement(pack_of(), 1).engine == "plain"


GIB = 2**30


def packs_of_sizes(*gib: float) -> list[Pack]:
    return [replace(pack_of(), bytes=int(size * GIB)) for size in gib]


def test_packs_are_no_larger_than_half_of_what_a_gpu_holds() -> None:
    assert GPU.room().max_bytes == Machine("cuda", 1, memory=100 * GIB).room().max_bytes == GPU_PACK
    assert Machine("cuda", 1, memory=6 * GIB).room().max_bytes == 3 * GIB


def test_there_are_as_many_lanes_as_the_largest_packs_have_room_side_by_side() -> None:
    """Three lanes more may be open to packs that were compiled ahead, so their room is kept too."""
    small = Machine("cuda", 1, memory=10 * GIB)
    assert GPU.fitted(packs_of_sizes(*[6] * 31)).n_lanes == GPU_LANES  # what is not known is plenty
    assert small.fitted(packs_of_sizes(*[0.1] * 31)).n_lanes == GPU_LANES
    assert small.fitted(packs_of_sizes(*[1] * 31)).n_lanes == 10 - 3
    assert small.fitted(packs_of_sizes(5, *[0.1] * 31)).n_lanes == GPU_LANES
    assert small.fitted(packs_of_sizes(*[5] * 31)).n_lanes == 1
    assert small.fitted(packs_of_sizes(*[5] * 2)).n_lanes == GPU_LANES  # both fit
    assert small.fitted([replace(pack_of(train__alone=True), bytes=8 * GIB)] * 3).n_lanes == GPU_LANES  # never together
    assert small.fitted(packs_of_sizes(*[1] * 31)).placement(pack_of(), 31).workers == 7
