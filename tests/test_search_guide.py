"""The guide to searching, docs/search.md: its studies and commands are run as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seedbed.cli import app
from seedbed.study.plan import plan_named
from seedbed.study.ranges import expand_range

PAGE = (Path(__file__).parent.parent / "docs" / "search.md").read_text(encoding="utf-8")
STUDIES = dict(
    zip(("lr.toml", "random.toml", "texts.toml"), re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL), strict=True)
)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEEDBED_HOME", "lab")
    monkeypatch.setenv("SEEDBED_DEVICE", "cpu")
    monkeypatch.setattr("seedbed.engines.machine.n_cores", lambda: 1)
    for name, text in STUDIES.items():
        Path(name).write_text(text, encoding="utf-8")
    Path("rhyme.txt").write_text("one for sorrow, two for mirth, three for a funeral. " * 20, encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def run_commands(title: str) -> list[str]:
    """The output of each command of a section, all of which succeed."""
    outputs = []
    for command in re.findall(r"^seedbed .+$", section(title), re.MULTILINE):
        done = CliRunner().invoke(app, shlex.split(command, comments=True)[1:])
        assert done.exit_code == 0, f"{command}\n{done.output}"
        outputs.append(done.output)
    return outputs


def test_ranges() -> None:
    printed, planned = run_commands("Ranges")
    assert [float(value) for value in re.findall(r"train\.lr = ([\d.]+)", printed)] == [
        0.0001, 0.0003162, 0.001, 0.003162, 0.01, 0.03162, 0.1,
    ]  # fmt: skip
    assert "16 runs" in planned
    for text, listed in re.findall(r'^\| `"(.+?)"` \| (.+) \|$', section("Ranges"), re.MULTILINE):
        values = expand_range("train.lr" if "." in text.replace("..", "") or "e-" in text else "model.dim", text)
        numbers = [float(number) for number in re.findall(r"\d[\d.]*", listed.rpartition(":")[2])]
        assert set(numbers) <= set(map(float, values)), text
        assert numbers[-1] == values[-1]


def test_random_search() -> None:
    more, other = run_commands("Random search")
    assert "12 configs" in more
    assert "24 runs" in more
    assert "3 configs" in other
    first, both = plan_named("random.toml"), plan_named("random.toml", ["random.n_configs=12"])
    assert len(first.runs) == 12
    assert [run.id for run in both.runs[:12]] == [run.id for run in first.runs]


def test_training_to_a_step() -> None:
    until, shown, _ = run_commands("Training to a step")
    assert "14 stopped" in until
    assert re.search(r"so far.*step 30 of 9\d", shown, re.DOTALL), shown
    assert "nothing to do" in CliRunner().invoke(app, ["plan", "lr.toml"]).output


def test_successive_halving() -> None:
    [output] = run_commands("Successive halving")
    assert re.search(r"config +step 30 +step 50 +step 9\d", output), output  # 90, rounded up to whole epochs
    assert "saved" in output
    [again] = run_commands("Successive halving")
    assert "training" not in again.partition("successive halving")[0]
    assert again.partition("successive halving")[2] == output.partition("successive halving")[2]


def test_ensembles() -> None:
    assert CliRunner().invoke(app, ["run", "texts.toml", "-q"]).exit_code == 0
    [output] = run_commands("Ensembles")
    assert "val/bits_per_character" in output
    assert CliRunner().invoke(app, ["run", "lr.toml", "train.lr=0.01", "train.steps=2", "-q"]).exit_code == 0
    refused = CliRunner().invoke(app, ["ensemble", "lr.toml"])
    assert refused.exit_code == 2
    assert "draws its split by its seed" in refused.output


def test_every_section_has_a_test() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    for title in re.findall(r"^## (.+)$", PAGE, re.MULTILINE):
        assert f'run_commands("{title}")' in source
