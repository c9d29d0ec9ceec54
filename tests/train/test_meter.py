"""Clocks and memory of a pack: what goes where, and whose it is."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from seedbed.engines.price import calendar
from seedbed.records import Cost, Measured, Parameters, Placement, Run, Saved, Stepped
from seedbed.settings import Settings
from seedbed.train.loop import train_pack
from seedbed.train.meter import Meter
from seedbed.train.probe import probe_pack

TINY = {"task.p": 5, "model.dim": 4, "model.heads": 2, "model.layers": 1}
MIB = 2**20


def events(dials, **more):
    settings = Settings.of(TINY | dials)
    return [one for one in train_pack([settings] * 2, [0, 1], Placement(), **more) if not isinstance(one, Stepped)]


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
    settings = Settings.of(TINY | dials)
    expected = {name: n for name, n in calendar(Run("", 0, {}, settings, Parameters(0, 0))).items() if n}
    assert isinstance(last, Measured)
    assert last.cost.counts == expected


def test_the_first_update_of_a_session_is_no_timed_one():
    first = events({"train.steps": 8}, stop=iter([False, False, False, True]).__next__)
    told = next(event for event in reversed(first) if isinstance(event, Measured))
    assert (told.cost.counts["compile"], told.cost.counts["compute"]) == (1, 2)
    state = next(event.state for event in first if isinstance(event, Saved))
    last = events({"train.steps": 8}, resume=state, spent=told.cost)[-1]
    assert (last.cost.counts["compile"], last.cost.counts["compute"]) == (2, 2 + 4)
    assert last.cost.seconds["compute"] > told.cost.seconds["compute"]


def test_compiling_is_apart_for_records_too():
    meter = Meter(Placement(engine="compiled"))
    for on in ("compute", "compute", "evaluate", "evaluate"):
        with meter.spending(on):
            pass
    assert meter.cost().counts == {"compile": 2, "compute": 1, "evaluate": 1}


def test_memory_of_the_process_is_counted_above_what_it_had():
    before = np.ones(48 * MIB, dtype=np.uint8)
    meter = Meter(Placement())
    assert meter.cost().steady is None
    with meter.spending("compute"):
        held, gone = np.ones(32 * MIB, dtype=np.uint8), np.ones(64 * MIB, dtype=np.uint8)
        del gone
    cost = meter.cost()
    assert 30 * MIB < cost.steady < 44 * MIB
    assert 94 * MIB < cost.peak < 110 * MIB
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
    one, other = Meter(Placement("cuda", engine="graph")), Meter(Placement("cuda", engine="graph"))
    for meter, kept, scratch in ((one, 10, 5), (other, 200, 70)):
        with meter.spending("prepare"):
            allocate(kept, scratch)
    for meter, kept, scratch in ((one, 1, 30), (other, 0, 40)):
        for _ in range(3):
            with meter.spending("compute"):
                allocate(kept, scratch)
            kept = 0
    assert (one.cost().steady, one.cost().peak) == (11, 10 + 1 + 30)
    assert (other.cost().steady, other.cost().peak) == (200, 200 + 70)


def test_a_probe_times_everything_that_training_does_and_leaves_nothing():
    settings = Settings.of(TINY | {"train.steps": 10})
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

    monkeypatch.setattr("seedbed.train.probe.Reader", Replayed)
    cost = probe_pack([Settings.of(TINY)], [0], Placement(), 0.02)
    assert 0.02 <= cost.each("evaluate") < 0.2
    assert not list(naps)


def test_a_part_of_a_record_counts_for_the_whole(monkeypatch):
    """7³ equations in chunks of 100: at least one chunk is scored, and counted for four."""
    import seedbed.data.equation_batches as source
    from seedbed.train.probe import _Some
    from seedbed.train.step import Trainer

    monkeypatch.setattr(source, "CHUNK", 100)
    settings = Settings.of(TINY | {"task.p": 7, "task.orders": (3,)})
    trainer = Trainer([settings], [0], "cpu", torch.float32)
    some = _Some(trainer.batches, 0.0)
    assert sum(batch.inputs.shape[1] for batch in some.chunks()) == 100
    assert some.worth == pytest.approx(343 / 100)


def test_a_cost_is_shared_among_runs():
    share = Cost({"compute": 8.0}, {"compute": 4}, steady=100, peak=None).share(4)
    assert (share.seconds, share.each("compute"), share.steady, share.peak) == ({"compute": 2.0}, 0.5, 25, None)


def test_on_a_gpu_all_time_counts_from_booking_to_booking_but_for_pauses(monkeypatch):
    """Work is only queued there: what passes between two pieces of work is the device's time, unless it is left out."""
    clock = iter([0.0, 1.0, 4.0, 10.0, 12.0])  # made; queued; arrived; paused; saved
    monkeypatch.setattr("seedbed.train.meter._DeviceMemory", lambda: _Nothing())
    monkeypatch.setattr("seedbed.train.meter.time.perf_counter", lambda: next(clock))
    meter = Meter(Placement("cuda"))
    with meter.spending("evaluate"):
        pass
    meter.wait("evaluate")
    meter.pause()
    with meter.spending("save"):
        pass
    assert {name: meter.seconds[name] for name in ("evaluate", "save")} == {"evaluate": 4.0, "save": 2.0}


class _Nothing:
    def begin(self) -> None: ...

    def end(self) -> None: ...
