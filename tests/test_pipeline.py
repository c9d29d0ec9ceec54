"""The jobs that the pipeline passes to the engine: which packs are precompiled, and what that runs."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seedbed import pipeline
from seedbed.engines.base import QueuedJob
from seedbed.engines.local import LocalEngine
from seedbed.pipeline import Machine, PackJob, SilentObserver, precompile_pack, run_studies
from seedbed.records import Cost, Pack, Placement, StoredPack, StoredRun
from seedbed.store import open_store
from seedbed.study.plan import plan_named
from seedbed.training.evaluate import Evaluator
from seedbed.training.trainer import Trainer

SMALL = ("task.p=5", "model.dim=8", "model.heads=2", "model.layers=1", "train.steps=9", "seeds=3")


def queued_jobs(
    machine: Machine, home: Path, monkeypatch: pytest.MonkeyPatch, overrides: Sequence[str] = SMALL
) -> list[QueuedJob]:
    """The jobs of a small study as the engine would get them; nothing is trained."""
    queued: list[QueuedJob] = []
    monkeypatch.setattr(LocalEngine, "run", lambda self, jobs, *_: queued.extend(jobs))
    run_studies([plan_named("quickstart", overrides)], home, machine, SilentObserver(), lambda: False)
    return queued


def test_only_packs_that_are_compiled_for_a_gpu_are_precompiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for device, mode in (("cuda", "graph"), ("cuda", "plain"), ("cpu", "compiled")):
        jobs = queued_jobs(Machine(device, 1, mode), tmp_path / (device + mode), monkeypatch)
        assert [job.precompile for job in jobs] == [None]
    [queued] = queued_jobs(Machine("cuda", 1, "compiled"), tmp_path / "lab", monkeypatch)
    assert queued.precompile is not None
    precompile = pickle.loads(pickle.dumps(queued.precompile))
    assert precompile.func is precompile_pack
    [job], prepared = precompile.args, queued.prepare(None)
    assert (job.settings, job.seeds, job.placement) == (prepared.settings, prepared.seeds, prepared.placement)


@pytest.mark.parametrize(("budget", "n_time_slices"), [("train.steps=20", 20), ("train.seconds=9", None)])
def test_a_job_has_one_time_slice_per_step_and_an_unknown_number_with_a_time_budget(
    budget: str, n_time_slices: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [override for override in SMALL if not override.startswith("train.steps")]
    [job] = queued_jobs(Machine("cuda", 1, "graph"), tmp_path, monkeypatch, [*others, budget])
    assert job.n_time_slices == n_time_slices


def test_precompiling_runs_one_evaluation_and_one_update(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, calls = plan_named("quickstart", SMALL), list[str]()
    for owner, name in ((Evaluator, "evaluate"), (Trainer, "train_step")):
        original = getattr(owner, name)

        def recorded(self: Any, name: str = name, original: Any = original) -> Any:
            calls.append(name)
            return original(self)

        monkeypatch.setattr(owner, name, recorded)
    job = PackJob([run.settings for run in plan.runs], [0, 1, 2], replace(Placement(), dtype="float64"), None, Cost())
    precompile_pack(job)
    assert calls == ["evaluate", "train_step"]


# ---- several GPUs: their processes train on the CPU here ----

TWO_SHAPES = ("task.p=5", "model.dim=8", "model.heads=2", "model.layers=1", "model.kind=gpt,lstm", "train.steps=150",
              "train.eval_first=3", "train.eval_every=50", "train.save_every=50", "seeds=2")  # fmt: skip


class OneThreadMachine(Machine):
    """Each pack on one thread, whatever trains beside it; with `gpus`, in their processes."""

    n_slots = 2

    def default_placement(self, pack: Pack, n_packs: int) -> Placement:
        return replace(super().default_placement(pack, n_packs), threads=1)


def one_thread_machine(*gpus: str) -> Machine:
    return OneThreadMachine("cpu", max(1, len(gpus)), "plain", gpus=gpus)


class StartObserver(SilentObserver):
    has_started = False

    def on_event(self, pack: Any, event: Any) -> None:
        self.has_started = True


def stored_curves(home: Path) -> dict[tuple[str, str], tuple[bytes, bytes]]:
    with open_store(home, read_only=True) as store:
        assert {run.status for run in store.runs()} == {"finished"}
        return {
            (run, name): (curve.steps.tobytes(), curve.values.tobytes())
            for run, named in store.curves([run.id for run in store.runs()]).items()
            for name, curve in named.items()
        }


def stored_devices(home: Path) -> dict[str, list[str | int]]:
    """The devices that each pack was trained on."""
    with open_store(home, read_only=True) as store:
        return {pack.id: [entry["device"] for entry in pack.environment] for pack in store.study_packs("quickstart")}


def test_packs_are_spread_over_gpus_resumed_on_theirs_and_moved_from_one_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped on two GPUs and resumed on one of them, a study has the metrics of one that was not interrupted."""
    plan, whole, home = plan_named("quickstart", TWO_SHAPES), tmp_path / "whole", tmp_path / "lab"
    run_studies([plan], whole, one_thread_machine(), SilentObserver(), lambda: False)
    assert set(map(tuple, stored_devices(whole).values())) == {("cpu",)}

    observer = StartObserver()
    outcome = run_studies([plan], home, one_thread_machine("cuda:0", "cuda:1"), observer, lambda: observer.has_started)
    assert outcome.counts == {"stopped": 4}
    before = stored_devices(home)
    assert sorted(before.values()) == [["cuda:0"], ["cuda:1"]]

    with monkeypatch.context() as patch:
        queued: list[QueuedJob] = []
        patch.setattr(LocalEngine, "run", lambda self, jobs, *_: queued.extend(jobs))
        run_studies([plan], home, one_thread_machine("cuda:0", "cuda:1"), SilentObserver(), lambda: False)
    assert sorted(job.device or "" for job in queued) == ["cuda:0", "cuda:1"]
    assert all(job.seconds > 0 for job in queued)

    outcome = run_studies([plan], home, one_thread_machine("cuda:1"), SilentObserver(), lambda: False)
    assert outcome.counts == {"finished": 4}
    assert stored_devices(home) == {pack: list(dict.fromkeys([*old, "cuda:1"])) for pack, old in before.items()}
    assert stored_curves(home) == stored_curves(whole)


def test_a_pack_stored_for_a_gpu_trains_on_the_one_that_its_process_sees() -> None:
    [run] = plan_named("quickstart", SMALL).runs[:1]
    stored = StoredPack("a", (run.id,), Placement("cuda:7", mode="compiled"), None)
    runs = [StoredRun(run.id, run.seed, run.settings, run.parameters, "planned", 0)]
    precompile = pipeline._precompile_function(pipeline.ActivePack(stored, runs))
    assert isinstance(precompile, partial)
    assert precompile.args[0].placement == Placement("cuda", mode="compiled")
