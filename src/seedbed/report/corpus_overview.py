"""A corpus as `seedbed data show` presents it: statistics of its parts, and texts that leak between them.

describe_own_corpus("reviews.csv", None, Columns())["parts"]["train"]["classes"]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seedbed.data.catalogue import CATALOGUE, CorpusPart, find_local_file, get_corpus_part
from seedbed.data.corpora import (
    find_parts,
    find_user_path,
    has_labels,
    load_gpt1_tokenizer,
    open_corpus,
    open_labelled_texts,
)
from seedbed.data.corpus_stats import comparable_texts, compute_corpus_stats, compute_labelled_stats, count_leaks
from seedbed.data.datasets import open_token_ids
from seedbed.data.table_files import Columns, LabelledTexts
from seedbed.errors import StudyError, UsageError
from seedbed.format import pluralise

LABEL_WIDTH = 14  # characters, of the names of statistics


def describe_named_corpus(name: str, part: str | None) -> dict[str, Any]:
    """The parts and leaks of a named corpus; a part that is not on this machine has only a note."""
    if part is not None:
        get_corpus_part(name, part)  # raises with the available parts if there is no such part
    described: dict[str, Any] = {}
    texts: dict[str, dict[str, Sequence[str]]] = {"labelled": {}, "text": {}}
    for one in CATALOGUE[name].parts:
        if part in (None, one.name):
            described[one.name], compared = _describe_named_part(name, one)
            if one.kind in texts and compared is not None:
                texts[one.kind][one.name] = compared
    leaks = []
    for by_part in texts.values():
        train = next((one.name for one in CATALOGUE[name].parts if one.name in by_part and one.is_training), None)
        leaks += [asdict(leak) for leak in count_leaks(train, by_part)] if train else []
    return {"parts": described, "leaks": leaks}


def _describe_named_part(name: str, part: CorpusPart) -> tuple[dict[str, Any], Sequence[str] | None]:
    """The statistics of a part, and its texts, which are compared with those of the other parts."""
    if not all(find_local_file(file.path) for file in part.files):
        return {"notes": [f"not on this machine; download it with: seedbed data get {name}"]}, None
    if part.kind == "ids":
        encoded = open_token_ids(name, part.name)
        n_distinct = len(set(encoded.ids.tolist()))
        return {"tokens": len(encoded.ids), "lines": len(encoded.spans.lengths), "distinct": n_distinct}, None
    if part.kind == "vocabulary":
        return {"tokens": load_gpt1_tokenizer().size - 1}, None
    if part.kind == "labelled":
        return _describe_samples(open_labelled_texts(name, part.name))
    corpus = open_corpus(name, part.name)
    return asdict(compute_corpus_stats(corpus)), comparable_texts(corpus)


def describe_own_corpus(name: str, part: str | None, columns: Columns) -> dict[str, Any]:
    """The parts and leaks of a user's own file or folder: of labelled samples if it has labels, else of its text."""
    path = find_user_path(name)
    labelled, note = _find_labels(path, columns)
    names = tuple(find_parts(path)) if part is None else (part,)
    described: dict[str, Any] = {}
    texts: dict[str, Sequence[str]] = {}
    for one in names:
        if labelled:
            described[one], texts[one] = _describe_samples(open_labelled_texts(name, one, columns=columns))
        else:
            corpus = open_corpus(name, one, columns=columns)
            described[one], texts[one] = asdict(compute_corpus_stats(corpus)), comparable_texts(corpus)
    if note:
        described[names[0]]["notes"] = (*described[names[0]]["notes"], note)
    leaks = count_leaks("train", texts) if "train" in texts else ()
    return {"parts": described, "leaks": [asdict(leak) for leak in leaks]}


def _find_labels(path: Path, columns: Columns) -> tuple[bool, str]:
    """Whether a table has labels; and a note on why it cannot be read as labelled texts."""
    try:
        return has_labels(path, columns), ""
    except (StudyError, UsageError) as error:
        if columns != Columns():
            raise
        first = str(error).splitlines()[0]
        return False, f"shown as plain text, since it cannot be read as labels and texts: {first}"


def _describe_samples(samples: LabelledTexts) -> tuple[dict[str, Any], Sequence[str]]:
    return asdict(compute_labelled_stats(samples)), samples.texts


# ---- lines for a terminal ----


def format_statistic(key: str, value: Any) -> list[str]:
    """The lines of one statistic, the first of them with its name."""
    names = {"commonest": "most common", "majority": "largest class"}
    lines = list(_statistic_lines(key, value))
    heads = [names.get(key, key.replace("_", " ")), *[""] * len(lines)]
    return [f"{head:<{LABEL_WIDTH}} {line}" for head, line in zip(heads, lines, strict=False)]


def _statistic_lines(key: str, value: Any) -> Iterator[str]:
    match key, value:
        case "commonest", _:
            yield "  ".join(f"{character!r} {n:,}" for character, n in value)
        case "classes", _:
            total = sum(value.values())
            yield from (f"{name}: {n:,} ({n / total:.1%})" for name, n in value.items())
        case "tokens", dict():
            yield from (f"{one['tokens']:,} {name}, vocabulary {one['vocabulary']:,}" for name, one in value.items())
        case "duplicates", _:
            yield f"{value['exact']:,} exact, {value['normalized']:,} without case and punctuation"
        case "conflicts", _:
            yield f"{pluralise(value, 'text')} with more than one label"
        case "majority", _:
            yield f"{value:.1%} of the samples: the accuracy of always giving it"
        case _, dict():
            yield ", ".join(f"{name} {n:,.0f}" for name, n in value.items()) + " per text"
        case _, (list() | tuple()):
            yield from map(str, value)
        case _:
            yield f"{value:,}" if isinstance(value, int) else str(value)


def format_leak(leak: Mapping[str, Any]) -> str:
    """A sentence on the texts of a held-out part that occur in the training part."""
    if not leak["normalized"]:
        return f"no text of {leak['held_out']} occurs in {leak['train']}"
    share = leak["normalized"] / leak["texts"]
    return (
        f"{leak['normalized']:,} of {leak['texts']:,} texts of {leak['held_out']} ({share:.1%}) occur in "
        f"{leak['train']}, {leak['exact']:,} of them exactly"
    )
