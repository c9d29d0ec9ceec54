"""Runs on a text that has moved are the stored ones; other differences make other runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seedbed.engines.machine import Machine
from seedbed.errors import MissingData
from seedbed.pipeline import PackJob, SilentObserver, match_stored_runs, run_pack_job, run_studies
from seedbed.records import Cost, ParameterCounts, Placement, Plan, Run, StoredRun
from seedbed.settings import Settings
from seedbed.store import open_store
from seedbed.study.plan import compute_run_id, plan_study
from seedbed.study.read import parse_study
from seedbed.study.run_data import (
    describe_changed_datasets,
    distinguish_datasets,
    match_moved_corpora,
    require_training_data,
)

TEXT = "to be or not to be\n" * 40


def make_plan(corpus: Path | str, *overrides: str, seeds: str = "2") -> Plan:
    settings = (f"task.corpus={corpus}", "task.kind=text", "task.length=8", "model.dim=8", "model.heads=2")
    sizes = ("model.layers=1", "train.steps=9", "train.batch_size=4", "train.save_every=3", "train.eval_batches=1")
    return plan_study(parse_study("", "mine"), [*settings, *sizes, f"seeds={seeds}", *overrides])


def store_runs(plan: Plan) -> list[StoredRun]:
    return [
        StoredRun(run.id, run.seed, run.settings, run.parameters, "finished", 9, dataset_info=run.dataset_info)
        for run in plan.runs
    ]


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path]:
    """Two paths with the same text."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").write_text(TEXT)
    return tmp_path / "first" / "notes.txt", tmp_path / "second" / "notes.txt"


def ids(plan: Plan) -> list[str]:
    return [run.id for run in plan.runs]


def test_a_moved_text_has_the_stored_runs_under_its_new_path(paths):
    first, second = make_plan(paths[0]), make_plan(paths[1])
    assert set(ids(first)).isdisjoint(ids(second))
    matched, sentences = match_moved_corpora(second, store_runs(first))
    assert ids(matched) == ids(first)
    assert [run.settings for run in matched.runs] == [run.settings for run in second.runs]
    assert sentences == [f"{paths[1]} is the text that was at {paths[0]}, so 2 stored runs will be used"]
    assert match_moved_corpora(matched, store_runs(first)) == (matched, [])


def test_another_setting_seed_or_text_is_another_run(paths):
    stored = store_runs(make_plan(paths[0]))
    others = make_plan(paths[1], "train.lr=0.1"), make_plan(paths[1], "task.data_fraction=0.5")
    for plan in (*others, make_plan(paths[1], seeds="[5]")):
        assert match_moved_corpora(plan, stored) == (plan, [])
    other = replace(stored[0], dataset_info=replace(stored[0].dataset_info, digest="text/1/ff"))
    plan = make_plan(paths[1])
    assert match_moved_corpora(plan, [other]) == (plan, [])
    # The id of this one says that something besides its settings was different, such as a plugin.
    assert match_moved_corpora(plan, [replace(stored[0], id="0" * 16)]) == (plan, [])


def test_two_copies_of_a_text_in_one_study_stay_two_corpora(paths):
    plan = make_plan(f"{paths[0]},{paths[1]}")
    assert match_moved_corpora(plan, store_runs(make_plan(paths[0]))) == (plan, [])


def test_unfinished_runs_go_on_with_the_text_where_it_is_now(paths, tmp_path):
    home, machine = tmp_path / "home", Machine("cpu", 1, "plain")
    run_studies([make_plan(paths[0])], home, machine, SilentObserver(), lambda: False, until=3)
    plan = make_plan(paths[1])
    paths[0].unlink()
    [matched], _ = match_stored_runs([plan], home)
    outcome = run_studies([matched], home, machine, SilentObserver(), lambda: False)
    assert outcome.counts == {"finished": 2}
    with open_store(home, read_only=True) as store:
        assert [run.id for run in store.runs("mine")] == ids(matched)
        assert store.study("mine").axes == ()
        moved = {run.id: store.curves([run.id])[run.id]["val/loss"] for run in store.runs()}
    paths[0].write_text(TEXT)
    run_studies([make_plan(paths[0])], tmp_path / "other", machine, SilentObserver(), lambda: False)
    with open_store(tmp_path / "other", read_only=True) as store:
        for run, curve in moved.items():
            assert store.curves([run])[run]["val/loss"].values.tolist() == curve.values.tolist()


def test_datasets_are_named_only_where_settings_do_not_tell_runs_apart(paths):
    run, other_seed = store_runs(make_plan(paths[0]))
    assert distinguish_datasets([run, other_seed]) == [None, None]
    edited = replace(run, id="e", dataset_info=replace(run.dataset_info, digest="text/1/a1b2c3d4"))
    before = f"notes.txt ({run.dataset_info.digest.rpartition('/')[2][:6]})"
    assert distinguish_datasets([run, edited, other_seed]) == [before, "notes.txt (a1b2c3)", before]
    old = replace(other_seed, dataset_info=None)  # stored before schema 4: another seed of the same config
    assert distinguish_datasets([run, old]) == [None, None]
    assert distinguish_datasets([run, replace(old, seed=0)]) == [before, "not recorded"]
    arithmetic = Settings()
    sums = [StoredRun(name, 0, arithmetic, ParameterCounts(1, 1), "planned", 0) for name in "ab"]
    assert distinguish_datasets(sums) == [None, None]


def test_a_changed_text_is_described_once_with_what_removes_the_runs_on_it(paths):
    plan = make_plan(paths[0])
    [first, _] = store_runs(plan)
    earlier = replace(first, id="e", dataset_info=replace(first.dataset_info, digest="text/1/a1b2c3d4"))
    [sentence] = describe_changed_datasets(plan, [earlier], {"text/1/a1b2c3d4": "2026-05-04T10:00:00+00:00"})
    assert f"{paths[0]} has changed since the runs of 2026-05-04: 2 runs will be trained on it" in sentence
    assert "1 run on dataset a1b2c3 stays, and is shown as a config of its own" in sentence
    assert sentence.endswith("to remove it: seedbed rm mine --only dataset=a1b2c3")
    assert describe_changed_datasets(plan, [earlier, *store_runs(plan)], {}) == []


def test_the_data_of_a_run_is_compared_by_its_digest(paths):
    [run, _] = store_runs(make_plan(paths[0]))
    require_training_data(run)
    require_training_data(replace(run, dataset_info=None))
    with pytest.raises(Exception, match=r"notes\.txt has changed since run .* was trained on it \(dataset a1b2c3, now"):
        require_training_data(replace(run, dataset_info=replace(run.dataset_info, digest="text/1/a1b2c3d4")))


def test_an_id_can_be_computed_without_the_text(paths):
    [run, _] = make_plan(paths[0]).runs
    assert isinstance(run, Run)
    assert compute_run_id(run.settings, run.seed, run.dataset_info.digest) == run.id


def test_a_worker_does_not_train_on_a_text_that_differs_from_the_planned_one(paths: tuple[Path, Path]) -> None:
    """As on a node of a cluster that has another text at the same path."""
    [run] = make_plan(paths[0], seeds="1").runs
    assert run.dataset_info is not None
    job = PackJob([run.settings], [0], Placement(), None, Cost(), dataset=run.dataset_info.digest)
    next(run_pack_job(job, lambda: False))
    with pytest.raises(MissingData, match="is not the text that was planned"):
        next(run_pack_job(replace(job, dataset="other"), lambda: False))
