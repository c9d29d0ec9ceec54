"""The command that evaluates ensembles of seeds: ensemble."""

from __future__ import annotations

from typing import Annotated

import typer

from seedbed.cli.common import (
    DEFAULT_HOME,
    DeviceOption,
    HomeOption,
    JsonOption,
    OnlyOption,
    StoredStudyArgument,
    app,
    handle_errors,
    print_json,
    print_tables,
)


@app.command(epilog="Example: seedbed ensemble characters/heads --only heads=4")
@handle_errors
def ensemble(
    study: StoredStudyArgument, only: OnlyOption = [],  # noqa: B006
    home: HomeOption = DEFAULT_HOME,
    step: Annotated[str, typer.Option(help="checkpoint of each run: last or best")] = "last",
    device: DeviceOption = None, as_json: JsonOption = False,
    table_format: Annotated[str, typer.Option("--format", help="text, markdown, csv or latex")] = "text",
) -> None:  # fmt: skip
    """Evaluate the mean of the predictions of a config's seeds on held-out data, beside the single models."""
    from seedbed.api.planning import find_machine
    from seedbed.report.ensemble_analysis import ensemble_study, ensemble_table, ensembles_as_json

    results = ensemble_study(home, study, only, step, find_machine(device).device)
    if as_json:
        print_json(ensembles_as_json(results))
    else:
        print_tables([ensemble_table(study, results)], table_format)
