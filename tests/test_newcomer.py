"""What a newcomer wants in the first hour, each in at most three commands or five lines of Python."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seedbed.cli import app

MAX_COMMANDS, MAX_LINES = 3, 5
TINY = "model.dim=16 model.heads=2 train.steps=30 train.batch_size=8 train.eval_first=0 train.eval_every=10 seeds=2"
TINY_TEXT = "task.length=16 model.layers=1"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new folder with a text and labelled sentences, as a newcomer has them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEEDBED_DEVICE", "cpu")
    monkeypatch.setenv("SEEDBED_HOME", "lab")
    Path("poem.txt").write_text("the mill turns in the wind and the wind turns the mill\n" * 40, encoding="utf-8")
    rows = [("label", "text"), *[("good", "a fine day"), ("bad", "a sad day"), ("good", "a fine walk")] * 20]
    with Path("reviews.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    Path("poem.toml").write_text('[base.task]\nkind = "text"\ncorpus = "poem.txt"\n', encoding="utf-8")
    Path("reviews.toml").write_text(
        '[base]\ntask = { kind = "labels", corpus = "reviews.csv", tokenizer = "words", length = 6 }\n'
        'model.kind = "encoder"\n',
        encoding="utf-8",
    )


def in_commands(*commands: list[str]) -> str:
    """What the commands print; they must all succeed."""
    assert len(commands) <= MAX_COMMANDS
    output = ""
    for words in commands:
        done = CliRunner().invoke(app, words + (["--workers", "1", "--quiet"] if words[0] == "run" else []))
        assert done.exit_code == 0, f"{words}\n{done.output}"
        output = done.stdout
    return output


def in_python(code: str) -> str:
    """What a script prints."""
    lines = code.strip().splitlines()
    assert len(lines) <= MAX_LINES
    done = subprocess.run([sys.executable, "-"], input=code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_model_of_ones_own_text_is_sampled() -> None:
    text = in_commands(
        ["run", "poem.toml", *TINY.split(), *TINY_TEXT.split()],
        ["sample", "poem", "--prompt", "the ", "--tokens", "20"],
    )
    assert "the " in text
    text = in_python("""
import seedbed as sb
text = {"task": {"kind": "text", "corpus": "poem.txt", "length": 16}, "train": {"steps": 20, "eval_first": 0}}
study = sb.Study(name="poem", base=text, seeds=1).run(progress=False)
print(study.load()[0].sample("the ", tokens=20)[0])
""")
    assert text.startswith("the ")
    assert len(text.strip()) > 10


def test_ones_own_table_of_sentences_is_classified() -> None:
    text = in_commands(["run", "reviews.toml", *TINY.split()], ["classify", "reviews", "a fine day"])
    assert "good" in text
    assert "bad" in text
    text = in_python(f"""
import seedbed as sb
study = sb.Study("reviews.toml", "{TINY}").run(progress=False)
print([each.name for each in study.load()[0].classify("a fine day")])
""")
    assert sorted(eval(text)) == ["bad", "good"]


def test_the_best_value_of_a_sweep_is_named() -> None:
    sweep = ["run", "quickstart", *TINY.split(), "train.lr=1e-5,0.03"]
    text = in_commands(sweep, ["compare", "quickstart", "train.lr", "--metric", "train/loss"])
    assert "We cannot tell learning rate 0.03 and learning rate 1e-5 apart in best training loss" in text
    text = in_python(f"""
import seedbed as sb
study = sb.Study("quickstart", "{TINY} train.lr=1e-5,0.03").run(progress=False)
print(study.best("train/loss"))
""")
    assert "The config with the best training loss is learning rate 0.03" in text


def test_part_of_a_study_is_run() -> None:
    sweep = [*TINY.split(), "model.layers=1,2"]
    in_commands(["run", "quickstart", *sweep, "--only", "layers=2 seed=1"])
    text = in_python(f"""
import seedbed as sb
study = sb.Study("quickstart", "{TINY} model.layers=1,2")
print([(run.settings.model.layers, run.seed, run.status) for run in study.runs(only="status=finished")])
print(study.run(only="layers=2", progress=False))
""")
    assert text.splitlines() == ["[(2, 1, 'finished')]", "quickstart: 4 runs, 2 planned, 2 finished"]


def test_results_become_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    in_commands(
        ["run", "quickstart", *TINY.split()], ["results", "quickstart", "--metric", "val/loss", "--out", "loss.csv"]
    )
    frame = pandas.read_csv("loss.csv")
    text = in_python("""
import seedbed as sb
frame = sb.Study.stored("quickstart").results("val/loss").to_pandas()
print(frame.groupby("seed")["value"].min().round(6).tolist())
""")
    assert eval(text) == frame.groupby("seed")["value"].min().round(6).tolist()
