"""Corpora at hand: named ones found or fetched and verified, and a user's own files; what is in them is read elsewhere.

    open_corpus("shakespeare")                       # SEEDBED_DATA, else the cache, else fetched
    open_corpus("my/poems", folder=study.parent)     # a file, or a folder of *.txt
    open_labelled("speeches", "classifier/train")

A fetched file is put in place only when whole and of the right digest; what is there already is not fetched again.
`SEEDBED_OFFLINE=1` forbids the network.
"""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TypeAlias

from seedbed.data.bpe import GPT1Tokenizer, read_token_ids
from seedbed.data.catalogue import CATALOGUE, CorpusEntry, CorpusPart, StoredFile
from seedbed.data.documents import Corpus, Document, concatenate_corpora, corpus_digest, corpus_from_path
from seedbed.data.labelled_texts import LabelledTexts, read_labelled_texts
from seedbed.data.tokenizers import EncodedCorpus
from seedbed.errors import MissingData, OutOfResources, UsageError

ProgressCallback: TypeAlias = Callable[[str, int, int], None]  # what, bytes so far, bytes in all
RAW_FILE_HOST = "https://raw.githubusercontent.com"
ARCHIVE_HOST = "https://codeload.github.com"
GPT1_VOCAB_SIZE = 40_479  # GPT-1's tokens and padding


def open_corpus(
    name: str, part: str = "train", folder: Path = Path(), progress: ProgressCallback | None = None
) -> Corpus:
    """The text of a named corpus's part, or of a file or folder; a path is relative to `folder`, then to here."""
    if name not in CATALOGUE:
        return corpus_from_path(_resolve_user_path(name, folder))
    found = get_corpus_part(name, part)
    if name == "python-docs":
        return _load_python_docs()
    if found.kind not in ("text", "labelled"):
        raise UsageError(f"{name} {part} is {found.kind}, not text; texts are {', '.join(_text_corpus_names())}")
    return concatenate_corpora(
        f"{name}/{part}", [corpus_from_path(ensure_local_file(CATALOGUE[name], file, progress)) for file in found.files]
    )


def open_labelled_texts(
    name: str, part: str, folder: Path = Path(), progress: ProgressCallback | None = None
) -> LabelledTexts:
    """Labelled samples of a named corpus, or of a user's TSV or CSV."""
    if name in CATALOGUE and get_corpus_part(name, part).kind != "labelled":
        raise UsageError(f"{name} {part} has no labels; name a TSV or CSV file, or speeches classifier/train")
    return read_labelled_texts(open_corpus(name, part, folder, progress))


def open_token_ids(name: str, part: str, progress: ProgressCallback | None = None) -> EncodedCorpus:
    """Stored ids of a named corpus (WikiText-2), one line a document."""
    found = get_corpus_part(name, part)
    if found.kind != "ids":
        raise UsageError(f"{name} {part} is {found.kind}, not stored ids; wikitext2 has train, validation and test")
    return read_token_ids(ensure_local_file(CATALOGUE[name], found.files[0], progress), GPT1_VOCAB_SIZE)


def load_gpt1_tokenizer(progress: ProgressCallback | None = None) -> GPT1Tokenizer:
    """GPT-1's vocabulary."""
    named = CATALOGUE["gpt1-bpe"]
    encoder, merges = (
        ensure_local_file(named, file, progress) for file in get_corpus_part("gpt1-bpe", "vocabulary").files
    )
    return GPT1Tokenizer.from_files(encoder, merges)


def get_corpus_part(name: str, part: str) -> CorpusPart:
    named = get_corpus_entry(name)
    for one in named.parts:
        if one.name == part:
            return one
    raise UsageError(f"{name} has no part {part!r}; it has {', '.join(one.name for one in named.parts)}")


def get_corpus_entry(name: str) -> CorpusEntry:
    if name not in CATALOGUE:
        near = get_close_matches(name, CATALOGUE, 1)
        guess = f"did you mean {near[0]}?" if near else f"named corpora are {', '.join(CATALOGUE)}"
        raise MissingData(f"{name}: no corpus of this name; {guess}")
    return CATALOGUE[name]


def _text_corpus_names() -> Iterator[str]:
    return (named.name for named in CATALOGUE.values() if any(part.kind == "text" for part in named.parts))


def _resolve_user_path(name: str, folder: Path) -> Path:
    for base in (folder, Path()):
        path = base / name
        if os.path.lexists(path):
            return path
    near = get_close_matches(name, CATALOGUE, 1)
    guess = f"did you mean {near[0]}?" if near else f"or a named corpus: {', '.join(CATALOGUE)}"
    raise MissingData(f"{name}: no such file or folder, nor a named corpus; expected a path from {folder}, {guess}")


def _load_python_docs() -> Corpus:
    from pydoc_data.topics import topics

    texts = sorted(topics.items())
    return Corpus("python-docs", tuple(Document(name, content=text.encode("utf-8")) for name, text in texts))


# ---- where stored files are ----


def cache_folder() -> Path:
    """Where fetched files are kept."""
    import pooch  # type: ignore[import-untyped]

    return Path(pooch.os_cache("seedbed"))


