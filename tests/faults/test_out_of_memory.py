"""A pack that does not fit into memory is split in two, which resume from its checkpoint with the same numbers."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seedbed.pipeline import Machine, run_studies
from seedbed.records import CostEvent, Pack, Placement
from seedbed.store import open_store
from seedbed.study.plan import plan_named
from seedbed.training.evaluate import compute_metrics
from seedbed.training.trainer import Trainer

OVERRIDES = ("task.p=5", "model.dim=8", "model.heads=2", "model.layers=1", "train.steps=12", "train.eval_first=3",
         "train.eval_every=4", "train.save_every=4", "train.lr=0.003,0.01,0.03,0.1,0.3", "seeds=1")  # fmt: skip
PLAN = plan_named("quickstart", OVERRIDES)


class DoublePrecisionMachine(Machine):
    """This machine in float64, one pack at a time."""

    def default_placement(self, pack: Pack, n_packs: int) -> Placement:
        return replace(super().default_placement(pack, n_packs), dtype="float64", threads=1)


class RecordingObserver:
    """Records the splits and failures that are reported to it."""

    def __init__(self) -> None:
        self.splits: list[tuple[int, list[int]]] = []
        self.failures: list[str] = []
        self.updates = 0

    def report(self, text: str) -> None: ...

    def on_start(self, packs: Sequence[Any]) -> None: ...

    def on_split(self, pack: Any, parts: Sequence[Any]) -> None:
        self.splits.append((len(pack.runs), [len(part.runs) for part in parts]))

    def on_event(self, pack: Any, event: Any) -> None:
        if hasattr(event, "trace"):
            self.failures.append(event.cause)
        if isinstance(event, CostEvent):
            self.updates = max(self.updates, event.step)


def run(home: Path) -> RecordingObserver:
    observer = RecordingObserver()
    run_studies([PLAN], home, DoublePrecisionMachine("cpu", 1, "plain"), observer, lambda: False)
    return observer


def curves(home: Path) -> dict[tuple[str, str], list[Any]]:
    with open_store(home, read_only=True) as store:
        stored = store.curves([run.id for run in store.runs()])
        return {
            (run, name): [curve.steps.tolist(), curve.values]
            for run, named in stored.items()
            for name, curve in named.items()
        }


def statuses(home: Path) -> list[str]:
    with open_store(home, read_only=True) as store:
        return [run.status for run in store.runs()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("whole")
    assert run(home).splits == []
    return home


def limit_pack_size(patch: pytest.MonkeyPatch, above: int, after: int) -> list[int]:
    """Makes packs of more than `above` runs fail at update `after`; returns the size of the pack at every update."""
    updated: list[int] = []
    train_step = Trainer.train_step

    def limited_step(trainer: Trainer) -> None:
        if len(trainer.n_steps) > above and int(trainer.step) >= after:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        updated.append(len(trainer.n_steps))
        train_step(trainer)

    patch.setattr(Trainer, "train_step", limited_step)
    return updated


@pytest.mark.parametrize(("after", "redone"), [(0, 12), (6, 8)])
def test_a_split_study_has_the_metrics_of_an_unsplit_one(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, after: int, redone: int
) -> None:
    """5 runs → 3 and 2 → 2 and 1; out of memory at update 6, the parts resume from the checkpoint of step 4."""
    updated = limit_pack_size(monkeypatch, above=2, after=after)
    observer = run(tmp_path)
    assert observer.splits == [(5, [3, 2]), (3, [2, 1])]
    again = [3] * max(0, after - 4)  # from the checkpoint to where the part of three runs out of memory too
    assert updated == [5] * after + again + [2] * (2 * redone) + [1] * redone
    assert statuses(tmp_path) == ["finished"] * 5
    split, unsplit = curves(tmp_path), curves(whole)
    assert split.keys() == unsplit.keys()
    for key, (steps, values) in split.items():
        assert steps == unsplit[key][0]
        np.testing.assert_allclose(values, unsplit[key][1], rtol=1e-10, err_msg=str(key))


def test_a_trainer_is_freed_without_garbage_collection() -> None:
    trainer = Trainer([PLAN.runs[0].settings], [1], "cpu", torch.float32)
    trainer.train_step()
    compute_metrics(trainer)
    references = [weakref.ref(x) for x in (trainer, trainer.parameters, trainer.model)]
    gc.disable()  # reference cycles would stay
    try:
        del trainer
        assert [reference() for reference in references] == [None] * 3
    finally:
        gc.enable()


class TimeSlicingMachine(DoublePrecisionMachine):
    """Packs are time-sliced in one process, as on a GPU."""

    n_slots = 12


def test_concurrent_packs_are_halved_only_until_one_fits_and_their_memory_is_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory for 20 runs, two packs of 32: their halves fit one after another, not concurrently."""
    train_step, alive, updated = Trainer.train_step, weakref.WeakSet[Trainer](), list[int]()

    def limited_step(trainer: Trainer) -> None:
        alive.add(trainer)
        if sum(len(other.n_steps) for other in alive) > 20:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        updated.append(len(trainer.n_steps))
        train_step(trainer)

    monkeypatch.setattr(Trainer, "train_step", limited_step)
    overrides = ("task.p=5", "model.dim=8", "model.layers=1", "model.kind=gpt,lstm", "train.steps=3", "seeds=32")
    observer = RecordingObserver()
    run_studies(
        [plan_named("quickstart", overrides)], tmp_path, TimeSlicingMachine("cpu", 1, "plain"), observer, lambda: False
    )
    assert observer.splits == [(32, [16, 16])] * 2
    assert observer.failures == []
    assert updated == [16] * 12
    assert statuses(tmp_path) == ["finished"] * 64


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_with_little_memory_packs_are_halved_until_they_fit(tmp_path: Path) -> None:
    """64 runs of a default model need 2 to 3 GiB to train; there is one."""
    observer, total = RecordingObserver(), torch.cuda.get_device_properties(0).total_memory
    overrides = ("model.kind=gpt,lstm", "train.steps=20", "seeds=64")
    torch.cuda.set_per_process_memory_fraction(2**30 / total)
    try:
        plan = plan_named("arithmetic/sanity", overrides)
        run_studies([plan], tmp_path, Machine("cuda", 1, "graph"), observer, lambda: False)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert statuses(tmp_path) == ["finished"] * 128
    smallest = min(size for _, parts in observer.splits for size in parts)
    assert 4 <= smallest < 64


