"""The command line. Results go to stdout, everything else to stderr; heavy imports stay inside the commands."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from seedbed import __version__
from seedbed.cli.common import app, echo, handle_errors
from seedbed.cli.data_commands import data_app
from seedbed.cli.usage_errors import run_command_line

# The order of these is that of the verbs in `--help`.
# isort: off
from seedbed.cli import study_commands, store_commands, result_commands, model_commands  # noqa: F401
# isort: on

app.add_typer(data_app, name="data")


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")  # where a terminal knows only ASCII
    _reject_former_names(sys.argv[1:])
    verbs = [*typer.main.get_command(app).commands]  # type: ignore[attr-defined]
    run_command_line(app, sys.argv[1:], verbs)


def _reject_former_names(arguments: Sequence[str]) -> None:
    """Exits with the new name if a command or option was renamed."""
    from seedbed.study.former_words import FORMER_OPTIONS, FORMER_VERBS

    verb, *rest = [*arguments, ""]
    renamed = {verb: FORMER_VERBS[verb]} if verb in FORMER_VERBS else {}
    renamed |= {one: FORMER_OPTIONS[one] for text in rest if (one := text.partition("=")[0]) in FORMER_OPTIONS}
    for old, new in renamed.items():
        echo(f"seedbed: {old} is now called {new}", err=True)
    if renamed:
        sys.exit(2)


def _show_version(requested: bool) -> None:
    if requested:
        echo(f"seedbed {__version__}")
        raise typer.Exit


def _enable_traces(requested: bool) -> None:
    if requested:
        os.environ["SEEDBED_TRACE"] = "1"


def _load_plugins(paths: list[Path]) -> None:
    from seedbed.plugins import load_plugin_file

    with handle_errors():
        for path in paths:
            load_plugin_file(path)


@app.callback()
def _global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="print the version")
    ] = False,
    trace: Annotated[
        bool, typer.Option("--trace", callback=_enable_traces, help="show the traceback of an error")
    ] = False,
    plugin: Annotated[
        list[Path], typer.Option("--plugin", callback=_load_plugins, help="a Python file with kinds of your own")
    ] = [],  # noqa: B006  typer copies it
) -> None:
    pass
