"""What the Compare view's address asks for: groups of runs by name, what is compared of them, and what can be chosen.

    /compare?a=arithmetic/sanity model.kind=gpt&b=arithmetic/sanity model.kind=lstm&metric=val/loss&value=best
    /compare?a=arithmetic/sanity&by=model.kind

A group is a stored study, a study with words after it, or a run's id; `by` splits one study into the values of a dial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from seedbed.errors import StudyError, UsageError
from seedbed.measures.answers.said import Subject
from seedbed.measures.catalogue import table_order
from seedbed.measures.curves import direction
from seedbed.measures.summary import RunCurves
from seedbed.measures.values import ValueName
from seedbed.records import StoredRun
from seedbed.report.answered import gather_groups, subject_named
from seedbed.report.compared import Compared, compare_named
from seedbed.report.gather import points_of
from seedbed.report.overview import point_in_words
from seedbed.settings import Value
from seedbed.store.store import Store
from seedbed.study.words import matches, parse_words
from seedbed.web.form import spelled
from seedbed.web.lab import Lab

LETTERS: Final = "abcdefghijkl"  # one a group
MOST_POINTS: Final = 200  # that are listed to choose from
MOST_RUNS: Final = 2_000  # in all groups together
LOOKED_AT: Final = 20  # runs whose readings tell what can be compared


@dataclass(frozen=True)
class Comparing:
    """One address of the view."""

    groups: tuple[str, ...]
    by: str
    metric: str
    value: str

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Comparing:
        groups = tuple(query[letter].strip() for letter in LETTERS if query.get(letter, "").strip())
        return cls(groups, query.get("by", ""), query.get("metric", ""), query.get("value", "best"))


@dataclass(frozen=True)
class Gathered:
    """The groups of an address with their runs, and the arguments of `seedbed compare` that name them."""

    names: tuple[str, ...]
    groups: Mapping[str, Sequence[RunCurves]]


def compare_asked(lab: Lab, asked: Comparing) -> Compared:
    """The comparison that an address asks for; another reading of the same groups reads nothing again."""
    if not asked.groups:
        raise UsageError("nothing is chosen yet: choose two groups, or a study and a dial to split it by")
    found = lab.kept(("groups", asked.groups, asked.by), lambda store: _gathered(store, asked))
    return lab.derived(("compared", asked), found, lambda: _compared(found, asked))


def _gathered(store: Store, asked: Comparing) -> Gathered:
    names = _arguments(asked, {study.name for study in store.studies()})
    groups = gather_groups(store, names)
    _check_size(groups)
    return Gathered(tuple(names), groups)


def _compared(found: Gathered, asked: Comparing) -> Compared:
    return compare_named(found.groups, subject_of(asked, found.groups), found.names)


def subject_of(asked: Comparing, groups: Mapping[str, Sequence[RunCurves]]) -> Subject:
    """What is asked for, or the first reading that these runs have and that is better one way."""
    known = metrics_of([run for runs in groups.values() for run in runs])
    return subject_named(asked.metric or next(iter(known), "val/accuracy"), asked.value)


def metrics_of(runs: Sequence[RunCurves]) -> list[str]:
    """The readings of these runs: held-out accuracy and loss first, then as tables have them."""
    names = {name for run in runs for name in run.curves}
    first = ("val/accuracy", "val/loss", "val/perplexity")
    ranked = sorted(names, key=lambda name: (direction(name) is None, table_order(name)))
    return [*(name for name in first if name in names), *(name for name in ranked if name not in first)]


def _arguments(asked: Comparing, studies: set[str]) -> list[str]:
    """The same as arguments of `seedbed compare`: a study, the words of each of its groups, the next study."""
    if asked.by:
        if len(asked.groups) > 1:
            raise UsageError(f"by={asked.by} splits one study, and {len(asked.groups)} groups are named; take one out")
        return [asked.groups[0], asked.by]
    found: list[str] = []
    last: str | None = None
    for text in asked.groups:
        study = max((name for name in studies if text == name or text.startswith(f"{name} ")), key=len, default=None)
        if study is None:
            found.append(text)
        else:
            words = text.removeprefix(study).strip()
            found += [] if study == last and words else [study]
            found += [words] if words else []
            last = study if words else None
    return found


def _check_size(groups: Mapping[str, Sequence[RunCurves]]) -> None:
    if len(groups) > len(LETTERS):
        raise UsageError(f"these are {len(groups)} groups; at most {len(LETTERS)} are compared at a time")
    n = sum(map(len, groups.values()))
    if n > MOST_RUNS:
        raise UsageError(f"these are {n:,} runs; the page compares {MOST_RUNS:,} at most, `seedbed compare` any number")


# ---- what can be chosen ----


def choices_of(store: Store, study: str) -> dict[str, Any]:
    """A study's dials that vary, its points as words that name them, and its readings."""
    runs = store.runs(study)
    points: dict[str, tuple[dict[str, Value], list[StoredRun]]] = {}
    for run, point in zip(runs, points_of(store, study, runs), strict=True):
        words = _words(point)
        points.setdefault(words, (point, []))[1].append(run)
    axes = list(dict.fromkeys(name for point, _ in points.values() for name in point))
    listed = [
        {"words": words, "label": point_in_words(point) or "all runs", "runs": len(some)}
        for words, (point, some) in points.items()
        if words and _are_told_by(words, len(words.split()) == len(axes), some, runs)
    ]
    curves = store.curves([run.id for run in runs[:LOOKED_AT]])
    known = [RunCurves(run, {}, curves.get(run.id, {})) for run in runs[:LOOKED_AT]]
    return {
        "study": study, "runs": len(runs), "axes": axes, "points": listed[:MOST_POINTS], "n_points": len(points),
        "metrics": metrics_of(known), "values": get_args(ValueName),
    }  # fmt: skip


def _words(point: Mapping[str, Value]) -> str:
    return " ".join(f"{name}={spelled(value)}" for name, value in point.items() if value is not None)


def _are_told_by(words: str, all_axes: bool, some: Sequence[StoredRun], runs: Sequence[StoredRun]) -> bool:
    """Whether these words name these runs and no others: an unset dial or a text with blanks cannot be told so.

    Words that name every axis can only name one point; so one of its runs tells.
    """
    try:
        wanted = parse_words(words.split())
    except StudyError:
        return False
    looked_at, expected = (some[:1], 1) if all_axes else (runs, len(some))
    return sum(matches(run.settings, run.seed, wanted) for run in looked_at) == expected
