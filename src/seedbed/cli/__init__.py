"""The command line: verbs only. Results go to stdout, the rest to stderr; heavy imports stay inside the verbs."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from seedbed import __version__
from seedbed.cli.common import app
from seedbed.cli.data_commands import data_app

# isort: off
from seedbed.cli import study_commands, result_commands, model_commands, serve_command  # noqa: F401
# isort: on

app.add_typer(data_app, name="data")


def main() -> None:
    app()


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"seedbed {__version__}")
        raise typer.Exit


def _enable_traces(wanted: bool) -> None:
    if wanted:
        os.environ["SEEDBED_TRACE"] = "1"


@app.callback()
def _global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="print the version")
    ] = False,
    trace: Annotated[
        bool, typer.Option("--trace", callback=_enable_traces, help="show where an error came from")
    ] = False,
) -> None:
    pass
