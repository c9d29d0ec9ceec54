"""The catalogue of named corpora: description, origin and expected digest; `corpora.py` finds and downloads them.

Paths are relative to the folder in SEEDBED_DATA and to the cache. The digest of a folder is that of its files' contents
concatenated in byte order of names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

PartKind: TypeAlias = Literal["text", "labelled", "ids", "vocabulary"]


@dataclass(frozen=True)
class StoredFile:
    """A file, or a folder of *.txt, with its expected digest and size."""

    path: str  # relative to SEEDBED_DATA and to the cache
    sha256: str
    n_bytes: int
    origin_path: str | None = None  # in the repository; None: derived from it, so not downloadable
    is_folder: bool = False


@dataclass(frozen=True)
class CorpusPart:
    """One named part of a corpus, such as its training text or one of its test sets."""

    name: str
    kind: PartKind
    files: tuple[StoredFile, ...]


@dataclass(frozen=True)
class CorpusEntry:
    """A corpus that can be opened by name; one without a repository ships with Python."""

    name: str
    description: str
    licence: str
    parts: tuple[CorpusPart, ...]
    repository: str | None = None
    commit: str | None = None

    @property
    def n_bytes(self) -> int:
        return sum(file.n_bytes for part in self.parts for file in part.files)


# fmt: off
_ENTRIES = (
    CorpusEntry(
        "shakespeare", "Tiny Shakespeare, 40,000 lines of plays (report A)",
        "public domain; the repository is MIT", (
            CorpusPart("train", "text", (
                StoredFile("tinyshakespeare/input.txt",
                       "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed", 1_115_394,
                       "data/tinyshakespeare/input.txt"),
            )),
        ),
        "karpathy/char-rnn", "6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e",
    ),
    CorpusEntry(
        "hebrew", "works of Bialik, Rachel and Frug, 474 documents with the site's own lines (report A)",
        "public-domain works, from Project Ben-Yehuda", (
            CorpusPart("train", "text", (
                StoredFile("hebrew_poems/heb-data",
                       "1513f36677224179fe340b5983d2ef841660d6e33985d469fa324e3d7ad8fc7d", 1_450_991,
                       "data/heb-data", is_folder=True),
            )),
        ),
        "Ofekirsh/GPT-2", "f55a8ab93e8a7ee53e0063290906d65f20e473e2",
    ),
    CorpusEntry(
        "bialik", "268 poems by H. N. Bialik without diacritics; made from txt_stripped/p89",
        "public domain; Project Ben-Yehuda volunteers (benyehuda.org)", (
            CorpusPart("train", "text", (
                StoredFile("hebrew_poems/bialik_poems.txt",
                       "a8d5b6ac6b35a17be8cd7861da415329bf3dacc2869104ab9adf22b11714c670", 549_796),
            )),
        ),
        "projectbenyehuda/public_domain_dump", "9e793b9968bf648a32982e18c12be70e27acbaa7",
    ),
    CorpusEntry(
        "rachel", "165 poems by Rachel without diacritics; made from txt_stripped/p141",
        "public domain; Project Ben-Yehuda volunteers (benyehuda.org)", (
            CorpusPart("train", "text", (
                StoredFile("hebrew_poems/rachel_poems.txt",
                       "20e27d9964466315bfe533a41bdc6084f0c6dfa0f5bf0cc823f7924fb21b8834", 81_184),
            )),
        ),
        "projectbenyehuda/public_domain_dump", "9e793b9968bf648a32982e18c12be70e27acbaa7",
    ),
    CorpusEntry(
        "speeches", "sentences of B. Obama (0), G. W. Bush (1), G. H. W. Bush (2) (report B)",
        "speeches in office are US-government works; the course states no licence, the repository is Apache-2.0", (
            CorpusPart("classifier/train", "labelled", (
                StoredFile("speeches/train_CLS.tsv",
                       "7dbd7cadc6efe746d0c0a7e5fe81f0ac2431bd2a3b86b51f4cb23f373466c88e", 198_912,
                       "speechesdataset/train_CLS.tsv"),
            )),
            CorpusPart("classifier/test", "labelled", (
                StoredFile("speeches/test_CLS.tsv",
                       "31277b7d67cff8ad717c9f43c05810c6b78feb67f04472bd7aa20e71eb2e0da8", 71_003,
                       "speechesdataset/test_CLS.tsv"),
            )),
            CorpusPart("train", "text", (
                StoredFile("speeches/train_LM.txt",
                       "aff1d88fad90db8cedfe8918a9099ffdfe622641a2a8c6e25dac1f7eda199b1a", 159_648,
                       "speechesdataset/train_LM.txt"),
            )),
            CorpusPart("obama", "text", (
                StoredFile("speeches/test_LM_obama.txt",
                       "6cb3bb657ae40cab1cb8f3f38f391dbdcc80a9b21b577d5fc1ea4ba86901bed2", 27_739,
                       "speechesdataset/test_LM_obama.txt"),
            )),
            CorpusPart("hbush", "text", (
                StoredFile("speeches/test_LM_hbush.txt",
                       "a0592374b7cd47a6417a311892a4b8a59f35cbe054cbaf96c06e50e904c8451f", 23_627,
                       "speechesdataset/test_LM_hbush.txt"),
            )),
            CorpusPart("wbush", "text", (
                StoredFile("speeches/test_LM_wbush.txt",
                       "1281773860075b12727f9f581940c028074d05f3efbf99bbfcc9c7c472d4dbd5", 24_657,
                       "speechesdataset/test_LM_wbush.txt"),
            )),
        ),
        "yasho191/ScratchLLM", "85b6308efcbf4f6ce0481c0120d3f4eedeb9a73f",
    ),
    CorpusEntry(
        "wikitext2", "WikiText-2 as ids of gpt1-bpe plus one, lower-cased (report C)",
        "Wikipedia text, CC BY-SA 3.0", (
            CorpusPart("train", "ids", (
                StoredFile("wikitext2/wiki.train.npz",
                       "64513a83b2f7bc952318aea06c63e9fabf349352ccdcc972cf7d40a0522f1131", 3_057_094,
                       "data/wiki.train.npz"),
            )),
            CorpusPart("validation", "ids", (
                StoredFile("wikitext2/wiki.validation.npz",
                       "b1ac035ce1b48ef98bb64cc58e48eadcb12c9affaf38ba6a32f287a8c3501ab3", 316_555,
                       "data/wiki.validation.npz"),
            )),
            CorpusPart("test", "ids", (
                StoredFile("wikitext2/wiki.test.npz",
                       "8222625565bfb25cb36f5135c2a9c9c9934ba305cf02d004edfc8a2e3df58152", 354_372,
                       "data/wiki.test.npz"),
            )),
        ),
        "SamuelA-L/IFT6135-HW2", "4471886f64eb47ddb08ab7cd9a0360681ecf5709",
    ),
    CorpusEntry(
        "gpt1-bpe", "GPT-1's 40,478 byte-pair tokens and their merges (report C)",
        "MIT", (
            CorpusPart("vocabulary", "vocabulary", (
                StoredFile("gpt1_bpe/encoder_bpe_40000.json",
                       "fdf49b19e7de236852091da09b84a7a3cd5e7b0e79916376cf45f6b8127b8078", 815_973,
                       "model/encoder_bpe_40000.json"),
                StoredFile("gpt1_bpe/vocab_40000.bpe",
                       "0ea9b51ae695073cd871e0358f7016311d671a7ff3963e367d5236522f294725", 458_495,
                       "model/vocab_40000.bpe"),
            )),
        ),
        "openai/finetune-transformer-lm", "f7c13308472857da7317a8b6628e9e628d9f6a73",
    ),
    CorpusEntry(
        "python-docs", "the interpreter's own help topics, one document each; differs between Python versions",
        "Python Software Foundation License", (
            CorpusPart("train", "text", ()),
        ),
    ),
)
# fmt: on
CATALOGUE: dict[str, CorpusEntry] = {entry.name: entry for entry in _ENTRIES}


def register_corpus(entry: CorpusEntry) -> CorpusEntry:
    """Makes a corpus known by its name, so that `task.corpus` and `seedbed data` accept it; returns it."""
    if CATALOGUE.get(entry.name, entry) != entry:
        raise ValueError(f"there is a corpus named {entry.name!r} already")
    CATALOGUE[entry.name] = entry
    return entry
