from __future__ import annotations

import json
import subprocess
import sys
import time
from hashlib import blake2b
from pathlib import Path

import pytest

from seedbed.errors import MissingData, StudyError
from seedbed.records import Plan
from seedbed.settings import Settings
from seedbed.study.plan import compute_run_id, plan_named, plan_study
from seedbed.study.read import read_study

from .conftest import WriteStudy


def plan(path: Path, *overrides: str) -> Plan:
    return plan_study(read_study(path), overrides)


def test_ids_of_known_runs_never_change() -> None:
    """Stored runs are found again by these ids; a setting added at its default must not change them."""
    assert compute_run_id(Settings(), 0) == "3bf82c08fe48c230"
    other = {"model.kind": "lstm", "task.orders": [2, 3], "task.p": 11, "train.lr": 3e-4}
    assert compute_run_id(Settings.from_flat(other), 42) == "b11e983451db22cd"


def test_an_id_is_the_hash_of_non_default_settings_seed_and_data() -> None:
    content = '{"data":"arithmetic/1","seed":7,"settings":{"model.kind":"lstm","train.betas":[0.5,0.9]}}'
    expected = blake2b(content.encode(), digest_size=8).hexdigest()
    assert compute_run_id(Settings.from_flat({"train.betas": [0.5, 0.9], "model.kind": "lstm"}), 7) == expected


def test_ids_do_not_depend_on_spelling_order_or_name(write: WriteStudy) -> None:
    first = plan(write("name = 'one'\n[base.train]\nlr = 1\nweight_decay = 0\nclip = 2.0"))
    second = plan(write("name = 'two'\n# note\n[base.train]\nclip = 2\nweight_decay = -0.0\nlr = 1.0\nwarmup = 0"))
    assert [run.id for run in first.runs] == [run.id for run in second.runs]


def test_ids_depend_on_seed_and_every_setting(write: WriteStudy) -> None:
    ids = [run.id for run in plan(write("[grid]\ntrain.lr = [1, 2]\nmodel.tied = [true, false]"), "seeds=3").runs]
    assert len(set(ids)) == len(ids) == 12


def test_configs_come_in_study_order_with_seeds_innermost(write: WriteStudy) -> None:
    text = """
        seeds = [5, 3]
        [grid]
        train.lr = [0.2, 0.1]
        [[zip]]
        model.dim = [64, 32]
        model.heads = [8, 2]
        [[configs]]
        model.norm = "pre"
        [[configs]]
        """
    found = plan(write(text))
    assert found.axes == ("model.norm", "model.dim", "model.heads", "train.lr")
    configs = [(*run.config.values(), run.seed) for run in found.runs]
    assert configs[:5] == [
        ("pre", 64, 8, 0.2, 5),
        ("pre", 64, 8, 0.2, 3),
        ("pre", 64, 8, 0.1, 5),
        ("pre", 64, 8, 0.1, 3),
        ("pre", 32, 2, 0.2, 5),
    ]
    assert configs[8] == ("post", 64, 8, 0.2, 5)
    assert len(configs) == 16


def test_a_setting_that_a_kind_lacks_is_dropped_with_one_warning(write: WriteStudy) -> None:
    text = (
        "[base.model]\nheads = 4\n[grid]\nmodel.norm = ['pre', 'post']\nmodel.kind = ['gpt', 'lstm']\ntrain.lr = [1, 2]"
    )
    found = plan(write(text), "seeds=1")
    assert found.warnings == (
        "model.heads has no effect for model.kind = lstm",
        "model.norm has no effect for model.kind = lstm",
    )
    assert [tuple(run.config) for run in found.runs if run.settings.model.kind == "lstm"] == [
        ("model.kind", "train.lr")
    ] * 2
    assert len(found.runs) == 6


def test_an_inactive_setting_falls_back_to_its_default_with_one_warning(write: WriteStudy) -> None:
    text = "[grid]\ntrain.optimizer = ['sgd', 'adam', 'momentum']\ntrain.betas = [[0.9, 0.9], [0.8, 0.8]]"
    found = plan(write(text), "seeds=1")
    assert found.warnings == ("train.betas has no effect for train.optimizer = sgd, momentum",)
    assert [run.config for run in found.runs] == [
        {"train.optimizer": "sgd"},
        {"train.optimizer": "adam", "train.betas": (0.9, 0.9)},
        {"train.optimizer": "adam", "train.betas": (0.8, 0.8)},
        {"train.optimizer": "momentum"},
    ]
    assert found.runs[0].settings.train.betas == (0.9, 0.999)