def data_folder() -> Path | None:
    """The folder in SEEDBED_DATA, if it is set."""
    value = os.environ.get("SEEDBED_DATA")
    if value and not Path(value).is_dir():
        raise MissingData(f"SEEDBED_DATA={value} is not a folder; set it to the folder of the corpora, or unset it")
    return Path(value) if value else None


def is_offline() -> bool:
    return os.environ.get("SEEDBED_OFFLINE", "") not in ("", "0")


def find_local_file(file: StoredFile) -> Path | None:
    """Where this file is without the network; None when it is nowhere."""
    roots = [root for root in (data_folder(), cache_folder()) if root is not None]
    return next((root / file.path for root in roots if (root / file.path).exists()), None)


def ensure_local_file(entry: CorpusEntry, file: StoredFile, progress: ProgressCallback | None = None) -> Path:
    """Where this file is, verified; fetched into the cache when it is nowhere."""
    found = find_local_file(file)
    if found is None:
        _require_downloadable(entry, file)
        found = _download(entry, file, cache_folder() / file.path, progress)
    _verify_digest(entry, file, found)
    return found


def _verify_digest(entry: CorpusEntry, file: StoredFile, path: Path) -> None:
    if (seen := corpus_digest(corpus_from_path(path))) != file.sha256:
        raise MissingData(
            f"{path} is not {entry.name} as pinned (SHA-256 {seen[:16]}…, expected {file.sha256[:16]}…); "
            f"remove it and run: seedbed data get {entry.name}"
        )


def _require_downloadable(entry: CorpusEntry, file: StoredFile) -> None:
    folder = os.environ.get("SEEDBED_DATA") or "SEEDBED_DATA"
    if file.origin_path is None:
        raise MissingData(
            f"{entry.name} was made from {entry.repository} and cannot be fetched as a file; "
            f"put it at {folder}/{file.path}"
        )
    if is_offline():
        raise MissingData(
            f"{entry.name} is not here and SEEDBED_OFFLINE forbids the network; "
            f"put it at {folder}/{file.path}, or unset SEEDBED_OFFLINE, or use python-docs, which is always here"
        )


# ---- fetching ----


def _download(entry: CorpusEntry, file: StoredFile, target: Path, progress: ProgressCallback | None) -> Path:
    with _translate_download_errors(entry, file, target):
        if file.is_folder:
            return _download_folder(entry, file, target, progress)
        url = f"{RAW_FILE_HOST}/{entry.repository}/{entry.commit}/{file.origin_path}"
        return _download_file(url, file.sha256, target, file.n_bytes, progress)


def _download_file(url: str, sha256: str | None, target: Path, n_bytes: int, progress: ProgressCallback | None) -> Path:
    """Fetched beside its place, verified, then moved there."""
    import pooch

    pooch.get_logger().setLevel("WARNING")  # our own bar tells what is fetched
    shown = _DownloadProgress(target.name, n_bytes, progress) if progress else False
    fetch = pooch.HTTPDownloader(progressbar=shown, timeout=30)
    return Path(pooch.retrieve(url, sha256 and f"sha256:{sha256}", target.name, target.parent, downloader=fetch))


def _download_folder(entry: CorpusEntry, file: StoredFile, target: Path, progress: ProgressCallback | None) -> Path:
    """The repository's archive of the pinned commit, of which only the folder's texts are taken."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetching-") as beside:
        url = f"{ARCHIVE_HOST}/{entry.repository}/tar.gz/{entry.commit}"
        archive = _download_file(url, None, Path(beside) / "archive.tar.gz", 0, progress)
        texts = Path(beside) / "texts"
        _extract_folder(archive, file, texts)
        _verify_digest(entry, file, texts)
        texts.replace(target)
    return target


def _extract_folder(archive: Path, file: StoredFile, target: Path) -> None:
    """The archive's *.txt of one folder; never more bytes than the corpus has, whatever the archive says."""
    target.mkdir()
    left = file.n_bytes
    with tarfile.open(archive, "r|gz") as members:
        for member in members:
            inside = Path(member.name)
            if member.isreg() and inside.suffix == ".txt" and str(Path(*inside.parts[1:-1])) == file.origin_path:
                left -= member.size
                content = members.extractfile(member)
                if left < 0 or content is None:
                    raise ValueError(f"{file.origin_path} holds more than {file.n_bytes:,} bytes")
                (target / inside.name).write_bytes(content.read())


class _DownloadProgress:
    """What pooch calls while it fetches."""

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
    try:
        yield
    except MissingData:
        raise
    except (OSError, ValueError, EOFError, tarfile.TarError) as error:
        if getattr(error, "errno", None) in (28, 122):
            raise OutOfResources(
                f"no room for {entry.name} in {target.parent}; nothing half-written was kept"
            ) from None
        reason = " ".join(str(error).split())[:200]
        raise MissingData(
            f"{entry.name} could not be fetched from {entry.repository} ({reason}); try again, "
            f"or put it into a folder named by SEEDBED_DATA, at {file.path}"
        ) from None
