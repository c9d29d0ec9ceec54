"""Verbs over whole studies: init, plan, run, ls, show, rm."""

from __future__ import annotations

import os
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
    Device,
    Engine,
    Home,
    Json,
    PrintConfig,
    StoredArgument,
    StudyArgument,
    Words,
    Workers,
    app,
    console,
    print_json,
    print_tables,
    verb,
)
from seedbed.engines.local import process_age
from seedbed.errors import Busy, UsageError

if TYPE_CHECKING:
    from seedbed.pipeline import Machine
    from seedbed.records import Plan, StoredRun


@app.command(epilog="Example: seedbed init mine.toml && seedbed plan mine.toml")
@verb
def init(
    path: Annotated[Path, typer.Argument(help="the file to write")] = Path("study.toml"),
    study: Annotated[str | None, typer.Option("--from", help="copy this shipped study instead of the example")] = None,
) -> None:
    """Write a commented study file to begin with."""
    from seedbed.study.files import find_study
    from seedbed.study.write import write_example

    text = write_example() if study is None else find_study(study).read_text(encoding="utf-8")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} exists already; name another file: seedbed init OTHER.toml") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}); name another place") from None
    typer.echo(f"wrote {path}; next: seedbed plan {shlex.quote(str(path))}")


@app.command(epilog="Example: seedbed plan arithmetic/data-size seeds=5 model.layers=1,2")
@verb
def plan(
    study: StudyArgument, words: Words = None, home: Home = DEFAULT_HOME,
    device: Device = None, workers: Workers = None, engine: Engine = None,
    measure: Annotated[bool, typer.Option("--probe", help="train each pack for a second first, to price it")] = False,
    as_json: Json = False, print_config: PrintConfig = False,
) -> None:  # fmt: skip
    """Show a study's points, runs, packs, sizes and price, and what is done already; computes nothing but probes.

    Several studies, or shipped ones with a star (`"arithmetic/*"`), have one price: that of `run` with all of them.
    """
    from seedbed.pipeline import packs_of
    from seedbed.pricing import placed, price_study, probe, probe_undecided
    from seedbed.report.overview import plan_as_json, plan_tables

    plans, _ = _plans(study, words)
    if print_config:
        _print_config(plans)
        return
    standing = _stored_runs(home)
    machine = _machine(device, workers, engine)
    if measure:
        wanted = {run.id: run for planned in plans for run in planned.runs}
        probe_undecided(list(wanted.values()), machine, lambda _: None, lambda: False)
        probe(placed(packs_of(plans, machine), machine), machine, began=time.perf_counter() - process_age())
    packs, done = packs_of(plans, machine), {name: run.status for name, run in standing.items()}
    price = price_study(packs, machine, standing)
    if as_json:
        documents = [plan_as_json(planned, packs, done, price) for planned in plans]
        print_json(documents if len(plans) > 1 else documents[0])
    else:
        print_tables(plan_tables(plans, packs, done, machine.device, price))


