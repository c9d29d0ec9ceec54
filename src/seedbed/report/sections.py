"""The sections of a report as plain values: question, answers, figures, tables, and commands to reproduce them.

One section per study, and one over all studies if several are reported together.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isnan, nan

from seedbed.charts.panel_layout import clock_units_per_step, config_label
from seedbed.format import format_changes, pluralise
from seedbed.records import LOST_STATUSES, RunStatus, StoredPack
from seedbed.report.attention_tables import attention_tables
from seedbed.report.classification import classification_tables
from seedbed.report.cost_tables import cost_tables
from seedbed.report.figures import RenderedFigure, default_figures, figures_with_stopping, render_figure
from seedbed.report.memorization_curves import MarkedSample, describe_missing_copying, marked_samples
from seedbed.report.metrics_by_step import metrics_by_step_tables
from seedbed.report.overview import describe_annotations
from seedbed.report.study_runs import describe_missing_inputs, load_run_curves, pick_settings
from seedbed.report.summary_tables import config_tables
from seedbed.report.tables import Table
from seedbed.settings import Value
from seedbed.specs import FigureSpec
from seedbed.stats.answers import Answer, answer_questions
from seedbed.stats.groups import varying_settings
from seedbed.stats.metric_registry import metric_direction
from seedbed.stats.summary import ConfigSummary, RunCurves, describe_missing_weights, summarise
from seedbed.store import Store
from seedbed.study.conditions import format_filter_value
from seedbed.study.declarations import Declarations, parse_declarations
from seedbed.study.study_files import study_question
from seedbed.tasks.base import stored_dataset_info

STATUS_ORDER: tuple[RunStatus, ...] = ("finished", "running", "stopped", "planned", "diverged", "failed")
MAX_BEST_CONFIGS = 6  # in the figure of the best configs of several studies


@dataclass(frozen=True)
class ReportSection:
    """One study's part of the report."""

    name: str
    question: str
    status_line: str
    warnings: tuple[str, ...]
    answers: tuple[Answer, ...]
    figures: tuple[RenderedFigure, ...]
    tables: tuple[Table, ...]
    commands: tuple[str, ...]  # to reproduce it, from the report's folder
    study_text: str  # the study as it was run, with every setting; empty for several studies together
    environment_tables: tuple[Table, ...]  # versions, hardware, data, settings
    annotations: tuple[str, ...] = ()  # notes and tags
    samples: tuple[MarkedSample, ...] = ()
    sample_notes: tuple[str, ...] = ()


def build_study_section(store: Store, name: str, only: Sequence[str]) -> ReportSection:
    """The section of one study, over the runs that the filters select."""
    study, runs = store.study(name), load_run_curves(store, name, only)
    declared = parse_declarations(study.text)
    samples, sample_notes = marked_samples(store, runs)
    return ReportSection(
        name=name,
        question=study_question(study.text, name),
        status_line=status_summary(runs),
        warnings=tuple(study_warnings(runs)),
        answers=tuple(answer_questions(declared.questions, runs)),
        figures=tuple(render_figure(figure, runs, name, only) for figure in study_figures(declared, runs)),
        tables=study_tables(store, name, declared, runs),
        commands=reproduction_commands([name], only),
        study_text=study.text,
        environment_tables=environment_tables(store, name, runs),
        annotations=tuple(describe_annotations(store.annotations(), name, [run.run.id for run in runs])),
        samples=tuple(samples),
        sample_notes=tuple(sample_notes),
    )


def study_figures(declared: Declarations, runs: Sequence[RunCurves]) -> tuple[FigureSpec, ...]:
    """The study's own figures, or default ones for its runs."""
    if declared.figures:
        return figures_with_stopping(declared)
    return figures_with_stopping(replace(declared, figures=default_figures(runs)))


def study_tables(store: Store, name: str, declared: Declarations, runs: Sequence[RunCurves]) -> tuple[Table, ...]:
    """The tables of a study: best values, metrics by step, predictions and attention where there are any, and cost."""
    return (
        *config_tables(summarise(runs)),
        *metrics_by_step_tables(runs),
        *classification_tables(runs),
        *attention_tables(declared, runs),
        *cost_tables(store, name, runs)[:1],
    )


# ---- status ----


