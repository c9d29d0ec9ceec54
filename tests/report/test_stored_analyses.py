"""Looks: made once where a study asks for them, kept beside the weights, told and drawn without torch afterwards."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from seedbed.cli import app
from seedbed.interp.analysis import Analysis
from seedbed.report.analysis_curves import load_analyses
from seedbed.report.stored_analyses import analysis_request, update_analyses
from seedbed.report.study_answers import answer_study
from seedbed.report.study_runs import load_run_curves
from seedbed.store.store import Store
from seedbed.study.declarations import parse_declarations

from .factories import fill

STUDY = """
question = "Where does it look?"
seeds = 2
[base]
task = { p = 11, train_fraction = 0.6 }
model = { dim = 16, heads = 2, layers = 2 }
train = { steps = 6, save_every = 3, eval_every = 3 }
"""
SHOWN = """
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


def invoke(*words):
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    return done.output


def trained(folder, shown):
    path = folder / "where.toml"
    path.write_text(STUDY + shown, encoding="utf-8")
    invoke("run", path, "--home", folder / "lab", "--workers", 1, "--quiet")
    return folder / "lab"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    home = trained(tmp_path_factory.mktemp("looks"), SHOWN)
    assert update_analyses(home, "where") == 4  # two runs, two kept steps each
    return home


def test_what_is_kept_is_not_made_again(lab):
    assert update_analyses(lab, "where") == 0


def test_another_text_is_looked_at_without_training_again_and_only_where_it_is_drawn(lab):
    home = trained(lab.parent, SHOWN.replace("3 + 4 = 7", "5 + 5 = 10"))
    try:
        assert update_analyses(home, "where") == 2  # maps are of the last step
        with Store.open_read_only(home) as store:
            assert {
                maps.text for run in store.runs() for look in load_analyses(store, run) for maps in look.attention
            } == {"5 + 5 = 10"}
    finally:
        update_analyses(trained(lab.parent, SHOWN), "where")


def test_a_damaged_look_is_made_again(lab):
    broken = next((lab / "checkpoints").rglob("*.look.json"))
    broken.write_bytes(broken.read_bytes()[:50])
    assert update_analyses(lab, "where") == 1


def test_kept_maps_are_those_of_the_model_with_the_layers_it_has(lab):
    import seedbed

    with Store.open_read_only(lab) as store:
        run = store.runs()[0]
        first, last = load_analyses(store, run)
    assert not first.attention
    (maps,) = last.attention
    assert maps.layers == (1,)
    expected = seedbed.load(run.id, lab).attention("3 + 4 = 7")[1:].numpy()
    np.testing.assert_allclose(maps.weights, expected, atol=1e-6)
    np.testing.assert_allclose(maps.weights.sum(-1), 1, atol=1e-5)
    assert "77" in last.attention_errors["3 + 77 = 7"]


def test_numbers_of_a_look_are_those_of_the_heads_verb(lab):
    (point,) = json.loads(invoke("heads", "where", "--inputs", 64, "--home", lab, "--json"))
    with Store.open_read_only(lab) as store:
        looks = [load_analyses(store, run)[-1] for run in store.runs()]
    told = [look.metrics["attention_entropy[head=2, layer=1]"].mean for look in looks]
    assert np.mean(told) == pytest.approx(point["numbers"]["entropy"]["mean"][0][1], abs=1e-6)
    layer = [look.metrics["attention_entropy[layer=1]"].mean for look in looks]
    assert np.mean(layer) == pytest.approx(np.mean(point["numbers"]["entropy"]["mean"][0]), abs=1e-5)
    shares = [look.metrics["circle_share"].mean for look in looks]
    assert shares == pytest.approx([steps[-1]["share"] for steps in point["circles"]])


def test_a_look_reads_back_as_it_was_written(lab):
    with Store.open_read_only(lab) as store:
        look = load_analyses(store, store.runs()[0])[-1]
    again = Analysis.from_json(json.loads(json.dumps(look.as_json())))
    assert again.metrics == look.metrics
    np.testing.assert_array_equal(again.attention[0].weights, look.attention[0].weights)
    np.testing.assert_array_equal(again.planes[0].coordinates, look.planes[0].coordinates)


def test_numbers_from_inside_are_curves_and_answers_like_any_reading(lab):
    with Store.open_read_only(lab) as store:
        run, _ = load_run_curves(store, "where")
        (found,) = answer_study(store, "where")
    assert run.curves["circle_share"].steps.tolist() == [3, 6]
    assert "attention_entropy[layer=1]" not in run.curves  # nobody asks for it
    assert "from = in layer 2" in found.sentence
    assert "0.4 ± 0 from = under uniform attention" in found.sentence  # two of five tokens


def test_the_report_shows_maps_and_the_numbers_beside_them(lab):
    page = lab / "reports" / "where" / "index.html"
    invoke("report", "where", "--home", lab)
    text = page.read_text(encoding="utf-8")
    assert "Heads by layer" in text
    assert "Attention received in “3 + 4 = 7”" in text
    assert "Share of attention from =, by what is looked at" in text
    assert "seedbed attend " in text
    assert "Not drawn: " in text
    assert (page.parent / "figures" / "figure-01.svg").exists()


def test_a_report_needs_torch_only_for_looks_that_are_missing(lab, tmp_path):
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
    ("shown", "anything", "over_training"),
    [
        ("", False, False),
        ('[[figures]]\nmetrics = ["val/loss"]', False, False),
        ('[[figures]]\nkind = "attention"\ntext = "1 + 1 = 2"', True, False),
        ('[[figures]]\nkind = "fourier"', True, True),
        ('[[questions]]\nask = "does it hold"\nmetric = "circle_share"\nat_least = 0.5', True, False),
    ],
)
def test_what_a_study_asks_about_the_inside_is_told_from_its_figures_and_questions(shown, anything, over_training):
    asked = analysis_request(parse_declarations(shown))
    assert (asked.is_needed, asked.over_training) == (anything, over_training)


def test_a_figure_of_the_inside_can_be_drawn_before_any_report(tmp_path):
    home = trained(tmp_path, SHOWN)
    invoke("plot", "where", "--figure", 1, "--home", home, "--out", tmp_path / "map.svg")
    assert "<svg" in (tmp_path / "map.svg").read_text(encoding="utf-8")
    with Store.open_read_only(home) as store:
        assert all(load_analyses(store, run) for run in store.runs("where"))
