"""What a report consists of, as plain values: question, answers, figures, tables, how to make it again.

One section a study, and one over all of them where several are reported together. The page and other writers share it.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan

from seedbed.data.dataset_info import get_dataset_info
from seedbed.errors import MissingData, UsageError
from seedbed.records import RunStatus, StoredStudy
from seedbed.report.attention_tables import attention_tables
from seedbed.report.cost_tables import cost_tables
from seedbed.report.figures import RenderedFigure, default_figures, figures_with_stopping, render_figure
from seedbed.report.metrics_by_step import metrics_by_step_tables
from seedbed.report.study_runs import load_run_curves
from seedbed.report.tables import Table, config_tables
from seedbed.settings import TaskSettings, Value
from seedbed.specs import FigureSpec
from seedbed.stats.answers import Answer, answer_question
from seedbed.stats.curve_statistics import metric_direction
from seedbed.stats.groups import varying_settings
from seedbed.stats.summary import ConfigSummary, RunCurves, summarise
from seedbed.store.store import Store
from seedbed.study.declarations import Declarations, parse_declarations
from seedbed.study.study_files import parse_toml

STATUS_ORDER: tuple[RunStatus, ...] = ("finished", "running", "stopped", "planned", "diverged", "failed")
MAX_BEST_CONFIGS = 6  # points in the figure of the best of several studies


@dataclass(frozen=True)
class ReportSection:
    """One study, ready to be written."""

    name: str
    question: str
    status_line: str
    warnings: tuple[str, ...]
    answers: tuple[Answer, ...]
    figures: tuple[RenderedFigure, ...]
    tables: tuple[Table, ...]
    commands: tuple[str, ...]  # commands, to be given in the report's folder
    study_text: str  # the study as it was run, every setting written out; none for several studies together
    environment_tables: tuple[Table, ...]  # versions, hardware, data, settings


def build_study_section(store: Store, name: str, overrides: Sequence[str]) -> ReportSection:
    """Everything that a report says of one study, over the runs that the words ask for."""
    study, runs = store.study(name), load_run_curves(store, name, overrides)
    declared = parse_declarations(study.text)
    return ReportSection(
        name=name,
        question=study_question(study),
        status_line=status_summary(runs),
        warnings=tuple(study_warnings(runs)),
        answers=tuple(answer_question(question, runs) for question in declared.questions),
        figures=tuple(render_figure(figure, runs, name) for figure in study_figures(declared, runs)),
        tables=(
            *config_tables(summarise(runs)),
            *metrics_by_step_tables(runs),
            *attention_tables(declared, runs),
            *cost_tables(store, name, runs)[:1],
        ),
        commands=reproduction_commands([name], overrides),
        study_text=study.text,
        environment_tables=(*environment_tables(store, [name], runs), *cost_tables(store, name, runs)[1:]),
    )


def study_question(study: StoredStudy) -> str:
    """What the study asks, in its own words."""
    found = parse_toml(study.text, study.name).get("question", "")
    return str(found)


def study_figures(declared: Declarations, runs: Sequence[RunCurves]) -> tuple[FigureSpec, ...]:
    """The study's own figures, or what suits its runs."""
    if declared.figures:
        return figures_with_stopping(declared)
    return figures_with_stopping(replace(declared, figures=default_figures(runs)))


# ---- how it stands ----


def status_summary(runs: Sequence[RunCurves]) -> str:
    """`36 runs: 30 finished, 6 running.`"""
    counts = Counter(run.run.status for run in runs)
    said = ", ".join(f"{counts[status]} {status}" for status in STATUS_ORDER if counts[status])
    return f"{len(runs)} run{'s' * (len(runs) != 1)}: {said}."


