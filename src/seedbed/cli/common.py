"""Shared by all commands: the application, common options, error handling, and printing of tables and JSON."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from seedbed.errors import SeedbedError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from seedbed.report.tables import Table

DEFAULT_HOME = Path("lab")
MIN_WRAP_WIDTH = 40  # columns


@contextmanager
def handle_errors() -> Iterator[None]:
    """Prints our errors as one message and exits with their code; `SEEDBED_TRACE=1` shows the traceback."""
    try:
        yield
    except SeedbedError as error:
        if os.environ.get("SEEDBED_TRACE"):
            raise
        for line in str(error).splitlines():
            typer.echo(f"seedbed: {line}", err=True)
        raise typer.Exit(error.exit_code) from None
    except BrokenPipeError:
        # `seedbed … | head` closes the pipe early; without this, Python complains again when it flushes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None


class CommandGroup(TyperGroup):
    """The commands, with our errors handled."""

    def invoke(self, ctx: Any) -> Any:
        with handle_errors():
            return super().invoke(ctx)


app = typer.Typer(
    name="seedbed", cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
    add_completion=False, context_settings={"help_option_names": ["-h", "--help"]},
    help="A laboratory for small sequence models: train all runs of a study side by side and get answers.",
    epilog="Example: seedbed run quickstart",
)  # fmt: skip

StudyArgument = Annotated[str, typer.Argument(help="a study file, or the name of a shipped study")]
OverridesArgument = Annotated[
    list[str] | None, typer.Argument(help="key=value: override a setting of the study; commas separate values to sweep")
]
OnlyOption = Annotated[
    list[str],
    typer.Option(help="only runs that match this filter, such as 'model.kind=gpt seed=0,1'; repeatable"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="print one JSON document instead of a table")]
PrintConfigOption = Annotated[bool, typer.Option("--print-config", help="print the resolved study and do nothing else")]
DeviceOption = Annotated[
    str | None, typer.Option(envvar="SEEDBED_DEVICE", help="cpu, cuda (all GPUs) or cuda:N; default: cuda if available")
]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="worker processes on the CPU; default: one per core")]
ModeOption = Annotated[str | None, typer.Option(help="plain, graph or compiled; default: the fastest for each pack")]
FormatOption = Annotated[str, typer.Option("--format", help="text, markdown, csv or latex")]
ThemeOption = Annotated[str, typer.Option(help="light or dark")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="no progress display")]


def _check_home(home: Path) -> Path:
    """UsageError if the home is a file."""
    if home.is_file():
        raise UsageError(f"{home} is a file, not a folder; --home names the folder of the store and its checkpoints")
    return home


HomeOption = Annotated[
    Path,
    typer.Option(envvar="SEEDBED_HOME", help="folder of the store and its checkpoints", callback=_check_home),
]


def stored_study_name(study: str | None) -> str | None:
    """The name under which a study is stored: that of a study file, or else the argument itself."""
    if study is None or not study.endswith(".toml"):
        return study
    from seedbed.study.read import read_study_name

    return read_study_name(Path(study))


def stored_study_names(names: Sequence[str]) -> list[str]:
    """The same for several studies, or ids of runs."""
    return [stored_study_name(name) or name for name in names]


StoredStudyArgument = Annotated[
    str, typer.Argument(help="a stored study, by its name or its file", callback=stored_study_name)
]
StudyOrRunArgument = Annotated[
    str, typer.Argument(help="a stored study, by its name or its file, or the id of a run", callback=stored_study_name)
]


def reject_settings(verb: str, words: Sequence[str]) -> None:
    """UsageError if one of the words is key=value: those override settings, which only `run` and `plan` do."""
    if settings := [word for word in words if "=" in word]:
        others = [word for word in words if "=" not in word]
        command = shlex.join(["seedbed", verb, *others, "--only", " ".join(settings)])
        raise UsageError(f"{verb} does not change settings; to select runs, use: {command}")


def print_tables(tables: Sequence[Table], table_format: str = "text") -> None:
    from seedbed.report.tables import to_csv, to_latex, to_markdown, to_rich

    writers = {"markdown": to_markdown, "csv": to_csv, "latex": to_latex}
    if table_format == "text":
        out = console()
        for table in tables:
            out.print(to_rich(table))
    elif table_format in writers:
        typer.echo("\n".join(writers[table_format](table) for table in tables))
    else:
        raise UsageError(f"--format {table_format}: expected text, markdown, csv or latex")


def print_sentences(lines: Sequence[str]) -> None:
    """Prints lines; in a terminal they are wrapped between words, keeping their indentation."""
    if sys.stdout.isatty():
        width = max(MIN_WRAP_WIDTH, shutil.get_terminal_size().columns)
        lines = [wrap_line(line, width) for line in lines]
    typer.echo("\n".join(lines))


def wrap_line(line: str, width: int) -> str:
    """The line broken between words, further lines indented like the first.

    >>> wrap_line("  a long sentence", 10)
    '  a long\\n  sentence'
    """
    indent = line[: len(line) - len(line.lstrip())]
    wrapped = textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    return "\n".join(wrapped)


def print_json(document: Any) -> None:
    from seedbed.records import to_jsonable

    typer.echo(json.dumps(to_jsonable(document), indent=1, ensure_ascii=False, allow_nan=False))


def console(stderr: bool = False) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=120)


def split_commas(text: str | None) -> tuple[str, ...] | None:
    """Comma-separated names such as `train/loss,val/loss`."""
    return None if text is None else tuple(name.strip() for name in text.split(","))
