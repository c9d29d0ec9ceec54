"""What a report consists of, as plain values: question, answers, figures, tables, how to make it again.

One section a study, and one over all of them where several are reported together. The page and other writers share it.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan

from seedbed.data.facts import facts_of
from seedbed.errors import MissingData, UsageError
from seedbed.measures.answers import Answer, answer
from seedbed.measures.curves import direction
from seedbed.measures.groups import inner_dials
from seedbed.measures.summary import PointSummary, RunCurves, summarise
from seedbed.records import Status, StoredStudy
from seedbed.report.by_step import step_tables
from seedbed.report.figures import Shown, default_figures, show_figure, with_stopping
from seedbed.report.gather import gather_curves
from seedbed.report.look_tables import look_tables
from seedbed.report.tables import Table, point_tables
from seedbed.report.timing import cost_tables
from seedbed.settings import Task, Value
from seedbed.shown import Figure
from seedbed.store.store import Store
from seedbed.study.files import parse_toml
from seedbed.study.shows import Declared, shown_in

STATES: tuple[Status, ...] = ("finished", "running", "stopped", "planned", "diverged", "failed")
MOST_TOGETHER = 6  # points in the figure of the best of several studies


@dataclass(frozen=True)
class Section:
    """One study, ready to be written."""

    name: str
    question: str
    state: str
    warnings: tuple[str, ...]
    answers: tuple[Answer, ...]
    figures: tuple[Shown, ...]
    tables: tuple[Table, ...]
    again: tuple[str, ...]  # commands, to be given in the report's folder
    text: str  # the study as it was run, every setting written out; none for several studies together
    facts: tuple[Table, ...]  # versions, hardware, data, settings


def study_section(store: Store, name: str, words: Sequence[str]) -> Section:
    """Everything that a report says of one study, over the runs that the words ask for."""
    study, runs = store.study(name), gather_curves(store, name, words)
    declared = shown_in(study.text)
    return Section(
        name=name,
        question=question_of(study),
        state=state_of(runs),
        warnings=tuple(warnings_of(runs)),
        answers=tuple(answer(question, runs) for question in declared.questions),
        figures=tuple(show_figure(figure, runs, name) for figure in figures_of(declared, runs)),
        tables=(
            *point_tables(summarise(runs)),
            *step_tables(runs),
            *look_tables(declared, runs),
            *cost_tables(store, name, runs)[:1],
        ),
        again=commands_of([name], words),
        text=study.text,
        facts=(*facts_tables(store, [name], runs), *cost_tables(store, name, runs)[1:]),
    )


def question_of(study: StoredStudy) -> str:
    """What the study asks, in its own words."""
    found = parse_toml(study.text, study.name).get("question", "")
    return str(found)


def figures_of(declared: Declared, runs: Sequence[RunCurves]) -> tuple[Figure, ...]:
    """The study's own figures, or what suits its runs."""
    if declared.figures:
        return with_stopping(declared)
    return with_stopping(replace(declared, figures=default_figures(runs)))


# ---- how it stands ----


def state_of(runs: Sequence[RunCurves]) -> str:
    """`36 runs: 30 finished, 6 running.`"""
    counts = Counter(run.run.status for run in runs)
    said = ", ".join(f"{counts[status]} {status}" for status in STATES if counts[status])
    return f"{len(runs)} run{'s' * (len(runs) != 1)}: {said}."


def warnings_of(runs: Sequence[RunCurves]) -> Iterator[str]:
    """What keeps a reader from trusting the numbers too much."""
    if not any(run.run.status == "finished" for run in runs):
        yield "No run has finished yet: everything below is what is recorded so far."
    if not any(run.counts for run in runs):
        yield "No run has a record that counts."
    seeds = Counter(run.run.settings for run in runs)
    if seeds and max(seeds.values()) == 1:
        yield "There is one seed a point: nothing below has a spread, and differences may be chance."
    for status in ("diverged", "failed"):
        causes = Counter(run.run.cause or "no cause is known" for run in runs if run.run.status == status)
        for cause, n in sorted(causes.items()):
            yield f"{n} run{'s' * (n != 1)} {status}: {cause}."


# ---- how to make it again ----


