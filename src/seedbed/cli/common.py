"""Shared by all commands: the application, common options, error handling, and printing of tables and JSON."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from seedbed.api.homes import DEFAULT_HOME as DEFAULT_HOME
from seedbed.errors import TOO_MANY_FILES, OutOfResources, SeedbedError, SystemRefusal, UsageError
from seedbed.format import escape_controls

if TYPE_CHECKING:
    from rich.console import Console

    from seedbed.report.tables import Table

MIN_WRAP_WIDTH = 40  # columns


def echo(text: object = "", err: bool = False, nl: bool = True) -> None:
    """Prints a text: in a terminal with its control characters visible, elsewhere exactly as it is."""
    stream = sys.stderr if err else sys.stdout
    stream.write((escape_controls(str(text)) if stream.isatty() else str(text)) + "\n" * nl)
    stream.flush()


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Prints the warnings of the Python API as the command line's own messages."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for one in caught:
        if one.category is UserWarning:
            echo(f"seedbed: {one.message}", err=True)


@contextmanager
def handle_errors() -> Iterator[None]:
    """Prints our errors as one message and exits with their code; `SEEDBED_TRACE=1` shows the traceback."""
    try:
        yield
    except (SeedbedError, MemoryError, OSError) as caught:
        if isinstance(caught, BrokenPipeError):
            # `seedbed … | head` closes the pipe early; without this, Python complains again when it flushes stdout.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        if os.environ.get("SEEDBED_TRACE"):
            raise
        error = caught if isinstance(caught, SeedbedError) else translate_system_error(caught)
        for line in f"{error} [{error.code}]".splitlines():
            echo(f"seedbed: {line}", err=True)
        raise typer.Exit(error.exit_code) from None


def translate_system_error(error: OSError | MemoryError) -> SeedbedError:
    """An error of the operating system that no command expected, as one sentence."""
    if isinstance(error, MemoryError):
        return OutOfResources("memory ran out; everything committed is kept; close other programs, or make it smaller")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return OutOfResources(TOO_MANY_FILES)
    names = " and ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
    kind = OutOfResources if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN) else SystemRefusal
    reason = error.strerror or " ".join(str(error).split()) or type(error).__name__
    return kind(f"{names or 'the operating system'}: {reason}; --trace shows where")


_typed_store: list[str] = []  # on this command line; empty if SEEDBED_STORE names the same
_OF_A_HOME = ("doctor", "repair")  # verbs that know only the store of a home


def _use_store(address: str | None) -> None:
    """Makes it the store of this process and of those that it starts."""
    if address:
        from seedbed.store import check_address

        check_address(address)
        if os.environ.get("SEEDBED_STORE") != address:
            _typed_store.append(address)
        os.environ["SEEDBED_STORE"] = address


StoreOption = Annotated[
    str | None,
    typer.Option(
        help="where the rows are, such as postgresql://USER@HOST/DATABASE; default: SEEDBED_STORE, or the home",
        callback=_use_store,
        expose_value=False,
    ),
]


def _store_option() -> list[Any]:
    """`--store`, made by typer for a command of its own."""

    def command(store: StoreOption = None) -> None:
        raise NotImplementedError

    probe = typer.Typer(add_completion=False)
    probe.command()(command)
    return list(typer.main.get_command(probe).params)


class CommandGroup(TyperGroup):
    """The commands, with our errors handled; each that has a home also accepts another store for its rows."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for command in self.commands.values():
            if any("--home" in parameter.opts for parameter in command.params) and command.name not in _OF_A_HOME:
                command.params.extend(_store_option())

    def invoke(self, ctx: Any) -> Any:
        _typed_store.clear()  # what an earlier call in this process was given; options are read after this
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
EngineOption = Annotated[
    str | None,
    typer.Option(envvar="SEEDBED_ENGINE", help="where packs train: local, ray or a plugin's engine; default: local"),
]
AddressOption = Annotated[
    str | None, typer.Option(help="with --engine ray: HOST:PORT of the cluster, or auto; default: RAY_ADDRESS, or auto")
]
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


def format_command(
    verb: str, words: Sequence[str], only: Sequence[str], home: Path, options: Sequence[str] = ()
) -> str:
    """The command to type next."""
    filters = [word for text in only for word in ("--only", text)]
    store = [word for address in _typed_store[-1:] for word in ("--store", address)]
    return shlex.join(
        ["seedbed", verb, *words, *filters, *options, *store, *([] if home == DEFAULT_HOME else ["--home", str(home)])]
    )


def print_tables(tables: Sequence[Table], table_format: str = "text") -> None:
    from seedbed.report.tables import to_csv, to_latex, to_markdown, to_rich

    writers = {"markdown": to_markdown, "csv": to_csv, "latex": to_latex}
    if table_format == "text":
        out = console()
        for table in tables:
            out.print(to_rich(table))
    elif table_format in writers:
        echo("\n".join(writers[table_format](table) for table in tables))
    else:
        raise UsageError(f"--format {table_format}: expected text, markdown, csv or latex")


def print_sentences(lines: Sequence[str]) -> None:
    """Prints lines; in a terminal they are wrapped between words, keeping their indentation."""
    if sys.stdout.isatty():
        width = max(MIN_WRAP_WIDTH, shutil.get_terminal_size().columns)
        lines = [wrap_line(line, width) for line in lines]
    echo("\n".join(lines))


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

    echo(json.dumps(to_jsonable(document), indent=1, ensure_ascii=False, allow_nan=False))


def console(stderr: bool = False, width: int = 120) -> Console:
    """A console as wide as the terminal, or else of this width."""
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=width)


def split_commas(text: str | None) -> tuple[str, ...] | None:
    """Comma-separated names such as `train/loss,val/loss`."""
    return None if text is None else tuple(name.strip() for name in text.split(","))
