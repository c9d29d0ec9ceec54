"""A dump of a store as one file: a zip of a table of rows and the files that it names, none of it compressed.

    write_archive(store, store.dump({"quickstart": run_ids}), Path("lab.zip"))
    with open_archive(Path("lab.zip")) as archive:      # checked to the last byte
        other.merge(archive.dump, archive.read)

    mimetype                                what kind of file this is; the first bytes say it
    rows.json                               a StoreDump
    weights/RUN/STEP.safetensors            likewise analysis/ and state/

An archive is written the same way from the same store, byte by byte, and ends with a digest of all that is before it.
As nothing is compressed, unpacking takes no more room than the archive does. An archive is not trusted: nothing in it
names a path, and a reader accepts only what `write_archive` could have written. `lab.zip.xz` is the whole of it
compressed, and is unpacked to a file of limited size before anything else.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from pydantic import ValidationError

from seedbed.errors import DamagedCheckpoint, SeedbedError, StoreError, StudyError, UsageError
from seedbed.store.base import Store
from seedbed.store.checkpoints import CheckpointIdentity, digest_bytes, digest_json, parse_checkpoint
from seedbed.store.dump import FileRow, StoreDump, check_analysis
from seedbed.store.durable_files import format_bytes, translate_os_errors

MEDIA_TYPE: Final = b"application/x-seedbed-archive;version=1"
MAX_ROWS_BYTES: Final = 2**30
DIGEST_CHARACTERS: Final = 64
MAX_DECOMPRESSED_BYTES: Final = 2**33
MAX_DECODER_BYTES: Final = 2**27  # of memory; the strongest preset takes 65 MiB
_XZ_MAGIC: Final = b"\xfd7zXZ\x00"
_KEPT: Final = "the home is as it was"
_HEAD_BYTES: Final = 30 + len("mimetype")  # the first member's header and name
_ENTRY: Final = 0o100644 << 16  # a regular file
_UNREADABLE: Final = (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, struct.error)


# ---- writing ----


def write_archive(
    store: Store, dump: StoreDump, path: Path, on_damaged: Callable[[str], None] = lambda _: None
) -> StoreDump:
    """Write a dump with its files, and return it as written; an archive that is already there is replaced.

    Weights that cannot be read are left out, and reported to `on_damaged`.
    """
    if path.exists() and not _starts_like_an_archive(path):
        raise UsageError(f"{path} is there already and is not an archive of seedbed; name another file with --out")
    partial = path.with_name(path.name + ".part")
    with translate_os_errors(path, "everything that is stored", dump.n_bytes):
        try:
            with partial.open("w+b") as file:
                written = _write_members(store, dump, file, on_damaged)
                file.seek(-DIGEST_CHARACTERS, os.SEEK_END)
                end = file.tell()
                file.write(_digest_start(file, end).encode())
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    return written


def compress_archive(archive: Path, path: Path) -> None:
    """Write the archive compressed; equal archives give equal files."""
    if path.exists() and not path.read_bytes().startswith(_XZ_MAGIC):
        raise UsageError(f"{path} is there already and is not a compressed archive; name another file with --out")
    partial = path.with_name(path.name + ".part")
    with translate_os_errors(path, "everything that is stored", archive.stat().st_size):
        try:
            with archive.open("rb") as source, lzma.open(partial, "wb", preset=9) as file:
                while chunk := source.read(2**20):
                    file.write(chunk)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


def _write_members(store: Store, dump: StoreDump, file: BinaryIO, on_damaged: Callable[[str], None]) -> StoreDump:
    written: list[FileRow] = []
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _write_member(archive, "mimetype", MEDIA_TYPE)
        for row in dump.files:
            try:
                data = store.read_file(row)
            except DamagedCheckpoint as error:
                if row.kind == "state":
                    raise
                on_damaged(str(error))
            else:
                _write_member(archive, row.name, data)
                written.append(row)
        dump = dump.model_copy(update={"files": tuple(written)})
        rows = dump.model_dump_json().encode()
        if len(rows) > MAX_ROWS_BYTES:
            raise UsageError(
                f"these runs have {format_bytes(len(rows))} of evaluations and samples, more than the "
                f"{format_bytes(MAX_ROWS_BYTES)} of an archive; export them in parts with --only"
            )
        _write_member(archive, "rows.json", rows)
        archive.comment = b"0" * DIGEST_CHARACTERS
    return dump


def _write_member(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name)  # dated 1980
    entry.create_system, entry.external_attr = 3, _ENTRY
    archive.writestr(entry, data)


def _digest_start(file: BinaryIO, n_bytes: int) -> str:
    """The digest of the first bytes of a file, leaving it positioned after them."""
    file.seek(0)
    digest = hashlib.blake2b(digest_size=DIGEST_CHARACTERS // 2)
    while remaining := n_bytes - file.tell():
        digest.update(chunk := file.read(min(remaining, 2**20)))
        if not chunk:
            break
    return digest.hexdigest()


def _starts_like_an_archive(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES + len(MEDIA_TYPE))
    return head[_HEAD_BYTES:].startswith(MEDIA_TYPE.partition(b";")[0])


# ---- reading ----


@dataclass(frozen=True)
class Archive:
    """An open archive whose rows and files have all been checked."""

    dump: StoreDump
    n_bytes: int
    read: Callable[[FileRow], bytes]


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open an archive after checking every byte of it; StoreError if it is not as `export` writes it."""
    if not path.is_file():
        raise UsageError(f"{path} is not there; name an archive that `seedbed export` wrote")
    with ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("rb"))
            n_bytes = file.seek(0, os.SEEK_END)
            _check_digest(path, file, n_bytes)
            members = stack.enter_context(zipfile.ZipFile(file))
            dump = _read_rows(path, members, n_bytes)
            _check_files(path, members, dump)
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}; {_KEPT}") from error
        except _UNREADABLE as error:
            raise _refusal(path, str(error) or type(error).__name__) from error
        yield Archive(dump, n_bytes, lambda row: _read_file(path, members, row))


