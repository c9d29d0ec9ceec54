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

from seedbed.data.bpe import Gpt1, read_ids
from seedbed.data.catalogue import CATALOGUE, Named, Part, Stored
from seedbed.data.documents import Corpus, Document, digest, joined, read_path
from seedbed.data.labelled import Labelled, read_labelled
from seedbed.data.text import Encoded
from seedbed.errors import MissingData, OutOfResources, UsageError

Progress: TypeAlias = Callable[[str, int, int], None]  # what, bytes so far, bytes in all
HOST = "https://raw.githubusercontent.com"
ARCHIVES = "https://codeload.github.com"
N_GPT1 = 40_479  # GPT-1's tokens and padding


def open_corpus(name: str, part: str = "train", folder: Path = Path(), progress: Progress | None = None) -> Corpus:
    """The text of a named corpus's part, or of a file or folder; a path is relative to `folder`, then to here."""
    if name not in CATALOGUE:
        return read_path(_own_path(name, folder))
    found = find_part(name, part)
    if name == "python-docs":
        return _python_docs()
    if found.kind not in ("text", "labelled"):
        raise UsageError(f"{name} {part} is {found.kind}, not text; texts are {', '.join(_texts())}")
    return joined(f"{name}/{part}", [read_path(place(CATALOGUE[name], file, progress)) for file in found.files])


def open_labelled(name: str, part: str, folder: Path = Path(), progress: Progress | None = None) -> Labelled:
    """Labelled samples of a named corpus, or of a user's TSV or CSV."""
    if name in CATALOGUE and find_part(name, part).kind != "labelled":
        raise UsageError(f"{name} {part} has no labels; name a TSV or CSV file, or speeches classifier/train")
    return read_labelled(open_corpus(name, part, folder, progress))


def open_ids(name: str, part: str, progress: Progress | None = None) -> Encoded:
    """Stored ids of a named corpus (WikiText-2), one line a document."""
    found = find_part(name, part)
    if found.kind != "ids":
        raise UsageError(f"{name} {part} is {found.kind}, not stored ids; wikitext2 has train, validation and test")
    return read_ids(place(CATALOGUE[name], found.files[0], progress), N_GPT1)


def open_gpt1(progress: Progress | None = None) -> Gpt1:
    """GPT-1's vocabulary."""
    named = CATALOGUE["gpt1-bpe"]
    encoder, merges = (place(named, file, progress) for file in find_part("gpt1-bpe", "vocabulary").files)
    return Gpt1.load(encoder, merges)


def find_part(name: str, part: str) -> Part:
    named = find_named(name)
    for one in named.parts:
        if one.name == part:
            return one
    raise UsageError(f"{name} has no part {part!r}; it has {', '.join(one.name for one in named.parts)}")


def find_named(name: str) -> Named:
    if name not in CATALOGUE:
        near = get_close_matches(name, CATALOGUE, 1)
        guess = f"did you mean {near[0]}?" if near else f"named corpora are {', '.join(CATALOGUE)}"
        raise MissingData(f"{name}: no corpus of this name; {guess}")
    return CATALOGUE[name]


def _texts() -> Iterator[str]:
    return (named.name for named in CATALOGUE.values() if any(part.kind == "text" for part in named.parts))


def _own_path(name: str, folder: Path) -> Path:
    for base in (folder, Path()):
        path = base / name
        if os.path.lexists(path):
            return path
    near = get_close_matches(name, CATALOGUE, 1)
    guess = f"did you mean {near[0]}?" if near else f"or a named corpus: {', '.join(CATALOGUE)}"
    raise MissingData(f"{name}: no such file or folder, nor a named corpus; expected a path from {folder}, {guess}")


def _python_docs() -> Corpus:
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


def at_hand(file: Stored) -> Path | None:
    """Where this file is without the network; None when it is nowhere."""
    roots = [root for root in (data_folder(), cache_folder()) if root is not None]
    return next((root / file.path for root in roots if (root / file.path).exists()), None)


def place(named: Named, file: Stored, progress: Progress | None = None) -> Path:
    """Where this file is, verified; fetched into the cache when it is nowhere."""
    found = at_hand(file)
    if found is None:
        _require_fetchable(named, file)
        found = _fetch(named, file, cache_folder() / file.path, progress)
    _verify(named, file, found)
    return found


