"""Commands on what is stored: ls, show, rm, export, import, copy, note, tag, upgrade, doctor, repair, and serve."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seedbed.cli.common import (
    DEFAULT_HOME,
    FormatOption,
    HomeOption,
    JsonOption,
    OnlyOption,
    StudyOrRunArgument,
    app,
    echo,
    print_json,
    print_tables,
    reject_settings,
    stored_study_name,
    stored_study_names,
)
from seedbed.errors import MissingData, UsageError

if TYPE_CHECKING:
    from seedbed.records import StoredRun
    from seedbed.store import Store


@app.command("ls", epilog="Example: seedbed ls quickstart --only train.weight_decay=1.0")
def list_runs(
    study: Annotated[
        str | None, typer.Argument(help="a stored study; default: all studies", callback=stored_study_name)
    ] = None,
    only: OnlyOption = [], home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False,  # noqa: B006
) -> None:  # fmt: skip
    """List studies, or the runs of one with status, step and latest metrics."""
    from seedbed.report.overview import runs_as_json, runs_table, studies_table
    from seedbed.report.study_runs import unreadable_runs
    from seedbed.store import open_store

    with open_store(home, read_only=True) as store:
        if study is None and not as_json and not only:
            print_tables([studies_table(store.studies(), store.annotations())])
            return
        names = [one.name for one in store.studies()] if study is None else [study]
        runs = _runs_by_study(store, names, only)
        for reason in (reason for name in names for reason in unreadable_runs(store, name).values()):
            echo(f"seedbed: warning: {reason}", err=True)
        if as_json:
            print_json(runs_as_json(store, runs))
        else:
            print_tables([runs_table(store, name, some) for name, some in runs.items()])


def _runs_by_study(store: Store, names: Sequence[str], only: Sequence[str]) -> dict[str, list[StoredRun]]:
    """The matching runs of each study; with several studies, those without a match are left out."""
    from seedbed.report.study_runs import matching_runs

    runs = {}
    for name in names:
        try:
            runs[name] = matching_runs(store, name, only, skip_unreadable=True)
        except MissingData:
            if len(names) == 1:
                raise
    if names and not runs:
        raise MissingData(f"no run of any study has {' '.join(only)}; `seedbed ls` lists the studies")
    return runs


@app.command(epilog="Example: seedbed show arithmetic/sanity --t-max 0.5")
def show(
    study: StudyOrRunArgument, only: OnlyOption = [],  # noqa: B006
    home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False,
    t_max: Annotated[str | None, typer.Option(help="ignore evaluations after this step or fraction of steps")] = None,
    timing: Annotated[bool, typer.Option("--timing", help="show time and memory instead of metrics")] = False,
    table_format: FormatOption = "text",
) -> None:  # fmt: skip
    """Print the results of a study: best loss and accuracy, the step of each, mean ± std over seeds."""
    from seedbed.report.study_runs import check_t_max

    check_t_max(t_max)
    if timing:
        _show_timing(home, study, only, as_json, table_format)
    else:
        show_study(home, study, only, t_max, as_json, table_format)


def show_study(
    home: Path,
    study: str,
    only: Sequence[str],
    t_max: str | None,
    as_json: bool = False,
    table_format: str = "text",
    run_ids: Collection[str] | None = None,
) -> None:
    """Prints the tables of a study, or of those of its runs that match, or of one run."""
    from seedbed.report.cost_tables import run_cost_table
    from seedbed.report.overview import describe_annotations, run_as_json, run_tables
    from seedbed.report.study_runs import describe_late_t_max, load_run_curves
    from seedbed.report.summary_tables import config_tables, numbers_table
    from seedbed.stats.summary import summaries_to_json, summarise
    from seedbed.store import open_store

    with open_store(home, read_only=True) as store:
        if (run := _find_run(store, study, only)) is not None:
            if as_json:
                print_json(run_as_json(store, run))
            else:
                print_tables([*run_tables(store, run), *run_cost_table(store, run)], table_format)
            return
        runs = load_run_curves(store, study, only, t_max)
        runs = [run for run in runs if run_ids is None or run.run.id in run_ids]
        if warning := describe_late_t_max([run.run for run in runs], t_max):
            echo(f"seedbed: warning: {warning}", err=True)
        written = describe_annotations(store.annotations(), study, [run.run.id for run in runs])
    if as_json:
        print_json(summaries_to_json(summarise(runs)))
    else:
        if table_format == "text" and written:
            echo("\n".join(written))
        summaries = summarise(runs)
        tables = [numbers_table(summaries)] if table_format == "csv" else config_tables(summaries)
        print_tables(tables, table_format)


def _show_timing(home: Path, study: str, only: Sequence[str], as_json: bool, table_format: str) -> None:
    from seedbed.report.cost_tables import cost_as_json, cost_tables, run_cost_as_json, run_cost_table
    from seedbed.report.study_runs import load_run_curves
    from seedbed.store import open_store

    with open_store(home, read_only=True) as store:
        run = _find_run(store, study, only)
        runs = [] if run else load_run_curves(store, study, only)
        if as_json:
            print_json(run_cost_as_json(store, run) if run else cost_as_json(store, study, runs))
        elif tables := run_cost_table(store, run) if run else cost_tables(store, study, runs):
            print_tables(tables, table_format)
        else:
            echo(f"no timings yet; train with: seedbed run {study}", err=True)


def _find_run(store: Store, prefix: str, only: Sequence[str]) -> StoredRun | None:
    """The run with this id; None if it names a study, or nothing."""
    if prefix in {study.name for study in store.studies()}:
        return None
    try:
        run = store.run(prefix)
    except (MissingData, UsageError):
        return None
    if only:
        raise UsageError(f"{prefix} is one run; --only selects among the runs of a study")
    return run


@app.command(epilog="Example: seedbed rm quickstart --only train.weight_decay=0.1 --yes")
def rm(
    names: Annotated[list[str], typer.Argument(help="a stored study, by its name or its file, or ids of runs")],
    only: OnlyOption = [], home: HomeOption = DEFAULT_HOME,  # noqa: B006
    yes: Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")] = False,
) -> None:  # fmt: skip
    """Remove runs with their metrics and checkpoints: those of a study, those that match --only, or single ones."""
    from seedbed.format import pluralise
    from seedbed.store import open_store

    reject_settings("rm", names)
    with open_store(home, read_only=True) as store:
        selected = _select_for_removal(store, names, only)
    n_selected = len({run for runs in selected.values() for run in runs})
    what = f"{pluralise(n_selected, 'run')} of {' and '.join(selected)}"
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"this removes {what}; confirm with --yes")
        typer.confirm(f"remove {what} with all metrics and checkpoints?", abort=True, err=True)
    with open_store(home) as store:
        removed = {run for study, runs in selected.items() for run in store.remove(study, runs)}
    n_kept = n_selected - len(removed)
    kept = f"; kept {n_kept} that another study shares" if n_kept else ""
    echo(f"removed {pluralise(len(removed), 'run')}{kept}")


def _select_for_removal(store: Store, names: Sequence[str], only: Sequence[str]) -> dict[str, list[str]]:
    """The ids of the runs to remove, by study; a run that is named itself is removed from every study that has it."""
    from seedbed.report.study_runs import matching_runs

    stored = {study: [run.run for run in runs] for study, runs in store.progress().items()}
    studies = {study.name for study in store.studies()}
    selected: dict[str, list[str]] = {}
    for name in stored_study_names(names):
        if name in studies:
            found = [run.id for run in matching_runs(store, name, only)] if only else stored.get(name, [])
            selected.setdefault(name, []).extend(found)
        elif only:
            raise UsageError(f"{name} is not a stored study, and --only selects among the runs of one")
        else:
            run = store.find_target(name)[1]
            for study, runs in stored.items():
                if run in runs:
                    selected.setdefault(study, []).append(run)
    return selected


@app.command("export", epilog="Example: seedbed export arithmetic/sanity --out lab.zip --weights last")
def export_runs(
    names: Annotated[list[str], typer.Argument(help="one or more stored studies, by name or file")],
    out: Annotated[Path, typer.Option(help="the archive to write; compressed if it ends in .xz")],
    only: OnlyOption = [], home: HomeOption = DEFAULT_HOME,  # noqa: B006
    weights: Annotated[str, typer.Option(help="of each run: last, all or none")] = "none",
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="also what it takes to go on with unfinished runs")
    ] = False,
) -> None:  # fmt: skip
    """Write runs with their evaluations, samples, costs and analyses to one file, for `import` on another machine."""
    from seedbed.api.archives import export_archive

    reject_settings("export", names)
    studies = stored_study_names(names)
    echo(export_archive(studies, out, home=home, only=only, weights=weights, unfinished=unfinished))  # type: ignore[arg-type]


@app.command("import", epilog="Example: seedbed import lab.zip --home laptop")
def import_runs(
    archive: Annotated[Path, typer.Argument(help="an archive that `seedbed export` wrote")],
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Merge an archive into a home; of a run that both have, the one that was trained further is kept."""
    from seedbed.api.archives import import_archive

    echo(import_archive(archive, home, lambda size: echo(f"seedbed: {size}", err=True)))


