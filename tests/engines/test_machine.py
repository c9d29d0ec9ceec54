"""Where packs run on this machine and on one with a GPU: how many at a time, and by which engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from seedbed.engines.machine import MAX_GPU_PACK_BYTES, MAX_GPU_SLOTS, Machine
from seedbed.records import Pack, ParameterCounts, Run
from seedbed.settings import Settings

GPU = Machine("cuda", 1)


def pack_of(**dials: Any) -> Pack:
    settings = Settings.from_flat({name.replace("__", "."): value for name, value in dials.items()})
    return Pack("some", (Run("a", 0, {}, settings, ParameterCounts(0, 0)),), 1)


def test_packs_share_a_gpu_as_far_as_there_are_lanes_and_packs() -> None:
    found = [GPU.default_placement(pack_of(), n_packs).workers for n_packs in (1, 5, 12, 31)]
    assert found == [1, 5, 12, 12]
    assert GPU.default_placement(pack_of(train__alone=True), 31).workers == 1
    assert Machine("cuda", 2).n_concurrent_packs == 24
    assert Machine("cpu", 2).n_concurrent_packs == 2


def test_all_lanes_full_of_the_largest_packs_leave_a_large_gpu_room() -> None:
    assert MAX_GPU_SLOTS * MAX_GPU_PACK_BYTES <= 100 * 2**30


def test_an_update_is_a_graph_on_a_gpu_unless_another_way_is_asked_for() -> None:
    assert GPU.default_placement(pack_of(), 1).mode == "graph"
    assert Machine("cuda", 1, "plain").default_placement(pack_of(), 1).mode == "plain"
    assert Machine("cpu", 1).default_placement(pack_of(), 1).mode == "plain"


GIB = 2**30


def packs_of_sizes(*gib: float) -> list[Pack]:
    return [replace(pack_of(), bytes=int(size * GIB)) for size in gib]


def test_packs_are_no_larger_than_half_of_what_a_gpu_holds() -> None:
    assert (
        GPU.capacity().max_bytes
        == Machine("cuda", 1, memory_bytes=100 * GIB).capacity().max_bytes
        == MAX_GPU_PACK_BYTES
    )
    assert Machine("cuda", 1, memory_bytes=6 * GIB).capacity().max_bytes == 3 * GIB


def test_there_are_as_many_lanes_as_the_largest_packs_have_room_side_by_side() -> None:
    """Three lanes more may be open to packs that were compiled ahead, so their room is kept too."""
    small = Machine("cuda", 1, memory_bytes=10 * GIB)
    assert GPU.fit_slots(packs_of_sizes(*[6] * 31)).n_slots == MAX_GPU_SLOTS  # what is not known is plenty
    assert small.fit_slots(packs_of_sizes(*[0.1] * 31)).n_slots == MAX_GPU_SLOTS
    assert small.fit_slots(packs_of_sizes(*[1] * 31)).n_slots == 10 - 3
    assert small.fit_slots(packs_of_sizes(5, *[0.1] * 31)).n_slots == MAX_GPU_SLOTS
    assert small.fit_slots(packs_of_sizes(*[5] * 31)).n_slots == 1
    assert small.fit_slots(packs_of_sizes(*[5] * 2)).n_slots == MAX_GPU_SLOTS  # both fit
    assert (
        small.fit_slots([replace(pack_of(train__alone=True), bytes=8 * GIB)] * 3).n_slots == MAX_GPU_SLOTS
    )  # never together
    assert small.fit_slots(packs_of_sizes(*[1] * 31)).default_placement(pack_of(), 31).workers == 7
