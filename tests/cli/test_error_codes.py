"""Errors: every class has a code and an explanation, every printed error its code, and no advice cannot be followed."""

from __future__ import annotations

import ast
import errno
import importlib
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from resource import RLIMIT_NOFILE, setrlimit

import pytest
from typer.main import get_command

import seedbed
from seedbed.cli import app
from seedbed.cli.common import handle_errors
from seedbed.cli.study_commands import _exit_with_failures
from seedbed.errors import EXIT_CODES, SeedbedError, StudyError, error_classes
from seedbed.pipeline import StudyOutcome
from seedbed.report.reference import error_tables
from seedbed.report.tables import to_markdown

from .invoke import CommandLine

SOURCE = Path(seedbed.__file__).parent
VERBS = get_command(app).commands  # type: ignore[attr-defined]
PROSE = {"as", "could", "is", "that", "does", "up", "was", "to"}  # what follows the name in sentences
CLASSES = sorted(error_classes(), key=lambda one: one.code)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> CommandLine:
    return CommandLine(monkeypatch, capsys, tmp_path / "home")


def problems_of(command: str) -> list[str]:
    """What of `seedbed VERB …` does not exist; words that are no options are not looked at."""
    words = command.split()
    options = [word.split("=")[0] for word in words if re.match(r"--[a-z]", word)]
    verbs = [word for word in words[1:] if not word.startswith("-")][:2]
    if not verbs:
        return [option for option in options if option not in {*known_options(get_command(app)), "--help"}]
    if verbs[0] not in VERBS:
        return [verbs[0]]
    verb = VERBS[verbs[0]]
    if verbs[0] == "data" and len(verbs) > 1:
        if verbs[1] not in verb.commands:
            return [" ".join(verbs)]
        verb = verb.commands[verbs[1]]
    known = {*known_options(verb), *known_options(get_command(app)), "--help"}
    return [f"{verbs[0]} {option}" for option in options if option not in known]


def known_options(command: object) -> list[str]:
    return [name for one in command.params for name in (*one.opts, *one.secondary_opts)]  # type: ignore[attr-defined]


def advised_commands() -> Iterator[tuple[str, str]]:
    """Every `seedbed VERB …` in a string of the source, with its file; values that are filled in become X."""
    for path in SOURCE.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if "seedbed " in source else ():
            if isinstance(node, ast.JoinedStr):
                text = "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)  # type: ignore[misc]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            else:
                continue
            for found in re.findall(r"\bseedbed (?:data )?[a-z]+\b(?![|])(?:(?! and | or )[^\n`;,.()']|\.\w)*", text):
                if found.split()[1] not in PROSE:
                    yield str(path.relative_to(SOURCE)), found
            yield from (
                (str(path.relative_to(SOURCE)), found) for found in re.findall(r"`(seedbed [a-z][^`|]*)`", text)
            )


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class_has_a_code_an_exit_code_and_an_explanation_with_a_command_that_runs(
    cli: CommandLine, kind: type[SeedbedError]
) -> None:
    assert re.fullmatch(r"SB\d{3}", kind.code)
    assert [one for one in CLASSES if one.code == kind.code] == [kind]
    assert kind.exit_code in EXIT_CODES
    shown = " ".join(cli("explain", kind.code).stdout.split())
    one = kind.explanation
    for part in (kind.code, kind.__name__, one.meaning, one.found, one.safe, one.next, one.command):
        assert part in shown
        assert part
    assert problems_of(one.command) == []
    if "STUDY" in one.command and "ls" not in one.command:
        words = shlex.split(one.command.replace("STUDY", "quickstart"))[1:]
        quick = [*words, "--print-config"] if "run" in words else words
        cli(*(word for word in quick if word != "--trace"))


def test_every_class_of_error_in_the_package_is_explained() -> None:
    """Also those that are defined elsewhere; a class without a code of its own has that of its parent."""
    parents = "|".join(one.__name__ for one in CLASSES)
    for path in SOURCE.rglob("*.py"):
        if re.search(rf"^class \w+\((?:{parents})\)", path.read_text(encoding="utf-8"), re.MULTILINE):
            importlib.import_module(".".join(("seedbed", *path.relative_to(SOURCE).with_suffix("").parts)))
    classes = list(error_classes())
    assert {one.code for one in classes} >= {one.code for one in SeedbedError.__subclasses__()}
    assert len({one.code for one in classes}) == len(classes)


