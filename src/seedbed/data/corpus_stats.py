"""What is in a corpus, in numbers and first lines: for people who look before they train."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np

from seedbed.data.documents import Corpus, corpus_digest, iter_bytes, iter_line_chunks, iter_text, normalization_notes
from seedbed.data.tokenizers import N_CODEPOINTS, text_to_codepoints

N_PREVIEW_LINES, MAX_PREVIEW_LINE_CHARACTERS, N_MOST_COMMON_CHARACTERS = 5, 100, 12


@dataclass(frozen=True)
class CorpusStats:
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


def compute_corpus_stats(corpus: Corpus) -> CorpusStats:
    """One pass over the text in pieces, whatever its size."""
    counts = np.zeros(N_CODEPOINTS, dtype=np.int64)
    for document in corpus.documents:
        for text in iter_text(document):
            counts += np.bincount(text_to_codepoints(text), minlength=N_CODEPOINTS)
    commonest = np.argsort(-counts, kind="stable")[:N_MOST_COMMON_CHARACTERS]
    return CorpusStats(
        documents=len(corpus.documents),
        bytes=sum(len(piece) for document in corpus.documents for piece in iter_bytes(document)),
        characters=int(counts.sum()),
        lines=int(counts[ord("\n")]),
        distinct=int((counts > 0).sum()),
        commonest=tuple((chr(point), int(counts[point])) for point in commonest if counts[point]),
        first_lines=_preview_lines(corpus),
        digest=corpus_digest(corpus),
        notes=normalization_notes(corpus) + _degenerate_text_warnings(corpus, int((counts > 0).sum())),
    )


def _preview_lines(corpus: Corpus) -> tuple[str, ...]:
    lines = (line for document in corpus.documents for piece in iter_line_chunks(document) for line in piece)
    return tuple(line.rstrip("\n")[:MAX_PREVIEW_LINE_CHARACTERS] for line in islice(lines, N_PREVIEW_LINES))


def _degenerate_text_warnings(corpus: Corpus, n_distinct: int) -> tuple[str, ...]:
    said = {0: "is empty; a corpus needs some text", 1: "has one symbol only; there is nothing to learn"}
    return (f"{corpus.name} {said[n_distinct]}",) if n_distinct in said else ()
