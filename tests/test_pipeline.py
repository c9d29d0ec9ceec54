"""What the pipeline hands to the engine: which packs are compiled ahead, and what that does."""

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


class Nobody:
    def say(self, text: str) -> None: ...

    def begin(self, packs: Sequence[Any]) -> None: ...

    def see(self, pack: Any, event: Any) -> None: ...

    def split(self, pack: Any, parts: Sequence[Any]) -> None: ...


def tasks_of(
    machine: Machine, home: Path, monkeypatch: pytest.MonkeyPatch, words: Sequence[str] = SMALL
) -> list[QueuedJob]:
    """The tasks of a small study as the engine would get them; nothing is trained."""
    found: list[QueuedJob] = []
    monkeypatch.setattr(pipeline, "run_jobs", lambda tasks, *_: found.extend(tasks))
    run_studies([plan_named("quickstart", words)], home, machine, Nobody(), lambda: False)
    return found


def test_packs_that_are_compiled_for_a_gpu_are_compiled_ahead_and_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for device, engine in (("cuda", "graph"), ("cuda", "plain"), ("cpu", "compiled")):
        tasks = tasks_of(Machine(device, 1, engine), tmp_path / (device + engine), monkeypatch)
        assert [task.precompile for task in tasks] == [None]
    [task] = tasks_of(Machine("cuda", 1, "compiled"), tmp_path / "lab", monkeypatch)
    assert task.precompile is not None
    piece = pickle.loads(pickle.dumps(task.precompile))
    assert piece.func is precompile_pack
    [job], prepared = piece.args, task.prepare()
    assert (job.settings, job.seeds, job.placement) == (prepared.settings, prepared.seeds, prepared.placement)


@pytest.mark.parametrize(("word", "length"), [("train.steps=20", 20), ("train.seconds=9", None)])
def test_a_pack_is_as_long_as_its_steps_and_of_seconds_nobody_knows(
    word: str, length: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [dial for dial in SMALL if not dial.startswith("train.steps")]
    [task] = tasks_of(Machine("cuda", 1, "graph"), tmp_path, monkeypatch, [*others, word])
    assert task.n_time_slices == length


def test_compiling_ahead_is_one_record_and_one_update(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, done = plan_named("quickstart", SMALL), list[str]()
    for owner, name in ((Evaluator, "read"), (Trainer, "advance")):
        original = getattr(owner, name)

        def noted(self: Any, name: str = name, original: Any = original) -> Any:
            done.append(name)
            return original(self)

        monkeypatch.setattr(owner, name, noted)
    job = PackJob([run.settings for run in plan.runs], [0, 1, 2], replace(Placement(), dtype="float64"), None, Cost())
    precompile_pack(job)
    assert done == ["read", "advance"]
