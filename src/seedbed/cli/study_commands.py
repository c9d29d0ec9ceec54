"""Commands on whole studies: init, plan, run, ls, show, rm."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seedbed.cli.common import (
    DEFAULT_HOME,
    DeviceOption,
    FiltersArgument,
    HomeOption,
    JsonOption,
    ModeOption,
    OverridesArgument,
    PrintConfigOption,
    StoredStudyArgument,
    StudyArgument,
    WorkersOption,
    app,
    console,
    handle_errors,
    print_json,
    print_tables,
)
from seedbed.engines.local import process_age_seconds
from seedbed.errors import Busy, UnreadableRun, UsageError

if TYPE_CHECKING:
    from seedbed.pipeline import Machine
    from seedbed.records import Plan, StoredRun


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
    study: StudyArgument, overrides: OverridesArgument = None, home: HomeOption = DEFAULT_HOME,
    device: DeviceOption = None, workers: WorkersOption = None, mode: ModeOption = None,
    with_probe: Annotated[bool, typer.Option("--probe", help="time each pack for a second to estimate better")] = False,
    as_json: JsonOption = False, print_config: PrintConfigOption = False,
) -> None:  # fmt: skip
    """Show a study's configs, runs, packs, sizes and estimate, and what is already done; trains nothing.

    Several studies, or shipped ones with a star (`"arithmetic/*"`), get one estimate: that of `run` with all of them.
    """
    from seedbed.estimates import estimate_study, place_packs, probe_candidates, probe_packs
    from seedbed.pipeline import pack_plans
    from seedbed.report.overview import plan_as_json, plan_tables

    plans, _ = _make_plans(study, overrides)
    if print_config:
        _print_config(plans)
        return
    stored = _load_stored_runs(home)
    machine = _make_machine(device, workers, mode)
    if with_probe:
        runs = {run.id: run for planned in plans for run in planned.runs}
        probe_candidates(list(runs.values()), machine, lambda _: None, lambda: False)
        probe_packs(
            place_packs(pack_plans(plans, machine), machine),
            machine,
            start_time=time.perf_counter() - process_age_seconds(),
        )
    packs, done = pack_plans(plans, machine), {name: run.status for name, run in stored.items()}
    estimate = estimate_study(packs, machine, stored)
    if as_json:
        documents = [plan_as_json(planned, packs, done, estimate) for planned in plans]
        print_json(documents if len(plans) > 1 else documents[0])
    else:
        print_tables(plan_tables(plans, packs, done, machine.device, estimate))


@app.command(epilog="Example: seedbed run arithmetic/sanity train.steps=2001 seeds=5")
@handle_errors
def run(
    study: StudyArgument, overrides: OverridesArgument = None, home: HomeOption = DEFAULT_HOME,
    device: DeviceOption = None, workers: WorkersOption = None, mode: ModeOption = None,
    restart: Annotated[bool, typer.Option(help="train unfinished runs from step 0 instead of resuming")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no progress display")] = False,
    print_config: PrintConfigOption = False,
) -> None:  # fmt: skip
    """Train every run of a study that is not done yet; the same command again resumes an interrupted study.

    Several studies, or shipped ones with a star (`"arithmetic/*"`), are trained together; shared runs are trained once.
    """
    plans, settings = _make_plans(study, overrides)
    if print_config:
        _print_config(plans)
        return
    from seedbed.pipeline import run_studies
    from seedbed.progress import ProgressDisplay

    if restart:
        for planned in plans:
            _restart_unfinished(home, planned)
    errors = console(stderr=True)
    with _catch_stop_signals() as caught, ProgressDisplay(errors, quiet) as display:
        start_time = time.perf_counter() - process_age_seconds()
        outcome = run_studies(
            plans, home, _make_machine(device, workers, mode), display, lambda: bool(caught), start_time
        )
    command = shlex.join(
        ["seedbed", "run", study, *(overrides or ()), *([] if home == DEFAULT_HOME else ["--home", str(home)])]
    )
    if outcome.stopped and caught:
        typer.echo(f"stopped; all progress is saved. Resume with: {command}", err=True)
        raise typer.Exit(128 + caught[0])
    if outcome.busy_packs:
        raise Busy("; ".join(outcome.busy_packs) + f"; when it is done, run: {command}")
    for planned in plans:
        try:
            _show_study(home, planned.study, settings, None)
        except UnreadableRun as error:  # another run of the study; those of this command are trained all the same
            typer.echo(f"seedbed: warning: no table for {planned.study}: {error}", err=True)
    last = plans[-1].study
    typer.echo(
        f"{_format_counts(outcome.counts)}; results in {outcome.store_address}; show them: seedbed show {last}",
        err=True,
    )
    if outcome.counts.get("failed"):
        typer.echo(f"some runs failed; see why with: seedbed ls {last}; retry with: {command}", err=True)
        raise typer.Exit(1)


@app.command("ls", epilog="Example: seedbed ls quickstart train.weight_decay=1.0")
@handle_errors
def list_runs(
    study: Annotated[str | None, typer.Argument(help="the name of a stored study; default: all studies")] = None,
    filters: FiltersArgument = None, home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """List studies, or the runs of one with status, step and latest metrics."""
    from seedbed.report.overview import runs_as_json, runs_table, studies_table
    from seedbed.report.study_runs import matching_runs, unreadable_runs
    from seedbed.store import open_store

    with open_store(home, read_only=True) as store:
        if study is None and not as_json:
            print_tables([studies_table(store.studies())])
            return
        names = [one.name for one in store.studies()] if study is None else [study]
        runs = {name: matching_runs(store, name, filters or (), skip_unreadable=True) for name in names}
        for reason in (reason for name in names for reason in unreadable_runs(store, name).values()):
            typer.echo(f"seedbed: warning: {reason}", err=True)
        if as_json:
            print_json(runs_as_json(store, runs))
        else:
            print_tables([runs_table(store, name, some) for name, some in runs.items()])


@app.command(epilog="Example: seedbed show arithmetic/sanity --t-max 0.5")
@handle_errors
def show(
    study: Annotated[str, typer.Argument(help="the name of a stored study, or a run's id")],
    filters: FiltersArgument = None, home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False,
    t_max: Annotated[str | None, typer.Option(help="ignore evaluations after this step or fraction of steps")] = None,
    timing: Annotated[bool, typer.Option("--timing", help="show time and memory instead of metrics")] = False,
    table_format: Annotated[str, typer.Option("--format", help="text, markdown, csv or latex")] = "text",
) -> None:  # fmt: skip
    """Print the results of a study: best loss and accuracy, the step of each, mean ± std over seeds."""
    from seedbed.report.study_runs import check_t_max

    check_t_max(t_max)
    if timing:
        _show_timing(home, study, filters or [], as_json, table_format)
    else:
        _show_study(home, study, filters or [], t_max, as_json, table_format)


@app.command(epilog="Example: seedbed rm quickstart train.weight_decay=0.1 --yes")
@handle_errors
def rm(
    study: StoredStudyArgument, filters: FiltersArgument = None, home: HomeOption = DEFAULT_HOME,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")] = False,
) -> None:  # fmt: skip
    """Remove a study's runs, or those that match the filters, with their metrics and checkpoints."""
    from seedbed.report.study_runs import matching_runs
    from seedbed.store import open_store

    with open_store(home, read_only=True) as store:
        runs = matching_runs(store, study, filters or ())
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"this removes {_format_run_count(len(runs))} of {study}; confirm with --yes")
        n_runs = _format_run_count(len(runs))
        typer.confirm(f"remove {n_runs} of {study} with all metrics and checkpoints?", abort=True, err=True)
    with open_store(home) as store:
        removed = store.remove(study, [run.id for run in runs])
    kept = f"; kept {len(runs) - len(removed)} that another study shares" if len(removed) < len(runs) else ""
    typer.echo(f"removed {_format_run_count(len(removed))}{kept}")


