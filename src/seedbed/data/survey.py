"""What is in a corpus, in numbers and first lines: for people who look before they train."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np

from seedbed.data.documents import Corpus, byte_pieces, digest, line_pieces, notes, text_pieces
from seedbed.data.text import N_CODEPOINTS, codepoints

FIRST_LINES, LINE_WIDTH, MOST_COMMON = 5, 100, 12


@dataclass(frozen=True)
class Survey:
    """Sizes of a text corpus and a first look."""

    documents: int
    bytes: int
    characters: int
    lines: int
    distinct: int  # characters; a vocabulary has one more, for padding
    commonest: tuple[tuple[str, int], ...]
    first_lines: tuple[str, ...]
    digest: str
    notes: tuple[str, ...]


def survey(corpus: Corpus) -> Survey:
    """One pass over the text in pieces, whatever its size."""
    counts = np.zeros(N_CODEPOINTS, dtype=np.int64)
    for document in corpus.documents:
        for text in text_pieces(document):
            counts += np.bincount(codepoints(text), minlength=N_CODEPOINTS)
    commonest = np.argsort(-counts, kind="stable")[:MOST_COMMON]
    return Survey(
        documents=len(corpus.documents),
        bytes=sum(len(piece) for document in corpus.documents for piece in byte_pieces(document)),
        characters=int(counts.sum()),
        lines=int(counts[ord("\n")]),
        distinct=int((counts > 0).sum()),
        commonest=tuple((chr(point), int(counts[point])) for point in commonest if counts[point]),
        first_lines=_first_lines(corpus),
        digest=digest(corpus),
        notes=notes(corpus) + _warnings(corpus, int((counts > 0).sum())),
    )


def _first_lines(corpus: Corpus) -> tuple[str, ...]:
    lines = (line for document in corpus.documents for piece in line_pieces(document) for line in piece)
    return tuple(line.rstrip("\n")[:LINE_WIDTH] for line in islice(lines, FIRST_LINES))


def _warnings(corpus: Corpus, distinct: int) -> tuple[str, ...]:
    said = {0: "is empty; a corpus needs some text", 1: "has one symbol only; there is nothing to learn"}
    return (f"{corpus.name} {said[distinct]}",) if distinct in said else ()
