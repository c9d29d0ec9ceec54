"""Commands that plan and train studies: init, plan, run, search; and settings, the reference of what one can set."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seedbed.cli.common import (
    DEFAULT_HOME,
    AddressOption,
    DeviceOption,
    EngineOption,
    FormatOption,
    HomeOption,
    JsonOption,
    ModeOption,
    OnlyOption,
    OverridesArgument,
    PrintConfigOption,
    QuietOption,
    StudyArgument,
    WorkersOption,
    app,
    console,
    echo,
    format_command,
    print_json,
    print_sentences,
    print_tables,
)
from seedbed.errors import (
    Busy,
    OutOfResources,
    RunFailures,
    SeedbedError,
    StoreError,
    TotalDivergence,
    UnreadableRun,
    UsageError,
)

if TYPE_CHECKING:
    from seedbed.pipeline import StudyOutcome
    from seedbed.records import Plan

EXIT_SECONDS = 9.0  # after a signal that asks to stop


@app.command(epilog="Example: seedbed init mine.toml && seedbed plan mine.toml")
def init(
    path: Annotated[Path, typer.Argument(help="the file to write")] = Path("study.toml"),
    study: Annotated[str | None, typer.Option("--from", help="copy this shipped study instead of the example")] = None,
) -> None:
    """Write a commented study file to start from."""
    from seedbed.study.study_files import find_study, load_example_study

    text = load_example_study() if study is None else find_study(study).read_text(encoding="utf-8")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} already exists; choose another file: seedbed init OTHER.toml") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}); choose another path") from None
    echo(f"wrote {path}; next: seedbed plan {shlex.quote(str(path))}")


@app.command(epilog="Example: seedbed plan arithmetic/data-size seeds=5 model.layers=1,2")
def plan(
    study: StudyArgument, overrides: OverridesArgument = None, only: OnlyOption = [],  # noqa: B006
    home: HomeOption = DEFAULT_HOME,
    device: DeviceOption = None, workers: WorkersOption = None, mode: ModeOption = None,
    with_probe: Annotated[bool, typer.Option("--probe", help="time each pack for a second to estimate better")] = False,
    breakdown: Annotated[bool, typer.Option("--breakdown", help="parameters by module, as formulas")] = False,
    as_json: JsonOption = False, print_config: PrintConfigOption = False,
) -> None:  # fmt: skip
    """Show a study's configs, runs, packs, sizes and estimate, and what is already done; trains nothing.

    Several studies, or shipped ones with a star (`"arithmetic/*"`), get one estimate: that of `run` with all of them.
    """
    from seedbed.api.planning import estimate_plans, find_machine, probe_plans
    from seedbed.engines.machine import process_age_seconds

    plans = make_plans(study, overrides, only, home)
    if print_config:
        echo("\n".join(planned.text for planned in plans), nl=False)
        return
    if breakdown:
        from seedbed.report.overview import breakdown_tables
        from seedbed.report.tables import to_json

        tables = breakdown_tables(plans)
        if as_json:
            print_json([to_json(table) for table in tables])
        else:
            print_tables(tables)
        return
    _report_added_configs(home, plans)
    machine = find_machine(device, workers, mode)
    if with_probe:
        probe_plans(plans, machine, start_time=time.perf_counter() - process_age_seconds())
    planned = estimate_plans(plans, home, machine, with_ended=as_json)
    if as_json:
        documents = planned.to_json()
        print_json(documents if len(plans) > 1 else documents[0])
    else:
        print_tables(planned.tables)


@app.command(epilog="Example: seedbed run arithmetic/sanity train.steps=2001 seeds=5")
def run(
    study: StudyArgument, overrides: OverridesArgument = None, only: OnlyOption = [],  # noqa: B006
    home: HomeOption = DEFAULT_HOME,
    device: DeviceOption = None, workers: WorkersOption = None, mode: ModeOption = None,
    engine: EngineOption = None, address: AddressOption = None,
    until: Annotated[int | None, typer.Option(min=1, help="train to this step; resume later without it")] = None,
    restart: Annotated[
        bool, typer.Option(help="from step 0: runs with a damaged state or, without any, all unfinished ones")
    ] = False,
    quiet: QuietOption = False,
    print_config: PrintConfigOption = False,
) -> None:  # fmt: skip
    """Train every run of a study that is not done yet; the same command again resumes an interrupted study.

    Several studies, or shipped ones with a star (`"arithmetic/*"`), are trained together; shared runs are trained once.
    """
    plans = make_plans(study, overrides, only, home)
    if print_config:
        echo("\n".join(planned.text for planned in plans), nl=False)
        return
    from seedbed.api.planning import find_machine
    from seedbed.api.training_session import catch_stop_signals, is_stopping, restart_unfinished
    from seedbed.cli.store_commands import show_study
    from seedbed.engines.machine import process_age_seconds
    from seedbed.pipeline import run_studies
    from seedbed.progress import ProgressDisplay

    _report_added_configs(home, plans)
    if restart:
        for planned in plans:
            restart_unfinished(home, planned)
    errors = console(stderr=True)
    with catch_stop_signals(exit_after_seconds=EXIT_SECONDS) as caught, ProgressDisplay(errors, quiet) as display:
        start_time = time.perf_counter() - process_age_seconds()
        machine = find_machine(device, workers, mode, engine, address)
        outcome = run_studies(plans, home, machine, display, lambda: is_stopping(caught, display), start_time, until)
    command = format_command("run", [study, *(overrides or ())], only, home, _cluster_options(engine, address))
    _exit_if_stopped(plans, outcome, caught if outcome.stopped else (), command)
    for planned in plans:
        try:
            show_study(home, planned.study, (), None, run_ids={run.id for run in planned.runs})
        except UnreadableRun as error:  # another run of the study; those of this command are trained all the same
            echo(f"seedbed: warning: no table for {planned.study}: {error}", err=True)
    last = plans[-1].study
    if len(plans) == 1 and outcome.counts.get("finished") and sys.stdout.isatty():
        _show_first_figure(home, last)
    counts = ", ".join(f"{n} {status}" for status, n in outcome.counts.items() if n)
    echo(f"{counts}; results in {outcome.store_address}; next: seedbed answer {shlex.quote(last)}", err=True)
    if until is not None and outcome.counts.get("stopped"):
        echo(f"trained at least to step {until:,}; train to the end with: {command}", err=True)
    _exit_with_failures([outcome], last, command)


def _show_first_figure(home: Path, study: str) -> None:
    """The study's first figure that needs no analysis, as text; nothing if there is none."""
    from seedbed.report.figures import load_figure, preview_figure

    with suppress(SeedbedError):
        spec, runs = load_figure(home, study, (), {})
        echo(f"\n{preview_figure(spec, runs)}\n")


