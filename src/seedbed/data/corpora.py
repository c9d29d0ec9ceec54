"""Opens corpora: named ones, and a user's own files.

    open_corpus("shakespeare")                       # the training text; `catalogue.py` has the names
    open_corpus("my/poems")                          # a user's own file or folder
    open_labelled_texts("speeches", "classifier/train")

A user's own folder with files called train, validation and test (`train.csv`, `test-00000-of-00002.parquet`), or saved
by `datasets`, has these parts; any other folder of *.txt, and a single file, is one part: train.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

from seedbed.data.bpe import GPT1Tokenizer
from seedbed.data.catalogue import CATALOGUE, ensure_local_file, get_corpus_part
from seedbed.data.documents import Corpus, Document, concatenate_corpora, corpus_from_path, iter_text
from seedbed.data.table_files import (
    NO_COLUMNS,
    TABLE_SUFFIXES,
    Columns,
    LabelledTexts,
    Table,
    is_saved_dataset,
    labelled_texts_from_tables,
    read_labelled_texts,
    read_table,
    saved_dataset_splits,
)
from seedbed.errors import MissingData, UsageError

PART_ALIASES = {
    "train": "train", "training": "train", "validation": "validation", "valid": "validation", "val": "validation",
    "dev": "validation", "test": "test",
}  # fmt: skip
_PART_FILE = re.compile(rf"({'|'.join(PART_ALIASES)})(?:-\d+-of-\d+)?", re.IGNORECASE)
FileStamp: TypeAlias = tuple[str, int, int, int]  # path, inode, size, time of the last change in ns
Function = TypeVar("Function", bound=Callable[..., Any])
_PLAIN_TABLE_SUFFIXES = (".csv", ".tsv")  # read as plain text by a language model, unless its column is named


def open_corpus(name: str, part: str = "train", columns: Columns = NO_COLUMNS) -> Corpus:
    """Opens a part of a named corpus, or of a user's own file or folder."""
    if name not in CATALOGUE:
        return read_own_corpus(find_user_path(name), part, columns)
    corpus_part = get_corpus_part(name, part)
    if name == "python-docs":
        return _load_python_docs()
    if corpus_part.kind not in ("text", "labelled"):
        names = ", ".join(entry.name for entry in CATALOGUE.values() if any(one.kind == "text" for one in entry.parts))
        raise UsageError(f"{name} {part} is {corpus_part.kind}, not text; texts are {names}")
    paths = [ensure_local_file(CATALOGUE[name], file) for file in corpus_part.files]
    return concatenate_corpora(f"{name}/{part}", map(corpus_from_path, paths))


def open_labelled_texts(name: str, part: str, columns: Columns = NO_COLUMNS) -> LabelledTexts:
    """Opens the labelled samples of a named corpus, or of a user's own file or folder."""
    if name not in CATALOGUE:
        return read_own_labelled_texts(find_user_path(name), part, columns)
    if get_corpus_part(name, part).kind != "labelled":
        raise UsageError(f"{name} {part} has no labels; name a TSV or CSV file, or speeches classifier/train")
    return read_labelled_texts(open_corpus(name, part), columns)


def cache_until_edited(function: Function) -> Function:
    """functools.cache for a function whose first argument has a field `corpus`.

    A user's own text is loaded again once it has been edited, or where the current folder has changed: a notebook and
    the page live longer than a version of a text.
    """

    @cache
    def load(stamps: tuple[FileStamp, ...], *arguments: Any, **options: Any) -> Any:
        return function(*arguments, **options)

    @wraps(function)
    def cached(source: Any, *arguments: Any, **options: Any) -> Any:
        return load(_file_stamps(source.corpus), source, *arguments, **options)

    return cast(Function, cached)


def _file_stamps(name: str) -> tuple[FileStamp, ...]:
    """A stamp for every file of a user's own corpus; none for a named one, which never changes."""
    if name in CATALOGUE:
        return ()
    path = Path(name).absolute()
    files = sorted([*path.glob("*"), *path.glob("*/*")]) if path.is_dir() else [path]
    states = [(file, file.stat()) for file in files if file.is_file()]
    return tuple((str(file), state.st_ino, state.st_size, state.st_mtime_ns) for file, state in states)


