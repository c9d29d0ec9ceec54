"""Labelled texts from tables: `label<TAB>text` or `label,text` without a header, or columns by name.

All problems of a file are reported in one pass, each with `file:line`. Labels are strings, and a label's id is its rank
in sorted order, so that 0, 1, 2 keep their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seedbed.data.documents import Corpus
from seedbed.data.table_files import Columns, Table, find_column, read_delimited
from seedbed.errors import Problem, StudyError, UsageError

MAX_REPORTED_PROBLEMS = 20  # per file
NO_COLUMNS = Columns()  # the label, then the text, or a header with usual names


@dataclass(frozen=True)
class LabelledTexts:
    """Labelled samples of one corpus, in file order."""

    name: str
    labels: tuple[str, ...]
    texts: tuple[str, ...]
    line_numbers: tuple[int, ...]  # of each sample, for error messages
    has_header: bool = False


def read_labelled_texts(corpus: Corpus, columns: Columns = NO_COLUMNS) -> LabelledTexts:
    """Reads the samples of a labelled corpus; *.csv files are comma-separated with quotes, all others tab-separated."""
    return labelled_texts_from_tables(corpus.name, [read_delimited(one, columns) for one in corpus.documents], columns)


def labelled_texts_from_tables(name: str, tables: Iterable[Table], columns: Columns) -> LabelledTexts:
    """Returns the labels and texts of tables; StudyError with every malformed row."""
    rows: list[tuple[str, str, int]] = []
    problems: list[Problem] = []
    has_header = False
    for table in tables:
        has_header = has_header or table.columns is not None
        indices = find_column(table, "label", columns), find_column(table, "text", columns)
        width = 2 if table.columns is None and columns == NO_COLUMNS else len(table.columns or ())
        for line, cells in table.rows:
            label, text = (cells[i] if i < len(cells) else None for i in indices)
            if (width and len(cells) != width) or not (label and label.strip() and text and text.strip()):
                problems.append(Problem(f"{table.name}:{line}", _describe_malformed_row(cells, indices, table)))
            else:
                rows.append((label.strip(), text, line))
    if problems:
        n_more = len(problems) - MAX_REPORTED_PROBLEMS
        summary = [Problem(name, f"{n_more:,} more malformed lines")] if n_more > 0 else []
        raise StudyError(problems[:MAX_REPORTED_PROBLEMS] + summary)
    if not rows:
        raise UsageError(f"{name} holds no samples; expected lines of label, tab, text, or a table with a header")
    labels, texts, lines = zip(*rows, strict=True)
    return LabelledTexts(name, labels, texts, lines, has_header)


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


def _describe_malformed_row(cells: Sequence[str | None], indices: tuple[int, int], table: Table) -> str:
    if table.columns is not None:
        expected = f"expected {len(table.columns)} cells ({', '.join(table.columns)})"
    else:
        separator = "comma" if table.name.lower().endswith(".csv") else "tab"
        expected = f"expected label, {separator}, text"
        if len(cells) < 2:
            start = str(cells[0])[:40] + ("…" if len(str(cells[0])) > 40 else "")
            return f"no {separator} in {start!r}; {expected}"
    if any(i >= len(cells) for i in indices) or all(cell and cell.strip() for cell in (cells[i] for i in indices)):
        advice = "" if table.columns else ", or name the columns with task.text_column and task.label_column"
        return f"{len(cells)} cells; {expected}; put quotes around a text with commas{advice}"
    label = cells[indices[0]]
    return f"an empty {'text' if label and label.strip() else 'label'}; {expected}"