def _make_plans(study: str, overrides: Sequence[str] | None) -> tuple[list[Plan], list[str]]:
    """The plans of the named studies, and the arguments of the form key=value."""
    from seedbed.study.plan import plan_named

    settings = [text for text in overrides or () if "=" in text]
    others = [text for text in overrides or () if "=" not in text]
    plans = [plan_named(name, settings) for name in _expand_study_names(study, others)]
    for warning in (warning for planned in plans for warning in planned.warnings):
        typer.echo(f"seedbed: warning: {warning}", err=True)
    return plans, settings


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


def _make_machine(device: str | None, workers: int | None, mode: str | None = None) -> Machine:
    from seedbed.pipeline import Machine

    if device is not None and device != "cpu" and not re.fullmatch(r"cuda(:\d+)?", device):
        raise UsageError(f"--device {device}: expected cpu, cuda (all GPUs) or one GPU, such as cuda:1")
    if mode is not None and mode not in ("plain", "graph", "compiled"):
        raise UsageError(f"--mode {mode}: expected plain, graph or compiled")
    return Machine.detect(device, workers, mode)


def _load_stored_runs(home: Path) -> dict[str, StoredRun]:
    """Stored runs by id; empty if there is no store yet."""
    from seedbed.store import open_store, store_exists

    if not store_exists(home):
        return {}
    with open_store(home, read_only=True) as store:
        return {run.id: run for run in store.runs()}


