"""Homes in which weights are missing or damaged: what was analysed is shown, and what is not says why, in its place."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seedbed.cli import app
from seedbed.report.stored_analyses import update_analyses
from tests.web.conftest import client_of

STUDY = """
seeds = 3
[base]
task = { p = 7, train_fraction = 0.6 }
model = { dim = 8, heads = 2, layers = 1 }
train = { steps = 4, save_every = 2, eval_every = 2, batch_size = 8 }
[[figures]]
kind = "attention"
text = "3 + 4 = 0"
[[figures]]
metrics = ["attention_entropy[layer=1]"]
[[figures]]
kind = "fourier"
[[figures]]
metrics = ["val/loss"]
[[questions]]
ask = "does it hold"
metric = "attention_entropy[layer=1]"
at_least = 0.1
[[questions]]
ask = "stopping"
metric = "val/loss"
"""


def seedbed(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("without-weights")
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    seedbed("run", folder / "study.toml", "--home", folder / "lab", "--quiet", "--workers", 1)
    return folder / "lab"


def page_text(home: Path) -> str:
    """The words of the report, without its figures and scripts."""
    seedbed("report", "study", "--home", home)
    page = (home / "reports" / "study" / "index.html").read_text(encoding="utf-8")
    return re.sub(r"<[^>]*>", "", re.sub(r"(?s)<(script|svg|style).*?</\1>", "", page))


def weights_of(home: Path) -> list[Path]:
    return sorted((home / "checkpoints").glob("*/000000004.safetensors"))


@pytest.fixture
def bare(trained: Path, tmp_path: Path) -> Path:
    """A home that was imported without weights and without analyses."""
    seedbed("export", "study", "--home", trained, "--out", tmp_path / "lab.zip")
    seedbed("import", tmp_path / "lab.zip", "--home", tmp_path / "bare")
    shutil.copytree(trained, tmp_path / "lab")
    return tmp_path / "bare"


def test_a_home_without_weights_says_in_their_place_what_it_cannot_show(bare: Path) -> None:
    said = "3 of 3 runs could not be analysed: the weights of run"
    answers = seedbed("answer", "study", "--home", bare)
    assert answers.count(said) == 1  # the question about the loss has its answer
    assert "validation loss" in answers
    page = page_text(bare)
    assert page.count(said) == 1 + 3  # the answer and three figures
    assert "No run has been analysed yet" not in page
    for number, expected in ((1, said), (2, said), (3, said)):
        assert expected in seedbed("plot", "study", "--figure", number, "--home", bare)
    assert said not in seedbed("plot", "study", "--figure", 4, "--home", bare)
    assert seedbed("show", "study", "--home", bare) == seedbed("show", "study", "--home", bare.parent / "lab")
    for words in (["heads", "study"], ["sample", "study"]):
        said_why = seedbed(*words, "--home", bare, code=4)
        assert "no run of study has weights here" in said_why
        assert "`seedbed export --weights last` brings weights" in said_why


@pytest.mark.parametrize("damage", ["missing", "flipped", "empty"])
def test_one_unreadable_file_of_weights_leaves_the_rest_of_the_study(
    damage: str, trained: Path, tmp_path: Path
) -> None:
    home = Path(shutil.copytree(trained, tmp_path / "lab"))
    whole = Path(shutil.copytree(trained, tmp_path / "whole"))
    file = weights_of(home)[0]
    data = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(b"" if damage == "empty" else data[:-1] + bytes([data[-1] ^ 1]))
    said = f"1 of 3 runs could not be analysed: the weights of run {file.parent.name} at step 4"
    assert said in seedbed("analyze", "study", "--home", home)
    answered = seedbed("answer", "study", "--home", home)
    assert said in answered
    assert "missing" not in answered  # no command computes it
    page = page_text(home)
    assert page.count(said) == 1 + 3
    assert "Heads by layer" in page
    assert "Attention received" in page
    file.write_bytes(data)  # restored from a copy
    assert update_analyses(home, "study") > 0
    assert update_analyses(whole, "study") > 0
    assert "could not be analysed" not in seedbed("answer", "study", "--home", home)
    assert (
        seedbed("answer", "study", "--home", home).splitlines()[-4:]
        == (seedbed("answer", "study", "--home", whole).splitlines()[-4:])
    )


def test_damage_after_the_analysis_hides_nothing(trained: Path, tmp_path: Path) -> None:
    home = Path(shutil.copytree(trained, tmp_path / "lab"))
    before = page_text(home)
    for file in (home / "checkpoints").rglob("*.safetensors"):
        file.unlink()
    assert re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "", page_text(home)) == re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "", before)


def test_an_analysis_from_before_is_kept_when_a_new_one_fails(trained: Path, tmp_path: Path) -> None:
    home = Path(shutil.copytree(trained, tmp_path / "lab"))
    assert update_analyses(home, "study") > 0
    for file in weights_of(home):
        file.unlink()
    (tmp_path / "study.toml").write_text(STUDY.replace("3 + 4 = 0", "1 + 1 = 2"), encoding="utf-8")
    seedbed("run", tmp_path / "study.toml", "--home", home, "--quiet")  # another text, no training
    page = page_text(home)
    assert "3 of 3 runs could not be analysed" in page
    assert "Heads by layer" in page  # from the analysis before


def test_the_page_shows_what_is_there_and_says_what_is_not(bare: Path) -> None:
    said = "3 of 3 runs could not be analysed"
    with client_of(bare) as client:
        assert client.get("/api/studies").status_code == 200
        for number in (1, 2, 3):
            assert said in client.get(f"/api/figure/study?number={number}").text
        answers = client.get("/api/answers/study").text
        assert said in answers
        shown = client.get("/api/study/study")
        assert shown.status_code == 200

        assert "validation loss" in answers