def commands_of(names: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
    """What to type to train and report the same again."""
    run = [shlex.join(["seedbed", "run", study_file(name), *words]) for name in names]
    return (*run, shlex.join(["seedbed", "report", *names, *words]))


def study_file(name: str) -> str:
    """Where the study lies beside the page: words of the command line may have changed it since it was shipped."""
    return f"studies/{name.replace('/', '-')}.toml"


def facts_tables(store: Store, names: Sequence[str], runs: Sequence[RunCurves]) -> tuple[Table, ...]:
    """What the numbers depend on: versions and hardware, data, every setting."""
    return (_environment(store, names), _data(runs), _settings(runs))


def _environment(store: Store, names: Sequence[str]) -> Table:
    """What the runs were computed with, each different machine or version once."""
    packs = {pack.id: pack for name in names for pack in store.packs_of(name)}
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


def _data(runs: Sequence[RunCurves]) -> Table:
    tasks = Counter(run.run.settings.task for run in runs)
    counts: Counter[str] = Counter()
    for task, n in tasks.items():
        counts[_digest(task)] += n
    return Table("Data", ("digest", "runs"), tuple((digest, str(n)) for digest, n in sorted(counts.items())))


def _digest(task: Task) -> str:
    try:
        return facts_of(task).digest
    except (MissingData, UsageError) as error:
        return f"not on this machine ({error})"


def _settings(runs: Sequence[RunCurves]) -> Table:
    """Every dial: its one value, or all values that it takes."""
    dials = [run.run.settings.dials() for run in runs]
    names = dict.fromkeys(name for one in dials for name in one)
    rows = [(name, _values([one[name] for one in dials if name in one])) for name in names]
    seeds = ", ".join(map(str, sorted({run.run.seed for run in runs})))
    return Table("Settings", ("dial", "value"), (*rows, ("seeds", seeds)), ("Several values: the dial varies.",))


def _values(values: Sequence[Value]) -> str:
    shown = list(dict.fromkeys("unset" if value is None else str(value) for value in values))
    return ", ".join(shown[:40]) + (f" and {len(shown) - 40} more" if len(shown) > 40 else "")


# ---- several studies together ----


def joint_section(store: Store, names: Sequence[str], words: Sequence[str]) -> Section:
    """All runs of several studies as one: their best points, and one table in several orders (report C)."""
    runs = _united([run for name in names for run in gather_curves(store, name, words)])
    summaries = summarise(runs)
    metric = _ruling_metric(summaries)
    ranked = sorted(summaries, key=lambda summary: _rank(summary, metric))
    return Section(
        name=" and ".join(names),
        question=f"What is best over {len(names)} studies?",
        state=state_of(runs),
        warnings=tuple(warnings_of(runs)),
        answers=(),
        figures=_best_figures(runs, ranked[:MOST_TOGETHER], names),
        tables=tuple(_orders(ranked, summaries, metric)),
        again=commands_of(names, words),
        text="",
        facts=(),
    )


def _united(runs: Sequence[RunCurves]) -> list[RunCurves]:
    """Each run once, its point made of the fewest dials that tell all points apart."""
    once = list({run.run.id: run for run in runs}.values())
    varied = inner_dials([once])
    dials = [run.run.settings.dials() for run in once]
    return [
        replace(run, point={name: own[name] for name in varied if name in own})
        for run, own in zip(once, dials, strict=True)
    ]


def _ruling_metric(summaries: Sequence[PointSummary]) -> str | None:
    """What points are ranked by: validation perplexity, loss or accuracy, the first that is there."""
    known = {name for summary in summaries for name in summary.metrics}
    wanted = ("val/perplexity", "val/loss", "val/accuracy")
    return next((name for name in wanted if name in known), min((n for n in known if direction(n)), default=None))


def _rank(summary: PointSummary, metric: str | None) -> tuple[bool, float]:
    found = summary.metrics.get(metric or "")
    mean = found.value.mean if found else nan
    worse = direction(metric or "") == "max"
    return isnan(mean), -mean if worse else mean


def _orders(ranked: Sequence[PointSummary], as_planned: Sequence[PointSummary], metric: str | None) -> Iterator[Table]:
    """From best to worst, as planned, and by the settings themselves; steps are not told three times."""
    if metric:
        yield from (replace(table, title=f"{table.title}, by {metric}") for table in point_tables(ranked))
    yield from (replace(table, title=f"{table.title}, by point") for table in point_tables(as_planned)[:1])
    by_settings = sorted(as_planned, key=_settings_rank)
    yield from (replace(table, title=f"{table.title}, by settings") for table in point_tables(by_settings)[:1])


def _settings_rank(summary: PointSummary) -> list[tuple[str, bool, float, str]]:
    """The model's settings first; numbers by size, words by letter."""
    dials = sorted(summary.point.items(), key=lambda dial: (not dial[0].startswith("model."), dial[0]))
    numbers = [value if isinstance(value, int | float) else nan for _, value in dials]
    return [
        (name, isnan(number), 0.0 if isnan(number) else float(number), str(value))
        for (name, value), number in zip(dials, numbers, strict=True)
    ]


def _best_figures(runs: Sequence[RunCurves], best: Sequence[PointSummary], names: Sequence[str]) -> tuple[Shown, ...]:
    """The curves of the best points, each point under its own name."""
    points = [dict(summary.point) for summary in best]
    kept = [_called(run) for run in runs if dict(run.point) in points]
    if not kept:
        return ()
    title = f"The best {len(points)} points of {len(names)} studies"
    figure = default_figures(kept)[0].model_copy(update={"colour": "point", "column": None})
    clocks = {_clock(kept): title, "time": f"{title}, against compute time"}
    drawn = [figure.model_copy(update={"x": clock, "title": words}) for clock, words in clocks.items()]
    shown = [show_figure(one, kept, names[0]) for one in drawn]
    return tuple(replace(figure, command=shlex.join(["seedbed", "report", *names])) for figure in shown)


def _clock(runs: Sequence[RunCurves]) -> str:
    """Epochs, which runs of different studies share; steps where an epoch's length is not known here."""
    from seedbed.charts.axes import per_step

    return "step" if any(isnan(per_step("epoch", run.run.settings)) for run in runs) else "epoch"


def _called(run: RunCurves) -> RunCurves:
    from seedbed.charts.panels import point_in_words

    return replace(run, point={"point": point_in_words(run)})
