"""The command that searches among the configs of a study by successive halving: search."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seedbed.cli.common import (
    DEFAULT_HOME,
    DeviceOption,
    HomeOption,
    JsonOption,
    ModeOption,
    OnlyOption,
    OverridesArgument,
    StudyArgument,
    WorkersOption,
    app,
    console,
    handle_errors,
    print_json,
    print_tables,
)
from seedbed.cli.study_commands import make_plans
from seedbed.errors import Busy, UsageError

if TYPE_CHECKING:
    from seedbed.pipeline import StudyOutcome
    from seedbed.records import Plan


@app.command(epilog="Example: seedbed search mine.toml --metric val/loss --rungs 3 --factor 3")
@handle_errors
def search(
    study: StudyArgument, overrides: OverridesArgument = None, only: OnlyOption = [],  # noqa: B006
    metric: Annotated[str, typer.Option(help="configs are ranked by its best value, mean over seeds")] = "val/loss",
    rungs: Annotated[int, typer.Option(min=2, help="how often configs are ranked, the end included")] = 3,
    factor: Annotated[int, typer.Option(min=2, help="1 in FACTOR configs goes on, FACTOR times as far")] = 3,
    home: HomeOption = DEFAULT_HOME,
    device: DeviceOption = None, workers: WorkersOption = None, mode: ModeOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no progress display")] = False,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Train all configs of a study a little and only the best of them to the end: successive halving.

    The same command resumes an interrupted search. Configs that are dropped stay stored, and can be resumed with `run`.
    """
    from seedbed.api.planning import find_machine
    from seedbed.api.training_session import catch_stop_signals, is_stopping
    from seedbed.pipeline import run_studies
    from seedbed.progress import ProgressDisplay
    from seedbed.report.search_table import search_as_json, search_table
    from seedbed.search import plan_rungs, search_study
    from seedbed.stats.format import join_words, pluralise

    plans = make_plans(study, overrides, only, home)
    if len(plans) > 1:
        raise UsageError("a search ranks the configs of one study; give one")
    machine, errors = find_machine(device, workers, mode), console(stderr=True)
    outcomes: list[StudyOutcome] = []
    planned = [f"{n_configs} to step {step:,}" for step, n_configs in plan_rungs(plans[0], rungs, factor).items()]
    if not quiet:
        errors.print(f"configs by rung: {join_words(planned)}", highlight=False)
    with catch_stop_signals() as caught:

        def train(plan: Plan, until: int | None) -> StudyOutcome:
            if not quiet:
                n_configs = pluralise(len({run.settings for run in plan.runs}), "config")
                end = "to the end" if until is None else f"to step {until:,}"
                errors.print(f"training {n_configs} {end}", highlight=False)
            with ProgressDisplay(errors, quiet) as display:
                outcomes.append(
                    run_studies([plan], home, machine, display, lambda: is_stopping(caught, display), until=until)
                )
            return outcomes[-1]

        result = search_study(plans[0], home, train, metric, rungs, factor)
    command = _format_command(study, overrides or [], only, home, {"metric": metric, "rungs": rungs, "factor": factor})
    if caught and not result.is_complete:
        typer.echo(f"stopped; all progress is saved. Resume with: {command}", err=True)
        raise typer.Exit(128 + caught[0])
    if outcomes and outcomes[-1].busy_packs:
        raise Busy(
            f"{plans[0].study} is being trained by {outcomes[-1].busy_packs[0]}; when it is done, run: {command}"
        )
    if as_json:
        print_json(search_as_json(result))
    else:
        print_tables([search_table(result)])


def _format_command(
    study: str, overrides: list[str], only: list[str], home: Path, options: dict[str, str | int]
) -> str:
    words = [word for text in only for word in ("--only", text)]
    words += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    words += [] if home == DEFAULT_HOME else ["--home", str(home)]
    return shlex.join(["seedbed", "search", study, *overrides, *words])
