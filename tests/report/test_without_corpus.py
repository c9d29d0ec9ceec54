"""Reports on text models whose text is gone: maps of given texts are drawn, and what needs the text says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from seedbed.report.study_runs import load_analyses
from seedbed.store import open_store

STUDY = """
seeds = 1
[base]
model = { layers = 1, dim = 8, heads = 2 }
train = { steps = 4, batch_size = 4, eval_batches = 1, sample_every = 2, sample_tokens = 30 }
task = { kind = "text", corpus = "notes.txt", length = 12 }
[[figures]]
kind = "attention"
text = "to be"
[[figures]]
metrics = ["attention_distance[layer=1]"]
"""


def seedbed(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, where no corpus is cached."""
    command = [sys.executable, "-m", "seedbed", *arguments, "--home", "lab"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(STUDY)
    (tmp_path / "notes.txt").write_text("to be or not to be\n" * 40)
    seedbed(tmp_path, "run", "mine.toml", "--quiet")
    return tmp_path


def last_analysis(folder: Path):
    with open_store(folder / "lab", read_only=True) as store:
        [run] = store.runs("mine")
        return load_analyses(store, run)[-1]


def test_a_report_without_the_text_draws_the_maps_and_says_what_is_missing(folder):
    text = (folder / "notes.txt").read_text()
    (folder / "notes.txt").unlink()
    said = seedbed(folder, "report", "mine", "--out", "page").stderr
    page = (folder / "page" / "index.html").read_text(encoding="utf-8")
    assert "Analyses of held-out text are missing for 1 run: notes.txt, which run" in said
    for sentence in (
        "Analyses of held-out text are missing for 1 run",
        "copy from the training text is unknown for 1",
    ):
        assert sentence in page
    analysis = last_analysis(folder)
    assert analysis.find_attention("to be", "token") is not None
    assert not any(name.startswith("attention_distance") for name in analysis.metrics)

    (folder / "notes.txt").write_text(text)  # the text is back
    assert "missing" not in seedbed(folder, "report", "mine", "--out", "page").stderr
    assert last_analysis(folder).metrics["attention_distance[layer=1]"].mean > 0
    assert "Analyses of held-out text" not in (folder / "page" / "index.html").read_text(encoding="utf-8")


def test_an_analysis_with_inputs_is_kept_when_the_text_is_gone(folder):
    seedbed(folder, "report", "mine", "--out", "page")
    before = last_analysis(folder)
    (folder / "notes.txt").write_text("quite another text\n" * 40)
    assert "missing" not in seedbed(folder, "report", "mine", "--out", "page").stderr
    assert last_analysis(folder).as_json() == before.as_json()
