"""A stored study's questions with their answers, and groups of runs named on the command line, ready to be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast, get_args

from seedbed.errors import MissingData, UsageError
from seedbed.measures.answers import Answer, answer, question_in_words
from seedbed.measures.answers.found import Found
from seedbed.measures.answers.said import Subject
from seedbed.measures.groups import group_by
from seedbed.measures.summary import RunCurves
from seedbed.measures.values import ValueName
from seedbed.measures.words import value_word
from seedbed.report.gather import gather_curves
from seedbed.settings import all_dials
from seedbed.store.store import Store
from seedbed.study.shows import shown_in
from seedbed.study.spell import did_you_mean


def answers_of(store: Store, study: str, words: Sequence[str] = ()) -> list[Answer]:
    """Every question of a study's file, in its order, answered from the runs that the words ask for."""
    questions = shown_in(store.study(study).text).questions
    runs = gather_curves(store, study, words)
    return [answer(question, runs) for question in questions]


def answers_as_json(study: str, answers: Sequence[Answer]) -> dict[str, Any]:
    """`answer --json`."""
    return {
        "study": study,
        "answers": [
            {
                "question": question_in_words(found.question),
                "asked": found.question.model_dump(exclude_defaults=True),
                "sentence": found.sentence,
                "warning": found.warning,
                "n": found.n,
                "numbers": found.numbers,
            }
            for found in answers
        ],
    }


def comparison_as_json(groups: Mapping[str, Sequence[RunCurves]], found: Found) -> dict[str, Any]:
    """`compare --json`."""
    return {"groups": {name: [run.run.id for run in runs] for name, runs in groups.items()}} | asdict(found)


def subject_named(metric: str, value: str) -> Subject:
    """What `--metric` and `--value` name."""
    known = get_args(ValueName)
    if value not in known:
        raise UsageError(f"--value {value}: expected one of {', '.join(known)}{did_you_mean(value, known)}")
    return Subject(metric, cast(ValueName, value))


# ---- groups of runs ----


def gather_groups(store: Store, names: Sequence[str]) -> dict[str, list[RunCurves]]:
    """What the arguments of `compare` name: studies, runs, words or a dial of the study before them.

    `STUDY model.kind=gpt model.kind=lstm`, `STUDY model.kind`, `STUDY "model.kind=gpt train.lr=1e-3" …`, `STUDY STUDY`
    and `RUN RUN` all make groups; a study that nothing follows is a group itself.
    """
    studies = {study.name for study in store.studies()}
    groups: dict[str, list[RunCurves]] = {}
    study: str | None = None
    is_used = True
    for name in names:
        if name in studies:
            groups |= {} if is_used or study is None else {study: gather_curves(store, study)}
            study, is_used = name, False
        elif "=" in name or name in all_dials():
            groups |= _within(store, study, name, len(studies & set(names)) > 1)
            is_used = True
        else:
            groups[name] = [_one_run(store, name)]
    groups |= {} if is_used or study is None else {study: gather_curves(store, study)}
    if len(groups) < 2:
        raise UsageError(
            f"{' '.join(names)}: names one group; expected two or more, such as STUDY model.kind=gpt model.kind=lstm"
        )
    return groups


def _within(store: Store, study: str | None, name: str, several: bool) -> dict[str, list[RunCurves]]:
    if study is None:
        raise UsageError(f"{name}: name a stored study before the words that choose among its runs")
    label = f"{study} " if several else ""
    if "=" in name:
        return {f"{label}{name}": gather_curves(store, study, name.split())}
    return {
        f"{label}{value_word(name, value)}": runs for value, runs in group_by(gather_curves(store, study), name).items()
    }


def _one_run(store: Store, prefix: str) -> RunCurves:
    try:
        run = store.run(prefix)
    except MissingData:
        raise MissingData(f"{prefix} is neither a stored study, a run, a setting nor key=value") from None
    return RunCurves(run, {}, store.curves([run.id]).get(run.id, {}))