def _restart_unfinished(home: Path, planned: Plan) -> None:
    from seedbed.store import open_store

    with open_store(home) as store:
        store.register(planned)
        run_ids = {run.id for run in planned.runs}
        for pack in store.study_packs(planned.study):
            if run_ids & set(pack.runs):
                store.restart(pack.id)


def _show_study(
    home: Path, study: str, filters: Sequence[str], t_max: str | None, as_json: bool = False, table_format: str = "text"
) -> None:
    from seedbed.report.cost_tables import run_cost_table
    from seedbed.report.overview import run_as_json, run_tables
    from seedbed.report.study_runs import load_run_curves
    from seedbed.report.summary_tables import config_tables
    from seedbed.stats.summary import summaries_to_json, summarise
    from seedbed.store import open_store

    with open_store(home, read_only=True) as store:
        if study not in {one.name for one in store.studies()} and (run := _find_run(store, study)) is not None:
            if as_json:
                print_json(run_as_json(store, run))
            else:
                print_tables([*run_tables(store, run), *run_cost_table(store, run)], table_format)
            return
        summaries = summarise(load_run_curves(store, study, filters, t_max))
    if as_json:
        print_json(summaries_to_json(summaries))
    else:
        print_tables(config_tables(summaries), table_format)


def _show_timing(home: Path, study: str, filters: Sequence[str], as_json: bool, table_format: str) -> None:
    from seedbed.report.cost_tables import cost_as_json, cost_tables, run_cost_as_json, run_cost_table
    from seedbed.report.study_runs import load_run_curves
    from seedbed.store import open_store

    with open_store(home, read_only=True) as store:
        run = None if study in {one.name for one in store.studies()} else _find_run(store, study)
        runs = [] if run else load_run_curves(store, study, filters)
        if as_json:
            print_json(run_cost_as_json(store, run) if run else cost_as_json(store, study, runs))
        elif tables := run_cost_table(store, run) if run else cost_tables(store, study, runs):
            print_tables(tables, table_format)
        else:
            typer.echo(f"no timings yet; train with: seedbed run {study}", err=True)


def _find_run(store: Any, prefix: str) -> StoredRun | None:
    from seedbed.errors import MissingData

    try:
        return store.run(prefix)  # type: ignore[no-any-return]
    except (MissingData, UsageError):
        return None


def _format_run_count(n: int) -> str:
    return f"{n} run{'s' * (n != 1)}"


def _format_counts(counts: Any) -> str:
    return ", ".join(f"{n} {status}" for status, n in counts.items() if n)


@contextmanager
def _catch_stop_signals() -> Iterator[list[int]]:
    """Yields a list of received SIGINT and SIGTERM signals, for a graceful stop; a second SIGINT aborts at once."""
    caught: list[int] = []

    def handle(number: int, _: Any) -> None:
        if caught and number == signal.SIGINT:
            raise KeyboardInterrupt
        caught.append(number)
        os.write(2, b"\nfinishing this step and saving; press again to abort at once\n")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