def test_a_single_run_that_does_not_fit_fails_with_a_clear_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_pack_size(monkeypatch, above=0, after=0)
    observer = run(tmp_path)
    assert statuses(tmp_path) == ["failed"] * 5
    with open_store(tmp_path, read_only=True) as store:
        causes = {stored.cause for stored in store.runs()}
    assert all("a single run does not fit into memory (predicted: 0 MiB): OutOfMemoryError" in str(c) for c in causes)
    assert all("make train.batch_size, task.length or the model smaller" in str(cause) for cause in causes)
    assert len(observer.failures) == 5


def test_a_single_run_that_ran_out_of_memory_is_retried_exclusively(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other packs' memory is free then; what was recorded before the failure is not recorded twice."""
    train_step, failed = Trainer.train_step, set[float]()

    def limited_step(trainer: Trainer) -> None:
        lr = float(trainer.optimizer.lr[0])
        if len(trainer.n_steps) > 1 or (int(trainer.step) == 6 and lr not in failed):
            failed.update({lr} if len(trainer.n_steps) == 1 else set())
            raise MemoryError
        train_step(trainer)

    monkeypatch.setattr(Trainer, "train_step", limited_step)
    observer = run(tmp_path)
    assert len(failed) == 5
    assert (observer.failures, statuses(tmp_path)) == ([], ["finished"] * 5)
    retried, expected = curves(tmp_path), curves(whole)
    assert {key: steps for key, (steps, _) in retried.items()} == {key: steps for key, (steps, _) in expected.items()}


def test_a_split_pack_stays_split_when_the_study_is_resumed(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        limit_pack_size(patch, above=2, after=6)
        calls = iter([*[False] * 23, *[True] * 99])
        run_studies(
            [PLAN], tmp_path, DoublePrecisionMachine("cpu", 1, "plain"), RecordingObserver(), lambda: next(calls)
        )
    assert "stopped" in statuses(tmp_path) or "planned" in statuses(tmp_path)
    updated = limit_pack_size(monkeypatch, above=3, after=0)
    assert run(tmp_path).splits == []
    assert set(updated) <= {1, 2, 3}
    assert statuses(tmp_path) == ["finished"] * 5


def test_other_errors_do_not_split_a_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Trainer) -> None:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(Trainer, "train_step", fail)
    observer = run(tmp_path)
    assert observer.splits == []
    assert statuses(tmp_path) == ["failed"] * 5


def test_a_run_whose_last_save_fails_has_not_finished_and_the_next_command_trains_its_last_steps(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last evaluation and its end are recorded before its weights are saved, which a killed worker never does."""
    weights_by_slot = Trainer.weights_by_slot

    def fail_at_the_end(trainer: Trainer, *arguments: Any) -> Any:
        if int(trainer.step) == 12:
            raise RuntimeError("killed while saving")
        return weights_by_slot(trainer, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "weights_by_slot", fail_at_the_end)
        run(tmp_path)
    assert statuses(tmp_path) == ["failed"] * 5
    assert run(tmp_path).failures == []
    assert statuses(tmp_path) == ["finished"] * 5
    again, unbroken = ({key: [steps, list(values)] for key, (steps, values) in curves(home).items()}
                       for home in (tmp_path, whole))  # fmt: skip
    assert again == unbroken
    with open_store(tmp_path, read_only=True) as store:
        assert all(store.checkpoints(one.id)[-1].step == 12 for one in store.runs())
