"""Analyses: computed once if a study needs them, stored beside the weights, then reported and drawn without torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from seedbed.cli import app
from seedbed.interp.analysis import Analysis
from seedbed.report.stored_analyses import analysis_request, count_missing_analyses, update_analyses
from seedbed.report.study_answers import answer_study
from seedbed.report.study_runs import load_analyses, load_run_curves
from seedbed.store import open_store
from seedbed.study.declarations import parse_declarations

from .factories import fill

STUDY = """
question = "What does it attend to?"
seeds = 2
[base]
task = { p = 11, train_fraction = 0.6 }
model = { dim = 16, heads = 2, layers = 2 }
train = { steps = 6, save_every = 3, eval_every = 3 }
"""
DECLARATIONS = """
[[figures]]
kind = "attention"
text = "3 + 4 = 7"
layers = [2, 4]
[[figures]]
kind = "attention"
text = "3 + 77 = 7"
[[figures]]
metrics = ["val/loss", "circle_share"]
[[questions]]
ask = "does it hold"
metric = "attention_on_operands[from==, layer=2]"
and_metric = "attention_on_operands[from==, even]"
expect = "higher"
"""


def invoke(*arguments):
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return done.output


def train(folder, declarations):
    path = folder / "where.toml"
    path.write_text(STUDY + declarations, encoding="utf-8")
    invoke("run", path, "--home", folder / "lab", "--workers", 1, "--quiet")
    return folder / "lab"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    home = train(tmp_path_factory.mktemp("analyses"), DECLARATIONS)
    with open_store(home, read_only=True) as store:
        assert count_missing_analyses(store, "where") == 4  # two runs, two checkpoints each
        assert update_analyses(home, "where") == 4
        assert count_missing_analyses(store, "where") == 0
    return home


def test_stored_analyses_are_not_computed_again(lab):
    assert update_analyses(lab, "where") == 0


def test_analyses_are_the_same_bytes_however_many_are_computed_at_a_time(lab, tmp_path, monkeypatch):
    """And a checkpoint that cannot be read costs its own analysis only."""
    import torch

    from seedbed.report import stored_analyses

    n_threads = torch.get_num_threads()
    found = {}
    for n in (1, 2):
        home = shutil.copytree(lab, tmp_path / f"{n}")
        for path in home.rglob("*.analysis.json"):
            path.unlink()
        monkeypatch.setattr(stored_analyses, "MAX_THREADS", n)
        assert update_analyses(home, "where") == 4
        found[n] = {path.name: path.read_bytes() for path in home.rglob("*.analysis.json")}
    assert found[1] == found[2]
    assert torch.get_num_threads() == n_threads
    with open_store(home, read_only=True) as store:
        first = store.runs()[0]
    for path in home.rglob("*.analysis.json"):
        path.unlink()
    damaged = min((home / "checkpoints" / first.id).glob("*.safetensors"))
    damaged.write_bytes(damaged.read_bytes()[:-8])
    assert update_analyses(home, "where") == 3


def test_another_text_is_analysed_without_training_and_only_at_the_last_step(lab):
    home = train(lab.parent, DECLARATIONS.replace("3 + 4 = 7", "5 + 5 = 10"))
    try:
        assert update_analyses(home, "where") == 2  # attention maps are of the last step
        with open_store(home, read_only=True) as store:
            assert {
                maps.text
                for run in store.runs()
                for analysis in load_analyses(store, run)
                for maps in analysis.attention
            } == {"5 + 5 = 10"}
    finally:
        update_analyses(train(lab.parent, DECLARATIONS), "where")


def test_a_damaged_analysis_is_computed_again(lab):
    broken = next((lab / "checkpoints").rglob("*.analysis.json"))
    broken.write_bytes(broken.read_bytes()[:50])
    assert update_analyses(lab, "where") == 1


def test_stored_maps_are_those_of_the_model_with_the_layers_it_has(lab):
    import seedbed

    with open_store(lab, read_only=True) as store:
        run = store.runs()[0]
        first, last = load_analyses(store, run)
    assert not first.attention
    (maps,) = last.attention
    assert maps.layers == (1,)
    expected = seedbed.load(run.id, lab).attention("3 + 4 = 7")[1:].numpy()
    np.testing.assert_allclose(maps.weights, expected, atol=1e-6)
    np.testing.assert_allclose(maps.weights.sum(-1), 1, atol=1e-5)
    assert "77" in last.attention_errors["3 + 77 = 7"]


def test_the_metrics_of_an_analysis_are_those_of_the_heads_command(lab):
    (config,) = json.loads(invoke("heads", "where", "--inputs", 64, "--home", lab, "--json"))
    with open_store(lab, read_only=True) as store:
        analyses = [load_analyses(store, run)[-1] for run in store.runs()]
    entropy = [analysis.metrics["attention_entropy[head=2, layer=1]"].mean for analysis in analyses]
    assert np.mean(entropy) == pytest.approx(config["numbers"]["entropy"]["mean"][0][1], abs=1e-6)
    layer = [analysis.metrics["attention_entropy[layer=1]"].mean for analysis in analyses]
    assert np.mean(layer) == pytest.approx(np.mean(config["numbers"]["entropy"]["mean"][0]), abs=1e-5)
    shares = [analysis.metrics["circle_share"].mean for analysis in analyses]
    assert shares == pytest.approx([steps[-1]["share"] for steps in config["circles"]])


def test_an_analysis_survives_a_json_round_trip(lab):
    with open_store(lab, read_only=True) as store:
        analysis = load_analyses(store, store.runs()[0])[-1]
    again = Analysis.from_json(json.loads(json.dumps(analysis.as_json())))
    assert again.metrics == analysis.metrics
    np.testing.assert_array_equal(again.attention[0].weights, analysis.attention[0].weights)
    np.testing.assert_array_equal(again.planes[0].coordinates, analysis.planes[0].coordinates)


def test_analysis_metrics_have_curves_and_answers_like_any_metric(lab):
    with open_store(lab, read_only=True) as store:
        run, _ = load_run_curves(store, "where")
        (found,) = answer_study(store, "where")
    assert run.curves["circle_share"].steps.tolist() == [3, 6]
    assert "attention_entropy[layer=1]" not in run.curves  # the study does not name it
    assert "from = in layer 2" in found.sentence
    assert "than from = under uniform attention (0.4" in found.sentence
    assert "vs 0.4;" in found.sentence  # two of five tokens


def test_the_report_shows_attention_maps_and_tables(lab):
    page = lab / "reports" / "where" / "index.html"
    invoke("report", "where", "--home", lab)
    text = page.read_text(encoding="utf-8")
    assert "Heads by layer" in text
    assert "Attention received in “3 + 4 = 7”" in text
    assert "Share of attention from =, by kind of key" in text
    assert "seedbed attend " in text
    assert "Not shown: " in text
    assert (page.parent / "figures" / "figure-01.svg").exists()


def test_a_report_needs_torch_only_for_missing_analyses(lab, tmp_path):
    fill(tmp_path, "plain")
    code = f"""
