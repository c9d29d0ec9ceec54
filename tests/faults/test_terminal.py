"""What a terminal is shown of texts that others wrote: no control character reaches it, and what is piped is exact."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from seedbed.cli.common import echo
from seedbed.format import escape_controls
from seedbed.records import EvaluationEvent, FinishEvent, Pack, Placement
from seedbed.store import open_store
from seedbed.study.plan import plan_named

HOSTILE = "\x1b]0;PWNED\x07\x1b[31m\x9b2J\r\u202e\u2066\x7f"
CONTROLS = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def shown_in_terminal(command: list[str], **environment: str) -> tuple[int, str]:
    """The exit code of a command whose stdout and stderr are a terminal, and what reached that terminal."""
    master, terminal = pty.openpty()
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=os.environ | environment)
    os.close(terminal)
    shown = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:  # all its ends are closed
            break
        if not data:
            break
        shown += data
    os.close(master)
    return process.wait(), shown.decode()


def seedbed(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "seedbed", *map(str, arguments)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with a hostile question, with runs of made-up metrics."""
    home, file = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("files") / "evil.toml"
    text = HOSTILE.encode("unicode_escape").decode().replace("\\x", "\\u00").replace("\\r", "\\u000d")
    file.write_text(
        "seeds = 2\n[base.train]\nsteps = 3\n[grid]\nmodel.layers = [1, 2]\n"
        f'[[questions]]\ntext = "which is better {text}"\nask = "stopping"\nmetric = "val/loss"\n',
        encoding="utf-8",
    )
    plan = plan_named(str(file))
    with open_store(home) as store:
        store.register(plan)
        [pack] = store.claim([Pack("p", plan.runs, 1)], lambda _: Placement())
        n = len(plan.runs)
        for step in (0, 3):
            values = np.random.default_rng(step).random((n, 1))
            store.record(pack.id, [EvaluationEvent(step, tuple(range(n)), ("val/loss",), values)])
        store.record(pack.id, [FinishEvent(slot, 3) for slot in range(n)])
    return home


def test_the_text_of_a_question_is_shown_without_control_characters_and_piped_as_it_is(home: Path) -> None:
    code, shown = shown_in_terminal(seedbed("answer", "evil", "--home", home))
    assert code == 0
    assert "\\u001b]0;PWNED\\u0007" in shown
    assert "\\u202e" in shown
    assert set(shown) & CONTROLS <= {"\r", "\n"}
    piped = subprocess.run(seedbed("answer", "evil", "--home", home), capture_output=True, check=True).stdout.decode()
    assert HOSTILE in piped  # control: it is in the text


def test_names_in_errors_are_shown_without_control_characters(tmp_path: Path) -> None:
    code, shown = shown_in_terminal(seedbed("plan", f"{HOSTILE}.toml", "--home", tmp_path))
    assert code == 2
    assert "\\u001b]0;PWNED\\u0007" in shown
    assert set(shown) & CONTROLS <= {"\r", "\n"}


class Stream:
    """A stream that is a terminal, or not."""

    def __init__(self, is_terminal: bool) -> None:
        self.is_terminal, self.text = is_terminal, ""

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None: ...


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_is_printed_is_escaped_in_a_terminal_only(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    stream = Stream(is_terminal)
    monkeypatch.setattr(sys, "stdout", stream)
    text = "שלום\u200f é\tx\n" + HOSTILE
    echo(text, nl=False)
    assert stream.text == (escape_controls(text) if is_terminal else text)
    assert stream.text.startswith("שלום\u200f é\tx\n")
    assert bool(set(stream.text) & (CONTROLS - {"\n", "\t"})) is not is_terminal


@pytest.mark.parametrize("verb", [["show"], ["answer"], ["ls"]])
def test_an_ascii_terminal_is_shown_everything(home: Path, verb: list[str]) -> None:
    environment = os.environ | {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(seedbed(*verb, "evil", "--home", home), capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    if verb == ["show"]:
        assert b"\\xb1" in done.stdout  # the ± of a mean over two seeds
