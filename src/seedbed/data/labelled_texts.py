"""Labelled texts from TSV or CSV files: `label<TAB>text` or `label,text`, one sample per line.

All problems of a file are reported in one pass, each with `file:line`. Labels are strings, and a label's id is its rank
in sorted order, so that 0, 1, 2 keep their values.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seedbed.data.documents import Corpus, Document, iter_text
from seedbed.errors import Problem, StudyError, UsageError

MAX_REPORTED_PROBLEMS = 20  # per file


@dataclass(frozen=True)
class LabelledTexts:
    """Labelled samples of one corpus, in file order."""

    name: str
    labels: tuple[str, ...]
    texts: tuple[str, ...]
    line_numbers: tuple[int, ...]  # of each sample, for error messages


def read_labelled_texts(corpus: Corpus) -> LabelledTexts:
    """Reads the samples of a labelled corpus; *.csv files are comma-separated with quotes, all others tab-separated."""
    rows: list[tuple[str, str, int]] = []
    problems: list[Problem] = []
    for document in corpus.documents:
        for line, cells in _iter_rows(document):
            if len(cells) != 2 or not all(cell.strip() for cell in cells):
                problems.append(Problem(f"{document.name}:{line}", _describe_malformed_row(cells, document)))
            else:
                rows.append((cells[0].strip(), cells[1], line))
    if problems:
        n_more = len(problems) - MAX_REPORTED_PROBLEMS
        summary = [Problem(corpus.name, f"{n_more:,} more malformed lines")] if n_more > 0 else []
        raise StudyError(problems[:MAX_REPORTED_PROBLEMS] + summary)
    if not rows:
        raise UsageError(f"{corpus.name} holds no samples; expected lines of label, tab, text")
    labels, texts, lines = zip(*rows, strict=True)
    return LabelledTexts(corpus.name, labels, texts, lines)


def collect_label_names(train: LabelledTexts, *tests: LabelledTexts) -> tuple[str, ...]:
    """Returns the sorted labels of the training samples; UsageError for a label that occurs only in a test set."""
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
    """Returns the index of each sample's label in `names`."""
    index = {name: i for i, name in enumerate(names)}
    return [index[label] for label in samples.labels]


def _iter_rows(document: Document) -> Iterator[tuple[int, list[str]]]:
    """Yields line number and cells; blank lines are skipped."""
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
    separator = "comma" if document.name.lower().endswith(".csv") else "tab"
    if len(cells) < 2:
        start = cells[0][:40] + ("…" if len(cells[0]) > 40 else "")
        return f"no {separator} in {start!r}; expected label, {separator}, text"
    if len(cells) > 2:
        return f"{len(cells)} cells; expected label, {separator}, text (put quotes around a text with commas)"
    return f"an empty {'text' if cells[0].strip() else 'label'}; expected label, {separator}, text"
