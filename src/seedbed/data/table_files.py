"""Tables of texts and labels: CSV, TSV, JSON Lines and Parquet files, and folders that `datasets` saved to disk.

    table = read_table(Path("reviews.jsonl"), NO_COLUMNS)
    texts = table.cells("text", NO_COLUMNS)
    samples = labelled_texts_from_tables("reviews", [table], NO_COLUMNS)

A CSV or TSV file may have a header. Without one its columns are label and text; a column is then named by its number,
from 1. Parquet needs the extra `parquet`, a folder of `datasets` the extra `datasets`.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from seedbed.data.documents import Corpus, Document, iter_text
from seedbed.errors import MissingData, Problem, StudyError, UsageError

ColumnName: TypeAlias = str | int | None  # int: its number, in a file without a header; None: found by its name
ColumnRole: TypeAlias = Literal["text", "label"]
JSON_LINES_SUFFIXES = (".jsonl", ".ndjson")
TABLE_SUFFIXES = (".csv", ".tsv", *JSON_LINES_SUFFIXES, ".parquet")
DATASET_FILES = ("dataset_dict.json", "state.json")  # what `datasets.save_to_disk` leaves in a folder
COLUMN_NAMES: dict[ColumnRole, tuple[str, ...]] = {  # that are recognised; the first is preferred
    "text": ("text", "sentence", "content", "document", "review", "comment", "message", "tweet", "utterance", "body"),
    "label": ("label", "labels", "class", "category", "target", "sentiment", "topic"),
}
MIN_HEADER_EVIDENCE_ROWS = 4  # below, a first row with a label of its own proves nothing
MAX_REPORTED_PROBLEMS = 20  # malformed rows of a file


@dataclass(frozen=True)
class Columns:
    """Which columns hold the text and the label."""

    text: ColumnName = None
    label: ColumnName = None


NO_COLUMNS = Columns()  # the label, then the text, or a header with usual names


@dataclass(frozen=True)
class Table:
    """The cells of a table by row; None is a missing cell."""

    name: str
    columns: tuple[str, ...] | None  # None: the file has no header
    rows: tuple[tuple[int, tuple[str | None, ...]], ...]  # line, or number of the row, from 1; cells

    def cells(self, role: ColumnRole, columns: Columns) -> list[str | None]:
        """Returns the texts or labels of all rows; UsageError if none or several columns could be meant."""
        index = find_column(self, role, columns)
        return [cells[index] if index < len(cells) else None for _, cells in self.rows]

    def has_labels(self, columns: Columns) -> bool:
        """Whether it has a column of labels; UsageError if the one that is named is missing."""
        try:
            find_column(self, "label", columns)
        except UsageError:
            if columns.label is not None:
                raise
            return False
        return True


def is_saved_dataset(path: Path) -> bool:
    """Whether a folder was written by `datasets.save_to_disk`."""
    return any((path / name).is_file() for name in DATASET_FILES)


def read_table(path: Path, columns: Columns, split: str | None = None) -> Table:
    """Reads a file, or one split of a folder of `datasets`."""
    if path.is_dir():
        return _read_saved_dataset(path, split)
    if path.suffix.lower() in JSON_LINES_SUFFIXES:
        return _read_json_lines(path)
    if path.suffix.lower() == ".parquet":
        return _read_parquet(path)
    return read_delimited(Document(str(path), path), columns)


# ---- which column is which ----


def find_column(table: Table, role: ColumnRole, columns: Columns) -> int:
    """Returns the index of the column with texts or labels; UsageError if none or several could be meant."""
    name = columns.text if role == "text" else columns.label
    if table.columns is None:
        return _numbered_column(table, role, name)
    found = ", ".join(table.columns)
    if name is not None:
        if name not in table.columns:
            raise UsageError(f"{table.name}: task.{role}_column = {name} is not among its columns: {found}")
        return table.columns.index(str(name))
    matches = _recognised_columns(table.columns, role) or _remaining_columns(table.columns, role, columns)
    if len(matches) != 1:
        raise UsageError(f"{table.name}: which of its columns is the {role}? Name it with task.{role}_column: {found}")
    return matches[0]


def _remaining_columns(header: Sequence[str], role: ColumnRole, columns: Columns) -> list[int]:
    """The columns that are left when the column of the other role is known."""
    other: ColumnRole = "label" if role == "text" else "text"
    name = columns.label if role == "text" else columns.text
    taken = _recognised_columns(header, other) if name is None else [i for i, one in enumerate(header) if one == name]
    return [i for i in range(len(header)) if i not in taken] if len(taken) == 1 or len(header) == 1 else []


def _numbered_column(table: Table, role: ColumnRole, name: ColumnName) -> int:
    """The column of a file without a header: label, then text, unless numbers are given."""
    number = {"label": 1, "text": 2}[role] if name is None else name
    width = max((len(cells) for _, cells in table.rows), default=0)
    if not isinstance(number, int) or not 1 <= number <= max(width, 2):
        raise UsageError(
            f"{table.name}: task.{role}_column = {number}, but it has no header; expected a number from 1 to {width}"
        )
    return number - 1


def _recognised_columns(columns: Sequence[str], role: ColumnRole) -> list[int]:
    """The columns with a usual name of this role: the one called `text` or `label`, else all candidates."""
    names = [column.strip().casefold() for column in columns]
    preferred = [i for i, name in enumerate(names) if name == COLUMN_NAMES[role][0]]
    return preferred or [i for i, name in enumerate(names) if name in COLUMN_NAMES[role]]


# ---- CSV and TSV ----


def read_delimited(document: Document, columns: Columns) -> Table:
    """Reads a CSV file, or a file of tab-separated values; the first row is a header if its names say so."""
    is_csv = document.name.lower().endswith(".csv")
    rows = list(_iter_csv(document)) if is_csv else list(_iter_tsv(document))
    names = [name for name in (columns.text, columns.label) if name is not None]
    if len({type(name) for name in names}) > 1:
        raise UsageError(
            f"{document.name}: task.text_column = {columns.text} and task.label_column = {columns.label}: expected two "
            "names from its header, or two numbers if it has none"
        )
    has_header = isinstance(names[0], str) if names else _has_header(document.name, rows)
    header = tuple(cell.strip() for cell in rows[0][1]) if has_header and rows else None
    n_columns = len(header) if header else max((name for name in names if isinstance(name, int)), default=2)
    body = rows[1:] if header else rows
    cells = [(line, tuple(row) if is_csv else _join_rest(row, n_columns)) for line, row in body]
    return Table(document.name, header, tuple(cells))


def _join_rest(cells: Sequence[str], n_columns: int) -> tuple[str, ...]:
    """The cells of a tab-separated row; the last column takes the rest, so that a text may contain tabs."""
    return (*cells[: n_columns - 1], *["\t".join(cells[n_columns - 1 :])][: len(cells) >= n_columns])


def _iter_csv(document: Document) -> Iterator[tuple[int, list[str]]]:
    """Yields line number and cells; blank lines are skipped."""
    reader = csv.reader("".join(iter_text(document)).splitlines(keepends=True), strict=False)
    try:
        yield from ((reader.line_num, cells) for cells in reader if cells)
    except csv.Error as error:
        raise UsageError(f"{document.name}:{reader.line_num}: not CSV ({error})") from None


def _iter_tsv(document: Document) -> Iterator[tuple[int, list[str]]]:
    for line, row in enumerate("".join(iter_text(document)).split("\n"), start=1):
        if row.strip():
            yield line, row.split("\t")


def _has_header(name: str, rows: Sequence[tuple[int, Sequence[str]]]) -> bool:
    """Whether the first row names the columns; UsageError where that, or the order of two columns, is ambiguous."""
    recognised = [bool(_recognised_columns(rows[0][1], role)) for role in COLUMN_NAMES] if rows else []
    if recognised and (all(recognised) or (len(rows[0][1]) == 1 and any(recognised))):
        return True
    pairs = [(cells[0].strip(), cells[1].strip()) for _, cells in rows if len(cells) == 2]
    if len(pairs) != len(rows) or len(rows) <= MIN_HEADER_EVIDENCE_ROWS:
        return False
    first, second = (Counter(column) for column in zip(*pairs[1:], strict=True))
    label, text = pairs[0]
    is_identifier = all(cell and not any(c.isspace() for c in cell) and not cell.isdecimal() for cell in pairs[0])
    if is_identifier and (_looks_like_labels(first, label, second) or _looks_like_labels(second, text, first)):
        if any(recognised):
            return True
        raise UsageError(
            f"{name}:1: {label!r}, {text!r} may be a header or a sample; name its columns with task.text_column and "
            "task.label_column, or give their numbers (label 1, text 2) if it has no header"
        )
    if len(first) == len(pairs) - 1 and _looks_like_labels(second, "", first):
        raise UsageError(
            f"{name}: every row has a different first cell, which is read as the label; if the label is in "
            "the second, give task.text_column = 1 and task.label_column = 2"
        )
    return False


def _looks_like_labels(column: Counter[str], name: str, other: Counter[str]) -> bool:
    """Whether a column repeats few values, none of them `name`, while the other holds texts of several words."""
    has_texts = sum(" " in text for text in other) > len(other) / 2
    return has_texts and name not in column and len(column) * 2 <= column.total() and min(column.values()) > 1


# ---- JSON Lines, Parquet, datasets ----


def _read_json_lines(path: Path) -> Table:
    records: list[tuple[int, dict[str, Any]]] = []
    for line, row in enumerate("".join(iter_text(Document(str(path), path))).split("\n"), start=1):
        if not row.strip():
            continue
        try:
            record = json.loads(row)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", "nested too deeply, or a number too long")
            raise UsageError(f"{path}:{line}: not JSON ({reason}); expected one object per line") from None
        if "\\u" in row and any("\ud800" <= char <= "\udfff" for char in json.dumps(record, ensure_ascii=False)):
            raise UsageError(
                f"{path}:{line}: an escape \\ud800 to \\udfff is half a character; write the whole character"
            )
        if not isinstance(record, dict):
            raise UsageError(f'{path}:{line}: {row.strip()[:40]!r} is not an object; expected such as {{"text": …}}')
        records.append((line, record))
    columns = tuple(dict.fromkeys(name for _, record in records for name in record))
    return Table(str(path), columns, tuple((n, tuple(_cell(one.get(name)) for name in columns)) for n, one in records))


def _cell(value: Any) -> str | None:
    """A value as a cell; lists and objects are no texts."""
    if value is None or isinstance(value, list | dict):
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read_parquet(path: Path) -> Table:
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingData(
            f"{path}: Parquet files need pyarrow; install it with: pip install 'seedbed[parquet]'"
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            schema, values = file.schema_arrow, file.read().to_pydict()
        return _table_from_columns(str(path), values, _class_names((schema.metadata or {}).get(b"huggingface")))
    except Exception as error:  # a damaged file raises errors of several kinds
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise UsageError(f"{path} is not a Parquet file, or damaged ({reason})") from None


def _class_names(metadata: bytes | None) -> dict[str, list[str]]:
    """The names of the labels by column, where the file was written by `datasets`, which keeps labels as numbers."""
    features = json.loads(metadata).get("info", {}).get("features", {}) if metadata else {}
    return {name: one["names"] for name, one in features.items() if isinstance(one, dict) and "names" in one}


def _read_saved_dataset(path: Path, split: str | None) -> Table:
    try:
        import datasets
    except ImportError:
        raise MissingData(
            f"{path} was saved by the datasets library; install it with: pip install 'seedbed[datasets]'"
        ) from None
    try:
        loaded = datasets.load_from_disk(str(path))
    except Exception as error:  # a damaged folder raises errors of several libraries
        reason = " ".join(str(error).split())[:160]
        raise UsageError(f"{path} cannot be read by datasets ({type(error).__name__}: {reason})") from None
    dataset = loaded if split is None else loaded[split]
    names = {name: feature.names for name, feature in dataset.features.items() if hasattr(feature, "names")}
    name = str(path) if split is None else f"{path}[{split}]"
    return _table_from_columns(name, {column: dataset[column][:] for column in dataset.column_names}, names)


def _table_from_columns(name: str, values: dict[str, list[Any]], class_names: dict[str, list[str]]) -> Table:
    columns = [
        [None if value is None else class_names[column][value] for value in cells] if column in class_names
        else [_cell(value) for value in cells]
        for column, cells in values.items()
    ]  # fmt: skip
    return Table(name, tuple(values), tuple(enumerate(zip(*columns, strict=True), start=1)))


def saved_dataset_splits(path: Path) -> tuple[str, ...]:
    """The splits of a folder that `datasets` saved; empty if it is one dataset without splits."""
    try:
        return tuple(json.loads((path / DATASET_FILES[0]).read_text(encoding="utf-8"))["splits"])
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(f"{path / DATASET_FILES[0]} does not list the splits of a dataset") from None


# ---- labelled texts ----


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
