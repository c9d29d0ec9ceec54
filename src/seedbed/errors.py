"""Errors that a user can mend; everything else is a bug and keeps its trace.

SeedbedError                 exit code
├── UsageError               2   a word on the command line that means nothing
├── StudyError               2   a study file with problems, all of them reported at once
├── MissingData              4   a corpus, a run or an extra that is not here
├── StoreError               4   the store cannot be opened, read or trusted
│   └── DamagedCheckpoint    4   bytes that differ from their digest, or belong to another run
├── OutOfResources           5   disk or memory is full; what was committed stays
└── Busy                     75  another process holds what this one needs; try again later
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


class SeedbedError(Exception):
    """Base of all errors with a message meant for the user."""

    exit_code = 2


class UsageError(SeedbedError):
    pass


@dataclass(frozen=True, order=True)
class Problem:
    """One thing wrong with a study: `where` is `file:line` or the word on the command line."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class StudyError(SeedbedError):
    """All problems of one study, found in one pass."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class MissingData(SeedbedError):
    exit_code = 4


class StoreError(SeedbedError):
    exit_code = 4


class DamagedCheckpoint(StoreError):
    pass


class OutOfResources(SeedbedError):
    exit_code = 5


class Busy(SeedbedError):
    exit_code = 75
