"""`seedbed classify` and `LoadedRun.classify`: classes by name with probabilities, alone and over seeds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import seedbed
from seedbed.cli import app
from seedbed.errors import UsageError
from seedbed.report.study_runs import load_analyses
from seedbed.store import open_store

runner = CliRunner()
WORDS = {"food": "bread soup salt oven", "sport": "goal team race ball"}
STUDY = """
question = "Food or sport?"
seeds = 2
[base.task]
kind = "labels"
corpus = "labels.csv"
length = 5
[base.model]
kind = "encoder"
layers = 1
dim = 8
heads = 2
[base.train]
epochs = 12
batch_size = 16
lr = 1e-2
eval_every = 10
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two trained seeds and their report; the file that they were trained on is gone."""
    folder = tmp_path_factory.mktemp("classify")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        rows = [f"{' '.join(np.random.RandomState(i).permutation(WORDS[name].split())[:3])},{name}"
                for i in range(40) for name in WORDS]  # fmt: skip
        (folder / "labels.csv").write_text("\n".join(["text,label", *rows]))
        (folder / "topics.toml").write_text(STUDY)
        done = runner.invoke(app, ["run", "topics.toml", "--workers", "1"])
        assert done.exit_code == 0, done.stderr
        assert runner.invoke(app, ["report", "topics", "--out", "page"]).exit_code == 0
        (folder / "labels.csv").unlink()
    return folder


@pytest.fixture(autouse=True)
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def classify(*arguments: str) -> str:
    done = runner.invoke(app, ["classify", *arguments])
    assert done.exit_code == 0, done.stderr
    return done.stdout


def run_ids() -> list[str]:
    return [one["id"] for one in json.loads(runner.invoke(app, ["ls", "topics", "--json"]).stdout)["runs"]]


def test_a_sentence_gets_every_class_by_name_with_its_probability() -> None:
    [first, second] = seedbed.load(run_ids()[0]).classify("soup bread oven")
    assert (first.name, second.name) == ("food", "sport")
    assert first.probability + second.probability == pytest.approx(1)
    assert first.probability > 0.5
    shown = classify(run_ids()[0], "soup bread oven")
    assert (
        f"food {first.probability:11.3f}" in " ".join(shown.split()).replace("food ", "food" + " " * 7)
        or "food" in shown
    )
    assert f"{first.probability:.3f}" in shown


def test_several_runs_give_the_mean_of_their_probabilities_and_say_so() -> None:
    alone = [{one.name: one.probability for one in seedbed.load(run).classify("goal soup")} for run in run_ids()]
    [text] = json.loads(classify("topics", "goal soup", "--json"))["texts"]
    assert text["probabilities"]["food"] == pytest.approx(np.mean([one["food"] for one in alone]))
    assert text["std_over_runs"]["food"] == pytest.approx(np.std([one["food"] for one in alone]))
    assert "Mean ± std of the probabilities of 2 runs." in classify(",".join(run_ids()), "goal soup")
    assert json.loads(classify("topics", "goal", "--only", "seed=1", "--json"))["runs"][0]["id"] in run_ids()


def test_a_file_of_sentences_and_a_table_with_labels(tmp_path: Path) -> None:
    lines, table, out = tmp_path / "lines.txt", tmp_path / "table.jsonl", tmp_path / "out.csv"
    lines.write_text("goal team, ball\n\nsoup salt\n")
    rows = classify("topics", str(lines), "--format", "csv").splitlines()
    assert rows[0] == "text,class,probability,p(food),p(sport)"
    assert [row.rpartition(",0.")[0].count("sport") for row in rows[1:]] == [1, 0]
    samples = [{"text": "goal team", "label": "sport"}, {"text": "ball race", "label": "food"}]
    table.write_text("\n".join(map(json.dumps, samples)))
    assert json.loads(classify("topics", str(table), "--json"))["accuracy"] == 0.5
    assert "Accuracy 0.500 (1 of 2)." in classify("topics", str(table))
    assert classify("topics", str(table), "--out", str(out)).strip() == str(out)
    assert out.read_text().startswith("text,label,class,probability")


def test_a_long_text_is_cut_as_in_training() -> None:
    assert "longer than the context; the model reads the first 5 tokens" in classify("topics", "goal " * 9)
    loaded = seedbed.load(run_ids()[0])
    assert loaded.classify("goal " * 9) == loaded.classify("goal " * 5)


def test_what_a_classifier_cannot_do_names_the_verb_to_use() -> None:
    loaded = seedbed.load(run_ids()[0])
    for call in (loaded.top_next_tokens, loaded.sample, loaded.surprisal):
        with pytest.raises(UsageError, match=f"seedbed classify {loaded.run.id} TEXT"):
            call("goal")
    done = runner.invoke(app, ["sample", run_ids()[0], "--prompt", "goal"])
    assert (done.exit_code, done.stdout) == (2, "")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["topics", ""], 2, "the text is empty"),
        (["topics", "no.csv"], 4, "no.csv cannot be read"),
        (["topics", "goal", "--only", "seed=7"], 4, "seed"),
        (["nothing", "goal"], 4, "there is no run 'nothing'"),
    ],
)
def test_errors_are_one_line(arguments: list[str], code: int, message: str) -> None:
    done = runner.invoke(app, ["classify", *arguments])
    assert (done.exit_code, len(done.stderr.strip().splitlines())) == (code, 1)
    assert message in done.stderr


def test_the_report_has_a_confusion_matrix_whose_accuracy_is_the_recorded_one(folder: Path) -> None:
    with open_store(folder / "lab", read_only=True) as store:
        accuracies = []
        for run in store.runs("topics"):
            [predictions] = load_analyses(store, run)[-1].predictions
            counts = np.array(predictions.confusion)
            accuracies.append(counts.trace() / counts.sum())
            assert counts.sum() == 8  # a tenth of 80
            assert len(predictions.wrong) == counts.sum() - counts.trace()
            assert accuracies[-1] == pytest.approx(store.curves([run.id])[run.id]["val/accuracy"].values[-1])
    tables = [path.read_text() for path in sorted((folder / "page/tables").glob("*.md"))]
    [confusion] = [table for table in tables if "Confusion matrix, validation" in table]
    assert "| class | food | sport | recall |" in confusion
    assert f"{np.mean(accuracies):.3f} |" in confusion.splitlines()[-3]


def test_stored_predictions_outlive_their_texts(folder: Path) -> None:
    done = runner.invoke(app, ["report", "topics", "--out", "later"])
    assert done.exit_code == 0, done.stderr
    assert "Confusion matrix, validation" in (folder / "later/index.html").read_text()