def status_summary(runs: Sequence[RunCurves]) -> str:
    """`36 runs: 30 finished, 6 running.`"""
    counts = Counter(run.run.status for run in runs)
    by_status = ", ".join(f"{counts[status]} {status}" for status in STATUS_ORDER if counts[status])
    return f"{pluralise(len(runs), 'run')}: {by_status}."


def study_warnings(runs: Sequence[RunCurves]) -> Iterator[str]:
    """Reasons to trust the numbers less: unfinished runs, single seeds, failures."""
    if not any(run.run.status == "finished" for run in runs):
        yield "No run has finished yet: everything below covers only what is recorded so far."
    if not any(run.is_included for run in runs):
        yield "No run has a usable evaluation."
    seeds = Counter(run.run.settings for run in runs)
    if seeds and max(seeds.values()) == 1:
        yield "There is one seed per config: nothing below has a spread, and differences may be due to chance."
    yield from describe_missing_inputs(run.analyses for run in runs)
    yield from describe_missing_copying(runs)
    if any(run.run.settings.task.predicts == "label" for run in runs):  # the tables of its predictions are left out
        yield from describe_missing_weights(runs)
    for status in LOST_STATUSES:
        causes = Counter(run.run.cause or "cause unknown" for run in runs if run.run.status == status)
        for cause, n in sorted(causes.items()):
            yield f"{pluralise(n, 'run')} {status}: {cause}."


# ---- reproduction ----


def reproduction_commands(names: Sequence[str], only: Sequence[str]) -> tuple[str, ...]:
    """The commands that train and report the same studies again."""
    selection = [word for text in only for word in ("--only", text)]
    run_commands = [shlex.join(["seedbed", "run", study_file_name(name), *selection]) for name in names]
    return (*run_commands, shlex.join(["seedbed", "report", *names, *selection]))


def study_file_name(name: str) -> str:
    """The path of the study beside the page: a copy, since overrides may have changed the shipped one."""
    return f"studies/{name.replace('/', '-')}.toml"


def environment_tables(store: Store, name: str, runs: Sequence[RunCurves]) -> tuple[Table, ...]:
    """What the results depend on: versions and hardware, data, every setting, packs."""
    tables = (_environment_table(store, name), _data_table(runs), _settings_table(runs))
    return (*tables, *cost_tables(store, name, runs)[1:])


def _environment_table(store: Store, name: str) -> Table:
    """The environment of the runs, one column per distinct machine and set of versions."""
    n_runs: dict[tuple[tuple[str, str], ...], int] = {}
    for pack in store.study_packs(name):
        for environment in pack.environment:
            items = tuple(sorted((name, str(value)) for name, value in environment.items() if name != "step"))
            n_runs[items] = n_runs.get(items, 0) + len(pack.runs)
    keys = sorted({name for items in n_runs for name, _ in items})
    columns = [dict(items) for items in n_runs]
    rows = tuple((name, *(column.get(name, "–") for column in columns)) for name in keys)
    headings = tuple(pluralise(n, "run") for n in n_runs.values())
    notes = (*describe_environment_changes(store.study_packs(name)),) if rows else ("No run has started.",)
    return Table("Versions and hardware", ("component", *headings), rows, notes)


def describe_environment_changes(packs: Sequence[StoredPack]) -> list[str]:
    """From which step on runs were trained with other versions or hardware than before."""
    sentences = []
    for pack in packs:
        for before, now in pairwise(pack.environment):
            if int(now["step"]) > int(before["step"]) and (changes := format_changes(before, now)):
                sentences.append(
                    f"{pluralise(len(pack.runs), 'run')} went on from step {int(now['step']):,} with {changes}: from "
                    "there on numbers may differ in the last bits from those of runs without a break."
                )
    return list(dict.fromkeys(sentences))


def _data_table(runs: Sequence[RunCurves]) -> Table:
    counts: Counter[tuple[str, str]] = Counter()
    for run in runs:
        info = stored_dataset_info(run.run)
        counts[run.run.settings.get("task.corpus") or "–", "not recorded" if info is None else info.digest] += 1
    rows = tuple((corpus, digest, str(n)) for (corpus, digest), n in sorted(counts.items()))
    return Table("Data", ("corpus", "digest", "runs"), rows)


