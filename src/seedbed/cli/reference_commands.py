"""Commands for reference and maintenance: settings, upgrade."""

from __future__ import annotations

from typing import Annotated

import typer

from seedbed.cli.common import DEFAULT_HOME, HomeOption, JsonOption, app, handle_errors, print_json, print_tables


@app.command(epilog="Example: seedbed settings train.schedule")
@handle_errors
def settings(
    name: Annotated[str | None, typer.Argument(help="a setting, the end of its name, or task, model, train")] = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Print the settings reference: meaning, default, accepted values, and when each has an effect."""
    from seedbed.report.settings_reference import describe_setting, find_settings, setting_as_json, setting_tables

    names = find_settings(name)
    if as_json:
        print_json([setting_as_json(one) for one in names])
    elif name is None or name in ("task", "model", "train"):
        print_tables(list(setting_tables(names)))
    else:
        print_tables([describe_setting(one) for one in names])


@app.command(epilog="Example: seedbed upgrade --home lab")
@handle_errors
def upgrade(home: HomeOption = DEFAULT_HOME) -> None:
    """Upgrade a store of an earlier version to the current schema; the old database is kept as a copy next to it."""
    from seedbed.store import upgrade_store

    typer.echo(upgrade_store(home))
