"""Texts with labels: `label<TAB>text` or `label,text`, one sample a line; which corpora have them is told elsewhere.

Every problem of a file is reported in one pass, each with `file:line`. Labels are texts; their ids are their sorted
order, so 0, 1, 2 keep their meaning.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seedbed.data.documents import Corpus, Document, iter_text
from seedbed.errors import Problem, StudyError, UsageError

MAX_REPORTED_PROBLEMS = 20  # problems of one file


@dataclass(frozen=True)
class LabelledTexts:
    """Samples of one file in its order."""

    name: str
    labels: tuple[str, ...]
    texts: tuple[str, ...]
    line_numbers: tuple[int, ...]  # where each stands, for messages


def read_labelled_texts(corpus: Corpus) -> LabelledTexts:
    """The samples of a labelled corpus; a file named *.csv is read with commas and quotes, all others with tabs."""
    rows: list[tuple[str, str, int]] = []
    problems: list[Problem] = []
    for document in corpus.documents:
        for line, cells in _iter_rows(document):
            if len(cells) != 2 or not all(cell.strip() for cell in cells):
                problems.append(Problem(f"{document.name}:{line}", _describe_malformed_row(cells, document)))
            else:
                rows.append((cells[0].strip(), cells[1], line))
    if problems:
        more = len(problems) - MAX_REPORTED_PROBLEMS
        last = [Problem(corpus.name, f"{more:,} more lines like these")] if more > 0 else []
        raise StudyError(problems[:MAX_REPORTED_PROBLEMS] + last)
    if not rows:
        raise UsageError(f"{corpus.name} holds no samples; expected lines of label, tab, text")
    labels, texts, lines = zip(*rows, strict=True)
    return LabelledTexts(corpus.name, labels, texts, lines)


def collect_label_names(train: LabelledTexts, *tests: LabelledTexts) -> tuple[str, ...]:
    """Sorted labels of the training samples; a label that only a test set has is refused with its place."""
    names = set(train.labels)
    for test in tests:
        for label, line in zip(test.labels, test.line_numbers, strict=True):
            if label not in names:
                raise UsageError(
                    f"{test.name}:{line}: label {label!r} is in no training sample; "
                    f"{train.name} has {', '.join(sorted(names))}"
                )
    if len(names) < 2:
        raise UsageError(f"{train.name}: every sample has the label {train.labels[0]!r}; a classifier needs at least 2")
    return tuple(sorted(names))


def encode_labels(samples: LabelledTexts, names: Sequence[str]) -> list[int]:
    """The place of each sample's label among `names`."""
    places = {name: i for i, name in enumerate(names)}
    return [places[label] for label in samples.labels]


def _iter_rows(document: Document) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells; empty lines are passed over."""
    text = "".join(iter_text(document))
    if document.name.lower().endswith(".csv"):
        reader = csv.reader(text.splitlines(keepends=True), strict=False)
        try:
            yield from ((reader.line_num, cells) for cells in reader if cells)
        except csv.Error as error:
            raise UsageError(f"{document.name}:{reader.line_num}: not CSV ({error})") from None
        return
    for line, row in enumerate(text.split("\n"), start=1):
        if row.strip():
            yield line, row.split("\t", 1)


def _describe_malformed_row(cells: Sequence[str], document: Document) -> str:
    sign = "comma" if document.name.lower().endswith(".csv") else "tab"
    if len(cells) < 2:
        start = cells[0][:40] + ("…" if len(cells[0]) > 40 else "")
        return f"no {sign} in {start!r}; expected label, {sign}, text"
    if len(cells) > 2:
        return f"{len(cells)} cells; expected label, {sign}, text (put quotes around a text with commas)"
    return f"an empty {'text' if cells[0].strip() else 'label'}; expected label, {sign}, text"