import sys
from pathlib import Path
from seedbed.report.stored_analyses import update_analyses
from seedbed.report.html_report import write_report
for home, study in (({str(tmp_path)!r}, "plain"), ({str(lab)!r}, "where")):
    assert update_analyses(Path(home), study) == 0
    write_report(Path(home), [study], [])
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("declarations", "is_needed", "over_training"),
    [
        ("", False, False),
        ('[[figures]]\nmetrics = ["val/loss"]', False, False),
        ('[[figures]]\nkind = "attention"\ntext = "1 + 1 = 2"', True, False),
        ('[[figures]]\nkind = "fourier"', True, True),
        ('[[questions]]\nask = "does it hold"\nmetric = "circle_share"\nat_least = 0.5', True, False),
    ],
)
def test_figures_and_questions_decide_which_analyses_are_needed(declarations, is_needed, over_training):
    request = analysis_request(parse_declarations(declarations))
    assert (request.is_needed, request.over_training) == (is_needed, over_training)


# ---- what reads writes nothing ----


def contents(home):
    """Every file of a home but the database's own, which opening touches."""
    return {path: path.read_bytes() for path in home.rglob("*") if path.is_file() and "store.db" not in path.name}


@pytest.fixture
def bare(tmp_path):
    return train(tmp_path, DECLARATIONS)


