"""Mistakes on the command line, reported like all other errors: `seedbed: …` in one line, with what to type instead."""

from __future__ import annotations

import re
import shlex
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import typer

from seedbed.cli.common import echo
from seedbed.errors import UsageError

# typer has its own copy of click, or uses click itself, depending on its version; these are its classes in either case.
ClickUsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]
ClickError: Final[type[Exception]] = typer.BadParameter.__mro__[2]

# What users of other tools type, and the command that does it.
OTHER_VERBS: Final = {
    "train": "run STUDY", "start": "run STUDY", "fit": "run STUDY", "resume": "run STUDY", "sweep": "run STUDY",
    "generate": "sample RUN", "complete": "sample RUN", "chat": "sample RUN", "predict": "classify RUN TEXT",
    "evaluate": "show STUDY", "eval": "show STUDY", "test": "show STUDY", "table": "show STUDY", "status": "ls",
    "list": "ls", "runs": "ls STUDY", "studies": "ls", "delete": "rm STUDY", "remove": "rm STUDY", "clean": "rm STUDY",
    "draw": "plot STUDY", "chart": "plot STUDY", "figure": "plot STUDY", "web": "serve", "ui": "serve", "open": "serve",
    "new": "init FILE.toml", "create": "init FILE.toml", "estimate": "plan STUDY", "dry-run": "plan STUDY",
    "ask": "answer STUDY", "diff": "compare STUDY STUDY", "attention": "attend RUN TEXT",
    "config": "plan STUDY --print-config", "options": "settings", "help": "--help", "version": "--version",
    "surprisal": "read RUN FILE",
}  # fmt: skip


_REWORDED: Final = {
    r"^'([^']+)'(?: / '[^']+')*:": r"\1:",
    r"^Missing argument ('?\w+'?)": r"the argument \1 is missing",
    r"^Missing (?:option|parameter):? ": "missing: ",
    r"^No such option:? ": "there is no option ",
    r"Input should be greater than or equal to (\S+)": r"expected \1 or more",
    r"Input should be less than or equal to (\S+)": r"expected \1 or less",
    r"Input should be a valid integer.*": "expected a whole number",
    r"Input should be a valid number.*": "expected a number",
    r"^Option '?(--[\w-]+)'? requires an argument": r"\1 needs a value",
}


def run_command_line(app: Callable[..., Any], arguments: Sequence[str], verbs: Collection[str]) -> None:
    """Runs the application and exits; its usage errors become one line with exit code 2."""
    try:
        code = app(standalone_mode=False)
    except typer.Abort as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            echo("seedbed: interrupted; what was saved before is kept", err=True)
            sys.exit(128 + signal.SIGINT)
        echo("seedbed: cancelled; nothing was changed", err=True)
        sys.exit(1)
    except ClickError as error:
        if not isinstance(error, ClickUsageError) or type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # type: ignore[attr-defined]
        else:
            echo(f"seedbed: {describe_usage_error(error, arguments, verbs)} [{UsageError.code}]", err=True)
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


def describe_usage_error(error: Any, arguments: Sequence[str], verbs: Collection[str]) -> str:
    """The error in one sentence, with the command to use where it is known."""
    message = error.format_message().strip()
    verb = error.ctx.command.name if error.ctx is not None and error.ctx.parent is not None else None
    if found := re.match(r"No such command '([^']+)'", message):
        return _describe_unknown_verb(found[1], verbs)
    if found := re.match(r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)$", message, re.DOTALL):
        return _describe_extra_words(str(verb), found[1], arguments)
    message = " ".join(message.removeprefix("Invalid value for ").removesuffix(".").split())
    for pattern, replacement in _REWORDED.items():
        message = re.sub(pattern, replacement, message)
    if found := re.match(r"(--[\w-]+): ", message):
        message = message.replace(found[1], f"{found[1]} {_given_value(found[1], arguments)}".strip(), 1)
    help_command = shlex.join(["seedbed", *([verb] if verb else []), "--help"])
    return f"{message}; `{help_command}` shows what is accepted"


def _given_value(option: str, arguments: Sequence[str]) -> str:
    """What follows the option on the command line; empty if it is not there."""
    for index, word in enumerate(arguments):
        if word == option:
            return shlex.quote(" ".join(arguments[index + 1 : index + 2]))
        if word.startswith(f"{option}="):
            return shlex.quote(word.removeprefix(f"{option}="))
    return ""


def _describe_unknown_verb(name: str, verbs: Collection[str]) -> str:
    from seedbed.study.toml_text import did_you_mean

    verb = OTHER_VERBS.get(name)
    if verb is not None and (verb.split()[0] in verbs or verb.startswith("--")):
        return f"there is no `{name}`; use `seedbed {verb}`"
    return f"there is no `{name}`{did_you_mean(name, verbs)}; `seedbed --help` lists the commands"


def _describe_extra_words(verb: str, words: str, arguments: Sequence[str]) -> str:
    extra = words.split(" ")
    if all("=" in word for word in extra):
        given = [word for word in arguments if word not in extra]
        command = shlex.join(["seedbed", *given, "--only", words])
        return f"{verb} does not change settings; to select runs, use: {command}"
    return f"{verb}: unexpected {words}; `seedbed {verb} --help` shows what is accepted"