@app.command(epilog="Example: seedbed run arithmetic/sanity train.steps=2001 seeds=5")
@verb
def run(
    study: StudyArgument, words: Words = None, home: Home = DEFAULT_HOME,
    device: Device = None, workers: Workers = None, engine: Engine = None,
    restart: Annotated[bool, typer.Option(help="train unfinished runs from step 0 instead of going on")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no progress")] = False,
    print_config: PrintConfig = False,
) -> None:  # fmt: skip
    """Train every run of a study that is not done yet; the same command again goes on where it was.

    Several studies, or shipped ones with a star (`"arithmetic/*"`), are trained side by side, and what they share once.
    """
    plans, dials = _plans(study, words)
    if print_config:
        _print_config(plans)
        return
    from seedbed.pipeline import run_studies
    from seedbed.progress import Watcher

    if restart:
        for planned in plans:
            _forget_unfinished(home, planned)
    errors = console(stderr=True)
    with _stop_signals() as caught, Watcher(errors, quiet) as watcher:
        began = time.perf_counter() - process_age()
        outcome = run_studies(plans, home, _machine(device, workers, engine), watcher, lambda: bool(caught), began)
    again = shlex.join(
        ["seedbed", "run", study, *(words or ()), *([] if home == DEFAULT_HOME else ["--home", str(home)])]
    )
    if outcome.stopped and caught:
        typer.echo(f"stopped; everything up to here is saved. Go on with: {again}", err=True)
        raise typer.Exit(128 + caught[0])
    if outcome.busy:
        raise Busy("; ".join(outcome.busy) + f"; when it is done: {again}")
    for planned in plans:
        _show_study(home, planned.study, dials, None)
    last = plans[-1].study
    typer.echo(f"{_counts(outcome.counts)}; results in {home / 'store.db'}, more with: seedbed show {last}", err=True)
    if outcome.counts.get("failed"):
        typer.echo(f"some runs failed; see why with: seedbed ls {last}; try them again with: {again}", err=True)
        raise typer.Exit(1)


@app.command("ls", epilog="Example: seedbed ls quickstart train.weight_decay=1.0")
@verb
def list_runs(
    study: Annotated[str | None, typer.Argument(help="the name of a stored study; all studies when left out")] = None,
    words: Words = None, home: Home = DEFAULT_HOME, as_json: Json = False,
) -> None:  # fmt: skip
    """List studies, or the runs of one with status, step and last readings."""
    from seedbed.report.gather import covered_runs
    from seedbed.report.overview import runs_as_json, runs_table, studies_table
    from seedbed.store.store import Store

    with Store.read(home) as store:
        if study is None and not as_json:
            print_tables([studies_table(store.studies())])
            return
        names = [one.name for one in store.studies()] if study is None else [study]
        runs = {name: covered_runs(store, name, words or ()) for name in names}
        if as_json:
            print_json(runs_as_json(store, runs))
        else:
            print_tables([runs_table(store, name, some) for name, some in runs.items()])


@app.command(epilog="Example: seedbed show arithmetic/sanity --t-max 0.5")
@verb
def show(
    study: Annotated[str, typer.Argument(help="the name of a stored study, or a run's id")],
    words: Words = None, home: Home = DEFAULT_HOME, as_json: Json = False,
    t_max: Annotated[str | None, typer.Option(help="as if stopped there: a step, or a share of T such as 0.3")] = None,
    timing: Annotated[bool, typer.Option("--timing", help="what it cost instead: time by kind, and memory")] = False,
    form: Annotated[str, typer.Option("--format", help="text, markdown, csv or latex")] = "text",
) -> None:  # fmt: skip
    """Print the study's table: best loss and accuracy, when each was reached, mean ± std over seeds."""
    from seedbed.report.gather import check_t_max

    check_t_max(t_max)
    if timing:
        _show_timing(home, study, words or [], as_json, form)
    else:
        _show_study(home, study, words or [], t_max, as_json, form)


@app.command(epilog="Example: seedbed rm quickstart train.weight_decay=0.1 --yes")
@verb
def rm(
    study: StoredArgument, words: Words = None, home: Home = DEFAULT_HOME,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:  # fmt: skip
    """Remove a study's runs, or those that match the words, with their readings and checkpoints."""
    from seedbed.report.gather import covered_runs
    from seedbed.store.store import Store

    with Store.read(home) as store:
        runs = covered_runs(store, study, words or ())
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"this removes {len(runs)} runs of {study}; add --yes to do so")
        typer.confirm(f"remove {len(runs)} runs of {study} with their readings and checkpoints?", abort=True, err=True)
    with Store.open(home) as store:
        removed = store.remove(study, [run.id for run in runs])
    kept = f"; {len(runs) - len(removed)} belong to another study and stay" if len(removed) < len(runs) else ""
    typer.echo(f"removed {len(removed)} runs{kept}")


def _plans(study: str, words: Sequence[str] | None) -> tuple[list[Plan], list[str]]:
    """The studies that a command names, planned, and its words of the form key=value."""
    from seedbed.study.plan import plan_named

    dials = [word for word in words or () if "=" in word]
    plans = [plan_named(name, dials) for name in _names(study, [word for word in words or () if "=" not in word])]
    for warning in (warning for planned in plans for warning in planned.warnings):
        typer.echo(f"seedbed: warning: {warning}", err=True)
    return plans, dials


def _names(study: str, others: Sequence[str]) -> list[str]:
    """The studies that these stand for, each once; of the others it is not certain that they are meant as studies."""
    from seedbed.errors import StudyError
    from seedbed.study.files import find_study, matching_studies

    found = matching_studies(study)
    for word in others:
        try:
            more = matching_studies(word)
            find_study(more[0])
        except StudyError as error:
            raise UsageError(f"{error}; a setting is written key=value, such as model.layers=3") from None
        found += more
    return list(dict.fromkeys(found))


def _print_config(plans: Sequence[Plan]) -> None:
    typer.echo("\n".join(planned.text for planned in plans), nl=False)


def _machine(device: str | None, workers: int | None, engine: str | None = None) -> Machine:
    from seedbed.pipeline import Machine

    for option, value, accepted in (
        ("--device", device, ("cpu", "cuda")), ("--engine", engine, ("plain", "graph", "compiled")),
    ):  # fmt: skip
        if value is not None and value not in accepted:
            raise UsageError(f"{option} {value}: expected {' or '.join(accepted)}")
    return Machine.here(device, workers, engine)


def _stored_runs(home: Path) -> dict[str, StoredRun]:
    """Runs by id; empty where there is no store yet."""
    if not (home / "store.db").exists():
        return {}
    from seedbed.store.store import Store

    with Store.read(home) as store:
        return {run.id: run for run in store.runs()}


def _forget_unfinished(home: Path, planned: Plan) -> None:
    from seedbed.store.store import Store

    with Store.open(home) as store:
        store.register(planned)
        wanted = {run.id for run in planned.runs}
        for pack in store.packs_of(planned.study):
            if wanted & set(pack.runs):
                store.restart(pack.id)


def _show_study(
    home: Path, study: str, words: Sequence[str], t_max: str | None, as_json: bool = False, form: str = "text"
) -> None:
    from seedbed.measures.summary import summarise, to_json
    from seedbed.report.gather import gather_curves
    from seedbed.report.overview import run_as_json, run_tables
    from seedbed.report.tables import point_tables
    from seedbed.report.timing import run_cost_table
    from seedbed.store.store import Store

    with Store.read(home) as store:
        if study not in {one.name for one in store.studies()} and (run := _find_run(store, study)) is not None:
            if as_json:
                print_json(run_as_json(store, run))
            else:
                print_tables([*run_tables(store, run), *run_cost_table(store, run)], form)
            return
        summaries = summarise(gather_curves(store, study, words, t_max))
    if as_json:
        print_json(to_json(summaries))
    else:
        print_tables(point_tables(summaries), form)


def _show_timing(home: Path, study: str, words: Sequence[str], as_json: bool, form: str) -> None:
    from seedbed.report.gather import gather_curves
    from seedbed.report.timing import cost_as_json, cost_tables, run_cost_as_json, run_cost_table
    from seedbed.store.store import Store

    with Store.read(home) as store:
        run = None if study in {one.name for one in store.studies()} else _find_run(store, study)
        runs = [] if run else gather_curves(store, study, words)
        if as_json:
            print_json(run_cost_as_json(store, run) if run else cost_as_json(store, study, runs))
        elif tables := run_cost_table(store, run) if run else cost_tables(store, study, runs):
            print_tables(tables, form)
        else:
            typer.echo(f"nothing was timed yet; train it with: seedbed run {study}", err=True)


def _find_run(store: Any, prefix: str) -> StoredRun | None:
    from seedbed.errors import MissingData

    try:
        return store.run(prefix)  # type: ignore[no-any-return]
    except (MissingData, UsageError):
        return None


def _counts(counts: Any) -> str:
    return ", ".join(f"{n} {status}" for status, n in counts.items() if n)


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """A list that gets the first SIGINT or SIGTERM, so that work can end well; the second SIGINT ends it at once."""
    caught: list[int] = []

    def note(number: int, _: Any) -> None:
        if caught and number == signal.SIGINT:
            raise KeyboardInterrupt
        caught.append(number)
        os.write(2, b"\nfinishing this step and saving; once more to stop at once\n")

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
