"""Default placements on a CPU and on a GPU: how many packs train concurrently, and in which mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from seedbed.engines import machine as machine_module
from seedbed.engines.base import EngineResources
from seedbed.engines.machine import MAX_GPU_PACK_BYTES, MAX_GPU_SLOTS, Machine
from seedbed.errors import UsageError
from seedbed.records import Pack, ParameterCounts, Run
from seedbed.settings import Settings

GPU = Machine("cuda", 1)


def make_pack(**overrides: Any) -> Pack:
    settings = Settings.from_flat({name.replace("__", "."): value for name, value in overrides.items()})
    return Pack("some", (Run("a", 0, {}, settings, ParameterCounts(0, 0)),), 1)


def test_packs_share_a_gpu_up_to_the_number_of_slots() -> None:
    workers = [GPU.default_placement(make_pack(), n_packs).workers for n_packs in (1, 5, 12, 31)]
    assert workers == [1, 5, 12, 12]
    assert GPU.default_placement(make_pack(train__exclusive=True), 31).workers == 1
    assert Machine("cuda", 2).n_concurrent_packs == 24
    assert Machine("cpu", 2).n_concurrent_packs == 2


def test_the_largest_packs_in_all_slots_fit_into_a_large_gpu() -> None:
    assert MAX_GPU_SLOTS * MAX_GPU_PACK_BYTES <= 100 * 2**30


def test_the_default_mode_on_a_gpu_is_graph() -> None:
    assert GPU.default_placement(make_pack(), 1).mode == "graph"
    assert Machine("cuda", 1, "plain").default_placement(make_pack(), 1).mode == "plain"
    assert Machine("cpu", 1).default_placement(make_pack(), 1).mode == "plain"


def test_cuda_stands_for_all_gpus_and_cuda_1_for_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "gpu_count", lambda: 3)
    monkeypatch.setattr(machine_module, "gpu_memory_bytes", lambda gpu: [80, 40, 60][gpu] * GIB)
    everything = Machine.detect("cuda")
    assert (everything.device, everything.gpus, everything.n_workers) == ("cuda", ("cuda:0", "cuda:1", "cuda:2"), 3)
    assert everything.memory_bytes == 32 * GIB  # 80 % of the smallest
    one = Machine.detect("cuda:2")
    assert (one.device, one.gpus, one.n_workers, one.memory_bytes) == ("cuda", ("cuda:2",), 1, 48 * GIB)
    with pytest.raises(UsageError, match=r"there is no GPU cuda:3 .* expected cuda or one of cuda:0, cuda:1, cuda:2"):
        Machine.detect("cuda:3")


@pytest.mark.parametrize("n_gpus", [0, 1])
def test_the_only_gpu_is_used_without_a_process_of_its_own(n_gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """0: a driver that this program cannot count the GPUs of."""
    monkeypatch.setattr(machine_module, "gpu_count", lambda: n_gpus)
    monkeypatch.setattr(machine_module, "gpu_memory_bytes", lambda gpu: None)
    assert Machine.detect("cuda") == Machine.detect("cuda:0") == Machine("cuda", 1, workers_requested=False)
    assert Machine.detect("cuda").resources() == EngineResources(n_workers=1, n_slots=MAX_GPU_SLOTS)


def test_several_gpus_share_the_packs() -> None:
    gpus = Machine("cuda", 3, gpus=("cuda:0", "cuda:1", "cuda:2"))
    workers = [gpus.default_placement(make_pack(), n_packs).workers for n_packs in (1, 4, 31, 90)]
    assert workers == [1, 2, 11, 12]  # on the GPU with the most
    assert gpus.default_placement(make_pack(train__exclusive=True), 31).workers == 1
    assert gpus.default_placement(make_pack(), 4).device == "cuda"
    assert (gpus.n_concurrent_packs, gpus.capacity().min_packs) == (36, 3)
    assert gpus.resources() == EngineResources(n_workers=3, n_slots=MAX_GPU_SLOTS, devices=gpus.gpus)


GIB = 2**30


def packs_of_sizes(*gib: float) -> list[Pack]:
    return [replace(make_pack(), bytes=int(size * GIB)) for size in gib]


def test_packs_take_an_eighth_of_a_large_gpus_memory_and_at_most_half_of_a_small_ones() -> None:
    assert GPU.capacity().max_bytes == MAX_GPU_PACK_BYTES
    assert Machine("cuda", 1, memory_bytes=112 * GIB).capacity().max_bytes == 14 * GIB
    assert Machine("cuda", 1, memory_bytes=20 * GIB).capacity().max_bytes == MAX_GPU_PACK_BYTES
    assert Machine("cuda", 1, memory_bytes=6 * GIB).capacity().max_bytes == 3 * GIB


def test_there_are_as_many_slots_as_the_largest_packs_fit_into_memory() -> None:
    """Precompiled packs may take three slots more, so memory for those is reserved too."""
    small = Machine("cuda", 1, memory_bytes=10 * GIB)
    assert GPU.fit_slots(packs_of_sizes(*[6] * 31)).n_slots == MAX_GPU_SLOTS  # unknown memory counts as ample
    assert small.fit_slots(packs_of_sizes(*[0.1] * 31)).n_slots == MAX_GPU_SLOTS
    assert small.fit_slots(packs_of_sizes(*[1] * 31)).n_slots == 10 - 3
    assert small.fit_slots(packs_of_sizes(5, *[0.1] * 31)).n_slots == MAX_GPU_SLOTS
    assert small.fit_slots(packs_of_sizes(*[5] * 31)).n_slots == 1
    assert small.fit_slots(packs_of_sizes(*[5] * 2)).n_slots == MAX_GPU_SLOTS  # both fit
    exclusive = replace(make_pack(train__exclusive=True), bytes=8 * GIB)  # never concurrent
    assert small.fit_slots([exclusive] * 3).n_slots == MAX_GPU_SLOTS
    assert small.fit_slots(packs_of_sizes(*[1] * 31)).default_placement(make_pack(), 31).workers == 7
