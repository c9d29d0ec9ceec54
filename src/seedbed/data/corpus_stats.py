"""Summary statistics and a preview of a text corpus, to inspect it before training."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np

from seedbed.data.documents import Corpus, corpus_digest, iter_bytes, iter_line_chunks, iter_text, normalization_notes
from seedbed.data.tokenizers import N_CODEPOINTS, text_to_codepoints

N_PREVIEW_LINES, MAX_PREVIEW_LINE_CHARACTERS, N_MOST_COMMON_CHARACTERS = 5, 100, 12


@dataclass(frozen=True)
class CorpusStats:
    """Sizes, most common characters and first lines of a corpus; the field names are keys of `data show --json`."""

    documents: int
    bytes: int
    characters: int
    lines: int
    distinct: int  # characters; a character vocabulary adds one id for padding
    commonest: tuple[tuple[str, int], ...]
    first_lines: tuple[str, ...]
    digest: str
    notes: tuple[str, ...]


def compute_corpus_stats(corpus: Corpus) -> CorpusStats:
    """Computes the statistics by streaming the text, in bounded memory."""
    counts = np.zeros(N_CODEPOINTS, dtype=np.int64)
    for document in corpus.documents:
        for text in iter_text(document):
            counts += np.bincount(text_to_codepoints(text), minlength=N_CODEPOINTS)
    commonest = np.argsort(-counts, kind="stable")[:N_MOST_COMMON_CHARACTERS]
    return CorpusStats(
        documents=len(corpus.documents),
        bytes=sum(len(chunk) for document in corpus.documents for chunk in iter_bytes(document)),
        characters=int(counts.sum()),
        lines=int(counts[ord("\n")]),
        distinct=int((counts > 0).sum()),
        commonest=tuple((chr(codepoint), int(counts[codepoint])) for codepoint in commonest if counts[codepoint]),
        first_lines=_preview_lines(corpus),
        digest=corpus_digest(corpus),
        notes=normalization_notes(corpus) + _degenerate_text_warnings(corpus, int((counts > 0).sum())),
    )


def _preview_lines(corpus: Corpus) -> tuple[str, ...]:
    lines = (line for document in corpus.documents for chunk in iter_line_chunks(document) for line in chunk)
    return tuple(line.rstrip("\n")[:MAX_PREVIEW_LINE_CHARACTERS] for line in islice(lines, N_PREVIEW_LINES))


def _degenerate_text_warnings(corpus: Corpus, n_distinct: int) -> tuple[str, ...]:
    warnings = {
        0: "is empty; a corpus needs some text",
        1: "has only one distinct character; there is nothing to learn",
    }
    return (f"{corpus.name} {warnings[n_distinct]}",) if n_distinct in warnings else ()