def _verify(named: Named, file: Stored, path: Path) -> None:
    if (seen := digest(read_path(path))) != file.sha256:
        raise MissingData(
            f"{path} is not {named.name} as pinned (SHA-256 {seen[:16]}…, expected {file.sha256[:16]}…); "
            f"remove it and run: seedbed data get {named.name}"
        )


def _require_fetchable(named: Named, file: Stored) -> None:
    folder = os.environ.get("SEEDBED_DATA") or "SEEDBED_DATA"
    if file.origin is None:
        raise MissingData(
            f"{named.name} was made from {named.repository} and cannot be fetched as a file; "
            f"put it at {folder}/{file.path}"
        )
    if is_offline():
        raise MissingData(
            f"{named.name} is not here and SEEDBED_OFFLINE forbids the network; "
            f"put it at {folder}/{file.path}, or unset SEEDBED_OFFLINE, or use python-docs, which is always here"
        )


# ---- fetching ----


def _fetch(named: Named, file: Stored, target: Path, progress: Progress | None) -> Path:
    with _said_clearly(named, file, target):
        if file.is_folder:
            return _fetch_folder(named, file, target, progress)
        url = f"{HOST}/{named.repository}/{named.commit}/{file.origin}"
        return _retrieve(url, file.sha256, target, file.bytes, progress)


def _retrieve(url: str, sha256: str | None, target: Path, n_bytes: int, progress: Progress | None) -> Path:
    """Fetched beside its place, verified, then moved there."""
    import pooch

    pooch.get_logger().setLevel("WARNING")  # our own bar tells what is fetched
    shown = _Bar(target.name, n_bytes, progress) if progress else False
    fetch = pooch.HTTPDownloader(progressbar=shown, timeout=30)
    return Path(pooch.retrieve(url, sha256 and f"sha256:{sha256}", target.name, target.parent, downloader=fetch))


def _fetch_folder(named: Named, file: Stored, target: Path, progress: Progress | None) -> Path:
    """The repository's archive of the pinned commit, of which only the folder's texts are taken."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetching-") as beside:
        url = f"{ARCHIVES}/{named.repository}/tar.gz/{named.commit}"
        archive = _retrieve(url, None, Path(beside) / "archive.tar.gz", 0, progress)
        texts = Path(beside) / "texts"
        _take_folder(archive, file, texts)
        _verify(named, file, texts)
        texts.replace(target)
    return target


def _take_folder(archive: Path, file: Stored, texts: Path) -> None:
    """The archive's *.txt of one folder; never more bytes than the corpus has, whatever the archive says."""
    texts.mkdir()
    left = file.bytes
    with tarfile.open(archive, "r|gz") as members:
        for member in members:
            inside = Path(member.name)
            if member.isreg() and inside.suffix == ".txt" and str(Path(*inside.parts[1:-1])) == file.origin:
                left -= member.size
                content = members.extractfile(member)
                if left < 0 or content is None:
                    raise ValueError(f"{file.origin} holds more than {file.bytes:,} bytes")
                (texts / inside.name).write_bytes(content.read())


class _Bar:
    """What pooch calls while it fetches."""

    def __init__(self, what: str, total: int, progress: Progress) -> None:
        self.what, self.total, self.done, self._progress = what, total, 0, progress

    def update(self, n: int) -> None:
        self.done += n
        self._progress(self.what, self.done, self.total)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        self._progress(self.what, self.done, self.done)


@contextmanager
def _said_clearly(named: Named, file: Stored, target: Path) -> Iterator[None]:
    try:
        yield
    except MissingData:
        raise
    except (OSError, ValueError, EOFError, tarfile.TarError) as error:
        if getattr(error, "errno", None) in (28, 122):
            raise OutOfResources(
                f"no room for {named.name} in {target.parent}; nothing half-written was kept"
            ) from None
        reason = " ".join(str(error).split())[:200]
        raise MissingData(
            f"{named.name} could not be fetched from {named.repository} ({reason}); try again, "
            f"or put it into a folder named by SEEDBED_DATA, at {file.path}"
        ) from None