READERS = {
    "answer": ["answer", "where"],
    "answer as JSON": ["answer", "where", "--json"],
    "plot attention": ["plot", "where", "--figure", 1],
    "plot curves": ["plot", "where", "--figure", 3],
    "plot metric": ["plot", "where", "--metrics", "circle_share"],
    "compare": ["compare", "where", "where", "--metric", "circle_share"],
    "show": ["show", "where"],
}


def test_verbs_that_read_name_the_missing_analyses_and_compute_none(bare):
    before = contents(bare)
    for name, words in READERS.items():
        done = CliRunner().invoke(app, [*map(str, words), "--home", str(bare)])
        command = f"4 analyses of where are missing; run: seedbed analyze where --home {bare}"
        assert (command in done.stderr) == (name != "show"), f"{name}: {done.output}"  # it shows none
    assert contents(bare) == before
    assert (
        "analysed 4 checkpoints of where" in CliRunner().invoke(app, ["analyze", "where", "--home", str(bare)]).stderr
    )
    assert contents(bare) != before  # the comparison above could have failed
    for name, words in READERS.items():
        assert "missing" not in CliRunner().invoke(app, [*map(str, words), "--home", str(bare)]).stderr, name


def test_what_show_prints_depends_on_no_analysis(bare):
    before = invoke("show", "where", "--home", bare)
    assert update_analyses(bare, "where") == 4
    assert invoke("show", "where", "--home", bare) == before


def test_a_filter_selects_what_is_analysed_and_is_part_of_the_command(bare):
    done = CliRunner().invoke(app, ["answer", "where", "--only", "seed=0", "--home", str(bare)])
    assert f"2 analyses of where are missing; run: seedbed analyze where --only seed=0 --home {bare}" in done.stderr
    invoke("analyze", "where", "--only", "seed=0", "--home", bare)
    with open_store(bare, read_only=True) as store:
        assert {run.seed: len(load_analyses(store, run)) for run in store.runs("where")} == {0: 2, 1: 0}


def test_the_store_of_an_earlier_command_is_no_part_of_the_next(bare, monkeypatch):
    monkeypatch.setenv("SEEDBED_STORE", "")  # which the option sets
    words = ["answer", "where", "--home", str(bare)]
    named = CliRunner().invoke(app, [*words, "--store", f"sqlite:{bare}"])
    assert f"seedbed analyze where --store sqlite:{bare} --home {bare}" in named.stderr
    monkeypatch.setenv("SEEDBED_STORE", "")
    assert f"seedbed analyze where --home {bare}" in CliRunner().invoke(app, words).stderr


def test_in_python_only_analyze_and_report_write(bare):
    import seedbed

    study, before = seedbed.Study.stored("where", bare), contents(bare)
    with pytest.warns(UserWarning, match=r"4 analyses of where are missing; run: study\.analyze\(\)"):
        study.answer()
    with pytest.warns(UserWarning, match=r"study\.analyze\(\)"), pytest.raises(seedbed.SeedbedError, match="analyze"):
        study.plot(figure=1)
    assert contents(bare) == before
    assert study.analyze() == 4
    assert study.analyze() == 0
    study.plot(figure=1)


def test_analyze_says_so_where_nothing_is_left(lab):
    assert "where: every analysis that its figures and questions need" in invoke("analyze", "where", "--home", lab)
