"""Errors that a user can fix, with their codes and explanations; everything else is a bug and keeps its traceback.

SeedbedError                 exit code
├── UsageError               2   an invalid argument, on the command line or from Python
├── StudyError               2   a study file with problems, all of them reported at once
├── MissingData              4   a corpus, a run or an optional dependency that is not available
├── StoreError               4   the store cannot be opened or read, or is inconsistent
│   ├── DamagedCheckpoint    4   the bytes do not match their digest, or belong to another run
│   └── UnreadableRun        4   a run with settings that this version does not know; other runs are not affected
├── DamagedHome              8   what `seedbed doctor` says of a home in which something is damaged
├── OutOfResources           5   disk, memory or open files are used up; committed work is kept
├── SystemRefusal            4   the operating system refused a file, a folder or a process
├── RunFailures              6   training ended, and some runs failed
├── TotalDivergence          7   training ended, and every run diverged
└── Busy                     75  another process holds a lock that this one needs; try again later

The message of an error says what could not be done, what was found and what is accepted; the explanation of its class,
which `seedbed explain CODE` prints, says what holds of every such error. Codes never change and are not used again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

EXIT_CODES: Final = {
    0: "done; runs that diverged are results, unless all did",
    1: "cancelled at a question, or a bug in seedbed, with its traceback",
    2: "the command, the study or a file that it names is not valid; nothing was changed",
    4: "a corpus, a run, weights or the store could not be used",
    5: "disk, memory or open files were used up; everything committed is kept",
    6: "some runs failed; seedbed ls STUDY says why",
    7: "every run diverged; seedbed ls STUDY says where",
    8: "seedbed doctor found damage; each line says what to type",
    75: "another process holds what this one needs; try again later",
    129: "the terminal was closed (SIGHUP): everything up to there is saved",
    130: "Ctrl-C (SIGINT): everything up to there is saved",
    131: "SIGQUIT: everything up to there is saved",
    143: "stopped from outside (SIGTERM): everything up to there is saved",
}

TOO_MANY_FILES: Final = "too many files are open; allow more in this shell and try again: ulimit -n 1024"


@dataclass(frozen=True)
class Explanation:
    """What holds of every error of a class; `command` can be pasted, with a study of one's own for STUDY."""

    meaning: str
    found: str  # what the message says was found, and what is accepted
    safe: str
    next: str
    command: str


class SeedbedError(Exception):
    """Base class of all errors whose message is meant for the user."""

    code = "SB000"
    exit_code = 2
    explanation = Explanation(
        "seedbed could not do what was asked.", "The message says what was found.", "Nothing stored was changed.",
        "List the commands", "seedbed --help",
    )  # fmt: skip


class UsageError(SeedbedError):
    code = "SB010"
    explanation = Explanation(
        "An argument, a setting, or the content of a file that was named is not valid.",
        "The message quotes the argument or the file, and then says what is accepted.",
        "Nothing was changed and nothing was started.",
        "Correct the argument; every setting has its accepted values in the reference", "seedbed settings",
    )  # fmt: skip


