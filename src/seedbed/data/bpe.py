"""Byte-pair tokens: one trained on a corpus, or GPT-1's vocabulary; the `tokenizers` extra does the merging.

`Trained` works on bytes, so it spells every text and has no unknown token. `Gpt1` lower-cases, drops accents and has
`<unk>`, as WikiText-2 was encoded for report C. In both, the id is the library's plus one: 0 stays padding. Decoding
and reading stored ids (`read_ids`) need no extra.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from seedbed.data.documents import Corpus, Document, line_pieces, text_pieces, whole_lines
from seedbed.data.text import (
    PAD,
    PAD_TEXT,
    UNKNOWN_TEXT,
    ByteDecoder,
    Counts,
    Encoded,
    Ids,
    StreamDecoder,
    checked,
    digest_of,
    id_type,
    utf8_lengths,
)
from seedbed.errors import MissingData, UsageError

Merges = tuple[tuple[str, str], ...]
WORD_END = "</w>"


def _printable_bytes() -> dict[str, int]:
    """The sign that byte-level BPE writes for each byte: itself where it is printable, else one from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    other = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + i): byte for i, byte in enumerate(other)}


_BYTE_OF = _printable_bytes()


@dataclass(frozen=True)
class Trained:
    """Byte-level BPE: `texts` are the library's, a printable sign for each byte."""

    texts: tuple[str, ...]
    merges: Merges
    kind: str = "bpe"

    @classmethod
    def of(cls, *corpora: Corpus, size: int) -> Trained:
        """A vocabulary of at most `size` tokens (padding and 256 bytes among them), learned on these corpora."""
        if size < 257:
            raise UsageError(f"a BPE vocabulary of {size} is too small; it holds padding and 256 bytes: at least 257")
        library = _library()
        model = library.Tokenizer(library.models.BPE())
        model.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = library.pre_tokenizers.ByteLevel.alphabet()
        trainer = library.trainers.BpeTrainer(vocab_size=size - 1, initial_alphabet=alphabet, show_progress=False)
        documents = chain.from_iterable(corpus.documents for corpus in corpora)
        model.train_from_iterator(chain.from_iterable(map(text_pieces, documents)), trainer)
        learned = json.loads(model.to_str())["model"]
        texts = sorted(learned["vocab"], key=learned["vocab"].__getitem__)
        return cls((PAD_TEXT, *texts), tuple((left, right) for left, right in learned["merges"]))

    @property
    def size(self) -> int:
        return len(self.texts)

    @cached_property
    def digest(self) -> str:
        return digest_of(self.kind, self.texts, self.merges)

    @cached_property
    def _spelled(self) -> tuple[bytes, ...]:
        return (b"", *(bytes(_BYTE_OF[sign] for sign in text) for text in self.texts[1:]))

    @cached_property
    def byte_counts(self) -> Counts:
        return np.array([len(spelled) for spelled in self._spelled], dtype=np.int64)

    @cached_property
    def character_counts(self) -> Counts:
        """A character is counted at its first byte."""
        starts = [sum(not 0x80 <= byte < 0xC0 for byte in spelled) for spelled in self._spelled]
        return np.array(starts, dtype=np.int64)

    @cached_property
    def _model(self) -> Any:
        library = _library()
        vocabulary = {text: i for i, text in enumerate(self.texts[1:])}
        model = library.Tokenizer(library.models.BPE(vocab=vocabulary, merges=list(self.merges)))
        model.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        return model

    def encode(self, text: str) -> Ids:
        lines, rest = whole_lines(_well_formed(text))
        return _encode_lines(self._model, [*lines, rest], self.size)

    def pieces(self, document: Document) -> Iterator[Ids]:
        """Line by line as in `encode`, so that the border of a piece changes nothing."""
        for lines in line_pieces(document):
            yield _encode_lines(self._model, lines, self.size)

    def decode(self, ids: Iterable[int]) -> str:
        decoder = self.decoder()
        return decoder.feed(ids) + decoder.end()

    def decoder(self) -> StreamDecoder:
        return ByteDecoder(lambda ids: b"".join(self._spelled[i] for i in checked(ids, self.size)))


