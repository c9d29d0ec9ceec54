"""A study picked on the page, with words over it → its plan and price, or every problem at the dial it belongs to.

    plan_asked(Path("lab"), Asked("quickstart", "shipped", ("train.weight_decay=0,1",)))

A study is named, never a path: it is shipped or in the store. Words come from outside, so those that would read a file
of the server's are refused, and nothing is fetched: all of this is asked in a process that may not (aside.py).
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
from seedbed.store.store import Store
from seedbed.study.definition import Study
from seedbed.study.plan import plan_study
from seedbed.study.read import parse_study
from seedbed.study.study_files import parse_toml, read_study_text, shipped_studies
from seedbed.web.job_manager import JobSpec
from seedbed.web.job_status import ENDED_STATUSES
from seedbed.web.jobs import StudySource

MAX_OVERRIDES: Final = 100
MAX_OVERRIDE_CHARACTERS: Final = 2_000  # of a word
MAX_PLANNED_RUNS: Final = 10_000  # that the page plans and starts; a terminal takes more
MAX_TABLE_ROWS: Final = 200  # of a table
_OVERRIDE_PATTERN: Final = re.compile(r"argument '([^=']+)")
_SETTING_PATTERN: Final = re.compile(r"\b(?:task|model|train)\.\w+")


@dataclass(frozen=True)
class PlanRequest:
    """What a page asks to be planned."""

    study: str
    source: StudySource
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class FieldProblem:
    """One problem, and the dial it is shown at; none: at the whole form."""

    setting: str
    message: str


@dataclass(frozen=True)
class PlanPreview:
    """What is to be started, with the tables of `seedbed plan` and its warnings."""

    job_spec: JobSpec
    tables: tuple[Table, ...]
    warnings: tuple[str, ...]


def preview_plan(home: Path, asked: PlanRequest) -> PlanPreview | tuple[FieldProblem, ...]:
    """The plan, or all that is wrong with what was asked."""
    if wrong := tuple(_check_overrides(asked.overrides)):
        return wrong
    text, name = load_study_text(home, asked)
    try:
        study = parse_study(text, name, asked.overrides)
        if lacking := tuple(_missing_corpora(study, asked.overrides)):
            return lacking
        plan = plan_study(study, asked.overrides)
    except StudyError as error:
        return tuple(_locate_problem(problem, name, asked.overrides) for problem in error.problems)
    except SeedbedError as error:
        return (FieldProblem("task.corpus", str(error)),)
    if len(plan.runs) > MAX_PLANNED_RUNS:
        return (
            FieldProblem(
                "", f"these are {len(plan.runs):,} runs; the page starts {MAX_PLANNED_RUNS:,} at most, a terminal more"
            ),
        )
    order = JobSpec(plan.study, asked.source, asked.overrides, tuple(run.id for run in plan.runs), text)
    standing = _load_stored_runs(home)
    return PlanPreview(
        order,
        tuple(map(_truncate_table, _build_plan_tables(plan, standing))),
        (*plan.warnings, *_finished_warnings(plan, standing)),
    )


def load_study_text(home: Path, asked: PlanRequest) -> tuple[str, str]:
    """The text of a study that is shipped or stored, and what stands for its path."""
    if asked.source == "stored":
        with Store.open_read_only(home) as store:
            return store.study(asked.study).text, asked.study
    shipped = shipped_studies()
    if asked.study not in shipped:
        raise MissingData(f"no study {asked.study!r} is shipped; shipped are {', '.join(shipped)}")
    return read_study_text(shipped[asked.study]), str(shipped[asked.study])


def get_question(text: str, name: str) -> str:
    return str(parse_toml(text, name).get("question", ""))


def _build_plan_tables(plan: Plan, standing: Mapping[str, StoredRun]) -> Iterator[Table]:
    """What `seedbed plan` shows."""
    from seedbed.estimates import estimate_study
    from seedbed.pipeline import Machine, pack_plans
    from seedbed.report.overview import plan_tables

    machine = Machine.detect()
    packs, done = pack_plans([plan], machine), {name: run.status for name, run in standing.items()}
    yield from plan_tables([plan], packs, done, machine.device, estimate_study(packs, machine, standing))


def _finished_warnings(plan: Plan, standing: Mapping[str, StoredRun]) -> Iterator[str]:
    ended = [run.id in standing and standing[run.id].status in ENDED_STATUSES for run in plan.runs]
    if all(ended):
        yield "All of these runs have ended already: starting them trains nothing."


def _load_stored_runs(home: Path) -> dict[str, StoredRun]:
    try:
        with Store.open_read_only(home) as store:
            return {run.id: run for run in store.runs()}
    except MissingData:  # nothing was run here yet
        return {}


# ---- what may not be asked ----


def _check_overrides(words: Sequence[str]) -> Iterator[FieldProblem]:
    """Words that would never be planned here, whatever they mean on a command line."""
    if len(words) > MAX_OVERRIDES:
        yield FieldProblem("", f"{len(words)} words are given; at most {MAX_OVERRIDES} are read")
        return
    for word in words:
        name, sign, value = word.partition("=")
        if len(word) > MAX_OVERRIDE_CHARACTERS:
            yield FieldProblem(
                name[:60], f"the value has {len(word):,} signs; at most {MAX_OVERRIDE_CHARACTERS:,} are read"
            )
        elif not sign or name not in (*all_settings(), "seeds", "scale"):
            yield FieldProblem("", f"{word[:60]!r} is not a dial and its value, such as model.layers=3")
        elif not value.isprintable():
            yield FieldProblem(name, "the value holds signs that cannot be seen")
        elif name in all_settings() and setting_traits(name).names_local_file:
            yield FieldProblem(name, "names a file of this machine; start this from a terminal")
        elif name == "task.corpus" and not {one.strip(" \"'") for one in value.split(",")} <= set(CATALOGUE):
            yield FieldProblem(
                name, f"expected a named corpus: {', '.join(CATALOGUE)}; a file is read from a terminal only"
            )


def _missing_corpora(study: Study, words: Sequence[str]) -> Iterator[FieldProblem]:
    """Named corpora that are not on this machine; the page fetches nothing."""
    named = {word.partition("=")[2] for word in words if word.startswith("task.corpus=")}
    choices = [study.base, *study.scales.values(), *(choice for factor in study.factors for choice in factor)]
    named |= {str(dial.value) for choice in choices for dial in choice if dial.name == "task.corpus"}
    for name in sorted(named & set(CATALOGUE)):
        files = [file for part in CATALOGUE[name].parts for file in part.files]
        if any(find_local_file(file) is None for file in files):
            yield FieldProblem(
                "task.corpus", f"{name} is not on this machine yet; get it with: seedbed data get {name}"
            )


def _locate_problem(problem: Problem, path: str, words: Sequence[str]) -> FieldProblem:
    """The problem at its dial: that of the word it was found in, else one that it names, one with a word first."""
    if word := _OVERRIDE_PATTERN.match(problem.where):
        return FieldProblem(word[1].strip(), problem.what)
    named = [name for name in _SETTING_PATTERN.findall(problem.what) if name in all_settings()]
    changed = [name for name in named if any(word.startswith(f"{name}=") for word in words)]
    if changed:
        return FieldProblem(changed[0], problem.what)
    line = problem.where.removeprefix(path).lstrip(":")
    where = f"line {line} of the study: " if line.isdecimal() else ""
    return FieldProblem(named[0] if named else "", f"{where}{problem.what}")


def _truncate_table(table: Table) -> Table:
    more = len(table.rows) - MAX_TABLE_ROWS
    return (
        table
        if more <= 0
        else replace(table, rows=table.rows[:MAX_TABLE_ROWS], notes=(*table.notes, f"and {more:,} rows more"))
    )
