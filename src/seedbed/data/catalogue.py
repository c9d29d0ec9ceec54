"""The catalogue of named corpora (description, origin, expected digest), and their files: located or downloaded.

    entry = get_corpus_entry("shakespeare")
    ensure_local_file(entry, entry.parts[0].files[0])   # in SEEDBED_DATA, else in the cache, else downloaded

Paths are relative to the folder in SEEDBED_DATA and to the cache. The digest of a folder is that of its files' contents
concatenated in byte order of names. A downloaded file is moved into place only when it is complete and has the expected
digest; existing files are not downloaded again. `SEEDBED_OFFLINE=1` forbids network access.
"""

from __future__ import annotations

import errno
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, TypeAlias

from seedbed.data.documents import corpus_digest, corpus_from_path
from seedbed.errors import MissingData, OutOfResources, UsageError

PartKind: TypeAlias = Literal["text", "labelled", "ids", "vocabulary"]
ProgressCallback: TypeAlias = Callable[[str, int, int], None]  # file name, bytes so far, total bytes
RAW_FILE_HOST = "https://raw.githubusercontent.com"
ARCHIVE_HOST = "https://codeload.github.com"


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

    @property
    def is_training(self) -> bool:
        """Whether it is the text to train on."""
        return self.name == "train" or self.name.endswith("/train")


@dataclass(frozen=True)
class CorpusEntry:
    """A corpus that can be opened by name; one without a repository ships with Python."""

    name: str
    description: str
    licence: str
    parts: tuple[CorpusPart, ...]
    repository: str | None = None
    commit: str | None = None
    class_names: tuple[tuple[str, str], ...] = ()  # of labels that do not say what they mean

    @property
    def n_bytes(self) -> int:
        return sum(file.n_bytes for part in self.parts for file in part.files)


def _parts(
    folder: str, origin_folder: str | None, *files: tuple[str, PartKind, str, int, str]
) -> tuple[CorpusPart, ...]:
    """Parts of one file each: name and kind of the part, name of the file, its bytes and SHA-256."""
    return tuple(
        CorpusPart(
            part, kind, (StoredFile(f"{folder}/{name}", sha256, n_bytes, origin_folder and f"{origin_folder}/{name}"),)
        )
        for part, kind, name, n_bytes, sha256 in files
    )


