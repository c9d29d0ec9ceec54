"""The jobs that the pipeline passes to the engine: which packs are precompiled, and what that runs."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seedbed import pipeline
from seedbed.engines.local import QueuedJob
from seedbed.pipeline import Machine, PackJob, precompile_pack, run_studies
from seedbed.records import Cost, Placement
from seedbed.study.plan import plan_named
from seedbed.training.evaluate import Evaluator
from seedbed.training.trainer import Trainer

SMALL = ("task.p=5", "model.dim=8", "model.heads=2", "model.layers=1", "train.steps=9", "seeds=3")


class SilentObserver:
    def report(self, text: str) -> None: ...

    def on_start(self, packs: Sequence[Any]) -> None: ...

    def on_event(self, pack: Any, event: Any) -> None: ...

    def on_split(self, pack: Any, parts: Sequence[Any]) -> None: ...


def queued_jobs(
    machine: Machine, home: Path, monkeypatch: pytest.MonkeyPatch, overrides: Sequence[str] = SMALL
) -> list[QueuedJob]:
    """The jobs of a small study as the engine would get them; nothing is trained."""
    queued: list[QueuedJob] = []
    monkeypatch.setattr(pipeline, "run_jobs", lambda jobs, *_: queued.extend(jobs))
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
    [job], prepared = precompile.args, queued.prepare()
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
