"""Commands on the results of a stored study: answer, compare, analyze, report, plot, ensemble, results."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seedbed.cli.common import (
    DEFAULT_HOME,
    DeviceOption,
    FormatOption,
    HomeOption,
    JsonOption,
    OnlyOption,
    StoredStudyArgument,
    ThemeOption,
    app,
    echo,
    format_command,
    print_json,
    print_sentences,
    print_tables,
    reject_settings,
    split_commas,
    stored_study_names,
)
from seedbed.errors import UsageError
from seedbed.format import join_words, pluralise
from seedbed.specs import FIGURE_KINDS, STATISTIC_NAMES

if TYPE_CHECKING:
    from seedbed.store import Store

STATISTICS = join_words(list(STATISTIC_NAMES), "or")
PLOT_KINDS = join_words([name for name, required in FIGURE_KINDS.items() if not required], "or")
ColourOption = Annotated[str | None, typer.Option(help="setting shown by colour, such as model.layers")]
DashOption = Annotated[str | None, typer.Option(help="setting shown by line dash")]
RowOption = Annotated[str | None, typer.Option(help="setting with one row of panels per value")]
ConfoundedOption = Annotated[
    bool, typer.Option("--confounded", help="give a verdict although the groups differ in other settings as well")
]
ColumnOption = Annotated[str | None, typer.Option(help="setting with one column of panels per value")]


@app.command(epilog="Example: seedbed answer arithmetic/sanity")
def answer(
    study: StoredStudyArgument, only: OnlyOption = [],  # noqa: B006
    home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Answer the study's questions in sentences, with their uncertainty and the number of runs."""
    from seedbed.interp.analysis import is_analysis_metric
    from seedbed.report.study_answers import answer_study, answers_as_json
    from seedbed.stats.answers import all_definitions, answer_lines
    from seedbed.store import open_store

    with open_store(home, read_only=True) as store:
        answers = answer_study(store, study, only)
        if any(is_analysis_metric(one.question.metric) for one in answers):
            _name_missing_analyses(store, home, study, only)
    if as_json:
        print_json(answers_as_json(study, answers))
        return
    for one in answers:
        print_sentences([*answer_lines(one), ""])
    print_sentences(all_definitions(answers))
    if not answers:
        echo(f"{study} has no [[questions]], and no run yet that default questions could be asked of", err=True)


@app.command(epilog="Example: seedbed compare arithmetic/sanity model.kind=gpt model.kind=lstm")
def compare(
    names: Annotated[list[str], typer.Argument(help="studies, runs, or one study with filters or a setting")],
    metric: Annotated[str | None, typer.Option(help="the metric to compare; default: the main one")] = None,
    value: Annotated[str, typer.Option(help=STATISTICS)] = "best",
    confounded: ConfoundedOption = False,
    only: OnlyOption = [], home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False,  # noqa: B006
) -> None:  # fmt: skip
    """Compare configs, runs or studies over seeds: effect, 95 % interval and test."""
    from seedbed.api.answer_views import compare_runs
    from seedbed.interp.analysis import is_analysis_metric
    from seedbed.report.study_answers import comparison_as_json
    from seedbed.stats.answers.finding import finding_lines
    from seedbed.store import open_store

    groups = stored_study_names(names)
    with open_store(home, read_only=True) as store:
        if is_analysis_metric(metric or ""):
            for study in sorted({one.name for one in store.studies()}.intersection(groups)):
                _name_missing_analyses(store, home, study, only)
        comparison = compare_runs(store, groups, metric, value, only, confounded)
    if as_json:
        print_json(comparison_as_json(comparison.groups, comparison.finding))
    else:
        print_sentences([*finding_lines(comparison.finding), "", *comparison.finding.definitions])