def study_warnings(runs: Sequence[RunCurves]) -> Iterator[str]:
    """What keeps a reader from trusting the numbers too much."""
    if not any(run.run.status == "finished" for run in runs):
        yield "No run has finished yet: everything below is what is recorded so far."
    if not any(run.is_included for run in runs):
        yield "No run has a record that counts."
    seeds = Counter(run.run.settings for run in runs)
    if seeds and max(seeds.values()) == 1:
        yield "There is one seed a point: nothing below has a spread, and differences may be chance."
    for status in ("diverged", "failed"):
        causes = Counter(run.run.cause or "no cause is known" for run in runs if run.run.status == status)
        for cause, n in sorted(causes.items()):
            yield f"{n} run{'s' * (n != 1)} {status}: {cause}."


# ---- how to make it again ----


def reproduction_commands(names: Sequence[str], overrides: Sequence[str]) -> tuple[str, ...]:
    """What to type to train and report the same again."""
    run = [shlex.join(["seedbed", "run", study_file_name(name), *overrides]) for name in names]
    return (*run, shlex.join(["seedbed", "report", *names, *overrides]))


def study_file_name(name: str) -> str:
    """Where the study lies beside the page: words of the command line may have changed it since it was shipped."""
    return f"studies/{name.replace('/', '-')}.toml"


def environment_tables(store: Store, names: Sequence[str], runs: Sequence[RunCurves]) -> tuple[Table, ...]:
    """What the numbers depend on: versions and hardware, data, every setting."""
    return (_environment_table(store, names), _data_table(runs), _settings_table(runs))


def _environment_table(store: Store, names: Sequence[str]) -> Table:
    """What the runs were computed with, each different machine or version once."""
    packs = {pack.id: pack for name in names for pack in store.study_packs(name)}
    found: dict[tuple[tuple[str, str], ...], int] = {}
    for pack in packs.values():
        for environment in pack.environment:
            facts = tuple(sorted((name, str(value)) for name, value in environment.items() if name != "step"))
            found[facts] = found.get(facts, 0) + len(pack.runs)
    names_of = sorted({name for facts in found for name, _ in facts})
    columns = [dict(facts) for facts in found]
    rows = tuple((name, *(column.get(name, "–") for column in columns)) for name in names_of)
    heads = tuple(f"{n} run{'s' * (n != 1)}" for n in found.values())
    return Table("Versions and hardware", ("what", *heads), rows, () if rows else ("No run has begun.",))


def _data_table(runs: Sequence[RunCurves]) -> Table:
    tasks = Counter(run.run.settings.task for run in runs)
    counts: Counter[str] = Counter()
    for task, n in tasks.items():
        counts[_data_digest(task)] += n
    return Table("Data", ("digest", "runs"), tuple((digest, str(n)) for digest, n in sorted(counts.items())))


def _data_digest(task: TaskSettings) -> str:
    try:
        return get_dataset_info(task).digest
    except (MissingData, UsageError) as error:
        return f"not on this machine ({error})"


def _settings_table(runs: Sequence[RunCurves]) -> Table:
    """Every dial: its one value, or all values that it takes."""
    dials = [run.run.settings.flat() for run in runs]
    names = dict.fromkeys(name for one in dials for name in one)
    rows = [(name, _format_values([one[name] for one in dials if name in one])) for name in names]
    seeds = ", ".join(map(str, sorted({run.run.seed for run in runs})))
    return Table("Settings", ("dial", "value"), (*rows, ("seeds", seeds)), ("Several values: the dial varies.",))


def _format_values(values: Sequence[Value]) -> str:
    shown = list(dict.fromkeys("unset" if value is None else str(value) for value in values))
    return ", ".join(shown[:40]) + (f" and {len(shown) - 40} more" if len(shown) > 40 else "")


# ---- several studies together ----


def build_joint_section(store: Store, names: Sequence[str], overrides: Sequence[str]) -> ReportSection:
    """All runs of several studies as one: their best points, and one table in several orders (report C)."""
    runs = _unique_runs([run for name in names for run in load_run_curves(store, name, overrides)])
    summaries = summarise(runs)
    metric = _ranking_metric(summaries)
    ranked = sorted(summaries, key=lambda summary: _ranking_key(summary, metric))
    return ReportSection(
        name=" and ".join(names),
        question=f"What is best over {len(names)} studies?",
        status_line=status_summary(runs),
        warnings=tuple(study_warnings(runs)),
        answers=(),
        figures=_best_config_figures(runs, ranked[:MAX_BEST_CONFIGS], names),
        tables=tuple(_tables_by_order(ranked, summaries, metric)),
        commands=reproduction_commands(names, overrides),
        study_text="",
        environment_tables=(),
    )