def test_the_commands_that_texts_advise_exist() -> None:
    advised = set(advised_commands())
    assert len(advised) > 60
    wrong = {(path, command): problems for path, command in advised if (problems := problems_of(command))}
    assert wrong == {}


def test_control_a_command_that_does_not_exist_is_found() -> None:
    assert problems_of("seedbed mend STUDY") == ["mend"]
    assert problems_of("seedbed run STUDY --again") == ["run --again"]
    assert problems_of("seedbed data fetch x") == ["data fetch"]


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["plan", "quickstart", "train.lr=0"], "SB011", 2),
        (["show", "quickstart"], "SB020", 4),
        (["ls", "--frobnicate"], "SB010", 2),
        (["explain", "SB999"], "SB010", 2),
    ],
)
def test_a_printed_error_ends_with_its_code(cli: CommandLine, arguments: list[str], code: str, exit_code: int) -> None:
    printed = cli(*arguments, code=exit_code).stderr.strip()
    assert printed.endswith(f"[{code}]")
    assert printed.count("[SB") == 1  # of several problems the last line has it


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (MemoryError(), "SB040", "memory ran out"),
        (OSError(errno.EMFILE, "Too many open files"), "SB040", "ulimit -n 1024"),
        (PermissionError(errno.EACCES, "Permission denied", "a/b.csv"), "SB041", "a/b.csv: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device", "a"), "SB040", "a: No space left on device"),
        (StudyError([]), "SB011", ""),
    ],
)
def test_an_error_of_the_system_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception, code: str, words: str
) -> None:
    monkeypatch.delenv("SEEDBED_TRACE", raising=False)
    with pytest.raises(BaseException, match=r"^\d+$|^$"), handle_errors():
        raise error
    printed = capsys.readouterr().err
    assert words in printed
    assert printed.endswith(f"[{code}]\n")
    assert printed.count("\n") == 1


@pytest.mark.parametrize(
    ("counts", "out_of_memory", "code"),
    [
        ({"finished": 3}, False, None),
        ({"finished": 2, "diverged": 1}, False, None),
        ({"diverged": 3}, False, 7),
        ({"failed": 1, "diverged": 2}, False, 6),
        ({"failed": 1, "finished": 2}, True, 5),
    ],
)
def test_the_exit_code_of_training_tells_how_its_runs_ended(
    counts: dict[str, int], out_of_memory: bool, code: int | None
) -> None:
    outcome = StudyOutcome("lab", Counter(counts), out_of_memory=out_of_memory)
    if code is None:
        _exit_with_failures([outcome], "study", "seedbed run study")
        return
    with pytest.raises(SeedbedError) as caught:
        _exit_with_failures([outcome], "study", "seedbed run study")
    assert caught.value.exit_code == code
    assert "seedbed ls study" in str(caught.value)


@pytest.mark.skipif(os.name != "posix", reason="limits are POSIX's")
@pytest.mark.parametrize(("n_files", "code"), [(7, 5), (64, 0)])
def test_with_few_file_handles_a_command_says_how_to_get_more(tmp_path: Path, n_files: int, code: int) -> None:
    arguments = ["run", "quickstart", "task.p=5", "model.dim=8", "train.steps=2", "seeds=1", "-q", "--workers", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "seedbed", *arguments, "--home", str(tmp_path)], capture_output=True, text=True,
        preexec_fn=lambda: setrlimit(RLIMIT_NOFILE, (n_files, n_files)), check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert ("allow more in this shell and try again: ulimit -n 1024 [SB040]" in done.stderr) is (code == 5)


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), handle_errors():
        raise ZeroDivisionError


def test_the_page_of_errors_has_every_code_and_exit_code() -> None:
    page = (SOURCE.parent.parent / "docs" / "errors.md").read_text(encoding="utf-8")
    for table in error_tables():
        assert to_markdown(table) in page