@app.command(epilog="Example: seedbed analyze arithmetic/sanity")
def analyze(
    names: Annotated[list[str], typer.Argument(help="one or more stored studies, by name or file")],
    only: OnlyOption = [], home: HomeOption = DEFAULT_HOME,  # noqa: B006
) -> None:  # fmt: skip
    """Compute and store what a study shows of its trained models: attention, circles, predictions of held-out texts.

    Only `analyze` and `report` do so; `answer`, `plot`, `show` and `compare` read what is stored, and name what is not.
    """
    reject_settings("analyze", names)
    for study in stored_study_names(names):
        if not _run_missing_analyses(home, study, only):
            echo(f"{study}: every analysis that its figures and questions need, and can have, is stored")


@app.command(epilog="Example: seedbed report arithmetic/data-size")
def report(
    names: Annotated[list[str], typer.Argument(help="one or more stored studies, by name or file")],
    only: OnlyOption = [],  # noqa: B006
    home: HomeOption = DEFAULT_HOME,
    out: Annotated[Path | None, typer.Option(help="folder to write; default: HOME/reports/STUDY")] = None,
    pdf: Annotated[
        bool, typer.Option("--pdf", help="print the page to index.pdf beside it as well, by Chromium")
    ] = False,
) -> None:
    """Write a report: one HTML page with answers, figures and tables, which are also written as files of their own."""
    from seedbed.report.html_report import find_browser, write_pdf, write_report

    browser = find_browser() if pdf else ""  # before anything is computed
    reject_settings("report", names)
    studies = stored_study_names(names)
    for study in studies:
        _run_missing_analyses(home, study, only)
    page = write_report(home, studies, only, out)
    echo(page)
    if pdf:
        echo(write_pdf(page, browser))


@app.command(epilog="Example: seedbed plot quickstart --metrics val/loss --out loss.svg")
def plot(
    study: StoredStudyArgument, only: OnlyOption = [], home: HomeOption = DEFAULT_HOME,  # noqa: B006
    kind: Annotated[str | None, typer.Option(help=PLOT_KINDS)] = None,
    metrics: Annotated[str | None, typer.Option(help="comma-separated metrics")] = None,
    value: Annotated[str | None, typer.Option(help=STATISTICS)] = None,
    x: Annotated[str | None, typer.Option(help="step, epoch, tokens, time, parameters, alpha, or a setting")] = None,
    colour: ColourOption = None, dash: DashOption = None, row: RowOption = None, column: ColumnOption = None,
    x_scale: Annotated[str | None, typer.Option(help="auto, linear, log or log2")] = None,
    y_scale: Annotated[str | None, typer.Option(help="linear or log")] = None,
    colour_scale: Annotated[str | None, typer.Option(help="auto, linear, log or log2")] = None,
    alphas: Annotated[str | None, typer.Option(help="comma-separated fractions of steps to truncate runs at")] = None,
    stopping: Annotated[str | None, typer.Option(help="metric whose stopping advice is marked on the curves")] = None,
    title: Annotated[str | None, typer.Option(help="title of the figure")] = None,
    figure: Annotated[int | None, typer.Option(min=1, help="number of a figure that the study declares")] = None,
    theme: ThemeOption = "light",
    style: Annotated[str, typer.Option(help="screen, or paper: a column wide, no title")] = "screen",
    out: Annotated[Path | None, typer.Option(help="file: .svg, .png, .pdf or .json; default: preview as text")] = None,
) -> None:  # fmt: skip
    """Draw one chart of a study to a file, or as a preview in the terminal."""
    from seedbed.charts.chart_kinds import CHART_KINDS
    from seedbed.report.figures import check_theme, load_figure, preview_figure, write_figure
    from seedbed.store import open_store

    check_theme(theme, style)
    try:
        fractions = None if alphas is None else tuple(map(float, alphas.split(",")))
    except ValueError:
        raise UsageError(f"--alphas {alphas}: expected comma-separated numbers, such as 0.1,0.5,1.0") from None
    options = {
        "kind": kind, "metrics": split_commas(metrics), "value": value, "x": x, "colour": colour, "dash": dash,
        "row": row, "column": column, "x_scale": x_scale, "y_scale": y_scale, "colour_scale": colour_scale,
        "title": title, "alphas": fractions, "stopping": stopping,
    }  # fmt: skip
    spec, runs = load_figure(home, study, only, options, figure)
    if CHART_KINDS[spec.kind].shows_analyses(spec):
        with open_store(home, read_only=True) as store:
            _name_missing_analyses(store, home, study, only)
    if out is None:
        echo(preview_figure(spec, runs))
    else:
        write_figure(spec, runs, out, theme, style)
        echo(out)