@contextmanager
def decompressed_archive(path: Path) -> Iterator[Path]:
    """The archive as a plain file: itself, or for as long as the context lasts a decompressed copy."""
    if path.suffix != ".xz" or not path.is_file():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="seedbed-") as folder:
        plain = Path(folder, path.stem)
        with translate_os_errors(plain, "the decompressed archive", path.stat().st_size):
            _decompress(path, plain)
        yield plain


def _decompress(path: Path, plain: Path) -> None:
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_DECODER_BYTES)
    n_bytes = 0
    try:
        with path.open("rb") as source, plain.open("wb") as file:
            while not decompressor.eof:
                data = source.read(2**20) if decompressor.needs_input else b""
                if decompressor.needs_input and not data:
                    raise EOFError("its end is missing")
                n_bytes += file.write(decompressor.decompress(data, max_length=2**20))
                if n_bytes > MAX_DECOMPRESSED_BYTES:
                    raise _refusal(path, f"it is more than {format_bytes(MAX_DECOMPRESSED_BYTES)} when decompressed")
    except (lzma.LZMAError, EOFError) as error:
        raise StoreError(f"{path} is damaged or incomplete: {error}; {_KEPT}; copy it again") from error


def _refusal(path: Path, reason: str) -> StoreError:
    return StoreError(f"{path} is not an archive as `seedbed export` writes it: {_one_line(reason)}; {_KEPT}")


def _one_line(reason: str) -> str:
    """At most 200 printable characters."""
    return "".join(one if one.isprintable() else " " for one in reason)[:200]


def _check_digest(path: Path, file: BinaryIO, n_bytes: int) -> None:
    if not _starts_like_an_archive(path):
        raise StoreError(f"{path} is not an archive that `seedbed export` wrote; {_KEPT}")
    digest = _digest_start(file, max(0, n_bytes - DIGEST_CHARACTERS))
    if file.read() != digest.encode():
        raise StoreError(
            f"{path} is damaged or incomplete: its {n_bytes:,} bytes do not match the digest at its end; {_KEPT}; "
            "copy it again"
        )


def _read_rows(path: Path, members: zipfile.ZipFile, n_bytes: int) -> StoreDump:
    entries = {entry.filename: entry for entry in members.infolist()}
    if len(entries) != len(members.infolist()):
        raise _refusal(path, "a name is in it twice")
    for entry in entries.values():
        is_plain = (entry.compress_type, entry.flag_bits, entry.external_attr) == (zipfile.ZIP_STORED, 0, _ENTRY)
        if not is_plain or entry.file_size != entry.compress_size:
            raise _refusal(path, f"{entry.filename} is not a plain file")
    if sum(entry.file_size for entry in entries.values()) > n_bytes:
        raise _refusal(path, "its files are larger than the archive")
    if not {"mimetype", "rows.json"} <= {*entries} or entries["rows.json"].file_size > MAX_ROWS_BYTES:
        raise _refusal(path, "it has no rows.json of an acceptable size")
    if (found := members.read("mimetype")) != MEDIA_TYPE:
        raise _refusal(path, f"it is of the kind {found[:80].decode('ascii', 'replace')}, which needs another version")
    dump = _parse_rows(path, members.read("rows.json"))
    sizes = {"mimetype": len(MEDIA_TYPE), "rows.json": entries["rows.json"].file_size}
    sizes |= {row.name: row.bytes for row in dump.files}
    if sizes != {name: entry.file_size for name, entry in entries.items()}:
        differing = sorted({*sizes} ^ {*entries}) or sorted(n for n in sizes if sizes[n] != entries[n].file_size)
        raise _refusal(path, f"its rows and its files do not match: {differing[0]}")
    return dump


def _parse_rows(path: Path, data: bytes) -> StoreDump:
    try:
        return StoreDump.model_validate_json(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "rows.json"
        raise _refusal(path, f"{place}: {first['msg']}") from error
    except (StudyError, RecursionError) as error:
        raise _refusal(path, str(error)) from error


def _check_files(path: Path, members: zipfile.ZipFile, dump: StoreDump) -> None:
    """Refuse files whose digest or content is not what their rows say."""
    owners = {("weights", run.id): run.fingerprint for run in dump.runs}
    owners |= {("state", pack.id): digest_json(pack.members) for pack in dump.packs}
    for row in dump.files:
        data = _read_file(path, members, row)
        try:
            if row.kind == "analysis":
                check_analysis(json.loads(data), row.owner, row.step)
            else:
                identity = CheckpointIdentity(row.kind, row.owner, row.step, owners[row.kind, row.owner])
                parse_checkpoint(data, row.name, identity, row.digest)
        except (SeedbedError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise _refusal(path, f"{row.name}: {error}") from error


def _read_file(path: Path, members: zipfile.ZipFile, row: FileRow) -> bytes:
    data = members.read(row.name)
    if digest_bytes(data) != row.digest:
        raise _refusal(path, f"{row.name} does not match its digest")
    return data