def test_settings_shared_by_all_configs_are_no_axes(write: WriteStudy) -> None:
    found = plan(write("[grid]\nmodel.layers = [2]\ntask.p = [5, 7]"))
    assert found.axes == ("task.p",)
    assert plan(write("[grid]\nmodel.layers = [1, 2]"), "model.layers=3").axes == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "seeds = [3]\n[base.model]\nkind = 'lstm'\nhidden = 7",
        "question = 'a \" \\ \t \u202e'\n[grid]\nmodel.kind = ['lstm', 'gpt']\ntask.orders = [[2], [2, 3]]",
        "[grid]\ntrain.optimizer = ['sgd', 'adamw']\ntrain.betas = [[0.9, 0.9], [0.8, 0.8]]\ntrain.lr = [1e-20, 1e22]",
        "configs = [{model.kind = 'lstm', model.hidden = 9}, {model.kind = 'lstm'}, {model.norm = 'pre'}]",
        "[base.train]\nbetas = [0.1, 0.2]\n[grid]\ntrain.optimizer = ['momentum', 'adam']\ntask.operator = ['+', '*']",
    ],
)
def test_the_resolved_study_plans_to_the_same_runs_without_warnings(write: WriteStudy, text: str) -> None:
    first = plan(write(text), "train.warmup=0,5")
    second = plan(write(first.text))
    assert [run.id for run in second.runs] == [run.id for run in first.runs]
    assert [run.config for run in second.runs] == [run.config for run in first.runs]
    assert (second.study, sorted(second.axes)) == (first.study, sorted(first.axes))
    assert second.warnings == ()


def test_the_resolved_study_writes_defaults_out(write: WriteStudy) -> None:
    text = plan(write("")).text
    assert '[base.task]\nkind = "arithmetic"\np = 31\noperator = "+"\norders = [2]\ntrain_fraction = 0.5\n' in text
    assert "betas = [0.9, 0.999]" in text
    assert "momentum" not in text  # has no effect with adamw


def test_a_study_too_large_to_expand_is_rejected_before_expanding(write: WriteStudy) -> None:
    lists = "".join(
        f"train.{name} = [{', '.join(str(0.01 * k) for k in range(1, 11))}]\n"
        for name in ("lr", "weight_decay", "eps", "clip", "momentum", "lr_factor")
    )
    lists += "".join(
        f"{name} = [{', '.join(str(k) for k in range(2, 12))}]\n"
        for name in ("task.p", "model.layers", "train.steps", "train.batch_size", "train.patience", "train.warmup")
    )
    start = time.process_time()
    with pytest.raises(
        StudyError, match=r"1,000,000,000,000 configs × 2 seeds are 2,000,000,000,000 runs; at most 100,000"
    ):
        plan(write("[grid]\n" + lists))
    with pytest.raises(StudyError, match="at most 100,000"):
        plan(write(""), "train.lr=" + ",".join(["1"] * 1_001), "seeds=100")
    assert time.process_time() - start < 2


def test_a_thousand_runs_are_planned_within_a_second(write: WriteStudy) -> None:
    text = f"[grid]\nmodel.kind = ['gpt', 'lstm']\ntrain.lr = {[0.001 * k for k in range(1, 251)]}\n"
    study = read_study(write(text))
    start = time.process_time()
    found = plan_study(study)
    assert len(found.runs) == 1_000
    assert time.process_time() - start < 0.6  # about 0.1 s on one free core


def test_planning_and_packing_do_not_import_torch() -> None:
    script = (
        "import json, sys; from seedbed.study.plan import plan_named;"
        "from seedbed.study.pack import Capacity, pack_runs;"
        "packs = pack_runs(plan_named('arithmetic/sanity').runs, Capacity(10**9, 8, 1));"
        "print(json.dumps([len(packs), 'torch' in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [2, False]


def test_training_set_sizes_round_half_to_even() -> None:
    """961 × 0.5 = 480.5 and 121 × 0.5 = 60.5 both round down, 3 × 0.5 = 1.5 up: the starter code's splits."""
    task = plan_named("arithmetic/sanity").runs[0].settings.task
    assert task.n_train(2) == 480
    mixed = plan_named("arithmetic/mixed-orders").runs[-1].settings.task
    assert [mixed.n_train(order) for order in (2, 3)] == [60, 666]
    fractions = [
        run.settings.task.n_train(2) for run in plan_named("arithmetic/data-size", ["seeds=1", "model.kind=gpt"]).runs
    ]
    assert fractions == [96, 192, 288, 384, 480, 577, 673, 769, 865]


def test_a_relative_corpus_is_looked_for_here_and_then_beside_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "studies"
    folder.mkdir()
    (folder / "study.toml").write_text('[base.task]\nkind = "text"\ncorpus = "poem.txt"\nlength = 4\n')
    (folder / "poem.txt").write_text("beside the study, " * 9)
    monkeypatch.chdir(tmp_path)
    beside = plan_named("studies/study.toml").runs[0]
    assert beside.settings.task.corpus == "studies/poem.txt"
    (tmp_path / "poem.txt").write_text("in the current folder, " * 9)
    here = plan_named("studies/study.toml").runs[0]
    assert here.settings.task.corpus == "poem.txt"
    assert here.dataset_info != beside.dataset_info
    (folder / "poem.txt").unlink()
    (tmp_path / "poem.txt").unlink()
    with pytest.raises(MissingData, match=r"relative to \. or to the study"):
        plan_named("studies/study.toml")
