"""Time and memory of a pack: which section they count for, and which pack."""

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


def events(overrides, **options):
    settings = Settings.from_flat(TINY | overrides)
    history = train_pack([settings] * 2, [0, 1], Placement(), **options)
    return [event for event in history if not isinstance(event, StepEvent)]


@pytest.mark.parametrize(
    "overrides",
    [
        {"train.steps": 23, "train.eval_first": 5, "train.eval_every": 7, "train.save_every": 10},
        {"train.steps": 23, "train.eval_first": 5, "train.eval_every": 7, "train.save_steps": "log"},
        {"train.steps": 23, "train.eval_first": 5, "train.save_every": 10, "train.save_steps": (4, 7, 20, 99)},
        {"train.steps": 21, "train.eval_first": 0, "train.eval_every": 7, "train.save_every": 7},
        {"train.steps": 4, "train.eval_first": 100, "train.eval_every": 3, "train.save_every": 1000},
    ],
)
def test_estimated_section_counts_are_those_of_training(overrides):
    [*_, last] = events(overrides)
    settings = Settings.from_flat(TINY | overrides)
    expected = {name: n for name, n in section_counts(Run("", 0, {}, settings, ParameterCounts(0, 0))).items() if n}
    assert isinstance(last, CostEvent)
    assert last.cost.counts == expected


def test_the_first_update_of_a_session_counts_as_compile():
    first = events({"train.steps": 8}, should_stop=iter([False, False, False, True]).__next__)
    cost = next(event.cost for event in reversed(first) if isinstance(event, CostEvent))
    assert (cost.counts["compile"], cost.counts["compute"]) == (1, 2)
    state = next(event.state for event in first if isinstance(event, CheckpointEvent))
    last = events({"train.steps": 8}, resume_state=state, previous_cost=cost)[-1]
    assert (last.cost.counts["compile"], last.cost.counts["compute"]) == (2, 2 + 4)
    assert last.cost.seconds["compute"] > cost.seconds["compute"]


def test_the_first_compiled_evaluation_counts_as_compile_too():
    timer = Timer(Placement(mode="compiled"))
    for name in ("compute", "compute", "evaluate", "evaluate"):
        with timer.section(name):
            pass
    assert timer.cost().counts == {"compile": 2, "compute": 1, "evaluate": 1}


def test_process_memory_is_counted_above_the_baseline():
    before = np.ones(48 * MIB, dtype=np.uint8)
    timer = Timer(Placement())
    assert timer.cost().steady_bytes is None
    with timer.section("compute"):
        kept_array, freed_array = np.ones(32 * MIB, dtype=np.uint8), np.ones(64 * MIB, dtype=np.uint8)
        del freed_array
    cost = timer.cost()
    assert 30 * MIB < cost.steady_bytes < 44 * MIB
    assert 94 * MIB < cost.peak_bytes < 110 * MIB
    assert kept_array.size < before.size


def test_gpu_memory_is_attributed_to_the_right_pack_when_packs_alternate(monkeypatch):
    """A fake allocator: what one pack allocates between the other's sections does not count for the other."""
    device = {"now": 1000, "peak": 1000}

    def allocate(n, scratch=0):
        device["now"] += n
        device["peak"] = max(device["peak"], device["now"] + scratch)

    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: device["now"])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: device["peak"])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: device.update(peak=device["now"]))
    one, other = Timer(Placement("cuda", mode="graph")), Timer(Placement("cuda", mode="graph"))
    for timer, steady, scratch in ((one, 10, 5), (other, 200, 70)):
        with timer.section("prepare"):
            allocate(steady, scratch)
    for timer, steady, scratch in ((one, 1, 30), (other, 0, 40)):
        for _ in range(3):
            with timer.section("compute"):
                allocate(steady, scratch)
            steady = 0
    assert (one.cost().steady_bytes, one.cost().peak_bytes) == (11, 10 + 1 + 30)
    assert (other.cost().steady_bytes, other.cost().peak_bytes) == (200, 200 + 70)


def test_a_probe_times_every_section_of_training():
    settings = Settings.from_flat(TINY | {"train.steps": 10})
    cost = probe_pack([settings] * 3, [0, 1, 2], Placement(), 0.02)
    assert set(cost.counts) == {"prepare", "compile", "compute", "evaluate", "save"}
    assert cost.counts["compute"] >= 3
    assert all(seconds > 0 for seconds in cost.seconds.values())


def test_a_probe_times_the_replay_of_a_captured_evaluation(monkeypatch):
    """The first call captures the graph, which is slow; a fake evaluator sleeps."""
    sleep_seconds = iter([0.3, 0.02])

    class CapturedEvaluator:
        uses_cuda_graph = True

        def __init__(self, trainer): ...

        def evaluate(self):
            time.sleep(next(sleep_seconds))

    monkeypatch.setattr("seedbed.training.timing_probe.Evaluator", CapturedEvaluator)
    cost = probe_pack([Settings.from_flat(TINY)], [0], Placement(), 0.02)
    assert 0.02 <= cost.mean_seconds("evaluate") < 0.2
    assert not list(sleep_seconds)


def test_a_partial_evaluation_is_extrapolated(monkeypatch):
    """7³ equations in chunks of 100: at least one chunk is scored, and its time extrapolated to all."""
    import seedbed.tasks.equation_batches as source
    from seedbed.training.timing_probe import _TimeLimitedBatches
    from seedbed.training.trainer import Trainer

    monkeypatch.setattr(source, "EVAL_CHUNK_EQUATIONS", 100)
    settings = Settings.from_flat(TINY | {"task.p": 7, "task.orders": (3,)})
    trainer = Trainer([settings], [0], "cpu", torch.float32)
    batches = _TimeLimitedBatches(trainer.batches, 0.0)
    assert sum(batch.inputs.shape[1] for batch in batches.eval_chunks()) == 100
    assert batches.extrapolation_factor == pytest.approx(343 / 100)


def test_the_cost_of_a_pack_is_divided_among_its_runs():
    cost = Cost({"compute": 8.0}, {"compute": 4}, steady_bytes=100, peak_bytes=None).per_run(4)
    assert (cost.seconds, cost.mean_seconds("compute")) == ({"compute": 2.0}, 0.5)
    assert (cost.steady_bytes, cost.peak_bytes) == (25, None)


def test_on_a_gpu_all_time_since_the_last_section_counts_unless_skipped(monkeypatch):
    """Sections only queue work there: the time between two of them is the device's, unless it is skipped."""
    clock = iter([0.0, 1.0, 4.0, 10.0, 12.0])  # created; queued; ready; skipped; saved
    monkeypatch.setattr("seedbed.training.timer._CudaMemoryTracker", lambda: _NoMemoryTracker())
    monkeypatch.setattr("seedbed.training.timer.time.perf_counter", lambda: next(clock))
    timer = Timer(Placement("cuda"))
    with timer.section("evaluate"):
        pass
    timer.add_device_wait("evaluate")
    timer.skip_elapsed()
    with timer.section("save"):
        pass
    assert {name: timer.seconds[name] for name in ("evaluate", "save")} == {"evaluate": 4.0, "save": 2.0}


class _NoMemoryTracker:
    def begin(self) -> None: ...

    def end(self) -> None: ...
