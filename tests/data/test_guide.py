"""The guide to one's own data: its study files plan on files that are as it says, and its numbers are right."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seedbed.cli import app
from seedbed.data.corpora import open_labelled_texts
from seedbed.data.corpus_stats import count_leaks
from seedbed.study.plan import plan_named

GUIDE = (Path(__file__).parents[2] / "docs/data.md").read_text(encoding="utf-8")
STUDIES = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    for i in range(3):
        (tmp_path / f"notes/note {i}.txt").write_text("a note about many things, and more\n" * 400)
    rows = [f'"review {i}, as written",{"good" if i % 2 else "bad"}' for i in range(40)]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *rows]))
    return tmp_path


def test_the_studies_of_the_guide_plan(folder: Path) -> None:
    text, labels = STUDIES
    (folder / "text.toml").write_text(text)
    (folder / "labels.toml").write_text(labels)
    [run] = plan_named("text.toml").runs[:1]
    assert run.settings.task.vocabulary == "auto"
    assert run.dataset_info.vocab_size <= 300  # 42,000 bytes suit the smallest vocabulary
    runs = plan_named("labels.toml").runs
    assert [run.dataset_info.n_classes for run in runs] == [2, 2, 2]


def test_the_leak_that_the_guide_names(real_data: Path) -> None:
    parts = {name: open_labelled_texts("speeches", f"classifier/{name}").texts for name in ("train", "test")}
    [leak] = count_leaks("train", parts)
    assert f"Of the {leak.texts} test sentences of the named corpus `speeches`, {leak.exact} are" in GUIDE


def test_plan_shows_the_vocabulary_that_results(folder: Path) -> None:
    (folder / "text.toml").write_text(STUDIES[0])
    planned = json.loads(CliRunner().invoke(app, ["plan", "text.toml", "--json"]).stdout)["runs"][0]["vocabulary"]
    assert planned == plan_named("text.toml").runs[0].dataset_info.vocab_size
    shown = CliRunner().invoke(app, ["plan", "text.toml"]).stdout.splitlines()
    assert "vocabulary" in shown[1]
    assert str(planned) in shown[3].split()
