"""The table of best values of any study: best values, t_f, Δt and t_90 of every config over its seeds.

    for table in config_tables(summarise(runs)): ...

The numbers come from `stats.summary`, the rows from `statistic_rows`; this module arranges them. Up to four configs are
columns with metrics as rows; more configs are rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isfinite

from seedbed.format import format_config, format_seeds, format_value, join_words, pluralise, setting_label
from seedbed.records import RunStatus
from seedbed.report.statistic_rows import (
    StatisticRow,
    Summaries,
    at_best_rows,
    chance_rows,
    delta_rows,
    metric_names,
    step_rows,
    threshold_rows,
    value_rows,
)
from seedbed.report.tables import Table
from seedbed.stats.groups import describe_unfinished_runs
from seedbed.stats.importance import ConfigValues, describe_best_config
from seedbed.stats.metric_registry import metric_direction, metric_label, metric_symbol
from seedbed.stats.summary import ConfigSummary
from seedbed.study.conditions import format_filter_value

MAX_CONFIG_COLUMNS = 4  # with more configs, they are rows


def config_tables(summaries: Summaries, t_max: float | None = None) -> list[Table]:
    """Best values, t_f and Δt of every config: one table, or for many configs one of values and one of steps."""
    if not summaries:
        return []
    if len(summaries) <= MAX_CONFIG_COLUMNS:
        return [_configs_as_columns(summaries, t_max)]
    plain, grouped = metric_names(summaries)
    values = value_rows(summaries, plain) + at_best_rows(summaries) + value_rows(summaries, grouped)
    values += [row for row in chance_rows(summaries) if len(set(row.texts)) > 1]  # else they are in the notes
    steps = step_rows(summaries, plain) + delta_rows(summaries) + threshold_rows(summaries, plain)
    steps += step_rows(summaries, grouped) + threshold_rows(summaries, grouped)
    tables = [_configs_as_rows("Best values", summaries, values, t_max)]
    return tables + [_configs_as_rows("Steps to the best values", summaries, steps, t_max)] * bool(steps)


def _configs_as_columns(summaries: Summaries, t_max: float | None) -> Table:
    plain, grouped = metric_names(summaries)
    statistics = value_rows(summaries, plain) + at_best_rows(summaries) + chance_rows(summaries)
    statistics += step_rows(summaries, plain) + delta_rows(summaries) + threshold_rows(summaries, plain)
    statistics += value_rows(summaries, grouped) + step_rows(summaries, grouped) + threshold_rows(summaries, grouped)
    best = frozenset(
        (row, 1 + config) for row, statistic in enumerate(statistics) for config in statistic.best_configs()
    )
    return Table(
        title="Best values and the steps that first attain them",
        columns=("metric", *_headings(summaries)),
        rows=tuple((statistic.label, *statistic.cells()) for statistic in statistics),
        notes=_notes(summaries, statistics, t_max, "row" if best else None),
        best=best,
        n_seeds=_same_n_seeds(summaries),
    )


def _configs_as_rows(
    title: str, summaries: Summaries, statistics: Sequence[StatisticRow], t_max: float | None
) -> Table:
    names = _short_names(summaries)
    labels = [
        (short, [format_value(one.config[name]) if name in one.config else "–" for one in summaries])
        for name, short in names.items()
    ]
    labels += [] if _same_seeds(summaries) else [("n", [_format_run_count(summary) for summary in summaries])]
    progress = [_format_progress(summary) for summary in summaries]
    labels += [("so far", [text or "–" for text in progress])] if any(progress) else []
    columns = labels + [(statistic.label, statistic.cells()) for statistic in statistics]
    best = frozenset(
        (row, column) for column, statistic in enumerate(statistics, len(labels)) for row in statistic.best_configs()
    )
    return Table(
        title=title,
        columns=tuple(name for name, _ in columns),
        rows=tuple(zip(*(cells for _, cells in columns), strict=True)),
        notes=_notes(summaries, statistics, t_max, "column" if best else None),
        best=best,
        n_labels=len(labels),
        n_seeds=_same_n_seeds(summaries),
    )


# ---- its headings and notes ----


def _headings(summaries: Summaries) -> list[str]:
    """One heading per config, from its varied settings: `GPT`, `2 layers, width 64`; with n if it differs."""
    same_seeds = _same_seeds(summaries)
    headings = []
    for summary in summaries:
        notes = [] if same_seeds else [f"n = {_format_run_count(summary)}"]
        notes += [f"so far: {progress}"] if (progress := _format_progress(summary)) else []
        headings.append((format_config(summary.config) or "all") + (f" ({', '.join(notes)})" if notes else ""))
    return headings


def _format_progress(summary: ConfigSummary) -> str:
    """`step 200 of 3,001`, if no run of the config is complete; else empty."""
    if summary.so_far is None:
        return ""
    return f"step {summary.so_far:,}" + (f" of {summary.planned_steps:,}" if summary.planned_steps else "")


def _short_names(summaries: Summaries) -> dict[str, str]:
    """Each varied setting with its label, or with its name if two labels would be equal."""
    names = list(dict.fromkeys(name for summary in summaries for name in summary.config))
    labels = [setting_label(name) for name in names]
    return {name: label if labels.count(label) == 1 else name for name, label in zip(names, labels, strict=True)}


def _same_seeds(summaries: Summaries) -> bool:
    """Whether all configs have the same seeds and all their runs are in the means."""
    return all(summary.n_included == summary.n_runs and summary.seeds == summaries[0].seeds for summary in summaries)


def _same_n_seeds(summaries: Summaries) -> int | None:
    return len(summaries[0].seeds) if _same_seeds(summaries) else None


def _format_run_count(summary: ConfigSummary) -> str:
    n, total = summary.n_included, summary.n_runs
    return str(n) if n == total else f"{n} of {total}"


def _notes(
    summaries: Summaries, statistics: Sequence[StatisticRow], t_max: float | None, best_axis: str | None
) -> tuple[str, ...]:
    several = any(spread and spread.n > 1 for statistic in statistics for spread in statistic.spreads)
    notes = [
        _seeds_note(summaries),
        _status_note(summaries),
        _unfinished_note(summaries),
        "± is the population std over seeds (ddof 0)." if several else "",
        "; ".join(dict.fromkeys(statistic.legend for statistic in statistics)) + "."
        if statistics
        else "Nothing is recorded yet.",
        _chance_level_note(summaries, statistics),
        _chance_note(summaries, statistics),
        "" if t_max is None else f"Only evaluations up to step {format_value(t_max)} count.",
        _best_note(statistics, best_axis) if best_axis else "",
        *(_best_config_notes(summaries) if any(statistic.direction for statistic in statistics) else ()),
    ]
    return tuple(note for note in notes if note)


def _seeds_note(summaries: Summaries) -> str:
    if not _same_seeds(summaries):
        return "n: runs in the means; 1 of 2 if one is unfinished, diverged, failed or has no evaluation."
    seeds = summaries[0].seeds
    return f"n = {pluralise(len(seeds), 'seed')}: {format_seeds(seeds)}."


def _unfinished_note(summaries: Summaries) -> str:
    """Which unfinished runs are left out of the means, and which configs are shown so far."""
    notes = []
    if left_out := [run for summary in summaries if summary.so_far is None for run in summary.unfinished]:
        notes = [f"{describe_unfinished_runs(left_out, sum(summary.n_runs for summary in summaries))}."]
    if any(summary.so_far is not None for summary in summaries):
        notes.append("Configs without a complete run are shown as far as all of their runs have got, and not ranked.")
    return " ".join(notes)


def _chance_level_note(summaries: Summaries, statistics: Sequence[StatisticRow]) -> str:
    """The chance levels, if the table shows values but has no row or column for these."""
    labels = {statistic.label for statistic in statistics}
    missing = [row for row in chance_rows(summaries) if row.label not in labels and len(set(row.texts)) == 1]
    if not any(statistic.direction for statistic in statistics) or not missing:
        return ""
    return "; ".join(f"{row.legend} ({row.texts[0]})" for row in missing) + "."


def _chance_note(summaries: Summaries, statistics: Sequence[StatisticRow]) -> str:
    """Which accuracies never exceeded chance, so that their t_f and Δt are left out."""
    if not any(statistic.label.startswith(("t_f", "Δt")) for statistic in statistics):
        return ""
    names = dict.fromkeys(name for summary in summaries for name in summary.at_chance)
    clauses = []
    for name in names:
        n, total = (
            sum(len(summary.at_chance.get(name, ())) for summary in summaries),
            sum(summary.n_included for summary in summaries),
        )
        clauses.append(f"{metric_symbol(name)} never left chance in {n} of {pluralise(total, 'run')}")
    return f"{join_words(clauses)}: they have no t_f and no Δt (–)." if clauses else ""


def _best_note(statistics: Sequence[StatisticRow], best_axis: str) -> str:
    note = f"The best mean of each {best_axis} is highlighted"
    is_split = any(len(set(statistic.units)) > 1 for statistic in statistics)
    return note + (", losses only among configs that predict the same tokens." if is_split else ".")


def _best_config_notes(summaries: Summaries) -> tuple[str, ...]:
    """The best config by its main metric, and which settings matter; none if their losses cannot be compared."""
    complete = [summary for summary in summaries if summary.so_far is None and summary.seeds]
    is_one_unit = len({summary.token_unit for summary in complete}) == 1
    has_chance = all(summary.chance is not None for summary in complete)
    if has_chance and not is_one_unit:
        return ()  # other tasks, not other ways to learn one
    metric = "val/accuracy" if has_chance else "val/loss" if is_one_unit else "val/bits_per_character"
    values = [
        ConfigValues(summary.config, summary.metrics[metric].value.values)
        for summary in complete
        if metric in summary.metrics
    ]
    return describe_best_config(values, metric_label(metric), metric_direction(metric))


def _status_note(summaries: Summaries) -> str:
    """The number of runs by status; empty if all are finished."""
    status = sum((Counter(summary.status_counts) for summary in summaries), Counter[RunStatus]())
    counts = ", ".join(f"{count} {name}" for name, count in sorted(status.items()))
    return "" if set(status) == {"finished"} else f"Runs: {counts}."


def numbers_table(summaries: Summaries) -> Table:
    """Columns: every varied setting, the statistic, its mean and population std over seeds, and the number of seeds."""
    names = list(dict.fromkeys(name for summary in summaries for name in summary.config))
    metrics = [name for some in metric_names(summaries) for name in some]
    statistics = value_rows(summaries, metrics) + at_best_rows(summaries)
    statistics += step_rows(summaries, metrics) + delta_rows(summaries)
    rows = []
    for index, summary in enumerate(summaries):
        config = [format_filter_value(summary.config[name]) if name in summary.config else "" for name in names]
        for statistic in statistics:
            if (spread := statistic.spreads[index]) is not None and isfinite(spread.mean):
                so_far = "" if summary.so_far is None else str(summary.so_far)
                numbers = (f"{spread.mean:.10g}", f"{spread.std:.10g}", str(spread.n))
                rows.append((*config, statistic.label, *numbers, so_far))
    columns = (*names, "statistic", "mean", "std", "n", "so far: step")
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return Table("Statistics", columns, tuple(rows))