# fmt: off
_ENTRIES = (
    CorpusEntry(
        "shakespeare", "Tiny Shakespeare, 40,000 lines of plays (for characters/*)",
        "public domain; the repository is MIT",
        _parts("tinyshakespeare", "data/tinyshakespeare",
            ("train", "text", "input.txt", 1_115_394,
             "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"),
        ),
        "karpathy/char-rnn", "6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e",
    ),
    CorpusEntry(
        "hebrew", "works of Bialik, Rachel and Frug, 474 documents with the site's own lines (for characters/*)",
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
        "public domain; Project Ben-Yehuda volunteers (benyehuda.org)",
        _parts("hebrew_poems", None,
            ("train", "text", "bialik_poems.txt", 549_796,
             "a8d5b6ac6b35a17be8cd7861da415329bf3dacc2869104ab9adf22b11714c670"),
        ),
        "projectbenyehuda/public_domain_dump", "9e793b9968bf648a32982e18c12be70e27acbaa7",
    ),
    CorpusEntry(
        "rachel", "165 poems by Rachel without diacritics; made from txt_stripped/p141",
        "public domain; Project Ben-Yehuda volunteers (benyehuda.org)",
        _parts("hebrew_poems", None,
            ("train", "text", "rachel_poems.txt", 81_184,
             "20e27d9964466315bfe533a41bdc6084f0c6dfa0f5bf0cc823f7924fb21b8834"),
        ),
        "projectbenyehuda/public_domain_dump", "9e793b9968bf648a32982e18c12be70e27acbaa7",
    ),
    CorpusEntry(
        "speeches", "sentences of B. Obama (0), G. W. Bush (1), G. H. W. Bush (2) (for speeches/*)",
        "speeches in office are US-government works; the course states no licence, the repository is Apache-2.0",
        _parts("speeches", "speechesdataset",
            ("classifier/train", "labelled", "train_CLS.tsv", 198_912,
             "7dbd7cadc6efe746d0c0a7e5fe81f0ac2431bd2a3b86b51f4cb23f373466c88e"),
            ("classifier/test", "labelled", "test_CLS.tsv", 71_003,
             "31277b7d67cff8ad717c9f43c05810c6b78feb67f04472bd7aa20e71eb2e0da8"),
            ("train", "text", "train_LM.txt", 159_648,
             "aff1d88fad90db8cedfe8918a9099ffdfe622641a2a8c6e25dac1f7eda199b1a"),
            ("obama", "text", "test_LM_obama.txt", 27_739,
             "6cb3bb657ae40cab1cb8f3f38f391dbdcc80a9b21b577d5fc1ea4ba86901bed2"),
            ("hbush", "text", "test_LM_hbush.txt", 23_627,
             "a0592374b7cd47a6417a311892a4b8a59f35cbe054cbaf96c06e50e904c8451f"),
            ("wbush", "text", "test_LM_wbush.txt", 24_657,
             "1281773860075b12727f9f581940c028074d05f3efbf99bbfcc9c7c472d4dbd5"),
        ),
        "yasho191/ScratchLLM", "85b6308efcbf4f6ce0481c0120d3f4eedeb9a73f",
        (("0", "Obama"), ("1", "G. W. Bush"), ("2", "G. H. W. Bush")),
    ),
    CorpusEntry(
        "wikitext2", "WikiText-2 as ids of gpt1-bpe plus one, lower-cased (for wikitext/*)",
        "Wikipedia text, CC BY-SA 3.0",
        _parts("wikitext2", "data",
            ("train", "ids", "wiki.train.npz", 3_057_094,
             "64513a83b2f7bc952318aea06c63e9fabf349352ccdcc972cf7d40a0522f1131"),
            ("validation", "ids", "wiki.validation.npz", 316_555,
             "b1ac035ce1b48ef98bb64cc58e48eadcb12c9affaf38ba6a32f287a8c3501ab3"),
            ("test", "ids", "wiki.test.npz", 354_372,
             "8222625565bfb25cb36f5135c2a9c9c9934ba305cf02d004edfc8a2e3df58152"),
        ),
        "SamuelA-L/IFT6135-HW2", "4471886f64eb47ddb08ab7cd9a0360681ecf5709",
    ),
    CorpusEntry(
        "gpt1-bpe", "GPT-1's 40,478 byte-pair tokens and their merges (for wikitext/*)",
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


def get_corpus_part(name: str, part: str) -> CorpusPart:
    """Returns a part of a named corpus; the error lists its parts."""
    parts = {each.name: each for each in get_corpus_entry(name).parts}
    if part not in parts:
        raise UsageError(f"{name} has no part {part!r}; it has {', '.join(parts)}")
    return parts[part]


def get_corpus_entry(name: str) -> CorpusEntry:
    """Returns the catalogue entry of this name; the error suggests the closest one."""
    if name not in CATALOGUE:
        near = get_close_matches(name, CATALOGUE, 1)
        guess = f"did you mean {near[0]}?" if near else f"named corpora are {', '.join(CATALOGUE)}"
        raise MissingData(f"{name}: no corpus of this name; {guess}")
    return CATALOGUE[name]


def describe_class(corpus: object, label: str) -> str:
    """A class of a corpus as people read it.

    >>> describe_class("speeches", "0"), describe_class("my.csv", "sport")
    ('Obama (0)', 'sport')
    """
    names = dict(CATALOGUE[corpus].class_names) if isinstance(corpus, str) and corpus in CATALOGUE else {}
    return f"{names[label]} ({label})" if label in names else label


# ---- local files ----


def cache_folder() -> Path:
    """Returns the folder of downloaded files."""
    import pooch  # type: ignore[import-untyped]

    return Path(pooch.os_cache("seedbed"))


def data_folder() -> Path | None:
    """Returns the folder in SEEDBED_DATA, or None if it is not set."""
    value = os.environ.get("SEEDBED_DATA")
    if value and not Path(value).is_dir():
        raise MissingData(f"SEEDBED_DATA={value} is not a folder; set it to the folder of the corpora, or unset it")
    return Path(value) if value else None


def data_folder_name() -> str:
    """Returns what a message calls that folder."""
    return os.environ.get("SEEDBED_DATA") or "SEEDBED_DATA"


def is_offline() -> bool:
    """Whether SEEDBED_OFFLINE forbids the network."""
    return os.environ.get("SEEDBED_OFFLINE", "") not in ("", "0")


def find_local_file(path: str) -> Path | None:
    """Returns where this file is in SEEDBED_DATA or the cache; None if it is in neither."""
    roots = [root for root in (data_folder(), cache_folder()) if root is not None]
    return next((root / path for root in roots if (root / path).exists()), None)


def ensure_local_file(entry: CorpusEntry, file: StoredFile, progress: ProgressCallback | None = None) -> Path:
    """Returns the verified path of this file, downloading it into the cache if necessary."""
    path = find_local_file(file.path)
    if path is None:
        _require_downloadable(entry, file)
        path = _download(entry, file, cache_folder() / file.path, progress)
    _verify_digest(entry, file, path)
    return path


def _verify_digest(entry: CorpusEntry, file: StoredFile, path: Path) -> None:
    if (digest := corpus_digest(corpus_from_path(path))) != file.sha256:
        raise MissingData(
            f"{path} is not {entry.name} as pinned (SHA-256 {digest[:16]}…, expected {file.sha256[:16]}…); "
            f"remove it and run: seedbed data get {entry.name}"
        )


def _require_downloadable(entry: CorpusEntry, file: StoredFile) -> None:
    """Raises MissingData, saying where to put the file, if it cannot be downloaded."""
    folder = data_folder_name()
    if file.origin_path is None:
        derived = f"is derived from {entry.repository} and " if entry.repository else ""
        raise MissingData(f"{entry.name} {derived}cannot be downloaded as a file; put it at {folder}/{file.path}")
    if is_offline():
        raise MissingData(
            f"{entry.name} is not on this machine and SEEDBED_OFFLINE forbids the network; "
            f"put it at {folder}/{file.path}, or unset SEEDBED_OFFLINE, or use python-docs, which is always available"
        )


# ---- downloads ----


def _download(entry: CorpusEntry, file: StoredFile, target: Path, progress: ProgressCallback | None) -> Path:
    with _translate_download_errors(entry, file, target):
        if file.is_folder:
            return _download_folder(entry, file, target, progress)
        url = f"{RAW_FILE_HOST}/{entry.repository}/{entry.commit}/{file.origin_path}"
        return download_file(url, file.sha256, target, file.n_bytes, progress)


def download_file(url: str, sha256: str | None, target: Path, n_bytes: int, progress: ProgressCallback | None) -> Path:
    """Downloads to a temporary file beside `target`, verifies it and moves it there."""
    import pooch

    pooch.get_logger().setLevel("WARNING")  # progress is reported by the callback
    progress_bar = _DownloadProgress(target.name, n_bytes, progress) if progress else False
    downloader = pooch.HTTPDownloader(progressbar=progress_bar, timeout=30)
    return Path(pooch.retrieve(url, sha256 and f"sha256:{sha256}", target.name, target.parent, downloader=downloader))


def _download_folder(entry: CorpusEntry, file: StoredFile, target: Path, progress: ProgressCallback | None) -> Path:
    """Downloads the repository's archive at the pinned commit and extracts one folder of texts from it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder as the target, so that the final rename is atomic.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetching-") as temporary:
        url = f"{ARCHIVE_HOST}/{entry.repository}/tar.gz/{entry.commit}"
        archive = download_file(url, None, Path(temporary) / "archive.tar.gz", 0, progress)
        texts = Path(temporary) / "texts"
        _extract_folder(archive, file, texts)
        _verify_digest(entry, file, texts)
        texts.replace(target)
    return target


def _extract_folder(archive: Path, file: StoredFile, target: Path) -> None:
    """Extracts the *.txt files of one folder; never more bytes than the corpus has, whatever the archive contains."""
    target.mkdir()
    n_bytes_left = file.n_bytes
    with tarfile.open(archive, "r|gz") as members:
        for member in members:
            path = Path(member.name)  # its first component is the archive's own root folder
            if member.isreg() and path.suffix == ".txt" and str(Path(*path.parts[1:-1])) == file.origin_path:
                n_bytes_left -= member.size
                content = members.extractfile(member)
                if n_bytes_left < 0 or content is None:
                    raise ValueError(f"{file.origin_path} holds more than {file.n_bytes:,} bytes")
                (target / path.name).write_bytes(content.read())  # only the file name: no path traversal


class _DownloadProgress:
    """The progress bar interface that pooch expects, forwarded to a callback."""

    def __init__(self, label: str, total: int, progress: ProgressCallback) -> None:
        self.label, self.total, self.n_done, self._progress = label, total, 0, progress

    def update(self, n: int) -> None:
        self.n_done += n
        self._progress(self.label, self.n_done, self.total)

    def reset(self) -> None:
        self.n_done = 0

    def close(self) -> None:
        self._progress(self.label, self.n_done, self.n_done)


@contextmanager
def _translate_download_errors(entry: CorpusEntry, file: StoredFile, target: Path) -> Iterator[None]:
    """Turns network, archive and disk errors into ours, with what to do about them."""
    try:
        yield
    except MissingData:
        raise
    except (OSError, ValueError, EOFError, tarfile.TarError) as error:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            raise OutOfResources(
                f"not enough disk space for {entry.name} in {target.parent}; no partial file was kept"
            ) from None
        reason = " ".join(str(error).split())[:200]
        raise MissingData(
            f"{entry.name} could not be downloaded from {entry.repository} ({reason}); try again, "
            f"or put it into a folder named by SEEDBED_DATA, at {file.path}"
        ) from None
