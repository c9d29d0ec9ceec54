"""A user's own texts: a file or folder by its path, in parts where it has them.

    find_parts(Path("reviews"))                            # {"train": …, "test": …}
    read_own_corpus(Path("poems"), "train", Columns())     # a corpus of documents

A folder with files called train, validation and test (`train.csv`, `test-00000-of-00002.parquet`), or saved by
`datasets`, has these parts; any other folder of *.txt, and a single file, is one part: train.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seedbed.data.documents import Corpus, Document, concatenate_corpora, corpus_from_path, iter_text
from seedbed.data.labelled_texts import LabelledTexts, labelled_texts_from_tables
from seedbed.data.table_files import (
    TABLE_SUFFIXES,
    Columns,
    Table,
    find_column,
    is_saved_dataset,
    read_table,
    saved_dataset_splits,
)
from seedbed.errors import MissingData, UsageError

PART_ALIASES = {
    "train": "train", "training": "train", "validation": "validation", "valid": "validation", "val": "validation",
    "dev": "validation", "test": "test",
}  # fmt: skip
_PART_FILE = re.compile(rf"({'|'.join(PART_ALIASES)})(?:-\d+-of-\d+)?", re.IGNORECASE)
_PLAIN_TABLE_SUFFIXES = (".csv", ".tsv")  # read as plain text by a language model, unless its column is named


@dataclass(frozen=True)
class OwnPart:
    """Where a part of a user's corpus is."""

    paths: tuple[Path, ...]
    split: str | None = None  # of a folder that `datasets` saved


def find_parts(path: Path) -> dict[str, OwnPart]:
    """Returns the parts of a file or folder by name: train, and validation and test where they exist."""
    if not path.is_dir():
        return {"train": OwnPart((path,))}
    if is_saved_dataset(path):
        splits = saved_dataset_splits(path)
        parts = {PART_ALIASES[split]: OwnPart((path,), split) for split in splits if split in PART_ALIASES}
        return _require_training_part(path, parts if splits else {"train": OwnPart((path,))}, splits)
    return _parts_of_folder(path)


def _parts_of_folder(path: Path) -> dict[str, OwnPart]:
    """The files of a folder by part; a folder of texts with other names is one part, as a whole."""
    files = sorted((entry for entry in path.iterdir() if entry.is_file()), key=lambda entry: os.fsencode(entry.name))
    for suffix in (*TABLE_SUFFIXES, ".txt"):
        named = [file for file in files if file.suffix.lower() == suffix]
        matches = [_PART_FILE.fullmatch(file.stem) for file in named]
        if not named or (suffix == ".txt" and not all(matches)):
            continue
        parts: dict[str, tuple[Path, ...]] = {}
        for file, match in zip(named, matches, strict=True):
            if match:
                part = PART_ALIASES[match[1].lower()]
                parts[part] = (*parts.get(part, ()), file)
        found = {part: OwnPart(paths) for part, paths in parts.items()}
        return _require_training_part(path, found, [file.name for file in named])
    return {"train": OwnPart((path,))}


def _require_training_part(path: Path, parts: dict[str, OwnPart], names: Sequence[str]) -> dict[str, OwnPart]:
    if "train" not in parts:
        shown = ", ".join(names[:6]) + ("…" if len(names) > 6 else "")
        raise MissingData(f"{path} has no part called train ({shown}); name one of its files, or rename one to train")
    return {name: parts[name] for name in ("train", "validation", "test") if name in parts}


def read_own_corpus(path: Path, part: str, columns: Columns) -> Corpus:
    """Returns the texts of a part: one document per text file, or per row of a table."""
    chosen = _select_part(path, part)
    if not _is_table(chosen, columns):
        return concatenate_corpora(str(path), map(corpus_from_path, chosen.paths))
    return Corpus(str(path), tuple(one for table in _tables(chosen, columns) for one in _documents(table, columns)))


def read_own_labelled_texts(path: Path, part: str, columns: Columns) -> LabelledTexts:
    """Returns the labelled texts of a part."""
    chosen = _select_part(path, part)
    if any(one.is_dir() for one in chosen.paths) and not is_saved_dataset(path):
        raise UsageError(
            f"{path} is a folder of texts without labels; expected a file of labels and texts "
            f"({', '.join(TABLE_SUFFIXES)}), or a folder with train{TABLE_SUFFIXES[0]} and the like"
        )
    return labelled_texts_from_tables(str(path), _tables(chosen, columns), columns)


def part_names(path: Path) -> tuple[str, ...]:
    """The parts of a file or folder: train, and validation and test where they exist."""
    return tuple(find_parts(path))


def has_labels(path: Path, columns: Columns) -> bool:
    """Whether a table has a label for each text; StudyError or UsageError for a CSV or TSV file that is malformed."""
    chosen = _select_part(path, "train")
    if chosen.paths[0].suffix.lower() in _PLAIN_TABLE_SUFFIXES:
        read_own_labelled_texts(path, "train", columns)
        return True
    if not _is_table(chosen, columns):
        return False
    try:
        find_column(_tables(chosen, columns)[0], "label", columns)
    except UsageError:
        if columns.label is not None:
            raise
        return False
    return True


def read_texts(path: Path, columns: Columns) -> tuple[list[str], list[str] | None]:
    """Returns the texts of a table, or the lines of any other file; and their labels, where a table has them."""
    if path.suffix.lower() not in TABLE_SUFFIXES and not path.is_dir():
        return [line for line in _read_whole(path).split("\n") if line.strip()], None
    [table, *_] = _tables(_select_part(path, "train"), columns)
    if table.columns is None and all(len(cells) == 1 for _, cells in table.rows):
        return [cells[0] or "" for _, cells in table.rows], None
    text = find_column(table, "text", columns)
    texts = [(cells[text] if text < len(cells) else None) or "" for _, cells in table.rows]
    try:
        label = find_column(table, "label", columns)
    except UsageError:
        if columns.label is not None:
            raise
        return texts, None
    return texts, [((cells[label] if label < len(cells) else None) or "").strip() for _, cells in table.rows]


def _read_whole(path: Path) -> str:
    [document] = corpus_from_path(path).documents
    return "".join(iter_text(document))


def _select_part(path: Path, part: str) -> OwnPart:
    parts = find_parts(path)
    if part not in parts:
        raise UsageError(f"{path} has no part {part!r}; it has {', '.join(parts)}")
    return parts[part]


def _is_table(part: OwnPart, columns: Columns) -> bool:
    suffix = part.paths[0].suffix.lower()
    if part.paths[0].is_dir():
        return is_saved_dataset(part.paths[0])
    return suffix in TABLE_SUFFIXES and (suffix not in _PLAIN_TABLE_SUFFIXES or columns.text is not None)


def _tables(part: OwnPart, columns: Columns) -> list[Table]:
    return [read_table(path, columns, part.split) for path in part.paths]


def _documents(table: Table, columns: Columns) -> list[Document]:
    """The texts of a table as documents; rows without a text are left out."""
    index = find_column(table, "text", columns)
    texts = ((line, cells[index] if index < len(cells) else None) for line, cells in table.rows)
    return [Document(f"{table.name}:{line}", content=text.encode()) for line, text in texts if text]
