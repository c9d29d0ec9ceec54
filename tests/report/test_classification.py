"""Confusion counts and confident errors of classifiers, from hand-made probabilities."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seedbed.interp.analysis import N_ERRORS, SplitPredictions
from seedbed.report import classification
from seedbed.report.classification import classification_tables

NAMES = ("cat", "dog", "owl")
LABELS = np.array([0, 0, 1, 2, 2])
TEXTS = ("mew", "purr", "bark", "hoot", "hoo")


def record(rows: list[list[float]], split: str = "test") -> SplitPredictions:
    return SplitPredictions.from_probabilities(split, NAMES, LABELS, np.array(rows), TEXTS)


FIRST = record([[0.9, 0.1, 0], [0.2, 0.8, 0], [0, 1, 0], [0.5, 0.1, 0.4], [0, 0, 1]])
SECOND = record([[0.9, 0.1, 0], [0.1, 0.9, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]])


def test_counts_are_by_true_and_predicted_class_and_errors_by_confidence() -> None:
    assert FIRST.confusion == ((1, 1, 0), (0, 1, 0), (1, 0, 1))
    assert FIRST.wrong == (1, 3)
    assert [(error.text, error.label, error.predicted) for error in FIRST.errors] == [
        ("purr", "cat", "dog"), ("hoot", "owl", "cat")
    ]  # fmt: skip
    assert SplitPredictions.from_json(json.loads(json.dumps(FIRST.as_json()))) == FIRST


def test_only_the_most_confident_errors_keep_their_text() -> None:
    n = N_ERRORS + 5
    probabilities = np.stack([np.linspace(0.6, 0.9, n), 1 - np.linspace(0.6, 0.9, n)], axis=1)
    found = SplitPredictions.from_probabilities(
        "val", ("a", "b"), np.ones(n, dtype=np.int64), probabilities, [str(i) for i in range(n)]
    )
    assert len(found.wrong) == n
    assert [error.index for error in found.errors] == list(range(n - 1, 4, -1))


def make_run(*predictions: SplitPredictions, complete: bool = True, corpus: str = "animals.csv") -> Any:
    analyses = (SimpleNamespace(predictions=predictions),) if predictions else ()
    run = SimpleNamespace(settings={"task.corpus": corpus})
    return SimpleNamespace(analyses=analyses, is_complete=complete, config={}, run=run)


@pytest.fixture
def one_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classification, "group_by_config", lambda runs: [list(runs)])


@pytest.mark.usefixtures("one_config")
def test_tables_hold_means_over_complete_seeds() -> None:
    unfinished = make_run(record([[0, 0, 1]] * 5), complete=False)
    confusion, errors = classification_tables([make_run(FIRST), make_run(SECOND), unfinished])
    assert confusion.rows == (
        ("cat", "1.0", "1.0", "0.0", "0.500"),
        ("dog", "0.0", "1.0", "0.0", "1.000"),
        ("owl", "0.5", "0.0", "1.5", "0.750"),
        ("precision", "0.667", "0.500", "1.000", "0.700"),
    )
    assert errors.rows == (("purr", "cat", "dog", "0.850", "2 of 2"), ("hoot", "owl", "cat", "0.500", "1 of 2"))


@pytest.mark.usefixtures("one_config")
def test_runs_without_predictions_have_no_tables() -> None:
    assert classification_tables([make_run()]) == []


@pytest.mark.usefixtures("one_config")
def test_classes_of_a_named_corpus_have_their_names() -> None:
    speakers = [replace(record([[0, 0, 1]] * 5), names=("0", "1", "2"))]
    table = classification_tables([make_run(*speakers, corpus="speeches")])[0]
    assert table.columns == ("class", "Obama (0)", "G. W. Bush (1)", "G. H. W. Bush (2)", "recall")
