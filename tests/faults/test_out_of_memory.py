"""A pack that does not fit into memory goes on as two: with the same numbers, from where it was saved."""

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
from seedbed.store.store import Store
from seedbed.study.plan import plan_named
from seedbed.training.evaluate import compute_metrics
from seedbed.training.trainer import Trainer

DIALS = ("task.p=5", "model.dim=8", "model.heads=2", "model.layers=1", "train.steps=12", "train.eval_first=3",
         "train.eval_every=4", "train.save_every=4", "train.lr=0.003,0.01,0.03,0.1,0.3", "seeds=1")  # fmt: skip
PLAN = plan_named("quickstart", DIALS)


class Exact(Machine):
    """This machine in double precision, one pack at a time."""

    def placement(self, pack: Pack, n_packs: int) -> Placement:
        return replace(super().default_placement(pack, n_packs), dtype="float64", threads=1)


class Listener:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.splits: list[tuple[int, list[int]]] = []
        self.failures: list[str] = []
        self.updates = 0

    def say(self, text: str) -> None: ...

    def begin(self, packs: Sequence[Any]) -> None: ...

    def split(self, pack: Any, parts: Sequence[Any]) -> None:
        self.splits.append((len(pack.runs), [len(part.runs) for part in parts]))

    def see(self, pack: Any, event: Any) -> None:
        if hasattr(event, "trace"):
            self.failures.append(event.cause)
        if isinstance(event, CostEvent):
            self.updates = max(self.updates, event.step)


def run(home: Path) -> Listener:
    listener = Listener()
    run_studies([PLAN], home, Exact("cpu", 1, "plain"), listener, lambda: False)
    return listener


def curves(home: Path) -> dict[tuple[str, str], list[Any]]:
    with Store.open_read_only(home) as store:
        found = store.curves([run.id for run in store.runs()])
        return {
            (run, name): [curve.steps.tolist(), curve.values]
            for run, named in found.items()
            for name, curve in named.items()
        }