@app.command("copy", epilog="Example: seedbed copy quickstart --to postgresql://ada@db.example/lab")
def copy_study(
    names: Annotated[list[str], typer.Argument(help="one or more stored studies, by name or file")],
    to: Annotated[str, typer.Option(help="a folder, or an address such as postgresql://USER@HOST/DATABASE")],
    only: OnlyOption = [], home: HomeOption = DEFAULT_HOME,  # noqa: B006
    weights: Annotated[str, typer.Option(help="of each run: last, all or none")] = "all",
) -> None:  # fmt: skip
    """Copy runs with all that belongs to them to another store; of a run that both have, the further one is kept."""
    from seedbed.api.archives import copy_runs

    reject_settings("copy", names)
    echo(copy_runs(stored_study_names(names), to, home=home, only=only, weights=weights))  # type: ignore[arg-type]


@app.command(epilog='Example: seedbed note quickstart "seed 3 groks late"')
def note(
    target: StudyOrRunArgument, text: Annotated[str, typer.Argument(help="the note; an empty one deletes it")],
    home: HomeOption = DEFAULT_HOME,
) -> None:  # fmt: skip
    """Write a note on a study or run, which ls, show, reports and the page show; it replaces the one before."""
    from seedbed.store import open_store

    with open_store(home) as store:
        annotation = store.set_note(target, text)
    echo(f"note of {target}: {annotation.note or 'none'}", err=True)


