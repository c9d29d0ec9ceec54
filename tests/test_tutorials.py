"""The tour and the tutorials: every command is run as it stands, and prints the numbers that the page says."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.invoke import CommandLine
from tests.corpora import require_corpora
from tests.test_docs import DOCS


@pytest.fixture
def run_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[[str], str]:
    """Runs a command of a page in an empty folder, in this process, and returns its output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEEDBED_DEVICE", "cpu")
    monkeypatch.setattr("seedbed.engines.machine.n_cores", lambda: 1)  # no worker processes: faster here
    seedbed = CommandLine(monkeypatch, capfd, tmp_path / "lab")

    def run(command: str) -> str:
        words = shlex.split(command, comments=True)
        if words[0] == "seedbed":
            return seedbed(*words[1:]).stdout
        assert words[:2] == ["python", "-c"], command
        capfd.readouterr()
        exec(words[2], {})
        return capfd.readouterr().out

    return run


def commands_of(text: str) -> list[str]:
    blocks = re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines()]


def test_the_tour_runs_and_shows_what_it_says(run_command):
    stops = re.split(r"^## \d+\. ", (DOCS / "tour.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(stops) == 10
    outputs = [[run_command(command) for command in commands_of(stop)] for stop in stops]
    assert "2 planned" in outputs[0][0]
    assert "must divide dim" in outputs[1][0]
    assert outputs[2][0].count(" planned") == 2
    assert outputs[3] == ["60 16\n"]
    sizes = [
        int(size.replace(",", ""))
        for size in re.findall(r"^\d layers? .* ([\d,]+) +[\d,]+ +\d+ planned$", outputs[4][0], re.MULTILINE)
    ]
    assert "12,544" in stops[4]
    assert sizes[1] - sizes[0] == 12_544
    assert re.search(r"A_train +1\.000", outputs[5][0])
    assert Path("runs.csv").read_text(encoding="utf-8").startswith("run,seed,metric,step,value\n")
    assert "evaluate" in outputs[7][0]
    assert Path("curves.svg").stat().st_size > 1_000
    assert [path.suffix for path in Path("report").glob("*.html")] == [".html"]
    assert outputs[9] == ["Counter({'finished': 2})\n"]


TUTORIALS = {  # name → what has to lie in SEEDBED_DATA
    "arithmetic": None,
    "characters": "tinyshakespeare",
    "speeches": "speeches",
    "wikitext": "wikitext2",
}


@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_runs_and_ends_in_its_numbers(name, run_command):
    if corpus := TUTORIALS[name]:
        require_corpora(corpus)
    page = (DOCS / "tutorials" / f"{name}.md").read_text(encoding="utf-8")
    commands = commands_of(page)
    for command in commands:
        assert run_command(command), command
    study = next(command.split()[2] for command in commands if command.startswith("seedbed run "))
    rows = re.findall(r"^\| `(\S+=\S+)` \| `(\S+)` \| ([\d.,]+) \|$", page, re.MULTILINE)
    assert len(rows) >= 3
    for only, metric, number in rows:
        [config] = json.loads(run_command(f"seedbed show {study} --only {only} --json"))["configs"]
        extremum = "max" if "accuracy" in metric else "min"
        tolerance = {"abs": 0.05} if "accuracy" in metric else {"rel": 0.05}
        assert config["metrics"][metric][extremum]["mean"] == pytest.approx(float(number.replace(",", "")), **tolerance)


def test_every_tutorial_is_run():
    assert {path.stem for path in (DOCS / "tutorials").glob("*.md")} == TUTORIALS.keys()