@dataclass(frozen=True)
class Gpt1:
    """GPT-1's vocabulary: pieces of lower-cased words, `</w>` where a word ends."""

    texts: tuple[str, ...]
    merges: Merges
    kind: str = "gpt1-bpe"

    @classmethod
    def load(cls, encoder: Path, merges: Path) -> Gpt1:
        """From the two files that were published with the model."""
        try:
            ids: dict[str, int] = json.loads(encoder.read_text(encoding="utf-8"))
            lines = merges.read_text(encoding="utf-8").splitlines()[1:]
            pairs = tuple((left, right) for left, right in (line.split() for line in lines if line))
            if sorted(ids.values()) != list(range(len(ids))):
                raise ValueError("ids are not 0, 1, 2, …")
        except (OSError, ValueError, AttributeError) as error:
            raise MissingData(f"{encoder} and {merges} are not GPT-1's vocabulary ({error})") from None
        return cls((PAD_TEXT, *sorted(ids, key=ids.__getitem__)), pairs)

    @property
    def size(self) -> int:
        return len(self.texts)

    @cached_property
    def digest(self) -> str:
        return digest_of(self.kind, self.texts, self.merges)

    @cached_property
    def _spelled(self) -> tuple[str, ...]:
        return ("", *(text.replace(WORD_END, " ") for text in self.texts[1:]))

    @cached_property
    def character_counts(self) -> Counts:
        """The end of a word counts as the space after it; exact but for other spacing."""
        return np.array([len(spelled) for spelled in self._spelled], dtype=np.int64)

    @cached_property
    def byte_counts(self) -> Counts:
        """As for characters."""
        return utf8_lengths(self._spelled)

    @cached_property
    def _model(self) -> Any:
        library = _library()
        vocabulary = {text: i for i, text in enumerate(self.texts[1:])}
        model = library.models.BPE(
            vocab=vocabulary, merges=list(self.merges), unk_token=UNKNOWN_TEXT, end_of_word_suffix=WORD_END,
            fuse_unk=False,
        )  # fmt: skip
        tokenizer = library.Tokenizer(model)
        tokenizer.normalizer = library.normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
        tokenizer.add_special_tokens([UNKNOWN_TEXT])  # a written <unk> is the unknown token itself
        return tokenizer

    def encode(self, text: str) -> Ids:
        return _shifted(self._model.encode(_well_formed(text)).ids, self.size)

    def pieces(self, document: Document) -> Iterator[Ids]:
        for lines in line_pieces(document):
            yield _encode_lines(self._model, lines, self.size)

    def decode(self, ids: Iterable[int]) -> str:
        return self.decoder().feed(ids).rstrip(" ")

    def decoder(self) -> StreamDecoder:
        return _Joined(self._spelled)


class _Joined:
    """Pieces of words as they come; each is whole characters, and a word's end is its space."""

    def __init__(self, spelled: Sequence[str]) -> None:
        self._spelled = spelled

    def feed(self, ids: Iterable[int]) -> str:
        return "".join(self._spelled[i] for i in checked(ids, len(self._spelled)))

    def end(self) -> str:
        return ""


def read_ids(path: Path, size: int) -> Encoded:
    """Stored ids: an .npz with `tokens` (0 = padding, which does not occur) and `sizes` (tokens of each line)."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            ids, sizes = arrays["tokens"], arrays["sizes"].astype(np.int64)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
        raise MissingData(f"{path} holds no stored ids ({error}); expected an .npz with tokens and sizes") from None
    if ids.ndim != 1 or ids.dtype.kind != "u" or sizes.sum() != len(ids):
        raise UsageError(f"{path}: tokens must be a row of unsigned ids, and sizes must add up to their number")
    if len(ids) and (ids.max() >= size or ids.min() == PAD):
        at = int(np.argmax((ids >= size) | (ids == PAD)))
        raise UsageError(f"{path}: id {ids[at]} at place {at:,} is not in the vocabulary (1 to {size - 1})")
    return Encoded(ids, np.cumsum(sizes) - sizes, sizes)


def _encode_lines(model: Any, lines: Sequence[str], size: int) -> Ids:
    encoded = model.encode_batch(lines)
    return _shifted(list(chain.from_iterable(one.ids for one in encoded)), size)


def _shifted(ids: Sequence[int], size: int) -> Ids:
    return (np.array(ids, dtype=np.int64) + 1).astype(id_type(size))


def _well_formed(text: str) -> str:
    """Half surrogates, which no UTF-8 text holds, as U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _library() -> Any:
    try:
        import tokenizers
        import tokenizers.models
        import tokenizers.normalizers
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError:
        raise MissingData(
            "BPE tokens need the tokenizers library; install it with: pip install 'seedbed[bpe]'"
        ) from None
    return tokenizers
