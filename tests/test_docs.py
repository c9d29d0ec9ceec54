"""Prose that runs: the stops of the tour exist, the README's tree and commands are true."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seedbed import __version__
from seedbed.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_stop_of_the_tour_exists():
    stops = re.findall(r"`(src/[^`]+)`", (ROOT / "docs" / "tour.md").read_text(encoding="utf-8"))
    assert len(stops) > 10
    assert [stop for stop in stops if not (ROOT / stop).exists()] == []


def test_the_readmes_tree_names_every_part_and_no_other():
    tree = re.search(r"```\nsrc/seedbed/\n(.*?)```", README, re.DOTALL)
    assert tree is not None
    named = {line.split()[0].rstrip("/") for line in tree[1].splitlines() if re.match(r"  \w", line)}
    there = {path.name for path in (ROOT / "src" / "seedbed").iterdir() if not path.name.startswith("__")}
    assert named == there


COMMANDS = re.findall(r"^seedbed .+$", README, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_readme_is_one(command):
    """Its verb and options exist; the arguments are tried by the tests of the verbs."""
    words = command.split("#")[0].split()
    done = CliRunner().invoke(app, [words[1], "--help"])
    assert done.exit_code == 0, command
    for word in words[2:]:
        if word.startswith("--"):
            assert word.split("=")[0] in done.output, command


def test_every_verb_has_help_that_ends_in_an_example():
    for verb in app.registered_commands:
        name = verb.name or verb.callback.__name__
        done = CliRunner().invoke(app, [name, "--help"])
        assert "Example: seedbed" in done.output.strip().splitlines()[-1], name


def test_links_and_pictures_of_the_readme_exist():
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert targets
    assert [target for target in targets if not target.startswith("http") and not (ROOT / target).exists()] == []


def test_the_changelog_speaks_of_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## Unreleased" in text if "dev" in __version__ else f"## {__version__}" in text


SOURCE = ROOT / "src" / "seedbed"
WITH_EXAMPLES = [path for path in sorted(SOURCE.rglob("*.py")) if ">>>" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.stem)
def test_examples_in_docstrings_are_true(path):
    name = ".".join(("seedbed", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted
    assert not result.failed
