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
from seedbed.data.corpora import at_hand
from seedbed.errors import MissingData, Problem, SeedbedError, StudyError
from seedbed.records import Plan, StoredRun
from seedbed.report.tables import Table
from seedbed.settings import all_dials
from seedbed.store.store import Store
from seedbed.study.files import parse_toml, read_text, shipped_studies
from seedbed.study.parts import Study
from seedbed.study.plan import plan_study
from seedbed.study.read import parse_study
from seedbed.web.control import Order
from seedbed.web.standing import DONE
from seedbed.web.started import Source

MOST_WORDS: Final = 100
MOST_SIGNS: Final = 2_000  # of a word
MOST_RUNS: Final = 10_000  # that the page plans and starts; a terminal takes more
MOST_ROWS: Final = 200  # of a table
FROM_FILES: Final = ("model.embeddings",)  # dials that name a file of this machine
_WORD: Final = re.compile(r"word '([^=']+)")
_DIAL: Final = re.compile(r"\b(?:task|model|train)\.\w+")


@dataclass(frozen=True)
class Asked:
    """What a page asks to be planned."""

    study: str
    source: Source
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wrong:
    """One problem, and the dial it is shown at; none: at the whole form."""

    dial: str
    what: str


@dataclass(frozen=True)
class Planned:
    """What is to be started, with the tables of `seedbed plan` and its warnings."""

    order: Order
    tables: tuple[Table, ...]
    warnings: tuple[str, ...]


def plan_asked(home: Path, asked: Asked) -> Planned | tuple[Wrong, ...]:
    """The plan, or all that is wrong with what was asked."""
    if wrong := tuple(_wrong_words(asked.words)):
        return wrong
    text, name = text_of(home, asked)
    try:
        study = parse_study(text, name, asked.words)
        if lacking := tuple(_lacking(study, asked.words)):
            return lacking
        plan = plan_study(study, asked.words)
    except StudyError as error:
        return tuple(_placed(problem, name, asked.words) for problem in error.problems)
    except SeedbedError as error:
        return (Wrong("task.corpus", str(error)),)
    if len(plan.runs) > MOST_RUNS:
        return (
            Wrong("", f"these are {len(plan.runs):,} runs; the page starts {MOST_RUNS:,} at most, a terminal more"),
        )
    order = Order(plan.study, asked.source, asked.words, tuple(run.id for run in plan.runs), text)
    standing = _stored_runs(home)
    return Planned(order, tuple(map(_cut, _priced(plan, standing))), (*plan.warnings, *_done(plan, standing)))


def text_of(home: Path, asked: Asked) -> tuple[str, str]:
    """The text of a study that is shipped or stored, and what stands for its path."""
    if asked.source == "stored":
        with Store.read(home) as store:
            return store.study(asked.study).text, asked.study
    shipped = shipped_studies()
    if asked.study not in shipped:
        raise MissingData(f"no study {asked.study!r} is shipped; shipped are {', '.join(shipped)}")
    return read_text(shipped[asked.study]), str(shipped[asked.study])


def question_of(text: str, name: str) -> str:
    return str(parse_toml(text, name).get("question", ""))


def _priced(plan: Plan, standing: Mapping[str, StoredRun]) -> Iterator[Table]:
    """What `seedbed plan` shows."""
    from seedbed.pipeline import Machine, packs_of
    from seedbed.pricing import price_study
    from seedbed.report.overview import plan_tables

    machine = Machine.here()
    packs, done = packs_of([plan], machine), {name: run.status for name, run in standing.items()}
    yield from plan_tables([plan], packs, done, machine.device, price_study(packs, machine, standing))


def _done(plan: Plan, standing: Mapping[str, StoredRun]) -> Iterator[str]:
    ended = [run.id in standing and standing[run.id].status in DONE for run in plan.runs]
    if all(ended):
        yield "All of these runs have ended already: starting them trains nothing."


def _stored_runs(home: Path) -> dict[str, StoredRun]:
    try:
        with Store.read(home) as store:
            return {run.id: run for run in store.runs()}
    except MissingData:  # nothing was run here yet
        return {}


# ---- what may not be asked ----


def _wrong_words(words: Sequence[str]) -> Iterator[Wrong]:
    """Words that would never be planned here, whatever they mean on a command line."""
    if len(words) > MOST_WORDS:
        yield Wrong("", f"{len(words)} words are given; at most {MOST_WORDS} are read")
        return
    for word in words:
        name, sign, value = word.partition("=")
        if len(word) > MOST_SIGNS:
            yield Wrong(name[:60], f"the value has {len(word):,} signs; at most {MOST_SIGNS:,} are read")
        elif not sign or name not in (*all_dials(), "seeds", "scale"):
            yield Wrong("", f"{word[:60]!r} is not a dial and its value, such as model.layers=3")
        elif not value.isprintable():
            yield Wrong(name, "the value holds signs that cannot be seen")
        elif name in FROM_FILES:
            yield Wrong(name, "names a file of this machine; start this from a terminal")
        elif name == "task.corpus" and not {one.strip(" \"'") for one in value.split(",")} <= set(CATALOGUE):
            yield Wrong(name, f"expected a named corpus: {', '.join(CATALOGUE)}; a file is read from a terminal only")


def _lacking(study: Study, words: Sequence[str]) -> Iterator[Wrong]:
    """Named corpora that are not on this machine; the page fetches nothing."""
    named = {word.partition("=")[2] for word in words if word.startswith("task.corpus=")}
    choices = [study.base, *study.scales.values(), *(choice for factor in study.factors for choice in factor)]
    named |= {str(dial.value) for choice in choices for dial in choice if dial.name == "task.corpus"}
    for name in sorted(named & set(CATALOGUE)):
        files = [file for part in CATALOGUE[name].parts for file in part.files]
        if any(at_hand(file) is None for file in files):
            yield Wrong("task.corpus", f"{name} is not on this machine yet; get it with: seedbed data get {name}")


def _placed(problem: Problem, path: str, words: Sequence[str]) -> Wrong:
    """The problem at its dial: that of the word it was found in, else one that it names, one with a word first."""
    if word := _WORD.match(problem.where):
        return Wrong(word[1].strip(), problem.what)
    named = [name for name in _DIAL.findall(problem.what) if name in all_dials()]
    changed = [name for name in named if any(word.startswith(f"{name}=") for word in words)]
    if changed:
        return Wrong(changed[0], problem.what)
    line = problem.where.removeprefix(path).lstrip(":")
    where = f"line {line} of the study: " if line.isdecimal() else ""
    return Wrong(named[0] if named else "", f"{where}{problem.what}")


def _cut(table: Table) -> Table:
    more = len(table.rows) - MOST_ROWS
    return (
        table
        if more <= 0
        else replace(table, rows=table.rows[:MOST_ROWS], notes=(*table.notes, f"and {more:,} rows more"))
    )