@dataclass(frozen=True, order=True)
class Problem:
    """One problem of a study; `where` is `file:line` or the command-line argument."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class StudyError(SeedbedError):
    """All problems of one study, reported together."""

    code = "SB011"
    explanation = Explanation(
        "A study has problems; all of them are reported at once.",
        "Each line is file:line or the argument, what stands there, and what is accepted.",
        "Nothing was changed and nothing was started.",
        "Correct the lines, and look at the plan before training", "seedbed plan STUDY",
    )  # fmt: skip

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class MissingData(SeedbedError):
    code = "SB020"
    exit_code = 4
    explanation = Explanation(
        "A study, a run, weights, a corpus or an optional package is not here.",
        "The message names what was looked for and where; nothing is downloaded unless it says so.",
        "Nothing was changed.",
        "List what is stored (for corpora: seedbed data ls)", "seedbed ls",
    )  # fmt: skip


class StoreError(SeedbedError):
    code = "SB030"
    exit_code = 4
    explanation = Explanation(
        "The store in the home folder cannot be opened, read or written, or is not consistent.",
        "The message names the file, and what is wrong with it.",
        "The database and the checkpoints stay as they are.",
        "List what can still be read", "seedbed ls",
    )  # fmt: skip


class DamagedCheckpoint(StoreError):
    code = "SB031"
    explanation = Explanation(
        "The bytes of a checkpoint are not those that were written, or the file is gone.",
        "The message names the file, and the run or pack and step whose digest was expected.",
        "All metrics and all other checkpoints are kept.",
        "Train the runs that the message names again", "seedbed run STUDY --restart",
    )  # fmt: skip


class UnreadableRun(StoreError):
    code = "SB032"
    explanation = Explanation(
        "A stored run has settings that this version or its plugins do not know.",
        "The message names the run and the settings.",
        "The run and all others are kept, and the others can be used.",
        "Load the plugin it was trained with, or install the version that stored it; list the others", "seedbed ls",
    )  # fmt: skip


class DamagedHome(SeedbedError):
    code = "SB033"
    exit_code = 8
    explanation = Explanation(
        "Something that was stored is damaged or missing; seedbed doctor lists what.",
        "Each line says what was found, and what to type about it.",
        "Nothing was changed; what is damaged is never served as a number.",
        "Write a new home with everything that can be verified", "seedbed repair lab --out lab-repaired",
    )  # fmt: skip


class OutOfResources(SeedbedError):
    code = "SB040"
    exit_code = 5
    explanation = Explanation(
        "The disk, the memory or the number of open files is used up.",
        "The message says how much is needed and how much there is, where that is known.",
        "Everything committed is kept; the message says up to which step.",
        "Make room, and give the same command again, which continues", "seedbed run STUDY",
    )  # fmt: skip


class SystemRefusal(SeedbedError):
    code = "SB041"
    exit_code = 4
    explanation = Explanation(
        "The operating system refused a file, a folder or a process.",
        "The message has the file and the system's reason, such as Permission denied.",
        "Everything committed is kept.",
        "Check the permissions and the disk of what is named; this shows where it was used",
        "seedbed --trace run STUDY",
    )  # fmt: skip


class RunFailures(SeedbedError):
    code = "SB050"
    exit_code = 6
    explanation = Explanation(
        "Training ended, and some runs failed.",
        "The cause of each is in the list of the study's runs.",
        "All other runs are complete; a failed run keeps its metrics and goes on from its last save.",
        "Read the causes; the same `seedbed run` tries again", "seedbed ls STUDY",
    )  # fmt: skip


class TotalDivergence(SeedbedError):
    code = "SB051"
    exit_code = 7
    explanation = Explanation(
        "Training ended, and the loss or the weights of every run became infinite or NaN.",
        "The list of the study's runs has the step and the cause of each.",
        "The metrics up to there are kept.",
        "Try a lower learning rate, such as", "seedbed run STUDY train.lr=0.0001",
    )  # fmt: skip


class Busy(SeedbedError):
    """`holder` names the process that holds the lock, where it is known."""

    code = "SB060"
    exit_code = 75
    explanation = Explanation(
        "Another process is training these runs, or changing the same file.",
        "The message names the process and since when, where that is known.",
        "Nothing was changed; the other process goes on.",
        "Wait for it, or stop it, and give the same command again; what it has done so far", "seedbed ls",
    )  # fmt: skip

    def __init__(self, message: str, holder: str = "another process") -> None:
        self.holder = holder
        super().__init__(message)


def error_classes(base: type[SeedbedError] = SeedbedError) -> Iterator[type[SeedbedError]]:
    """All classes of errors that have a code of their own, those of plugins included."""
    if "code" in vars(base):
        yield base
    for one in base.__subclasses__():
        yield from error_classes(one)