@app.command(epilog="Example: seedbed tag quickstart grokked --remove draft")
def tag(
    target: StudyOrRunArgument,
    tags: Annotated[list[str] | None, typer.Argument(help="tags to add, one word each")] = None,
    remove: Annotated[list[str], typer.Option(help="a tag to remove; repeatable")] = [],  # noqa: B006
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Add tags to a study or run, or remove them; `--only tag=NAME` selects runs that have one."""
    from seedbed.store import open_store
    from seedbed.store.annotation_rows import check_tags

    check_tags(tags or ())
    with open_store(home) as store:
        store.remove_tags(target, remove)
        annotation = store.add_tags(target, tags or ())
    echo(f"tags of {target}: {', '.join(annotation.tags) or 'none'}", err=True)


@app.command(epilog="Example: seedbed upgrade --home lab")
def upgrade(home: HomeOption = DEFAULT_HOME) -> None:
    """Upgrade a store of an earlier version to the current schema; the old database is kept as a copy next to it."""
    from seedbed.store import upgrade_store

    echo(upgrade_store(home))


HomeArgument = Annotated[
    Path | None, typer.Argument(metavar="[HOME]", help="the home, instead of --home", show_default=False)
]


def _reject_server(verb: str) -> None:
    """UsageError if the rows are not in the home: its server verifies pages, and this reads files."""
    if os.environ.get("SEEDBED_STORE"):
        raise UsageError(f"{verb} is for the database in a home; leave out --store, and unset SEEDBED_STORE")


@app.command(epilog="Example: seedbed doctor lab")
def doctor(folder: HomeArgument = None, home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Examine a home without changing it: damaged and vanished rows and files, what was left over, SQLite, the disk."""
    from seedbed.errors import DamagedHome
    from seedbed.format import pluralise
    from seedbed.store.doctor import examine

    _reject_server("doctor")
    found = examine(home if folder is None else folder)
    if as_json:
        print_json(found.as_json())
    else:
        for finding in found.findings:
            echo(finding)
    if n_errors := len(found.errors):
        raise DamagedHome(f"{found.home} has {pluralise(n_errors, 'error')}; nothing was changed")
    if not as_json:
        examined = f"is healthy: {found.examined} examined" if found.counts else "has no errors"
        echo(f"{found.home} {examined}")


@app.command(epilog="Example: seedbed repair lab --out lab-repaired")
def repair(
    out: Annotated[Path, typer.Option(help="the folder of the new home, which must not exist yet")],
    folder: HomeArgument = None, home: HomeOption = DEFAULT_HOME,
) -> None:  # fmt: skip
    """Write a new home with everything of a damaged one that can be verified, and say what could not be saved."""
    from seedbed.store.repair import repair_home

    _reject_server("repair")
    done = repair_home(home if folder is None else folder, out)
    for loss in done.losses:
        echo(f"not saved: {loss}")
    echo(done)


@app.command(epilog="Example: seedbed serve --port 8765 --no-browser")
def serve(
    home: HomeOption = DEFAULT_HOME,
    port: Annotated[int, typer.Option(min=0, max=65535, help="port to listen on; 0: any free port")] = 8765,
    host: Annotated[
        str, typer.Option(help="address to listen on; beyond loopback, other machines can connect")
    ] = "127.0.0.1",
    browser: Annotated[bool, typer.Option(help="open the page in a browser")] = True,
) -> None:
    """Serve the web interface: monitor and start studies, compare runs, inspect and sample models; Ctrl-C stops it."""
    from seedbed.web.server import serve as serve_page

    serve_page(home, host, port, browser)
