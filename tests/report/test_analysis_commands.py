"""The commands that analyse models, on a study trained for a few steps: tables, JSON, pictures, errors."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

from seedbed.cli import app
from seedbed.report.analysis_tables import mean_and_stds
from seedbed.store import open_store

OVERRIDES = [
    "task.p=11", "model.dim=16", "model.heads=2", "model.layers=2", "model.kind=gpt,lstm", "seeds=2", "train.steps=6",
    "train.save_every=3", "train.eval_every=3",
]  # fmt: skip


def invoke(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    home = tmp_path_factory.mktemp("lab")
    done = invoke("run", "quickstart", *OVERRIDES, "--home", home, "--workers", 1, "--quiet")
    assert done.exit_code == 0, done.output
    with open_store(home, read_only=True) as store:
        ids = {run.settings.model.kind: run.id for run in store.runs() if run.seed == 0}
    return home, ids


def test_hooks_lists_the_hooks_of_a_run(lab):
    home, ids = lab
    assert "blocks.1.attention.pattern" in invoke("hooks", ids["gpt"], "--home", home).output.splitlines()
    assert "lstm.1.cell" in json.loads(invoke("hooks", ids["lstm"], "--home", home, "--json").output)


def test_attend_shows_every_layer_and_head_in_a_terminal(lab):
    home, ids = lab
    output = invoke("attend", ids["gpt"], "3 + 4 = 7", "--home", home).output
    for layer in (1, 2):
        for head in (1, 2):
            assert f"layer {layer}, head {head}" in output
    assert "     BOS   3   +   4   =   7" in output.splitlines()


def test_attend_writes_numbers_of_several_texts_and_checkpoints(lab, tmp_path):
    home, ids = lab
    out = tmp_path / "maps.json"
    arguments = [
        "attend",
        ids["gpt"],
        "3 + 4 = 7",
        "6 + 6 =",
        "--step",
        "3,last",
        "--layer",
        2,
        "--home",
        home,
        "--out",
        out,
    ]
    assert invoke(*arguments).exit_code == 0
    maps = json.loads(out.read_text(encoding="utf-8"))
    assert [(one["text"], one["step"]) for one in maps] == [
        (text, step) for text in ("3 + 4 = 7", "6 + 6 =") for step in (3, 6)
    ]
    assert maps[0]["layers"] == [2]
    weights = np.asarray(maps[0]["weights"])
    assert weights.shape == (1, 2, 6, 6)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert not np.allclose(weights, maps[1]["weights"])


@pytest.mark.parametrize(("name", "begins"), [("a.svg", b"<svg"), ("a.png", b"\x89PNG"), ("a.pdf", b"%PDF")])
def test_attend_draws_pictures(lab, tmp_path, name, begins):
    home, ids = lab
    out = tmp_path / name
    assert invoke("attend", ids["lstm"], "3 + 4 =", "--home", home, "--out", out).exit_code == 0
    assert out.read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--layer", "0"], "--layer 0: expected comma-separated whole numbers from 1"),
        (["--head", "3"], "--head 3: this model has heads 1 to 2"),
        (["--step", "soon"], "--step soon: expected last, best, all, or checkpoint steps"),
        (["--step", "4"], "4"),
        (["--by", "line"], "--by line: expected token or word"),
        (["--out", "a.gif"], "expected a file that ends in .svg"),
    ],
)
def test_attend_explains_in_a_sentence_what_it_cannot_show(lab, arguments, message):
    home, ids = lab
    done = invoke("attend", ids["gpt"], "3 + 4 =", "--home", home, *arguments)
    assert done.exit_code not in (0, 1)
    assert message in done.output


def test_heads_gives_mean_and_std_over_seeds_and_over_inputs(lab):
    home, _ = lab
    only = ["--only", "model.kind=gpt"]
    done = invoke("heads", "quickstart", *only, "--inputs", 9, "--ablation", "--home", home, "--json")
    (config,) = json.loads(done.output)
    assert len(config["runs"]) == 2
    assert config["inputs"] == {"n": 9, "part": "val"}
    assert np.asarray(config["numbers"]["entropy"]["mean"]).shape == (2, 2)
    assert (np.asarray(config["numbers"]["own"]["std_inputs"]) > 0).all()
    shares = {(one["on"], one["from"]): np.asarray(one["mean"]) for one in config["shares"]}
    total = sum(shares[source, "="] for source in ("BOS", "operands", "operator", "=", "result"))
    np.testing.assert_allclose(total, 1, atol=1e-5)
    assert np.asarray(config["ablation"]["heads"]).shape == (2, 2, 2)
    assert [circles["step"] for circles in config["circles"][0]] == [3, 6]


def test_heads_names_configs_and_shows_gates_of_an_lstm(lab):
    home, _ = lab
    output = invoke("heads", "quickstart", "--inputs", 5, "--home", home).output
    assert "heads, GPT" in output
    assert "share of attention from =, GPT" in output
    assert "gates and cells, LSTM" in output
    assert "circles, LSTM" in output


def test_heads_of_one_run_spreads_over_inputs(lab):
    home, ids = lab
    output = invoke("heads", ids["gpt"], "--inputs", 5, "--step", 3, "--home", home).output
    assert f"Run {ids['gpt']} at step 3: mean ± std over 5 inputs of val" in output


@pytest.mark.parametrize("command", [["sample"], ["heads"], ["classify", "3 + 4 ="]], ids=lambda command: command[0])
def test_a_filter_beside_the_id_of_a_run_is_refused_and_a_wrong_step_is_named(lab, command):
    home, ids = lab
    verb, *texts = command
    filtered = invoke(verb, ids["gpt"], *texts, "--only", "seed=0", "--home", home)
    assert filtered.exit_code == 2
    assert f"{ids['gpt']} is not a stored study, and a filter selects among the runs of one" in filtered.output
    wrong = invoke(verb, ids["gpt"], *texts, "--step", "soon", "--home", home)
    assert wrong.exit_code == 2
    assert "--step soon: expected last, best, or a step such as 5000" in wrong.output


def test_stds_over_seeds_and_over_inputs_are_separate():
    mean, seeds, inputs = mean_and_stds([np.array([1.0, 3.0, np.nan]), np.array([4.0, 4.0, 4.0])])
    assert (mean, seeds, inputs) == (3.0, 1.0, 0.5)


def test_a_loaded_run_has_attention_and_hooks(lab):
    import seedbed

    home, ids = lab
    model = seedbed.load(ids["gpt"], home)
    assert model.attention("3 + 4 =").shape == (2, 2, 5, 5)
    assert model.activations("3 + 4 =", "embed")["embed"].shape == (5, 16)


def test_models_of_a_study_with_damaged_weights_are_left_out_with_a_warning(lab, tmp_path):
    import seedbed

    home = shutil.copytree(lab[0], tmp_path / "lab")
    run = lab[1]["gpt"]
    for file in home.glob(f"checkpoints/{run}/*.safetensors"):
        file.write_bytes(file.read_bytes()[:-4] + b"oops")
    with pytest.warns(UserWarning, match=f"run {run} is left out"):
        models = seedbed.Study.stored("quickstart", home).load()
    assert run not in {model.run.id for model in models}
    assert len(models) == 3


def test_a_damaged_checkpoint_leaves_the_other_runs_of_a_study(lab, tmp_path):
    home = shutil.copytree(lab[0], tmp_path / "lab")
    run = lab[1]["gpt"]
    for file in home.glob(f"checkpoints/{run}/*.safetensors"):
        file.write_bytes(file.read_bytes()[:-4] + b"oops")
    for command in (["sample", "--prompt", "3 + 4 ="], ["heads", "--inputs", "4"]):
        done = invoke(command[0], "quickstart", *command[1:], "--only", "model.kind=gpt", "--home", home)
        assert (done.exit_code, done.stderr.count(f"run {run} is left out: ")) == (0, 1)
        alone = invoke(command[0], run, *command[1:], "--home", home)
        assert (alone.exit_code, "SB031" in alone.output) == (4, True)  # nothing is left
