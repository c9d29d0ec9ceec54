"""Commands run in this process: faster than a process of its own, with the same exit codes and messages."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from seedbed.cli import main


@dataclass(frozen=True)
class Done:
    """What a command printed, and its exit code."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class CommandLine:
    """`cli("show", "quickstart", code=4)` runs `seedbed show quickstart` on a home and checks its exit code."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    home: Path

    def __call__(self, *arguments: object, code: int = 0) -> Done:
        self.monkeypatch.setattr(sys, "argv", ["seedbed", *map(str, arguments)])
        self.monkeypatch.setenv("SEEDBED_HOME", str(self.home))
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = self.capsys.readouterr()
        assert ended.value.code == code, printed.out + printed.err
        assert "Traceback" not in printed.err
        return Done(code, printed.out, printed.err)
