"""The verbs that look inside, on a study trained for a few steps: tables, documents, pictures, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from seedbed.cli import app
from seedbed.report.analysis_tables import mean_and_stds
from seedbed.store.store import Store

WORDS = [
    "task.p=11", "model.dim=16", "model.heads=2", "model.layers=2", "model.kind=gpt,lstm", "seeds=2", "train.steps=6",
    "train.save_every=3", "train.eval_every=3",
]  # fmt: skip


def invoke(*words):
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    home = tmp_path_factory.mktemp("lab")
    done = invoke("run", "quickstart", *WORDS, "--home", home, "--workers", 1, "--quiet")
    assert done.exit_code == 0, done.output
    with Store.open_read_only(home) as store:
        ids = {run.settings.model.kind: run.id for run in store.runs() if run.seed == 0}
    return home, ids


def test_taps_lists_the_places_of_a_run(lab):
    home, ids = lab
    assert "blocks.1.attention.pattern" in invoke("hooks", ids["gpt"], "--home", home).output.splitlines()
    assert "lstm.1.cell" in json.loads(invoke("hooks", ids["lstm"], "--home", home, "--json").output)


def test_attend_shows_every_layer_and_head_in_a_terminal(lab):
    home, ids = lab
    shown = invoke("attend", ids["gpt"], "3 + 4 = 7", "--home", home).output
    for layer in (1, 2):
        for head in (1, 2):
            assert f"layer {layer}, head {head}" in shown
    assert "     BOS   3   +   4   =   7" in shown.splitlines()


def test_attend_writes_numbers_of_several_texts_and_checkpoints(lab, tmp_path):
    home, ids = lab
    out = tmp_path / "maps.json"
    words = [
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
    assert invoke(*words).exit_code == 0
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
    ("words", "said"),
    [
        (["--layer", "0"], "--layer 0: expected whole numbers from 1"),
        (["--head", "3"], "--head 3: this model has heads 1 to 2"),
        (["--step", "soon"], "--step soon: expected last, best, all, or kept steps"),
        (["--step", "4"], "4"),
        (["--by", "line"], "--by line: expected token or word"),
        (["--out", "a.gif"], "expected a file that ends in .svg"),
    ],
)
def test_attend_refuses_in_a_sentence_what_it_cannot_show(lab, words, said):
    home, ids = lab
    done = invoke("attend", ids["gpt"], "3 + 4 =", "--home", home, *words)
    assert done.exit_code not in (0, 1)
    assert said in done.output


def test_heads_gives_mean_and_std_over_seeds_and_over_inputs(lab):
    home, _ = lab
    done = invoke("heads", "quickstart", "model.kind=gpt", "--inputs", 9, "--ablation", "--home", home, "--json")
    (point,) = json.loads(done.output)
    assert len(point["runs"]) == 2
    assert point["inputs"] == {"n": 9, "part": "val"}
    assert np.asarray(point["numbers"]["entropy"]["mean"]).shape == (2, 2)
    assert (np.asarray(point["numbers"]["own"]["std_inputs"]) > 0).all()
    shares = {(one["on"], one["from"]): np.asarray(one["mean"]) for one in point["shares"]}
    total = sum(shares[source, "="] for source in ("BOS", "operands", "operator", "=", "result"))
    np.testing.assert_allclose(total, 1, atol=1e-5)
    assert np.asarray(point["ablation"]["heads"]).shape == (2, 2, 2)
    assert [circles["step"] for circles in point["circles"][0]] == [3, 6]


def test_heads_tells_points_apart_and_shows_gates_of_an_lstm(lab):
    home, _ = lab
    shown = invoke("heads", "quickstart", "--inputs", 5, "--home", home).output
    assert "heads, model.kind=gpt" in shown
    assert "share of attention from =, model.kind=gpt" in shown
    assert "gates and cells, model.kind=lstm" in shown
    assert "circles, model.kind=lstm" in shown


def test_heads_of_one_run_spreads_over_inputs(lab):
    home, ids = lab
    shown = invoke("heads", ids["gpt"], "--inputs", 5, "--step", 3, "--home", home).output
    assert f"Run {ids['gpt']} at step 3: mean ± std over 5 inputs of val" in shown


def test_spread_keeps_seeds_and_inputs_apart():
    mean, seeds, inputs = mean_and_stds([np.array([1.0, 3.0, np.nan]), np.array([4.0, 4.0, 4.0])])
    assert (mean, seeds, inputs) == (3.0, 1.0, 0.5)


def test_a_loaded_run_shows_attention_and_taps(lab):
    import seedbed

    home, ids = lab
    model = seedbed.load(ids["gpt"], home)
    assert model.attention("3 + 4 =").shape == (2, 2, 5, 5)
    assert model.activations("3 + 4 =", "embed")["embed"].shape == (5, 16)
