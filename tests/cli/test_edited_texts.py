"""A text that is edited between two runs of a study is a dataset of its own, in every command."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.test_studies import seedbed

STUDY = """
seeds = 2
[base]
model = { layers = 1, dim = 8, heads = 2 }
train = { steps = 4, batch_size = 4, eval_batches = 1 }
task = { kind = "text", corpus = "notes.txt", length = 8 }
"""


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a study that was run, then run again after its text was edited; and what the second run said."""
    folder = tmp_path_factory.mktemp("edited")
    (folder / "mine.toml").write_text(STUDY)
    (folder / "notes.txt").write_text("to be or not to be\n" * 40)
    first = seedbed("run", "mine.toml", home=folder / "home", cwd=folder)
    assert "has changed" not in first.stderr
    (folder / "notes.txt").write_text("to be or not, to be\n" * 40)
    second = seedbed("run", "mine.toml", home=folder / "home", cwd=folder)
    return folder, second.stderr


def datasets(folder: Path) -> list[str]:
    """The short digests of the study's datasets, in the order in which they were trained."""
    listed = json.loads(seedbed("ls", "mine", "--json", home=folder / "home", cwd=folder).stdout)
    names = [run["config"]["dataset"] for run in listed["runs"]]
    assert len(names) == 4
    found = [re.fullmatch(r"notes\.txt \(([0-9a-f]{6})\)", name) for name in dict.fromkeys(names)]
    return [match[1] for match in found if match]


def test_run_says_that_the_text_has_changed_and_how_to_remove_the_runs_on_the_earlier_one(edited):
    folder, said = edited
    before, now = datasets(folder)
    assert f"2 runs will be trained on it as it is now (dataset {now}); 2 runs on dataset {before} stay" in said
    assert re.search(r"notes\.txt has changed since the runs of \d{4}-\d\d-\d\d: ", said)
    assert said.count("has changed") == 1
    again = seedbed("run", "mine.toml", home=folder / "home", cwd=folder)
    assert "has changed" not in again.stderr


def test_every_table_shows_both_datasets_as_configs_of_their_own(edited):
    folder, _ = edited
    before, now = datasets(folder)
    for command in (["ls", "mine"], ["show", "mine"], ["show", "mine", "--timing"]):
        out = seedbed(*command, home=folder / "home", cwd=folder).stdout
        assert f"({before})" in out
        assert f"({now})" in out
    document = json.loads(seedbed("show", "mine", "--json", home=folder / "home", cwd=folder).stdout)
    assert [config["n"] for config in document["configs"]] == [2, 2]


def test_losses_on_different_texts_are_not_ranked(edited):
    folder, _ = edited
    [row] = re.findall(r"^L_val .*", seedbed("show", "mine", home=folder / "home", cwd=folder).stdout, re.MULTILINE)
    assert "*" not in row


def test_datasets_are_filtered_compared_and_plotted(edited):
    folder, _ = edited
    before, now = datasets(folder)
    home = {"home": folder / "home", "cwd": folder}
    shown = seedbed("show", "mine", "--only", f"dataset={now}", **home).stdout
    assert "dataset=" not in shown
    same = seedbed("show", "mine", "--only", f'dataset="notes.txt ({now})"', **home).stdout
    assert same == shown
    compared = seedbed("compare", "mine", "dataset", "--metric", "val/loss", **home).stdout
    assert f"notes.txt ({before})" in compared
    assert f"notes.txt ({now})" in compared
    seedbed("plot", "mine", "--metrics", "val/loss", "--colour", "dataset", "--out", "curves.json", **home)
    assert f"notes.txt ({before})" in (folder / "curves.json").read_text()
    missing = seedbed("show", "mine", "--only", "dataset=ffffff", code=4, **home)
    assert f"dataset has {before}" in missing.stderr


def test_what_run_suggests_removes_the_runs_on_the_earlier_text(edited, tmp_path):
    folder, said = edited
    suggested = re.search(r"to remove them: seedbed (rm .*)", said)
    assert suggested
    before, _ = datasets(folder)
    out = seedbed(*shlex.split(suggested[1]), "--yes", home=folder / "home", cwd=folder)
    assert out.returncode == 0
    listed = seedbed("ls", "mine", home=folder / "home", cwd=folder).stdout
    assert before not in listed
    assert listed.count("finished") == 2
