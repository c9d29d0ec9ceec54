"""The command line: verbs only. Results go to stdout, the rest to stderr; heavy imports stay inside the verbs."""

from __future__ import annotations

import functools
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seedbed import __version__
from seedbed.data_verbs import data_app
from seedbed.errors import Busy, SeedbedError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from seedbed.generate.load import Loaded
    from seedbed.pipeline import Machine
    from seedbed.records import Plan, StoredRun
    from seedbed.report.tables import Table

app = typer.Typer(
    name="seedbed", no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A laboratory for small sequence models: train every run of a study side by side and read the answers.",
    epilog="Example: seedbed run quickstart",
)  # fmt: skip

Home = Annotated[Path, typer.Option(envvar="SEEDBED_HOME", help="folder of the store and its checkpoints")]
StudyArgument = Annotated[str, typer.Argument(help="a study file, or the name of a shipped study")]
StoredArgument = Annotated[str, typer.Argument(help="the name of a stored study")]
Words = Annotated[
    list[str] | None, typer.Argument(help="key=value: overrides where a study is planned, filters where it is read")
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document instead of a table")]
PrintConfig = Annotated[bool, typer.Option("--print-config", help="print the resolved study and do nothing else")]
Device = Annotated[
    str | None, typer.Option(envvar="SEEDBED_DEVICE", help="cpu or cuda; default: cuda where there is one")
]
Workers = Annotated[int | None, typer.Option(min=1, help="worker processes on the CPU; default: one a core")]
Engine = Annotated[str | None, typer.Option(help="plain, graph or compiled; default: what pays for each pack")]
DEFAULT_HOME = Path("lab")


def main() -> None:
    app()


def verb(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes our errors one clear message and an exit code; `SEEDBED_TRACE=1` shows where they came from."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except SeedbedError as error:
            if os.environ.get("SEEDBED_TRACE"):
                raise
            for line in str(error).splitlines():
                typer.echo(f"seedbed: {line}", err=True)
            raise typer.Exit(error.exit_code) from None
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `seedbed … | head`: the reader has enough
            raise typer.Exit(0) from None

    return guarded


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"seedbed {__version__}")
        raise typer.Exit


def _show_traces(wanted: bool) -> None:
    if wanted:
        os.environ["SEEDBED_TRACE"] = "1"


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="print the version")
    ] = False,
    trace: Annotated[
        bool, typer.Option("--trace", callback=_show_traces, help="show where an error came from")
    ] = False,
) -> None:
    pass


app.add_typer(data_app(verb), name="data")


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
    device: Device = None, workers: Workers = None,
    as_json: Json = False, print_config: PrintConfig = False,
) -> None:  # fmt: skip
    """Show a study's points, runs, packs and sizes, and what is done already; computes nothing."""
    from seedbed.pipeline import packs_of

    planned = _plan(study, words)
    if print_config:
        typer.echo(planned.text, nl=False)
        return
    done = _stored_statuses(home)
    machine = _machine(device, workers)
    packs = packs_of(planned, machine)
    if as_json:
        from seedbed.report.overview import plan_as_json

        _print_json(plan_as_json(planned, packs, done))
    else:
        from seedbed.report.overview import plan_tables

        _print_tables(plan_tables(planned, packs, done, machine.device))


