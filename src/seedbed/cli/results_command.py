"""`results`: the evaluations of a stored study as a file of numbers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from seedbed.cli.common import (
    DEFAULT_HOME,
    HomeOption,
    OnlyOption,
    StoredStudyArgument,
    app,
    handle_errors,
)
from seedbed.errors import UsageError


@app.command(epilog="Example: seedbed results quickstart --metric val/accuracy --out curves.csv")
@handle_errors
def results(
    study: StoredStudyArgument, only: OnlyOption = [],  # noqa: B006
    metric: Annotated[list[str], typer.Option(help="only this metric, such as val/loss; repeatable")] = [],  # noqa: B006
    file_format: Annotated[
        str | None, typer.Option("--format", help="csv, jsonl or parquet; default: by the suffix of --out, else csv")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="file to write; default: print to stdout")] = None,
    home: HomeOption = DEFAULT_HOME,
) -> None:  # fmt: skip
    """Export every evaluation: run, the settings that vary, seed, metric, step and value, numbers as numbers."""
    from seedbed.api.tidy_results import choose_file_format, load_results
    from seedbed.store import open_store

    chosen = choose_file_format(out, file_format)
    if chosen == "parquet" and out is None:
        raise UsageError("--format parquet needs a file: --out results.parquet")
    with open_store(home, read_only=True) as store:
        loaded = load_results(store, study, only, metric)
    if out is None:
        loaded.write_text(sys.stdout, chosen)
    else:
        loaded.write(out, chosen)
        typer.echo(f"wrote {len(loaded):,} rows to {out}", err=True)
