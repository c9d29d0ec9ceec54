"""Mistakes on the command line: one line in the style of all other errors, exit code 2, what to type instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from .invoke import CommandLine


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> CommandLine:
    return CommandLine(monkeypatch, capsys, tmp_path / "home")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train quickstart", "there is no `train`; use `seedbed run STUDY`"),
        ("generate x", "there is no `generate`; use `seedbed sample RUN`"),
        ("evaluate x", "use `seedbed show STUDY`"),
        ("delete x", "use `seedbed rm STUDY`"),
        ("list", "use `seedbed ls`"),
        ("reprot x", "there is no `reprot` (did you mean report?)"),
        ("frobnicate", "there is no `frobnicate`; `seedbed --help` lists the commands"),
        ("run quickstart --workers 0", "--workers 0: expected 1 or more"),
        ("run quickstart --workers=many", "--workers many: expected a whole number"),
        ("serve --port 99999", "--port 99999: expected 65535 or less"),
        ("plot x --figure 0", "--figure 0: expected 1 or more"),
        ("show x --t-max", "--t-max needs a value"),
        ("show x --tmax 3", "there is no option --tmax"),
        ("show", "is missing; `seedbed show --help`"),
        ("show x y", "show: unexpected y"),
    ],
)
def test_a_usage_error_is_one_line(cli: CommandLine, command: str, message: str) -> None:
    done = cli(*command.split(), code=2)
    assert done.stderr.startswith("seedbed: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not done.stdout
    assert not cli.home.exists()


def test_the_verbs_that_are_suggested_exist() -> None:
    from typer.main import get_command

    from seedbed.cli import app
    from seedbed.cli.usage_errors import OTHER_VERBS

    verbs = get_command(app).commands  # type: ignore[attr-defined]
    planned = {"results", "classify"}  # not suggested where they do not exist
    assert {verb.split()[0] for verb in OTHER_VERBS.values()} - {"--help", "--version"} - planned <= set(verbs)
    assert not set(OTHER_VERBS) & set(verbs)


def test_help_still_works(cli: CommandLine) -> None:
    assert "Usage" in cli("--help").stdout
    assert "Example: seedbed ls" in cli("ls", "--help").stdout
    assert "Commands" in cli(code=2).stderr