@app.command(epilog="Example: seedbed run arithmetic/sanity train.steps=2001 seeds=5")
@verb
def run(
    study: StudyArgument, words: Words = None, home: Home = DEFAULT_HOME,
    device: Device = None, workers: Workers = None, engine: Engine = None,
    restart: Annotated[bool, typer.Option(help="train unfinished runs from step 0 instead of going on")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no progress")] = False,
    print_config: PrintConfig = False,
) -> None:  # fmt: skip
    """Train every run of a study that is not done yet; the same command again goes on where it was."""
    planned = _plan(study, words)
    if print_config:
        typer.echo(planned.text, nl=False)
        return
    from seedbed.pipeline import run_study
    from seedbed.progress import Watcher

    if restart:
        _forget_unfinished(home, planned)
    errors = _console(stderr=True)
    with _stop_signals() as caught, Watcher(errors, quiet) as watcher:
        outcome = run_study(planned, home, _machine(device, workers, engine), watcher, lambda: bool(caught))
    again = shlex.join(
        ["seedbed", "run", study, *(words or ()), *([] if home == DEFAULT_HOME else ["--home", str(home)])]
    )
    if outcome.stopped and caught:
        typer.echo(f"stopped; everything up to here is saved. Go on with: {again}", err=True)
        raise typer.Exit(128 + caught[0])
    if outcome.busy:
        raise Busy("; ".join(outcome.busy) + f"; when it is done: {again}")
    _show_study(home, planned.study, words or [], None)
    typer.echo(
        f"{_counts(outcome.counts)}; results in {home / 'store.db'}, more with: seedbed show {planned.study}", err=True
    )
    if outcome.counts.get("failed"):
        typer.echo(
            f"some runs failed; see why with: seedbed ls {planned.study}; try them again with: {again}", err=True
        )
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
            _print_tables([studies_table(store.studies())])
            return
        names = [one.name for one in store.studies()] if study is None else [study]
        runs = {name: covered_runs(store, name, words or ()) for name in names}
        if as_json:
            _print_json(runs_as_json(store, runs))
        else:
            _print_tables([runs_table(store, name, some) for name, some in runs.items()])


@app.command(epilog="Example: seedbed show arithmetic/sanity --t-max 0.5")
@verb
def show(
    study: Annotated[str, typer.Argument(help="the name of a stored study, or a run's id")],
    words: Words = None, home: Home = DEFAULT_HOME, as_json: Json = False,
    t_max: Annotated[str | None, typer.Option(help="as if stopped there: a step, or a share of T such as 0.3")] = None,
    form: Annotated[str, typer.Option("--format", help="text, markdown, csv or latex")] = "text",
) -> None:  # fmt: skip
    """Print the study's table: best loss and accuracy, when each was reached, mean ± std over seeds."""
    _check_t_max(t_max)
    _show_study(home, study, words or [], t_max, as_json, form)


@app.command(epilog="Example: seedbed answer arithmetic/sanity")
@verb
def answer(study: StoredArgument, words: Words = None, home: Home = DEFAULT_HOME, as_json: Json = False) -> None:
    """Answer the study's questions in sentences, with their uncertainty and the number of runs."""
    from seedbed.measures.answers import question_in_words
    from seedbed.report.answered import answers_as_json, answers_of
    from seedbed.store.store import Store

    with Store.read(home) as store:
        answers = answers_of(store, study, words or ())
    if as_json:
        _print_json(answers_as_json(study, answers))
        return
    for found in answers:
        warning = f"\n  ({found.warning})" if found.warning else ""
        typer.echo(f"{question_in_words(found.question)}\n  {found.sentence}{warning}\n")
    if not answers:
        typer.echo(f"{study} asks nothing; add [[questions]] to its file and `seedbed run` it again", err=True)


@app.command(epilog="Example: seedbed compare arithmetic/sanity model.kind=gpt model.kind=lstm")
@verb
def compare(
    names: Annotated[list[str], typer.Argument(help="a study with words or a setting to split it by; studies; runs")],
    metric: Annotated[str, typer.Option(help="the reading to compare")] = "val/accuracy",
    value: Annotated[str, typer.Option(help="best, t_f, last, gap, delta_t, seconds or memory")] = "best",
    home: Home = DEFAULT_HOME, as_json: Json = False,
) -> None:  # fmt: skip
    """Compare points, runs or studies over seeds: effect, 95 % interval and an exact test."""
    from seedbed.measures.answers.better import compare_groups
    from seedbed.report.answered import comparison_as_json, gather_groups, subject_named
    from seedbed.store.store import Store

    subject = subject_named(metric, value)
    with Store.read(home) as store:
        groups = gather_groups(store, names)
    found = compare_groups(groups, subject)
    if as_json:
        _print_json(comparison_as_json(groups, found))
    else:
        typer.echo("\n".join([found.sentence, *(f"  ({note})" for note in found.notes)]))


@app.command(epilog="Example: seedbed report arithmetic/data-size")
@verb
def report(
    names: Annotated[list[str], typer.Argument(help="one study or several; key=value words choose among their runs")],
    home: Home = DEFAULT_HOME,
    out: Annotated[Path | None, typer.Option(help="folder to write; default: HOME/reports/STUDY")] = None,
) -> None:
    """Write a study as one page with answers, figures and tables, and its pictures and tables as files beside it."""
    from seedbed.report.page import write_report

    studies, words = [name for name in names if "=" not in name], [name for name in names if "=" in name]
    if not studies:
        raise UsageError("report needs the name of a stored study; `seedbed ls` shows them")
    typer.echo(write_report(home, studies, words, out))


Dial = Annotated[str | None, typer.Option(help="a dial, such as model.layers")]


@app.command(epilog="Example: seedbed plot quickstart --metrics val/loss --out loss.svg")
@verb
def plot(
    study: StoredArgument, words: Words = None, home: Home = DEFAULT_HOME,
    kind: Annotated[str | None, typer.Option(help="curves, against, bars, level or parallel")] = None,
    metrics: Annotated[str | None, typer.Option(help="readings, with commas between them")] = None,
    value: Annotated[str | None, typer.Option(help="best, t_f, last, gap, delta_t, seconds or memory")] = None,
    x: Annotated[str | None, typer.Option(help="step, epoch, tokens, time, parameters, alpha, or a dial")] = None,
    colour: Dial = None, dash: Dial = None, row: Dial = None, column: Dial = None,
    x_scale: Annotated[str | None, typer.Option(help="linear, log or log2")] = None,
    y_scale: Annotated[str | None, typer.Option(help="linear or log")] = None,
    colour_scale: Annotated[str | None, typer.Option(help="linear, log or log2")] = None,
    alphas: Annotated[str | None, typer.Option(help="shares of T to replay at, with commas between them")] = None,
    stopping: Annotated[str | None, typer.Option(help="reading whose stopping advice is marked on the curves")] = None,
    title: Annotated[str | None, typer.Option(help="in words")] = None,
    figure: Annotated[int | None, typer.Option(min=1, help="the study's own figure of this number instead")] = None,
    look: Annotated[str, typer.Option(help="light or dark")] = "light",
    out: Annotated[Path | None, typer.Option(help="file: .svg, .png, .pdf or .json; without it: as text")] = None,
) -> None:  # fmt: skip
    """Draw one chart of a study: into a file, or as a preview in the terminal."""
    from seedbed.report.figures import asked_figure, preview_figure, with_stopping, write_figure
    from seedbed.report.gather import gather_curves
    from seedbed.store.store import Store
    from seedbed.study.shows import shown_in

    options = {
        "kind": kind, "metrics": _listed(metrics), "value": value, "x": x, "colour": colour, "dash": dash, "row": row,
        "column": column, "x_scale": x_scale, "y_scale": y_scale, "colour_scale": colour_scale, "title": title,
        "alphas": _numbers("--alphas", alphas), "stopping": stopping,
    }  # fmt: skip
    with Store.read(home) as store:
        runs = gather_curves(store, study, words or ())
        asked = asked_figure(options, runs, with_stopping(shown_in(store.study(study).text)), figure)
    if out is None:
        typer.echo(preview_figure(asked, runs))
    else:
        write_figure(asked, runs, out, look)
        typer.echo(out)


RunArgument = Annotated[str, typer.Argument(help="a run's id, or the start of it")]
Step = Annotated[str, typer.Option(help="whose weights: last, best, or a step that was kept")]


@app.command(epilog='Example: seedbed sample 3f2a --prompt "my lord" --temperature 0.8')
@verb
def sample(
    run: RunArgument, home: Home = DEFAULT_HOME, step: Step = "last",
    prompt: Annotated[str, typer.Option(help="what the text begins with; empty: a new line, or BOS")] = "",
    tokens: Annotated[int, typer.Option(help="tokens to write")] = 500,
    temperature: Annotated[float, typer.Option(help="0: always the likeliest token; 1: as the model has it")] = 1.0,
    top_k: Annotated[int, typer.Option(help="only the k likeliest tokens; 0: all")] = 0,
    top_p: Annotated[float, typer.Option(help="only the likeliest tokens that together have this share")] = 1.0,
    seed: Annotated[int, typer.Option(help="of the draws; the same seed writes the same text")] = 0,
    n: Annotated[int, typer.Option("-n", help="number of texts")] = 1,
    hop: Annotated[int | None, typer.Option(help="tokens the window moves by past the context; 0: reads on")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Let a run write on from a prompt; of arithmetic, answer an equation such as "12 + 8 =" with probabilities."""
    from seedbed.generate.told import Told

    told = Told(_load(run, home, step), _typed(prompt))
    for notice in told.notices:
        typer.echo(f"seedbed: {notice}", err=True)
    pieces = told.pieces(tokens, temperature, top_k, top_p, seed, n, hop)
    if as_json:
        _print_json(told.as_json(pieces))
    else:
        for text in told.as_text(pieces):
            typer.echo(text, nl=False)


@app.command(epilog="Example: seedbed read 3f2a letter.txt")
@verb
def read(
    run: RunArgument, file: Annotated[Path, typer.Argument(help="a text file; - reads what is piped in")],
    home: Home = DEFAULT_HOME, step: Step = "last",
    top: Annotated[int, typer.Option(min=0, help="how many of the most surprising words to show")] = 10,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Tell how surprising a text is to a run: bits per character and byte, and its most surprising words."""
    from seedbed.generate.told import surprisal_as_json, surprisal_lines

    loaded = _load(run, home, step)
    read = loaded.surprisal(_text_of(file))
    if as_json:
        _print_json(surprisal_as_json(loaded, read, top))
    else:
        typer.echo("\n".join(surprisal_lines(loaded, read, top)))


@app.command(epilog='Example: seedbed attend 3f2a "12 + 8 = 20" --out attention.svg')
@verb
def attend(
    run: RunArgument, texts: Annotated[list[str], typer.Argument(help="a text or several, each with maps of its own")],
    home: Home = DEFAULT_HOME,
    step: Annotated[str, typer.Option(help="last, best, kept steps with commas between them, or all")] = "last",
    layer: Annotated[str | None, typer.Option(help="layers from 1, with commas between them; unset: all")] = None,
    head: Annotated[str | None, typer.Option(help="heads from 1, with commas between them; unset: all")] = None,
    by: Annotated[str, typer.Option(help="token, or word: characters and pieces gathered")] = "token",
    look: Annotated[str, typer.Option(help="light or dark")] = "light",
    out: Annotated[Path | None, typer.Option(help="file: .svg, .png, .pdf or .json; without it: as text")] = None,
) -> None:  # fmt: skip
    """Show what each token of a text looks at, in every layer and head; of an LSTM, its input gradients."""
    from seedbed.report.attended import attended, preview_maps, write_maps

    layers, heads = _counted("--layer", layer), _counted("--head", head)
    maps = attended(home, run, [_typed(text) for text in texts], step, layers, heads, by)
    if out is None:
        typer.echo(preview_maps(maps))
    else:
        write_maps(maps, out, look)
        typer.echo(out)


@app.command(epilog="Example: seedbed taps 3f2a")
@verb
def taps(run: RunArgument, home: Home = DEFAULT_HOME, step: Step = "last", as_json: Json = False) -> None:
    """List the places inside a run's model that can be read and replaced (docs/taps.md)."""
    from seedbed.models.taps import tap_names

    names = tap_names(_load(run, home, step).model)
    if as_json:
        _print_json(names)
    else:
        typer.echo("\n".join(names))


@app.command(epilog="Example: seedbed heads arithmetic/sanity model.kind=gpt --ablation")
@verb
def heads(
    study: Annotated[str, typer.Argument(help="the name of a stored study, or a run's id")],
    words: Words = None, home: Home = DEFAULT_HOME, step: Step = "last", as_json: Json = False,
    inputs: Annotated[int, typer.Option(min=1, help="held-out inputs to look at")] = 64,
    ablation: Annotated[bool, typer.Option("--ablation", help="also the loss without each part")] = False,
    form: Annotated[str, typer.Option("--format", help="text, markdown, csv or latex")] = "text",
) -> None:  # fmt: skip
    """Tell what heads look at, over seeds and real inputs; of an LSTM its gates; of arithmetic also its circles."""
    from seedbed.report.inside import inside_as_json, inside_tables, look_into_points

    points = look_into_points(home, study, words or (), inputs, ablation, step)
    if as_json:
        _print_json([inside_as_json(point) for point in points])
    else:
        for point in points:
            _print_tables(inside_tables(point), form)


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


# ---- what the verbs share ----


def _load(run: str, home: Path, step: str) -> Loaded:
    from seedbed import load

    if step in ("last", "best"):
        return load(run, home, step)  # type: ignore[arg-type]
    if not step.isdecimal():
        raise UsageError(f"--step {step}: expected last, best, or a step such as 5000")
    return load(run, home, int(step))


def _typed(prompt: str) -> str:
    """A prompt as it was typed; bytes that are no UTF-8 arrive as lone surrogates."""
    for at, sign in enumerate(prompt):
        if 0xD800 <= ord(sign) < 0xE000:
            raise UsageError(f"--prompt: byte 0x{ord(sign) & 0xFF:02X} (character {at + 1}) is not UTF-8")
    return prompt


def _text_of(file: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read ({error.strerror}); name a text file, or - for standard input"
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 (byte 0x{data[error.start]:02X} at {error.start})") from None


def _listed(words: str | None) -> tuple[str, ...] | None:
    """Names with commas between them, as in `train/loss,val/loss`."""
    return None if words is None else tuple(word.strip() for word in words.split(","))


def _numbers(option: str, words: str | None) -> tuple[float, ...] | None:
    try:
        return None if words is None else tuple(float(word) for word in words.split(","))
    except ValueError:
        raise UsageError(f"{option} {words}: expected numbers with commas between them, such as 0.1,0.5,1.0") from None


def _counted(option: str, words: str | None) -> tuple[int, ...] | None:
    """Places from 1 with commas between them, as places from 0."""
    numbers = _listed(words)
    if numbers is None:
        return None
    if not all(number.isdecimal() and int(number) for number in numbers):
        raise UsageError(f"{option} {words}: expected whole numbers from 1 with commas between them, such as 1,4")
    return tuple(int(number) - 1 for number in numbers)


def _plan(study: str, words: Sequence[str] | None) -> Plan:
    from seedbed.study.plan import plan_named

    planned = plan_named(study, words or ())
    for warning in planned.warnings:
        typer.echo(f"seedbed: warning: {warning}", err=True)
    return planned


def _machine(device: str | None, workers: int | None, engine: str | None = None) -> Machine:
    from seedbed.pipeline import Machine

    for option, value, accepted in (
        ("--device", device, ("cpu", "cuda")), ("--engine", engine, ("plain", "graph", "compiled")),
    ):  # fmt: skip
        if value is not None and value not in accepted:
            raise UsageError(f"{option} {value}: expected {' or '.join(accepted)}")
    return Machine.here(device, workers, engine)


def _stored_statuses(home: Path) -> dict[str, str]:
    """Statuses by run id; empty where there is no store yet."""
    if not (home / "store.db").exists():
        return {}
    from seedbed.store.store import Store

    with Store.read(home) as store:
        return {run.id: run.status for run in store.runs()}


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
    from seedbed.store.store import Store

    with Store.read(home) as store:
        if study not in {one.name for one in store.studies()} and (run := _find_run(store, study)) is not None:
            if as_json:
                _print_json(run_as_json(store, run))
            else:
                _print_tables(run_tables(store, run), form)
            return
        summaries = summarise(gather_curves(store, study, words, t_max))
    if as_json:
        _print_json(to_json(summaries))
    else:
        _print_tables(point_tables(summaries), form)


def _find_run(store: Any, prefix: str) -> StoredRun | None:
    from seedbed.errors import MissingData

    try:
        return store.run(prefix)  # type: ignore[no-any-return]
    except (MissingData, UsageError):
        return None


def _check_t_max(t_max: str | None) -> None:
    try:
        good = t_max is None or (0 < float(t_max) <= 1 if "." in t_max else int(t_max) >= 0)
    except ValueError:
        good = False
    if not good:
        raise UsageError(
            f"--t-max {t_max}: expected a step such as 5000, or a share of T above 0 and up to 1.0 such as 0.3"
        )


def _print_tables(tables: Sequence[Table], form: str = "text") -> None:
    from seedbed.report.tables import to_csv, to_latex, to_markdown, to_text

    writers = {"markdown": to_markdown, "csv": to_csv, "latex": to_latex}
    if form == "text":
        console = _console()
        for table in tables:
            console.print(to_text(table))
    elif form in writers:
        typer.echo("\n".join(writers[form](table) for table in tables))
    else:
        raise UsageError(f"--format {form}: expected text, markdown, csv or latex")


def _print_json(document: Any) -> None:
    from seedbed.records import jsonable

    typer.echo(json.dumps(jsonable(document), indent=1, ensure_ascii=False, allow_nan=False))


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=120)


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


if __name__ == "__main__":
    main()
