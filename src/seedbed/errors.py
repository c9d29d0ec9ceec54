"""Errors that a user can fix; everything else is a bug and keeps its traceback.

SeedbedError                 exit code
├── UsageError               2   an invalid argument, on the command line or from Python
├── StudyError               2   a study file with problems, all of them reported at once
├── MissingData              4   a corpus, a run or an optional dependency that is not available
├── StoreError               4   the store cannot be opened or read, or is inconsistent
│   ├── DamagedCheckpoint    4   the bytes do not match their digest, or belong to another run
│   └── UnreadableRun        4   a run with settings that this version does not know; other runs are not affected
├── OutOfResources           5   disk or memory is full; committed work is kept
└── Busy                     75  another process holds a lock that this one needs; try again later
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


class SeedbedError(Exception):
    """Base class of all errors whose message is meant for the user."""

    exit_code = 2


class UsageError(SeedbedError):
    pass


@dataclass(frozen=True, order=True)
class Problem:
    """One problem of a study; `where` is `file:line` or the command-line argument."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class StudyError(SeedbedError):
    """All problems of one study, reported together."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class MissingData(SeedbedError):
    exit_code = 4


class StoreError(SeedbedError):
    exit_code = 4


class DamagedCheckpoint(StoreError):
    pass


class UnreadableRun(StoreError):
    pass


class OutOfResources(SeedbedError):
    exit_code = 5


class Busy(SeedbedError):
    """`holder` names the process that holds the lock, where it is known."""

    exit_code = 75

    def __init__(self, message: str, holder: str = "another process") -> None:
        self.holder = holder
        super().__init__(message)
