"""Where packs run on this machine and on one with a GPU: how many at a time, and by which engine."""

from __future__ import annotations

from typing import Any

import pytest

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


LONG = {"train__steps": 200_000}


@pytest.mark.parametrize(
    ("dials", "engine"),
    [
        ({"train__steps": 99_999}, "graph"),
        (LONG, "compiled"),
        (LONG | {"model__kind": "lstm"}, "compiled"),
        (LONG | {"task__kind": "text", "task__length": 128}, "compiled"),
        (LONG | {"task__kind": "text", "task__length": 16, "model__kind": "lstm"}, "compiled"),
        (LONG | {"task__kind": "text", "task__length": 17, "model__kind": "lstm"}, "graph"),
    ],
)
def test_long_packs_are_compiled_unless_the_compiler_would_write_out_a_long_recurrence(
    dials: dict[str, Any], engine: str
) -> None:
    assert GPU.placement(pack_of(**dials), 1).engine == engine
    assert Machine("cpu", 1).placement(pack_of(**dials), 1).engine == "plain"
    assert Machine("cuda", 1, "plain").placement(pack_of(**dials), 1).engine == "plain"
