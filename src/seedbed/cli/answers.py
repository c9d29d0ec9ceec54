"""Verbs that answer and draw from a stored study: answer, compare, report, plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from seedbed.cli.common import DEFAULT_HOME, Home, Json, StoredArgument, Words, app, listed, print_json, verb
from seedbed.errors import UsageError

Dial = Annotated[str | None, typer.Option(help="a dial, such as model.layers")]


@app.command(epilog="Example: seedbed answer arithmetic/sanity")
@verb
def answer(study: StoredArgument, words: Words = None, home: Home = DEFAULT_HOME, as_json: Json = False) -> None:
    """Answer the study's questions in sentences, with their uncertainty and the number of runs."""
    from seedbed.measures.answers import question_in_words
    from seedbed.report.answered import answers_as_json, answers_of
    from seedbed.store.store import Store

    _look(home, [study], words or ())
    with Store.read(home) as store:
        answers = answers_of(store, study, words or ())
    if as_json:
        print_json(answers_as_json(study, answers))
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
        print_json(comparison_as_json(groups, found))
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
    _look(home, studies, words)
    typer.echo(write_report(home, studies, words, out))


@app.command(epilog="Example: seedbed plot quickstart --metrics val/loss --out loss.svg")
@verb
def plot(
    study: StoredArgument, words: Words = None, home: Home = DEFAULT_HOME,
    kind: Annotated[str | None, typer.Option(help="curves, against, bars, level, parallel or circle")] = None,
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
    from seedbed.inside.looks import is_inside
    from seedbed.report.figures import asked_figure, preview_figure, with_stopping, write_figure
    from seedbed.report.gather import gather_curves
    from seedbed.store.store import Store
    from seedbed.study.shows import shown_in

    options = {
        "kind": kind, "metrics": listed(metrics), "value": value, "x": x, "colour": colour, "dash": dash, "row": row,
        "column": column, "x_scale": x_scale, "y_scale": y_scale, "colour_scale": colour_scale, "title": title,
        "alphas": _numbers("--alphas", alphas), "stopping": stopping,
    }  # fmt: skip
    with Store.read(home) as store:
        runs = gather_curves(store, study, words or (), inside=[*filter(is_inside, listed(metrics) or ())])
        asked = asked_figure(options, runs, with_stopping(shown_in(store.study(study).text)), figure)
    if asked.kind in ("attention", "circle") or any(map(is_inside, asked.metrics)):
        _look(home, [study], words or ())
        with Store.read(home) as store:
            runs = gather_curves(store, study, words or (), inside=[*filter(is_inside, asked.metrics)])
    if out is None:
        typer.echo(preview_figure(asked, runs))
    else:
        write_figure(asked, runs, out, look)
        typer.echo(out)


def _look(home: Path, studies: Sequence[str], words: Sequence[str]) -> None:
    """Looks into runs where their studies ask for it and it was not done; only then torch is loaded."""
    from seedbed.report.looks import keep_looks

    for study in studies:
        if made := keep_looks(home, study, words):
            typer.echo(f"seedbed: looked into {study} ({made} checkpoints)", err=True)


def _numbers(option: str, words: str | None) -> tuple[float, ...] | None:
    try:
        return None if words is None else tuple(float(word) for word in words.split(","))
    except ValueError:
        raise UsageError(f"{option} {words}: expected numbers with commas between them, such as 0.1,0.5,1.0") from None
