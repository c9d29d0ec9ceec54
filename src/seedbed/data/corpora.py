"""Opens corpora: named ones, located or downloaded and verified, and a user's own files.

    open_corpus("shakespeare")                       # SEEDBED_DATA, else the cache, else downloaded
    open_corpus("my/poems", folder=study.parent)     # a user's own file or folder: `own_corpora.py`
    open_labelled_texts("speeches", "classifier/train")

A downloaded file is moved into place only when it is complete and has the expected digest; existing files are not
downloaded again. `SEEDBED_OFFLINE=1` forbids network access.
"""

from __future__ import annotations

import errno
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TypeAlias

from seedbed.data.bpe import GPT1Tokenizer
from seedbed.data.catalogue import CATALOGUE, CorpusEntry, CorpusPart, StoredFile
from seedbed.data.documents import Corpus, Document, concatenate_corpora, corpus_digest, corpus_from_path
from seedbed.data.labelled_texts import NO_COLUMNS, LabelledTexts, read_labelled_texts
from seedbed.data.own_corpora import read_own_corpus, read_own_labelled_texts
from seedbed.data.table_files import Columns
from seedbed.errors import MissingData, OutOfResources, UsageError

ProgressCallback: TypeAlias = Callable[[str, int, int], None]  # file name, bytes so far, total bytes
RAW_FILE_HOST = "https://raw.githubusercontent.com"
ARCHIVE_HOST = "https://codeload.github.com"


def open_corpus(
    name: str,
    part: str = "train",
    folder: Path = Path(),
    progress: ProgressCallback | None = None,
    columns: Columns = NO_COLUMNS,
) -> Corpus:
    """Opens a part of a named corpus, or a file or folder, whose path is relative to `folder`, then to the cwd."""
    if name not in CATALOGUE:
        return read_own_corpus(resolve_user_path(name, folder), part, columns)
    corpus_part = get_corpus_part(name, part)
    if name == "python-docs":
        return _load_python_docs()
    if corpus_part.kind not in ("text", "labelled"):
        names = ", ".join(_text_corpus_names())
        raise UsageError(f"{name} {part} is {corpus_part.kind}, not text; texts are {names}")
    paths = [ensure_local_file(CATALOGUE[name], file, progress) for file in corpus_part.files]
    return concatenate_corpora(f"{name}/{part}", map(corpus_from_path, paths))


def open_labelled_texts(
    name: str,
    part: str,
    folder: Path = Path(),
    progress: ProgressCallback | None = None,
    columns: Columns = NO_COLUMNS,
) -> LabelledTexts:
    """Opens the labelled samples of a named corpus, or of a user's own file or folder."""
    if name not in CATALOGUE:
        return read_own_labelled_texts(resolve_user_path(name, folder), part, columns)
    if get_corpus_part(name, part).kind != "labelled":
        raise UsageError(f"{name} {part} has no labels; name a TSV or CSV file, or speeches classifier/train")
    return read_labelled_texts(open_corpus(name, part, folder, progress), columns)


def load_gpt1_tokenizer(progress: ProgressCallback | None = None) -> GPT1Tokenizer:
    """Returns GPT-1's tokenizer from its published files."""
    entry, files = CATALOGUE["gpt1-bpe"], get_corpus_part("gpt1-bpe", "vocabulary").files
    encoder_path, merges_path = (ensure_local_file(entry, file, progress) for file in files)
    return GPT1Tokenizer.from_files(encoder_path, merges_path)


def get_corpus_part(name: str, part: str) -> CorpusPart:
    """Returns a part of a named corpus; the error lists its parts."""
    entry = get_corpus_entry(name)
    for candidate in entry.parts:
        if candidate.name == part:
            return candidate
    raise UsageError(f"{name} has no part {part!r}; it has {', '.join(each.name for each in entry.parts)}")


def get_corpus_entry(name: str) -> CorpusEntry:
    """Returns the catalogue entry of this name; the error suggests the closest one."""
    if name not in CATALOGUE:
        near = get_close_matches(name, CATALOGUE, 1)
        guess = f"did you mean {near[0]}?" if near else f"named corpora are {', '.join(CATALOGUE)}"
        raise MissingData(f"{name}: no corpus of this name; {guess}")
    return CATALOGUE[name]


def _text_corpus_names() -> Iterator[str]:
    return (entry.name for entry in CATALOGUE.values() if any(part.kind == "text" for part in entry.parts))


def resolve_user_path(name: str, folder: Path) -> Path:
    """Returns the path in `folder` if it exists there, else in the working directory."""
    for base in (folder, Path()):
        path = base / name
        if os.path.lexists(path):
            return path
    near = get_close_matches(name, CATALOGUE, 1)
    guess = f"did you mean {near[0]}?" if near else f"or a named corpus: {', '.join(CATALOGUE)}"
    raise MissingData(f"{name}: not a file, a folder or a named corpus; expected a path relative to {folder}, {guess}")


def _load_python_docs() -> Corpus:
    from pydoc_data.topics import topics

    texts = sorted(topics.items())
    return Corpus("python-docs", tuple(Document(name, content=text.encode("utf-8")) for name, text in texts))


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


def is_offline() -> bool:
    return os.environ.get("SEEDBED_OFFLINE", "") not in ("", "0")


def find_local_file(file: StoredFile) -> Path | None:
    """Returns the path of this file in SEEDBED_DATA or the cache; None if it is in neither."""
    roots = [root for root in (data_folder(), cache_folder()) if root is not None]
    return next((root / file.path for root in roots if (root / file.path).exists()), None)


def ensure_local_file(entry: CorpusEntry, file: StoredFile, progress: ProgressCallback | None = None) -> Path:
    """Returns the verified path of this file, downloading it into the cache if necessary."""
    path = find_local_file(file)
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
    folder = os.environ.get("SEEDBED_DATA") or "SEEDBED_DATA"
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
        return _download_file(url, file.sha256, target, file.n_bytes, progress)


def _download_file(url: str, sha256: str | None, target: Path, n_bytes: int, progress: ProgressCallback | None) -> Path:
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
        archive = _download_file(url, None, Path(temporary) / "archive.tar.gz", 0, progress)
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
