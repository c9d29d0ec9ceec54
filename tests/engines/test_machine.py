"""Where packs run on this machine and on one with a GPU: how many at a time, and by which engine."""

from __future__ import annotations

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