def _settings_table(runs: Sequence[RunCurves]) -> Table:
    """Every setting with its value, or with all values that it takes."""
    flat_settings = [run.run.settings.flat() for run in runs]
    names = dict.fromkeys(name for settings in flat_settings for name in settings)
    rows = [
        (name, _format_values([settings[name] for settings in flat_settings if name in settings])) for name in names
    ]
    seeds = ", ".join(map(str, sorted({run.run.seed for run in runs})))
    return Table("Settings", ("setting", "value"), (*rows, ("seeds", seeds)), ("Several values: the setting varies.",))


def _format_values(values: Sequence[Value]) -> str:
    """The distinct values as one would type them."""
    distinct = list(dict.fromkeys(map(format_filter_value, values)))
    return ", ".join(distinct[:40]) + (f" and {len(distinct) - 40} more" if len(distinct) > 40 else "")


# ---- several studies together ----


def build_joint_section(store: Store, names: Sequence[str], only: Sequence[str]) -> ReportSection:
    """All runs of several studies together: their best configs, and one table in several orders."""
    runs = _unique_runs([run for name in names for run in load_run_curves(store, name, only)])
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
        commands=reproduction_commands(names, only),
        study_text="",
        environment_tables=(),
    )


def _unique_runs(runs: Sequence[RunCurves]) -> list[RunCurves]:
    """Each run once, its config reduced to the fewest settings that distinguish all configs."""
    unique = list({run.run.id: run for run in runs}.values())
    varied = varying_settings([unique])
    return [replace(run, config=pick_settings(run.run.settings, varied)) for run in unique]


def _ranking_metric(summaries: Sequence[ConfigSummary]) -> str | None:
    """The metric that ranks configs: validation perplexity, loss or accuracy, the first that exists."""
    available = {name for summary in summaries for name in summary.metrics}
    preferred = ("val/perplexity", "val/loss", "val/accuracy")
    return next(
        (name for name in preferred if name in available),
        min((n for n in available if metric_direction(n)), default=None),
    )


def _ranking_key(summary: ConfigSummary, metric: str | None) -> tuple[bool, float]:
    metric_summary = summary.metrics.get(metric or "")
    mean = metric_summary.value.mean if metric_summary else nan
    maximise = metric_direction(metric or "") == "max"
    return isnan(mean), -mean if maximise else mean


def _tables_by_order(
    ranked: Sequence[ConfigSummary], as_planned: Sequence[ConfigSummary], metric: str | None
) -> Iterator[Table]:
    """Tables from best to worst, in plan order, and by settings; the table of steps only once."""
    if metric:
        yield from (replace(table, title=f"{table.title}, by {metric}") for table in config_tables(ranked))
    yield from (replace(table, title=f"{table.title}, by config") for table in config_tables(as_planned)[:1])
    by_settings = sorted(as_planned, key=_settings_sort_key)
    yield from (replace(table, title=f"{table.title}, by settings") for table in config_tables(by_settings)[:1])


def _settings_sort_key(summary: ConfigSummary) -> list[tuple[str, bool, float, str]]:
    """The model's settings first; numbers by size, strings alphabetically."""
    items = sorted(summary.config.items(), key=lambda item: (not item[0].startswith("model."), item[0]))
    numbers = [value if isinstance(value, int | float) else nan for _, value in items]
    return [
        (name, isnan(number), 0.0 if isnan(number) else float(number), str(value))
        for (name, value), number in zip(items, numbers, strict=True)
    ]


def _best_config_figures(
    runs: Sequence[RunCurves], best: Sequence[ConfigSummary], names: Sequence[str]
) -> tuple[RenderedFigure, ...]:
    """The learning curves of the best configs, coloured by config."""
    configs = [dict(summary.config) for summary in best]
    best_runs = [replace(run, config={"config": config_label(run)}) for run in runs if dict(run.config) in configs]
    if not best_runs:
        return ()
    title = f"The best {len(configs)} configs of {len(names)} studies"
    figure = default_figures(best_runs)[0].model_copy(update={"colour": "config", "column": None})
    # Epochs can be compared across studies, where their length is known.
    has_epochs = not any(isnan(clock_units_per_step("epoch", run.run)) for run in best_runs)
    clocks = {"epoch" if has_epochs else "step": title, "time": f"{title}, against compute time"}
    figures = [figure.model_copy(update={"x": clock, "title": title}) for clock, title in clocks.items()]
    rendered = [render_figure(figure, best_runs, names[0]) for figure in figures]
    return tuple(replace(one, command=shlex.join(["seedbed", "report", *names])) for one in rendered)
