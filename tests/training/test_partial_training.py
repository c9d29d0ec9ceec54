"""Training to a step, and of some runs only: what is resumed later equals what was never stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seedbed.pipeline import ActivePack, Machine, StudyOutcome, run_studies
from seedbed.records import Pack, Placement, Plan
from seedbed.store import open_store
from seedbed.study.plan import plan_named

SMALL = [
    "train.steps=14", "train.eval_first=2", "train.eval_every=4", "train.save_every=6", "model.dim=8", "model.heads=2",
    "model.layers=1", "task.p=5", "train.batch_size=32", "train.schedule=cosine", "train.ema=0.9", "seeds=2",
]  # fmt: skip


class DoublePrecisionMachine(Machine):
    def default_placement(self, pack: Pack, n_packs: int) -> Placement:
        return replace(super().default_placement(pack, n_packs), dtype="float64", threads=1)


MACHINE = DoublePrecisionMachine("cpu", 1, "plain")


class Observer:
    """Remembers the packs that were trained, and to which step."""

    def __init__(self) -> None:
        self.packs: list[ActivePack] = []

    def report(self, text: str) -> None: ...

    def on_start(self, packs: list[ActivePack]) -> None:
        self.packs += packs

    def on_event(self, pack: ActivePack, event: object) -> None: ...

    def on_split(self, pack: ActivePack, parts: list[ActivePack]) -> None:
        raise AssertionError("only a pack that does not fit into memory is reported as split")


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seedbed.engines.machine.n_cores", lambda: 1)


def small_plan() -> Plan:
    return plan_named("quickstart", [*SMALL, "train.lr=0.001,0.01,0.1"])


def train(plan: Plan, home: Path, until: int | None = None) -> tuple[StudyOutcome, list[ActivePack]]:
    observer = Observer()
    outcome = run_studies([plan], home, MACHINE, observer, lambda: False, until=until)
    return outcome, observer.packs


def metrics_and_weights(home: Path) -> tuple[dict[tuple[str, str], bytes], dict[tuple[str, int, str], bytes]]:
    with open_store(home, read_only=True) as store:
        runs = [run.id for run in store.runs("quickstart")]
        metrics = {
            (run, name): curve.steps.tobytes() + curve.values.tobytes()
            for run, named in store.curves(runs).items()
            for name, curve in named.items()
        }
        weights = {
            (run, checkpoint.step, name): array.tobytes()
            for run in runs
            for checkpoint in store.checkpoints(run)
            for name, array in store.load_weights(run, checkpoint.step).items()
        }
    return metrics, weights


def test_training_to_a_step_and_then_to_the_end_gives_the_same_bytes(tmp_path: Path) -> None:
    plan = small_plan()
    train(plan, tmp_path / "whole")
    for until in (3, 4, 6, 11):  # between evaluations, at one, at a checkpoint, past one
        outcome, _ = train(plan, tmp_path / "parts", until)
        assert outcome.counts == {"stopped": 6}
        assert not outcome.stopped  # by nobody: it went as far as it was asked to
        with open_store(tmp_path / "parts") as store:
            assert {run.step for run in store.runs("quickstart")} == {max(s for s in (0, 1, 2, 4, 8) if s <= until)}
            assert {pack.step for pack in store.study_packs("quickstart")} == {until}
    outcome, _ = train(plan, tmp_path / "parts", 99)
    assert outcome.counts == {"finished": 6}
    assert metrics_and_weights(tmp_path / "parts") == metrics_and_weights(tmp_path / "whole")


def test_what_was_trained_as_far_is_left_alone(tmp_path: Path) -> None:
    train(small_plan(), tmp_path, until=8)
    before = metrics_and_weights(tmp_path)
    outcome, packs = train(small_plan(), tmp_path, until=5)
    assert (outcome.counts, packs) == ({"stopped": 6}, [])
    assert metrics_and_weights(tmp_path) == before


def test_the_progress_of_a_pack_ends_at_the_step(tmp_path: Path) -> None:
    _, [pack] = train(small_plan(), tmp_path, until=8)
    assert (pack.n_steps, pack.n_remaining_steps) == (8, 8)
    _, [pack] = train(small_plan(), tmp_path, until=12)
    assert (pack.n_steps, pack.n_remaining_steps) == (12, 4)
    timed_plan = plan_named("quickstart", ["train.seconds=60", *SMALL[1:]])
    _, [timed] = train(timed_plan, tmp_path / "timed", until=3)
    assert timed.n_remaining_steps == 3


def test_of_a_started_pack_only_the_wanted_runs_are_trained_and_the_others_can_be_resumed(tmp_path: Path) -> None:
    plan = small_plan()
    train(plan, tmp_path / "whole")
    _, [pack] = train(plan, tmp_path / "parts", until=6)
    assert len(pack.runs) == 6
    wanted = [run for run in plan.runs if run.settings.train.lr == 0.01]
    outcome, [part] = train(replace(plan, runs=tuple(wanted)), tmp_path / "parts")
    assert outcome.counts == {"finished": 2}
    assert [run.id for run in part.runs] == [run.id for run in wanted]
    with open_store(tmp_path / "parts") as store:
        steps = {run.settings.train.lr: (run.status, run.step) for run in store.runs("quickstart")}
    assert steps == {0.001: ("stopped", 4), 0.01: ("finished", 14), 0.1: ("stopped", 4)}
    outcome, [rest] = train(plan, tmp_path / "parts")
    assert outcome.counts == {"finished": 6}
    assert (len(rest.runs), rest.stored.step) == (4, 6)
    parts, whole = metrics_and_weights(tmp_path / "parts")[0], metrics_and_weights(tmp_path / "whole")[0]
    assert parts.keys() == whole.keys()
    for key, values in whole.items():
        half = len(values) // 2  # the steps, then the values
        assert parts[key][:half] == values[:half]
        np.testing.assert_allclose(np.frombuffer(parts[key][half:]), np.frombuffer(values[half:]), rtol=1e-10)