def statuses(home: Path) -> list[str]:
    with Store.open_read_only(home) as store:
        return [run.status for run in store.runs()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("whole")
    assert run(home).splits == []
    return home


def refuse_packs(patch: pytest.MonkeyPatch, above: int, after: int) -> list[int]:
    """Refuses memory to packs of more runs than `above` from update `after` on; gives the sizes of packs updated."""
    done: list[int] = []
    advance = Trainer.train_step

    def refusing(trainer: Trainer) -> None:
        if len(trainer.n_steps) > above and int(trainer.step) >= after:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        done.append(len(trainer.n_steps))
        advance(trainer)

    patch.setattr(Trainer, "advance", refusing)
    return done


@pytest.mark.parametrize(("after", "redone"), [(0, 12), (6, 8)])
def test_a_split_study_has_the_numbers_of_an_unsplit_one(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, after: int, redone: int
) -> None:
    """5 runs → 3 and 2 → 2 and 1; refused at update 6, the halves go on from the checkpoint of step 4."""
    done = refuse_packs(monkeypatch, above=2, after=after)
    listener = run(tmp_path)
    assert listener.splits == [(5, [3, 2]), (3, [2, 1])]
    again = [3] * max(0, after - 4)  # from the checkpoint to where the half of three is refused too
    assert done == [5] * after + again + [2] * (2 * redone) + [1] * redone
    assert statuses(tmp_path) == ["finished"] * 5
    split, unsplit = curves(tmp_path), curves(whole)
    assert split.keys() == unsplit.keys()
    for key, (steps, values) in split.items():
        assert steps == unsplit[key][0]
        np.testing.assert_allclose(values, unsplit[key][1], rtol=1e-10, err_msg=str(key))


def test_what_a_trainer_holds_is_free_as_soon_as_nobody_holds_it() -> None:
    trainer = Trainer([PLAN.runs[0].settings], [1], "cpu", torch.float32)
    trainer.train_step()
    compute_metrics(trainer)
    held = [weakref.ref(part) for part in (trainer, trainer.parameters, trainer.model)]
    gc.disable()  # so that nobody looks for circles
    try:
        del trainer
        assert [part() for part in held] == [None] * 3
    finally:
        gc.enable()


class Lanes(Exact):
    """As a GPU is shared: packs take turns in one process."""

    n_lanes = 12


def test_packs_side_by_side_are_halved_only_until_one_fits_and_what_they_held_is_free_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory for 20 runs, two packs of 32: their halves fit one after another, not beside each other."""
    advance, living, done = Trainer.train_step, weakref.WeakSet[Trainer](), list[int]()

    def refusing(trainer: Trainer) -> None:
        living.add(trainer)
        if sum(len(one.n_steps) for one in living) > 20:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        done.append(len(trainer.n_steps))
        advance(trainer)

    monkeypatch.setattr(Trainer, "advance", refusing)
    words = ("task.p=5", "model.dim=8", "model.layers=1", "model.kind=gpt,lstm", "train.steps=3", "seeds=32")
    listener = Listener()
    run_studies([plan_named("quickstart", words)], tmp_path, Lanes("cpu", 1, "plain"), listener, lambda: False)
    assert listener.splits == [(32, [16, 16])] * 2
    assert listener.failures == []
    assert done == [16] * 12
    assert statuses(tmp_path) == ["finished"] * 64


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_with_little_memory_packs_are_halved_until_they_fit(tmp_path: Path) -> None:
    """64 runs of a default model want 2 to 3 GiB while they train; there is one."""
    listener, total = Listener(), torch.cuda.get_device_properties(0).total_memory
    words = ("model.kind=gpt,lstm", "train.steps=20", "seeds=64")
    torch.cuda.set_per_process_memory_fraction(2**30 / total)
    try:
        plan = plan_named("arithmetic/sanity", words)
        run_studies([plan], tmp_path, Machine("cuda", 1, "graph"), listener, lambda: False)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert statuses(tmp_path) == ["finished"] * 128
    smallest = min(size for _, parts in listener.splits for size in parts)
    assert 4 <= smallest < 64


def test_a_run_that_does_not_fit_by_itself_fails_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_packs(monkeypatch, above=0, after=0)
    listener = run(tmp_path)
    assert statuses(tmp_path) == ["failed"] * 5
    with Store.open_read_only(tmp_path) as store:
        causes = {stored.cause for stored in store.runs()}
    assert all(
        "one run of it alone does not fit into memory (predicted: 0 MiB): OutOfMemoryError" in str(c) for c in causes
    )
    assert all("make train.batch_size, task.length or the model smaller" in str(cause) for cause in causes)
    assert len(listener.failures) == 5


def test_a_run_that_was_refused_beside_others_is_tried_once_more_alone(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that others held is free then; what was recorded before the refusal is not there twice."""
    advance, refused = Trainer.train_step, set[float]()

    def refusing(trainer: Trainer) -> None:
        lr = float(trainer.optimizer.lr[0])
        if len(trainer.n_steps) > 1 or (int(trainer.step) == 6 and lr not in refused):
            refused.update({lr} if len(trainer.n_steps) == 1 else set())
            raise MemoryError
        advance(trainer)

    monkeypatch.setattr(Trainer, "advance", refusing)
    listener = run(tmp_path)
    assert len(refused) == 5
    assert (listener.failures, statuses(tmp_path)) == ([], ["finished"] * 5)
    found, expected = curves(tmp_path), curves(whole)
    assert {key: steps for key, (steps, _) in found.items()} == {key: steps for key, (steps, _) in expected.items()}


def test_what_was_split_stays_split_when_the_command_is_given_again(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        refuse_packs(patch, above=2, after=6)
        calls = iter([*[False] * 22, *[True] * 99])
        run_studies([PLAN], tmp_path, Exact("cpu", 1, "plain"), Listener(), lambda: next(calls))
    assert "stopped" in statuses(tmp_path) or "planned" in statuses(tmp_path)
    done = refuse_packs(monkeypatch, above=3, after=0)
    assert run(tmp_path).splits == []
    assert set(done) <= {1, 2, 3}
    assert statuses(tmp_path) == ["finished"] * 5


def test_another_error_is_no_reason_to_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Trainer) -> None:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(Trainer, "advance", refuse)
    listener = run(tmp_path)
    assert listener.splits == []
    assert statuses(tmp_path) == ["failed"] * 5
