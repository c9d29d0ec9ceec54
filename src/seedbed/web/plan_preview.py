"""Plan and estimate of a study with overrides, or every problem with the setting that it belongs to.

    preview_plan(Path("lab"), PlanRequest("quickstart", "shipped", ("train.weight_decay=0,1",)))

A study is given by name, never by path: shipped or in the store. Overrides come from requests, so those that would read
a file of the server are rejected, and nothing is downloaded: the process that runs this is offline (`process_pool`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from seedbed.data.catalogue import CATALOGUE
from seedbed.data.corpora import find_local_file
from seedbed.errors import MissingData, Problem, SeedbedError, StudyError
from seedbed.records import Plan, StoredRun
from seedbed.report.tables import Table
from seedbed.settings import all_settings, setting_traits
from seedbed.store import open_store
from seedbed.study.definition import Study
from seedbed.study.plan import plan_study
from seedbed.study.read import parse_study
from seedbed.study.study_files import parse_toml, read_study_text, shipped_studies
from seedbed.web.job_manager import JobSpec
from seedbed.web.job_status import ENDED_STATUSES
from seedbed.web.jobs import StudySource

MAX_OVERRIDES: Final = 100
MAX_OVERRIDE_CHARACTERS: Final = 2_000
MAX_PLANNED_RUNS: Final = 10_000  # the command line has no limit
MAX_TABLE_ROWS: Final = 200
_OVERRIDE_PATTERN: Final = re.compile(r"argument '([^=']+)")
_SETTING_PATTERN: Final = re.compile(r"\b(?:task|model|train)\.\w+")


@dataclass(frozen=True)
class PlanRequest:
    """A study and its overrides, to be planned."""

    study: str
    source: StudySource
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class FieldProblem:
    """A problem and the setting it is shown at; empty: the whole form."""

    setting: str
    message: str


@dataclass(frozen=True)
class PlanPreview:
    """A job that can be started, with the tables and warnings of `seedbed plan`."""

    job_spec: JobSpec
    tables: tuple[Table, ...]
    warnings: tuple[str, ...]


def preview_plan(home: Path, request: PlanRequest) -> PlanPreview | tuple[FieldProblem, ...]:
    """The plan, or all problems of the request."""
    if problems := tuple(_check_overrides(request.overrides)):
        return problems
    text, name = load_study_text(home, request)
    try:
        study = parse_study(text, name, request.overrides, stored=request.source == "stored")
        if missing := tuple(_missing_corpora(study, request.overrides)):
            return missing
        plan = plan_study(study, request.overrides)
        if request.source == "stored":  # its own text may have the words of an earlier version, which `run` refuses
            text = plan_study(study).text
    except StudyError as error:
        return tuple(_locate_problem(problem, name, request.overrides) for problem in error.problems)
    except SeedbedError as error:
        return (FieldProblem("task.corpus", str(error)),)
    if len(plan.runs) > MAX_PLANNED_RUNS:
        return (
            FieldProblem(
                "",
                f"{len(plan.runs):,} runs; the page starts at most {MAX_PLANNED_RUNS:,}, the command line any number",
            ),
        )
    job_spec = JobSpec(plan.study, request.source, request.overrides, tuple(run.id for run in plan.runs), text)
    stored = _load_stored_runs(home)
    tables = tuple(map(_truncate_table, _build_plan_tables(plan, stored)))
    return PlanPreview(job_spec, tables, (*plan.warnings, *_finished_warnings(plan, stored)))


def load_study_text(home: Path, request: PlanRequest) -> tuple[str, str]:
    """The text of a shipped or stored study, and the path or name to report problems at."""
    if request.source == "stored":
        with open_store(home, read_only=True) as store:
            return store.study(request.study).text, request.study
    shipped = shipped_studies()
    if request.study not in shipped:
        raise MissingData(f"there is no shipped study {request.study!r}; shipped studies: {', '.join(shipped)}")
    return read_study_text(shipped[request.study]), str(shipped[request.study])


def get_question(text: str, name: str) -> str:
    return str(parse_toml(text, name).get("question", ""))


def _build_plan_tables(plan: Plan, stored: Mapping[str, StoredRun]) -> Iterator[Table]:
    """The tables of `seedbed plan`."""
    from seedbed.estimates import estimate_study
    from seedbed.pipeline import Machine, pack_plans
    from seedbed.report.overview import plan_tables

    machine = Machine.detect()
    packs, done = pack_plans([plan], machine), {name: run.status for name, run in stored.items()}
    yield from plan_tables([plan], packs, done, machine.device, estimate_study(packs, machine, stored))


def _finished_warnings(plan: Plan, stored: Mapping[str, StoredRun]) -> Iterator[str]:
    ended = [run.id in stored and stored[run.id].status in ENDED_STATUSES for run in plan.runs]
    if all(ended):
        yield "All of these runs have already ended: starting them trains nothing."


def _load_stored_runs(home: Path) -> dict[str, StoredRun]:
    try:
        with open_store(home, read_only=True) as store:
            return {run.id: run for run in store.runs()}
    except MissingData:  # no store yet
        return {}


# ---- validation ----


def _check_overrides(overrides: Sequence[str]) -> Iterator[FieldProblem]:
    """Problems of overrides that the page rejects, even if the command line accepts them."""
    if len(overrides) > MAX_OVERRIDES:
        yield FieldProblem("", f"{len(overrides)} overrides; at most {MAX_OVERRIDES} are accepted")
        return
    for override in overrides:
        name, equals, value = override.partition("=")
        if len(override) > MAX_OVERRIDE_CHARACTERS:
            yield FieldProblem(
                name[:60],
                f"the value has {len(override):,} characters; at most {MAX_OVERRIDE_CHARACTERS:,} are accepted",
            )
        elif not equals or name not in (*all_settings(), "seeds", "scale"):
            yield FieldProblem("", f"{override[:60]!r} is not a setting with a value, such as model.layers=3")
        elif not value.isprintable():
            yield FieldProblem(name, "the value contains unprintable characters")
        elif name in all_settings() and setting_traits(name).names_local_file:
            yield FieldProblem(name, "names a file on this machine; start this study from the command line")
        elif name == "task.corpus" and not {one.strip(" \"'") for one in value.split(",")} <= set(CATALOGUE):
            yield FieldProblem(
                name, f"expected a named corpus: {', '.join(CATALOGUE)}; files are accepted on the command line only"
            )


def _missing_corpora(study: Study, overrides: Sequence[str]) -> Iterator[FieldProblem]:
    """Named corpora that are not on this machine; the page downloads nothing."""
    named = {text.partition("=")[2] for text in overrides if text.startswith("task.corpus=")}
    choices = [study.base, *study.scales.values(), *(choice for factor in study.factors for choice in factor)]
    named |= {str(setting.value) for choice in choices for setting in choice if setting.name == "task.corpus"}
    for name in sorted(named & set(CATALOGUE)):
        files = [file for part in CATALOGUE[name].parts for file in part.files]
        if any(find_local_file(file) is None for file in files):
            yield FieldProblem(
                "task.corpus", f"{name} is not on this machine yet; get it with: seedbed data get {name}"
            )


def _locate_problem(problem: Problem, path: str, overrides: Sequence[str]) -> FieldProblem:
    """The problem at its setting: that of the override it was found in, else one it names (overridden ones first)."""
    if match := _OVERRIDE_PATTERN.match(problem.where):
        return FieldProblem(match[1].strip(), problem.what)
    named = [name for name in _SETTING_PATTERN.findall(problem.what) if name in all_settings()]
    changed = [name for name in named if any(text.startswith(f"{name}=") for text in overrides)]
    if changed:
        return FieldProblem(changed[0], problem.what)
    line = problem.where.removeprefix(path).lstrip(":")
    where = f"line {line} of the study: " if line.isdecimal() else ""
    return FieldProblem(named[0] if named else "", f"{where}{problem.what}")


def _truncate_table(table: Table) -> Table:
    n_more = len(table.rows) - MAX_TABLE_ROWS
    if n_more <= 0:
        return table
    return replace(table, rows=table.rows[:MAX_TABLE_ROWS], notes=(*table.notes, f"and {n_more:,} more rows"))
