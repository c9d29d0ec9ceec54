"""Commands that plan and train studies: init, plan, run."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seedbed.cli.common import (
    DEFAULT_HOME,
    DeviceOption,
    HomeOption,
    JsonOption,
    ModeOption,
    OnlyOption,
    OverridesArgument,
    PrintConfigOption,
    StudyArgument,
    WorkersOption,
    app,
    console,
    handle_errors,
    print_json,
    print_tables,
)
from seedbed.engines.local import process_age_seconds
from seedbed.errors import Busy, StoreError, UnreadableRun, UsageError

if TYPE_CHECKING:
    from seedbed.records import Plan


@app.command(epilog="Example: seedbed init mine.toml && seedbed plan mine.toml")
@handle_errors
def init(
    path: Annotated[Path, typer.Argument(help="the file to write")] = Path("study.toml"),
    study: Annotated[str | None, typer.Option("--from", help="copy this shipped study instead of the example")] = None,
) -> None:
    """Write a commented study file to start from."""
    from seedbed.study.study_files import find_study
    from seedbed.study.write import load_example_study

    text = load_example_study() if study is None else find_study(study).read_text(encoding="utf-8")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} already exists; choose another file: seedbed init OTHER.toml") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}); choose another path") from None
    typer.echo(f"wrote {path}; next: seedbed plan {shlex.quote(str(path))}")


@app.command(epilog="Example: seedbed plan arithmetic/data-size seeds=5 model.layers=1,2")
@handle_errors
def plan(
    study: StudyArgument, overrides: OverridesArgument = None, only: OnlyOption = [],  # noqa: B006
    home: HomeOption = DEFAULT_HOME,
    device: DeviceOption = None, workers: WorkersOption = None, mode: ModeOption = None,
    with_probe: Annotated[bool, typer.Option("--probe", help="time each pack for a second to estimate better")] = False,
    as_json: JsonOption = False, print_config: PrintConfigOption = False,
) -> None:  # fmt: skip
    """Show a study's configs, runs, packs, sizes and estimate, and what is already done; trains nothing.

    Several studies, or shipped ones with a star (`"arithmetic/*"`), get one estimate: that of `run` with all of them.
    """
    from seedbed.api.planning import estimate_plans, find_machine, probe_plans

    plans = make_plans(study, overrides, only, home)
    if print_config:
        _print_config(plans)
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
@handle_errors
def run(
    study: StudyArgument, overrides: OverridesArgument = None, only: OnlyOption = [],  # noqa: B006
    home: HomeOption = DEFAULT_HOME,
    device: DeviceOption = None, workers: WorkersOption = None, mode: ModeOption = None,
    until: Annotated[int | None, typer.Option(min=1, help="train to this step; resume later without it")] = None,
    restart: Annotated[bool, typer.Option(help="train unfinished runs from step 0 instead of resuming")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no progress display")] = False,
    print_config: PrintConfigOption = False,
) -> None:  # fmt: skip
    """Train every run of a study that is not done yet; the same command again resumes an interrupted study.

    Several studies, or shipped ones with a star (`"arithmetic/*"`), are trained together; shared runs are trained once.
    """
    plans = make_plans(study, overrides, only, home)
    if print_config:
        _print_config(plans)
        return
    from seedbed.api.planning import find_machine
    from seedbed.api.training_session import catch_stop_signals, describe_holders, is_stopping, restart_unfinished
    from seedbed.cli.store_commands import show_study
    from seedbed.pipeline import run_studies
    from seedbed.progress import ProgressDisplay

    _report_added_configs(home, plans)
    if restart:
        for planned in plans:
            restart_unfinished(home, planned)
    errors = console(stderr=True)
    with catch_stop_signals() as caught, ProgressDisplay(errors, quiet) as display:
        start_time = time.perf_counter() - process_age_seconds()
        outcome = run_studies(
            plans, home, find_machine(device, workers, mode), display, lambda: is_stopping(caught, display),
            start_time, until,
        )  # fmt: skip
    command = _format_run_command(study, overrides or (), only, home)
    if outcome.stopped and caught:
        typer.echo(f"stopped; all progress is saved. Resume with: {command}", err=True)
        raise typer.Exit(128 + caught[0])
    if outcome.busy_packs:
        raise Busy(f"{describe_holders(plans, outcome)}; wait for it or stop it, then run: {command}")
    for planned in plans:
        try:
            show_study(home, planned.study, (), None, run_ids={run.id for run in planned.runs})
        except UnreadableRun as error:  # another run of the study; those of this command are trained all the same
            typer.echo(f"seedbed: warning: no table for {planned.study}: {error}", err=True)
    last = plans[-1].study
    typer.echo(
        f"{_format_counts(outcome.counts)}; results in {outcome.store_address}; show them: seedbed show {last}",
        err=True,
    )
    if until is not None and outcome.counts.get("stopped"):
        typer.echo(f"trained at least to step {until:,}; train to the end with: {command}", err=True)
    if outcome.counts.get("failed"):
        typer.echo(f"some runs failed; see why with: seedbed ls {last}; retry with: {command}", err=True)
        raise typer.Exit(1)


def make_plans(study: str, overrides: Sequence[str] | None, only: Sequence[str], home: Path) -> list[Plan]:
    """The plans of the named studies with overrides applied, reduced to the runs that match the filters."""
    from seedbed.api.planning import load_run_facts
    from seedbed.study.plan import plan_named
    from seedbed.study.run_filter import filter_plans

    settings = [text for text in overrides or () if "=" in text]
    others = [text for text in overrides or () if "=" not in text]
    plans = [plan_named(name, settings) for name in _expand_study_names(study, others)]
    for warning in (warning for planned in plans for warning in planned.warnings):
        typer.echo(f"seedbed: warning: {warning}", err=True)
    if any(run.settings.task.has_corpus for planned in plans for run in planned.runs):
        from seedbed.pipeline import match_stored_runs

        plans, notices = match_stored_runs(plans, home)
        for notice in notices:
            typer.echo(f"seedbed: {notice}", err=True)
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
            typer.echo(f"seedbed: {notice}", err=True)


def _format_run_command(study: str, overrides: Sequence[str], only: Sequence[str], home: Path) -> str:
    options = [word for text in only for word in ("--only", text)]
    options += [] if home == DEFAULT_HOME else ["--home", str(home)]
    return shlex.join(["seedbed", "run", study, *overrides, *options])


def _expand_study_names(study: str, others: Sequence[str]) -> list[str]:
    """The study names these patterns match, each once; `others` may also be overrides with a missing `=`."""
    from seedbed.errors import StudyError
    from seedbed.study.study_files import expand_study_pattern, find_study

    names = expand_study_pattern(study)
    for pattern in others:
        try:
            more = expand_study_pattern(pattern)
            find_study(more[0])
        except StudyError as error:
            raise UsageError(f"{error}; a setting is written key=value, such as model.layers=3") from None
        names += more
    return list(dict.fromkeys(names))


def _print_config(plans: Sequence[Plan]) -> None:
    typer.echo("\n".join(planned.text for planned in plans), nl=False)


def _format_counts(counts: Any) -> str:
    return ", ".join(f"{n} {status}" for status, n in counts.items() if n)
