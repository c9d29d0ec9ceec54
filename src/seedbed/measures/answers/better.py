"""Which is better: groups of runs compared over seeds, every pair of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from seedbed.measures.answers.found import Found
from seedbed.measures.answers.said import Subject, ranking, verdict
from seedbed.measures.catalogue import Metric
from seedbed.measures.compare import Comparison, compare_all, over_seeds
from seedbed.measures.groups import Balanced, balance, group_by
from seedbed.measures.summary import RunCurves
from seedbed.measures.values import renamed
from seedbed.measures.words import dial_word, listed, number, value_word
from seedbed.settings import Value
from seedbed.shown import Question


def which_is_better(question: Question, runs: Sequence[RunCurves]) -> Found:
    """The values of a dial, or without one, two metrics of the same runs."""
    if question.between is None and question.and_metric is not None:
        subject = Subject(question.metric, question.value, Metric.parse(question.metric).quantity)
        as_first = [renamed(run, question.and_metric, question.metric) for run in runs]
        return compare_groups({question.metric: runs, question.and_metric: as_first}, subject)
    return compare_by(group_by(runs, question.between or ""), question.between or "", Subject.of(question))


def compare_by(groups: Mapping[Value, Sequence[RunCurves]], dial: str, subject: Subject) -> Found:
    """The groups of one dial's values."""
    if len(groups) < 2:
        value = f" ({value_word(dial, next(iter(groups)))})" if groups else ""
        return Found(f"There is nothing to compare: {dial_word(dial)} has fewer than two values here{value}.")
    return compare_groups({value_word(dial, value): runs for value, runs in groups.items()}, subject)


def compare_groups(groups: Mapping[str, Sequence[RunCurves]], subject: Subject) -> Found:
    """Any named groups of runs: the sentence about the best of them, and every pair in the numbers."""
    balanced = balance(groups, subject.number)
    values = {name: by_seed for name in groups if (by_seed := balanced.by_seed(name))}
    empty = [name for name in groups if name not in values]
    notes = (*balanced.notes(), *([f"no number for {listed(empty)}"] if empty else []), *_shared_time(subject, groups))
    if len(values) < 2:
        return Found(f"There is no answer yet: {_lacking(empty, subject, len(groups))}.", {}, balanced.n, notes)
    pairs = compare_all(values)
    sentence = verdict(values, pairs, subject) if len(values) == 2 else ranking(values, pairs, subject)
    numbers = {
        "means": {name: asdict(over_seeds(by_seed)) for name, by_seed in values.items()},
        "pairs": pairs_as_list(pairs),
        "settings": len(balanced.settings),
    }
    return Found(sentence + _attained(groups, subject) + _over_settings(balanced), numbers, balanced.n, notes)


def pairs_as_list(pairs: Mapping[tuple[str, str], Comparison]) -> list[dict[str, Any]]:
    return [{"first": one, "second": other, **asdict(found)} for (one, other), found in pairs.items()]


def _lacking(empty: Sequence[str], subject: Subject, n_groups: int) -> str:
    who = "no group" if len(empty) == n_groups else listed(empty)
    return (
        f"{who} {'has a' if who == 'no group' else 'lacks a'} number for {subject}, with settings and seeds in common"
    )


def _shared_time(subject: Subject, groups: Mapping[str, Sequence[RunCurves]]) -> tuple[str, ...]:
    told = "runs of one pack share its time equally, so their spread says little of its noise"
    alone = all(run.run.settings.train.alone for runs in groups.values() for run in runs)
    return (told,) if subject.value == "seconds" and not alone else ()


def _attained(groups: Mapping[str, Sequence[RunCurves]], subject: Subject) -> str:
    """An early step is worth what is attained there, so that is said too."""
    if subject.value != "t_f":
        return ""
    best = balance(groups, Subject(subject.metric, "best").number)
    means = {name: over_seeds(best.by_seed(name)).mean for name in groups}
    said = listed([f"{name} {number(mean)}" for name, mean in means.items()])
    return f" Early is not better in itself: the best values are {said}."


def _over_settings(balanced: Balanced) -> str:
    n = len(balanced.settings)
    return f" Each seed's number is its mean over {n} settings of the other dials." if n > 1 else ""