def _unique_runs(runs: Sequence[RunCurves]) -> list[RunCurves]:
    """Each run once, its point made of the fewest dials that tell all points apart."""
    once = list({run.run.id: run for run in runs}.values())
    varied = varying_settings([once])
    dials = [run.run.settings.flat() for run in once]
    return [
        replace(run, config={name: own[name] for name in varied if name in own})
        for run, own in zip(once, dials, strict=True)
    ]


def _ranking_metric(summaries: Sequence[ConfigSummary]) -> str | None:
    """What points are ranked by: validation perplexity, loss or accuracy, the first that is there."""
    known = {name for summary in summaries for name in summary.metrics}
    wanted = ("val/perplexity", "val/loss", "val/accuracy")
    return next(
        (name for name in wanted if name in known), min((n for n in known if metric_direction(n)), default=None)
    )


def _ranking_key(summary: ConfigSummary, metric: str | None) -> tuple[bool, float]:
    found = summary.metrics.get(metric or "")
    mean = found.value.mean if found else nan
    worse = metric_direction(metric or "") == "max"
    return isnan(mean), -mean if worse else mean


def _tables_by_order(
    ranked: Sequence[ConfigSummary], as_planned: Sequence[ConfigSummary], metric: str | None
) -> Iterator[Table]:
    """From best to worst, as planned, and by the settings themselves; steps are not told three times."""
    if metric:
        yield from (replace(table, title=f"{table.title}, by {metric}") for table in config_tables(ranked))
    yield from (replace(table, title=f"{table.title}, by point") for table in config_tables(as_planned)[:1])
    by_settings = sorted(as_planned, key=_settings_sort_key)
    yield from (replace(table, title=f"{table.title}, by settings") for table in config_tables(by_settings)[:1])


def _settings_sort_key(summary: ConfigSummary) -> list[tuple[str, bool, float, str]]:
    """The model's settings first; numbers by size, words by letter."""
    dials = sorted(summary.config.items(), key=lambda dial: (not dial[0].startswith("model."), dial[0]))
    numbers = [value if isinstance(value, int | float) else nan for _, value in dials]
    return [
        (name, isnan(number), 0.0 if isnan(number) else float(number), str(value))
        for (name, value), number in zip(dials, numbers, strict=True)
    ]


def _best_config_figures(
    runs: Sequence[RunCurves], best: Sequence[ConfigSummary], names: Sequence[str]
) -> tuple[RenderedFigure, ...]:
    """The curves of the best points, each point under its own name."""
    points = [dict(summary.config) for summary in best]
    kept = [_with_config_label(run) for run in runs if dict(run.config) in points]
    if not kept:
        return ()
    title = f"The best {len(points)} points of {len(names)} studies"
    figure = default_figures(kept)[0].model_copy(update={"colour": "point", "column": None})
    clocks = {_shared_clock(kept): title, "time": f"{title}, against compute time"}
    drawn = [figure.model_copy(update={"x": clock, "title": words}) for clock, words in clocks.items()]
    shown = [render_figure(one, kept, names[0]) for one in drawn]
    return tuple(replace(figure, command=shlex.join(["seedbed", "report", *names])) for figure in shown)


def _shared_clock(runs: Sequence[RunCurves]) -> str:
    """Epochs, which runs of different studies share; steps where an epoch's length is not known here."""
    from seedbed.charts.run_selection import clock_units_per_step

    return "step" if any(isnan(clock_units_per_step("epoch", run.run)) for run in runs) else "epoch"


def _with_config_label(run: RunCurves) -> RunCurves:
    from seedbed.charts.panel_layout import config_label

    return replace(run, config={"point": config_label(run)})