@app.command(epilog="Example: seedbed ensemble characters/heads --only heads=4")
def ensemble(
    study: StoredStudyArgument, only: OnlyOption = [],  # noqa: B006
    home: HomeOption = DEFAULT_HOME,
    step: Annotated[str, typer.Option(help="checkpoint of each run: last or best")] = "last",
    device: DeviceOption = None, as_json: JsonOption = False,
    table_format: FormatOption = "text",
) -> None:  # fmt: skip
    """Evaluate the mean of the predictions of a config's seeds on held-out data, beside the single models."""
    from seedbed.api.planning import find_machine
    from seedbed.report.ensemble_analysis import ensemble_study, ensemble_table, ensembles_as_json

    results = ensemble_study(home, study, only, step, find_machine(device).device)
    if as_json:
        print_json(ensembles_as_json(results))
    else:
        print_tables([ensemble_table(study, results)], table_format)


@app.command(epilog="Example: seedbed results quickstart --metric val/accuracy --out curves.csv")
def results(
    study: StoredStudyArgument, only: OnlyOption = [],  # noqa: B006
    metric: Annotated[list[str], typer.Option(help="only this metric, such as val/loss; repeatable")] = [],  # noqa: B006
    file_format: Annotated[
        str | None, typer.Option("--format", help="csv, jsonl or parquet; default: by the suffix of --out, else csv")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="file to write; default: print to stdout")] = None,
    home: HomeOption = DEFAULT_HOME,
) -> None:  # fmt: skip
    """Export every evaluation: run, the settings that vary, seed, metric, step and value, numbers as numbers."""
    from seedbed.api.tidy_results import choose_file_format, load_results
    from seedbed.store import open_store

    chosen = choose_file_format(out, file_format)
    if chosen == "parquet" and out is None:
        raise UsageError("--format parquet needs a file: --out results.parquet")
    with open_store(home, read_only=True) as store:
        loaded = load_results(store, study, only, metric)
    if out is None:
        text = StringIO()
        loaded.write_text(text, chosen)
        echo(text.getvalue(), nl=False)
    else:
        loaded.write(out, chosen)
        echo(f"wrote {len(loaded):,} rows to {out}", err=True)


def _run_missing_analyses(home: Path, study: str, only: Sequence[str]) -> int:
    """Computes the analyses that a study needs and the store lacks, and says how many, and which it cannot."""
    from seedbed.report.stored_analyses import describe_failed_analyses, update_analyses
    from seedbed.store import open_store

    if n_analyzed := update_analyses(home, study, only):
        echo(f"seedbed: analysed {pluralise(n_analyzed, 'checkpoint')} of {study}", err=True)
    with open_store(home, read_only=True) as store:
        for sentence in describe_failed_analyses(store, study, only):
            echo(f"seedbed: {sentence}", err=True)
    return n_analyzed


def _name_missing_analyses(store: Store, home: Path, study: str, only: Sequence[str]) -> None:
    """Says which analyses are missing, and the command that computes them; computes none."""
    from seedbed.report.stored_analyses import describe_missing_analyses

    command = format_command("analyze", [study], only, home)
    for sentence in describe_missing_analyses(store, study, command, only):
        echo(f"seedbed: {sentence}", err=True)