def load_gpt1_tokenizer() -> GPT1Tokenizer:
    """Returns GPT-1's tokenizer from its published files."""
    entry, files = CATALOGUE["gpt1-bpe"], get_corpus_part("gpt1-bpe", "vocabulary").files
    encoder_path, merges_path = (ensure_local_file(entry, file) for file in files)
    return GPT1Tokenizer.from_files(encoder_path, merges_path)


def find_user_path(name: str) -> Path:
    """Returns the path of a user's file or folder; MissingData, with a guess of what is meant, if there is none."""
    if os.path.lexists(name):
        return Path(name)
    near = get_close_matches(name, CATALOGUE, 1)
    guess = f"did you mean {near[0]}?" if near else f"or a named corpus: {', '.join(CATALOGUE)}"
    raise MissingData(
        f"{name}: not a file, a folder or a named corpus; expected a path relative to . or to the study, {guess}"
    )


def _load_python_docs() -> Corpus:
    from pydoc_data.topics import topics

    texts = sorted(topics.items())
    return Corpus("python-docs", tuple(Document(name, content=text.encode("utf-8")) for name, text in texts))


# ---- a user's own files ----


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
    """The files of a folder by part; a folder of texts with other names is one part, as a whole.

    A table beside texts, such as a list of their sources, is no part unless it is called one.
    """
    files = sorted((entry for entry in path.iterdir() if entry.is_file()), key=lambda entry: os.fsencode(entry.name))
    for suffix in (*TABLE_SUFFIXES, ".txt"):
        named = [file for file in files if file.suffix.lower() == suffix]
        matches = [_PART_FILE.fullmatch(file.stem) for file in named]
        if not named or (suffix == ".txt" and not all(matches)):
            continue
        if not any(matches) and any(file.suffix.lower() == ".txt" for file in files):
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
    """Returns the texts of a part: one document per text file, or per row of a table that has a text."""
    chosen = _select_part(path, part)
    if not _is_table(chosen, columns):
        return concatenate_corpora(str(path), map(corpus_from_path, chosen.paths))
    documents = []
    for table in _tables(chosen, columns):
        texts = zip(table.rows, table.cells("text", columns), strict=True)
        documents += [Document(f"{table.name}:{line}", content=text.encode()) for (line, _), text in texts if text]
    return Corpus(str(path), tuple(documents))


def read_own_labelled_texts(path: Path, part: str, columns: Columns) -> LabelledTexts:
    """Returns the labelled texts of a part."""
    chosen = _select_part(path, part)
    if any(one.is_dir() for one in chosen.paths) and not is_saved_dataset(path):
        raise UsageError(
            f"{path} is a folder of texts without labels; expected a file of labels and texts "
            f"({', '.join(TABLE_SUFFIXES)}), or a folder with train{TABLE_SUFFIXES[0]} and the like"
        )
    return labelled_texts_from_tables(str(path), _tables(chosen, columns), columns)


def own_parts(name: str) -> tuple[str, ...]:
    """The parts of a user's own corpus: train, and validation and test where it has them."""
    return tuple(find_parts(find_user_path(name)))


def has_labels(path: Path, columns: Columns) -> bool:
    """Whether a table has a label for each text; StudyError or UsageError for a CSV or TSV file that is malformed."""
    chosen = _select_part(path, "train")
    if chosen.paths[0].suffix.lower() in _PLAIN_TABLE_SUFFIXES:
        read_own_labelled_texts(path, "train", columns)
        return True
    return _is_table(chosen, columns) and _tables(chosen, columns)[0].has_labels(columns)


def read_texts(path: Path, columns: Columns) -> tuple[list[str], list[str] | None]:
    """Returns the texts of a table, or the lines of any other file; and their labels, where a table has them."""
    if path.suffix.lower() not in TABLE_SUFFIXES and not path.is_dir():
        [document] = corpus_from_path(path).documents
        return [line for line in "".join(iter_text(document)).split("\n") if line.strip()], None
    [table, *_] = _tables(_select_part(path, "train"), columns)
    if table.columns is None and all(len(cells) == 1 for _, cells in table.rows):
        return [cells[0] or "" for _, cells in table.rows], None
    texts = [text or "" for text in table.cells("text", columns)]
    if not table.has_labels(columns):
        return texts, None
    return texts, [(label or "").strip() for label in table.cells("label", columns)]


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