@app.command(epilog="Example: seedbed search mine.toml --metric val/loss --rungs 3 --factor 3")
def search(
    study: StudyArgument, overrides: OverridesArgument = None, only: OnlyOption = [],  # noqa: B006
    metric: Annotated[str, typer.Option(help="configs are ranked by its best value, mean over seeds")] = "val/loss",
    rungs: Annotated[int, typer.Option(min=2, help="how often configs are ranked, the end included")] = 3,
    factor: Annotated[int, typer.Option(min=2, help="1 in FACTOR configs goes on, FACTOR times as far")] = 3,
    home: HomeOption = DEFAULT_HOME,
    device: DeviceOption = None, workers: WorkersOption = None, mode: ModeOption = None,
    engine: EngineOption = None, address: AddressOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Train all configs of a study a little and only the best of them to the end: successive halving.

    The same command resumes an interrupted search. Configs that are dropped stay stored, and can be resumed with `run`.
    """
    from seedbed.api.planning import find_machine
    from seedbed.api.training_session import catch_stop_signals, is_stopping
    from seedbed.format import join_words, pluralise
    from seedbed.pipeline import run_studies
    from seedbed.progress import ProgressDisplay
    from seedbed.report.search_table import search_as_json, search_table
    from seedbed.search import plan_rungs, search_study

    plans = make_plans(study, overrides, only, home)
    if len(plans) > 1:
        raise UsageError("a search ranks the configs of one study; give one")
    machine, errors = find_machine(device, workers, mode, engine, address), console(stderr=True)
    outcomes: list[StudyOutcome] = []
    planned = [f"{n_configs} to step {step:,}" for step, n_configs in plan_rungs(plans[0], rungs, factor).items()]
    if not quiet:
        errors.print(f"configs by rung: {join_words(planned)}", highlight=False)
    with catch_stop_signals(exit_after_seconds=EXIT_SECONDS) as caught:

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
    options = ("--metric", metric, "--rungs", str(rungs), "--factor", str(factor), *_cluster_options(engine, address))
    command = format_command("search", [study, *(overrides or ())], only, home, options)
    _exit_if_stopped(plans, outcomes[-1] if outcomes else None, () if result.is_complete else caught, command)
    if as_json:
        print_json(search_as_json(result))
    else:
        print_tables([search_table(result)])
    _exit_with_failures(outcomes, plans[0].study, command)


@app.command(epilog="Example: seedbed settings train.schedule")
def settings(
    name: Annotated[str | None, typer.Argument(help="a setting, the end of its name, or task, model, train")] = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Print the settings reference: meaning, default, accepted values, and when each has an effect."""
    from seedbed.report.reference import describe_setting, find_settings, setting_as_json, setting_tables

    names = find_settings(name)
    if as_json:
        print_json([setting_as_json(one) for one in names])
    elif name is None or name in ("task", "model", "train"):
        print_tables(list(setting_tables(names)))
    else:
        print_tables([describe_setting(one) for one in names])


def _exit_if_stopped(plans: Sequence[Plan], outcome: StudyOutcome | None, caught: Sequence[int], command: str) -> None:
    """Exits with the command that resumes where a signal stopped the training, or where another process trains."""
    from seedbed.api.training_session import describe_holders

    if caught:
        echo(f"stopped; all progress is saved. Resume with: {command}", err=True)
        raise typer.Exit(128 + caught[0])
    if outcome and outcome.busy_packs:
        raise Busy(f"{describe_holders(plans, outcome)}; wait for it or stop it, then run: {command}")


def _exit_with_failures(outcomes: Sequence[StudyOutcome], study: str, command: str) -> None:
    """Says that runs failed, or that all diverged, and exits with the code for it."""
    if any(outcome.counts.get("failed") for outcome in outcomes):
        kind = OutOfResources if any(one.out_of_memory for one in outcomes) else RunFailures
        raise kind(f"some runs failed; see why with: seedbed ls {study}; retry with: {command}")
    if outcomes and outcomes[-1].counts.keys() == {"diverged"}:
        raise TotalDivergence(f"every run diverged; see where with: seedbed ls {study}; try a lower train.lr")


@app.command(epilog="Example: seedbed explain SB010")
def explain(
    code: Annotated[str | None, typer.Argument(help="the code at the end of an error; default: all codes")] = None,
    table_format: FormatOption = "text",
) -> None:
    """Explain an error by its code: what it means, what is safe, and what to do next; without a code, list all."""
    from seedbed.report.reference import error_tables, explain_error

    if code is None:
        print_tables(error_tables(), table_format)
    else:
        print_sentences(explain_error(code))


# ---- plans of the named studies ----


def make_plans(study: str, overrides: Sequence[str] | None, only: Sequence[str], home: Path) -> list[Plan]:
    """The plans of the named studies with overrides applied, reduced to the runs that match the filters."""
    from seedbed.api.planning import find_study_definition, load_run_facts
    from seedbed.study.conditions import filter_plans
    from seedbed.study.plan import plan_study

    settings = [text for text in overrides or () if "=" in text]
    others = [text for text in overrides or () if "=" not in text]
    names = _expand_study_names(study, others, home)
    plans = [plan_study(find_study_definition(name, settings, home)[0], settings) for name in names]
    for warning in (warning for planned in plans for warning in planned.warnings):
        echo(f"seedbed: warning: {warning}", err=True)
    if any(run.settings.task.has_corpus for planned in plans for run in planned.runs):
        from seedbed.pipeline import match_stored_runs

        plans, notices = match_stored_runs(plans, home)
        for notice in notices:
            echo(f"seedbed: {notice}", err=True)
    return filter_plans(plans, only, load_run_facts(home)) if only else plans


def _report_added_configs(home: Path, plans: Sequence[Plan]) -> None:
    """Prints which studies have other runs already, since later commands show all of them together."""
    from seedbed.report.overview import describe_added_configs
    from seedbed.store import open_store, store_exists
    from seedbed.study.run_data import describe_changed_datasets

    if not store_exists(home):
        return
    try:
        with open_store(home, read_only=True) as store:
            stored = {study.name for study in store.studies()} & {planned.study for planned in plans}
            runs, dates = {name: store.runs(name, skip_unreadable=True) for name in stored}, store.dataset_dates()
    except StoreError:  # training upgrades an older store, and reports one that it cannot use
        return
    for planned in plans:
        known = runs.get(planned.study, ())
        notices = [describe_added_configs(planned, known), *describe_changed_datasets(planned, known, dates)]
        for notice in filter(None, notices):
            echo(f"seedbed: {notice}", err=True)


def _cluster_options(engine: str | None, address: str | None) -> list[str]:
    return [*(["--engine", engine] if engine else []), *(["--address", address] if address else [])]


def _expand_study_names(study: str, others: Sequence[str], home: Path) -> list[str]:
    """The study names these patterns match, each once; `others` may also be overrides with a missing `=`."""
    from seedbed.api.planning import find_study_definition
    from seedbed.errors import StudyError
    from seedbed.study.study_files import expand_study_pattern

    names = expand_study_pattern(study)
    for pattern in others:
        try:
            more = expand_study_pattern(pattern)
            find_study_definition(more[0], (), home)
        except StudyError as error:
            raise UsageError(f"{error}; a setting is written key=value, such as model.layers=3") from None
        names += more
    return list(dict.fromkeys(names))
