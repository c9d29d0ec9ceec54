"""Byte-pair encoding: a byte-level tokenizer trained on a corpus, and GPT-1's; the `tokenizers` extra does the merging.

`ByteLevelBPETokenizer` encodes any text and has no unknown token. `GPT1Tokenizer` lower-cases, strips accents and has
`<unk>`, as WikiText-2 was encoded for report C. Decoding works without the extra.
"""

from __future__ import annotations

import codecs
import json
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from seedbed.data.documents import Corpus, iter_text, split_complete_lines
from seedbed.data.tokenizers import (
    PAD_TOKEN,
    UNKNOWN_TOKEN,
    ByteSequenceTokenizer,
    PieceTokenizer,
    TokenIds,
    Tokenizer,
    compute_vocabulary_digest,
    smallest_id_dtype,
)
from seedbed.errors import MissingData, UsageError

BPEMerges = tuple[tuple[str, str], ...]
END_OF_WORD_SUFFIX = "</w>"
MIN_BPE_VOCABULARY, MAX_BPE_VOCABULARY = 300, 60_000  # tokens, padding included
MAX_SUITABLE_VOCABULARY = 32_000
BYTES_PER_BPE_TOKEN = 400  # of text for each token of a vocabulary, so that a token occurs about 100 times on average


def suitable_vocab_size(n_bytes: int) -> int:
    """The size of a BPE vocabulary that suits a text: one token for each 400 bytes, from 300 to 32,000.

    A token of English has about 4 bytes, so each occurs about 100 times on average, often enough to be learnt.

    >>> suitable_vocab_size(20_000), suitable_vocab_size(300_000), suitable_vocab_size(1_115_394)
    (300, 750, 2788)
    """
    return min(max(n_bytes // BYTES_PER_BPE_TOKEN, MIN_BPE_VOCABULARY), MAX_SUITABLE_VOCABULARY)


def _printable_character_to_byte() -> dict[str, int]:
    """Maps byte-level BPE's characters to bytes (as in GPT-2): printable bytes to themselves, others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    other = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(other)}


_BYTE_OF_CHARACTER = _printable_character_to_byte()


def _write_bytes_as_hex(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "".join(f"<{byte:02x}>" for byte in error.object[error.start : error.end]), error.end


codecs.register_error("seedbed_hex", _write_bytes_as_hex)


@dataclass(frozen=True)
class BPETokenizer(Tokenizer):
    """What both have in common: a vocabulary with merges, and the library's tokenizer that applies them."""

    merges: BPEMerges

    @cached_property
    def digest(self) -> str:
        return compute_vocabulary_digest(self.kind, self.texts, self.merges)

    @abstractmethod
    def make_backend(self, library: Any, **vocabulary: Any) -> Any:
        """Returns the library's tokenizer of this vocabulary, which is given as keywords of its BPE model."""

    @cached_property
    def _backend(self) -> Any:
        vocabulary = {text: i for i, text in enumerate(self.texts[1:])}
        return self.make_backend(_import_tokenizers(), vocab=vocabulary, merges=list(self.merges))

    def encode(self, text: str) -> TokenIds:
        return self.encode_lines([_replace_lone_surrogates(text)])

    def encode_lines(self, lines: Sequence[str]) -> TokenIds:
        encodings = self._backend.encode_batch(lines)
        ids = list(chain.from_iterable(encoding.ids for encoding in encodings))
        # Ours are the library's plus one, since 0 is padding.
        return (np.array(ids, dtype=np.int64) + 1).astype(smallest_id_dtype(self.size))


class ByteLevelBPETokenizer(BPETokenizer, ByteSequenceTokenizer):
    """Byte-level BPE; `texts` are the library's token strings, with one printable character per byte."""

    kind: ClassVar[str] = "bpe"

    @classmethod
    def train(cls, *corpora: Corpus, vocab_size: int) -> ByteLevelBPETokenizer:
        """Trains a vocabulary of at most `vocab_size` tokens, including padding and 256 bytes, on these corpora."""
        if vocab_size < 257:
            raise UsageError(
                f"a BPE vocabulary of {vocab_size} is too small; it holds padding and 256 bytes: at least 257"
            )
        library = _import_tokenizers()
        tokenizer = library.Tokenizer(library.models.BPE())
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = library.pre_tokenizers.ByteLevel.alphabet()
        trainer = library.trainers.BpeTrainer(vocab_size=vocab_size - 1, initial_alphabet=alphabet, show_progress=False)
        documents = chain.from_iterable(corpus.documents for corpus in corpora)
        tokenizer.train_from_iterator(chain.from_iterable(map(iter_text, documents)), trainer)
        model = json.loads(tokenizer.to_str())["model"]
        texts = sorted(model["vocab"], key=model["vocab"].__getitem__)
        return cls((PAD_TOKEN, *texts), tuple((left, right) for left, right in model["merges"]))

    def make_backend(self, library: Any, **vocabulary: Any) -> Any:
        tokenizer = library.Tokenizer(library.models.BPE(**vocabulary))
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        return tokenizer

    @cached_property
    def token_bytes(self) -> tuple[bytes, ...]:
        return (b"", *(bytes(_BYTE_OF_CHARACTER[character] for character in text) for text in self.texts[1:]))

    @cached_property
    def readable_texts(self) -> tuple[str, ...]:
        """The text of each token; bytes that are no complete character are written as `<c3>`."""
        return (PAD_TOKEN, *(token.decode("utf-8", "seedbed_hex") for token in self.token_bytes[1:]))

    def encode(self, text: str) -> TokenIds:
        """Returns the ids line by line, as those of a document are, so that equal texts have equal ids."""
        lines, remainder = split_complete_lines(_replace_lone_surrogates(text))
        return self.encode_lines([*lines, remainder])


class GPT1Tokenizer(BPETokenizer, PieceTokenizer):
    """GPT-1's tokenizer: subwords of lower-cased words, with `</w>` at the end of a word."""

    kind: ClassVar[str] = "gpt1-bpe"

    @classmethod
    def from_files(cls, encoder_path: Path, merges_path: Path) -> GPT1Tokenizer:
        """Loads the two files that were published with the model."""
        try:
            ids: dict[str, int] = json.loads(encoder_path.read_text(encoding="utf-8"))
            lines = merges_path.read_text(encoding="utf-8").splitlines()[1:]  # the first is a version comment
            pairs = tuple((left, right) for left, right in (line.split() for line in lines if line))
            if sorted(ids.values()) != list(range(len(ids))):
                raise ValueError("ids are not 0, 1, 2, …")
        except (OSError, ValueError, AttributeError) as error:
            raise MissingData(f"{encoder_path} and {merges_path} are not GPT-1's vocabulary ({error})") from None
        return cls((PAD_TOKEN, *sorted(ids, key=ids.__getitem__)), pairs)

    def make_backend(self, library: Any, **vocabulary: Any) -> Any:
        model = library.models.BPE(
            **vocabulary, unk_token=UNKNOWN_TOKEN, end_of_word_suffix=END_OF_WORD_SUFFIX, fuse_unk=False
        )
        tokenizer = library.Tokenizer(model)
        tokenizer.normalizer = library.normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
        tokenizer.add_special_tokens([UNKNOWN_TOKEN])  # a literal <unk> in the text is the unknown token
        return tokenizer

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """Subwords, a space at the end of a word; exact for single-spaced text."""
        return ("", *(text.replace(END_OF_WORD_SUFFIX, " ") for text in self.texts[1:]))

    @property
    def readable_texts(self) -> tuple[str, ...]:
        return (PAD_TOKEN, *self.pieces[1:])

    def decode(self, ids: Iterable[int]) -> str:
        return super().decode(ids).rstrip(" ")


def _replace_lone_surrogates(text: str) -> str:
    """Replaces unpaired surrogates, which UTF-8 cannot encode, by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _import_tokenizers() -> Any:
    try:
        import tokenizers
        import tokenizers.models
        import tokenizers.normalizers
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError:
        raise MissingData(
            "BPE tokenizers need the tokenizers library; install it with: pip install 'seedbed[bpe]'"
        ) from None
    return tokenizers
