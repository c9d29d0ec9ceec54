"""What the verbs share: the application, the options they have in common, errors as sentences, tables and JSON."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seedbed.errors import SeedbedError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from seedbed.report.tables import Table

app = typer.Typer(
    name="seedbed", no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A laboratory for small sequence models: train every run of a study side by side and read the answers.",
    epilog="Example: seedbed run quickstart",
)  # fmt: skip

HomeOption = Annotated[Path, typer.Option(envvar="SEEDBED_HOME", help="folder of the store and its checkpoints")]
StudyArgument = Annotated[str, typer.Argument(help="a study file, or the name of a shipped study")]
StoredStudyArgument = Annotated[str, typer.Argument(help="the name of a stored study")]
OverridesArgument = Annotated[
    list[str] | None, typer.Argument(help="key=value: overrides where a study is planned, filters where it is read")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print one JSON document instead of a table")]
PrintConfigOption = Annotated[bool, typer.Option("--print-config", help="print the resolved study and do nothing else")]
DeviceOption = Annotated[
    str | None, typer.Option(envvar="SEEDBED_DEVICE", help="cpu or cuda; default: cuda where there is one")
]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="worker processes on the CPU; default: one a core")]
ModeOption = Annotated[str | None, typer.Option(help="plain, graph or compiled; default: what pays for each pack")]
DEFAULT_HOME = Path("lab")


def handle_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes our errors one clear message and an exit code; `SEEDBED_TRACE=1` shows where they came from."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except SeedbedError as error:
            if os.environ.get("SEEDBED_TRACE"):
                raise
            for line in str(error).splitlines():
                typer.echo(f"seedbed: {line}", err=True)
            raise typer.Exit(error.exit_code) from None
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `seedbed … | head`: the reader has enough
            raise typer.Exit(0) from None

    return guarded


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


def print_json(document: Any) -> None:
    from seedbed.records import to_jsonable

    typer.echo(json.dumps(to_jsonable(document), indent=1, ensure_ascii=False, allow_nan=False))


def console(stderr: bool = False) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=120)


def split_commas(text: str | None) -> tuple[str, ...] | None:
    """Names with commas between them, as in `train/loss,val/loss`."""
    return None if text is None else tuple(word.strip() for word in text.split(","))
