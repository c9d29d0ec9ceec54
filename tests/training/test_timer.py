"""Clocks and memory of a pack: what goes where, and whose it is."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from seedbed.engines.cost_estimator import section_counts
from seedbed.records import CheckpointEvent, Cost, CostEvent, ParameterCounts, Placement, Run, StepEvent
from seedbed.settings import Settings
from seedbed.training.loop import train_pack
from seedbed.training.timer import Timer
from seedbed.training.timing_probe import probe_pack

TINY = {"task.p": 5, "model.dim": 4, "model.heads": 2, "model.layers": 1}
MIB = 2**20


def events(dials, **more):
    settings = Settings.from_flat(TINY | dials)
    return [one for one in train_pack([settings] * 2, [0, 1], Placement(), **more) if not isinstance(one, StepEvent)]


@pytest.mark.parametrize(
    "dials",
    [
        {"train.steps": 23, "train.eval_first": 5, "train.eval_every": 7, "train.save_every": 10},
        {"train.steps": 21, "train.eval_first": 0, "train.eval_every": 7, "train.save_every": 7},
        {"train.steps": 4, "train.eval_first": 100, "train.eval_every": 3, "train.save_every": 1000},
    ],
)
def test_a_price_counts_what_training_does(dials):
    """The calendar of prices against the counts of a real training."""
    [*_, last] = events(dials)
    settings = Settings.from_flat(TINY | dials)
    expected = {name: n for name, n in section_counts(Run("", 0, {}, settings, ParameterCounts(0, 0))).items() if n}
    assert isinstance(last, CostEvent)
    assert last.cost.counts == expected


def test_the_first_update_of_a_session_is_no_timed_one():
    first = events({"train.steps": 8}, stop=iter([False, False, False, True]).__next__)
    told = next(event for event in reversed(first) if isinstance(event, CostEvent))
    assert (told.cost.counts["compile"], told.cost.counts["compute"]) == (1, 2)
    state = next(event.state for event in first if isinstance(event, CheckpointEvent))
    last = events({"train.steps": 8}, resume=state, spent=told.cost)[-1]
    assert (last.cost.counts["compile"], last.cost.counts["compute"]) == (2, 2 + 4)
    assert last.cost.seconds["compute"] > told.cost.seconds["compute"]


def test_compiling_is_apart_for_records_too():
    meter = Timer(Placement(mode="compiled"))
    for on in ("compute", "compute", "evaluate", "evaluate"):
        with meter.section(on):
            pass
    assert meter.cost().counts == {"compile": 2, "compute": 1, "evaluate": 1}


def test_memory_of_the_process_is_counted_above_what_it_had():
    before = np.ones(48 * MIB, dtype=np.uint8)
    meter = Timer(Placement())
    assert meter.cost().steady_bytes is None
    with meter.section("compute"):
        held, gone = np.ones(32 * MIB, dtype=np.uint8), np.ones(64 * MIB, dtype=np.uint8)
        del gone
    cost = meter.cost()
    assert 30 * MIB < cost.steady_bytes < 44 * MIB
    assert 94 * MIB < cost.peak_bytes < 110 * MIB
    assert held.size < before.size


def test_memory_of_a_device_is_told_apart_between_packs_that_take_turns(monkeypatch):
    """A fake allocator: what one pack allocates between the other's pieces of work is not the other's."""
    device = {"now": 1000, "peak": 1000}

    def allocate(n, and_more=0):
        device["now"] += n
        device["peak"] = max(device["peak"], device["now"] + and_more)

    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: device["now"])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: device["peak"])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: device.update(peak=device["now"]))
    one, other = Timer(Placement("cuda", mode="graph")), Timer(Placement("cuda", mode="graph"))
    for meter, kept, scratch in ((one, 10, 5), (other, 200, 70)):
        with meter.section("prepare"):
            allocate(kept, scratch)
    for meter, kept, scratch in ((one, 1, 30), (other, 0, 40)):
        for _ in range(3):
            with meter.section("compute"):
                allocate(kept, scratch)
            kept = 0
    assert (one.cost().steady_bytes, one.cost().peak_bytes) == (11, 10 + 1 + 30)
    assert (other.cost().steady_bytes, other.cost().peak_bytes) == (200, 200 + 70)


def test_a_probe_times_everything_that_training_does_and_leaves_nothing():
    settings = Settings.from_flat(TINY | {"train.steps": 10})
    cost = probe_pack([settings] * 3, [0, 1, 2], Placement(), 0.02)
    assert set(cost.counts) == {"prepare", "compile", "compute", "evaluate", "save"}
    assert cost.counts["compute"] >= 3
    assert all(spent > 0 for spent in cost.seconds.values())


def test_where_evaluation_is_replayed_a_probe_times_the_replay(monkeypatch):
    """The first time records it, which is slow; a fake reader sleeps."""
    naps = iter([0.3, 0.02])

    class Replayed:
        records = True

        def __init__(self, trainer): ...

        def read(self):
            time.sleep(next(naps))

    monkeypatch.setattr("seedbed.training.timing_probe.Reader", Replayed)
    cost = probe_pack([Settings.from_flat(TINY)], [0], Placement(), 0.02)
    assert 0.02 <= cost.mean_seconds("evaluate") < 0.2
    assert not list(naps)


def test_a_part_of_a_record_counts_for_the_whole(monkeypatch):
    """7³ equations in chunks of 100: at least one chunk is scored, and counted for four."""
    import seedbed.data.equation_batches as source
    from seedbed.training.timing_probe import _TimeLimitedBatches
    from seedbed.training.trainer import Trainer

    monkeypatch.setattr(source, "CHUNK", 100)
    settings = Settings.from_flat(TINY | {"task.p": 7, "task.orders": (3,)})
    trainer = Trainer([settings], [0], "cpu", torch.float32)
    some = _TimeLimitedBatches(trainer.batches, 0.0)
    assert sum(batch.inputs.shape[1] for batch in some.eval_chunks()) == 100
    assert some.extrapolation_factor == pytest.approx(343 / 100)


def test_a_cost_is_shared_among_runs():
    share = Cost({"compute": 8.0}, {"compute": 4}, steady_bytes=100, peak_bytes=None).per_run(4)
    assert (share.seconds, share.mean_seconds("compute"), share.steady_bytes, share.peak_bytes) == (
        {"compute": 2.0},
        0.5,
        25,
        None,
    )


def test_on_a_gpu_all_time_counts_from_booking_to_booking_but_for_pauses(monkeypatch):
    """Work is only queued there: what passes between two pieces of work is the device's time, unless it is left out."""
    clock = iter([0.0, 1.0, 4.0, 10.0, 12.0])  # made; queued; arrived; paused; saved
    monkeypatch.setattr("seedbed.training.timer._DeviceMemory", lambda: _Nothing())
    monkeypatch.setattr("seedbed.training.timer.time.perf_counter", lambda: next(clock))
    meter = Timer(Placement("cuda"))
    with meter.section("evaluate"):
        pass
    meter.add_device_wait("evaluate")
    meter.skip_elapsed()
    with meter.section("save"):
        pass
    assert {name: meter.seconds[name] for name in ("evaluate", "save")} == {"evaluate": 4.0, "save": 2.0}


class _Nothing:
    def begin(self) -> None: ...

    def end(self) -> None: ...
