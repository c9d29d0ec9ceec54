"""Atomic durable file writes and inter-process file locks; OS errors become messages for users.

A file is written under a temporary name, fsynced, renamed, and its folder fsynced too. A failed fsync is never retried:
the kernel may have dropped the dirty pages and would report success the second time.
"""

from __future__ import annotations

import errno
import importlib
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

from seedbed.errors import TOO_MANY_FILES, Busy, OutOfResources, SeedbedError, StoreError

LOCK_ATTEMPTS = 5
LOCKED_BYTE = 1 << 30  # on Windows, where a locked byte cannot be read: beyond the text that names the holder
WriteFault: TypeAlias = Literal["full", "failing", "refused"]  # the disk is full or failing, or the system refuses
_WRITE_FAULTS: dict[int | None, WriteFault] = {
    errno.ENOSPC: "full", errno.EDQUOT: "full", errno.EFBIG: "full", errno.EIO: "failing",
}  # fmt: skip


def write_atomic(path: Path, data: bytes, preserved: str, partial_name: str = "part") -> None:
    """Replace the file with these bytes, or leave it unchanged; `preserved` is quoted in the error if writing fails.

    Its folder must be there: a home that was moved away meanwhile must not be made anew. Several processes may write
    the same file at once only under different partial names.
    """
    with translate_os_errors(path, preserved, needed_bytes=len(data)):
        partial = path.with_name(f"{path.name}.{partial_name}")
        try:
            _write_and_fsync(partial, data)
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        fsync_folder(path.parent)


def _write_and_fsync(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Create a folder and its parents, fsynced so that they survive a power loss."""
    make_folders([path])


def make_folders(paths: Iterable[Path], within: Path | None = None) -> None:
    """Create folders like `make_folder`, but not `within` and what is above it; each parent is fsynced only once."""
    missing = [path for path in dict.fromkeys(paths) if not path.is_dir()]
    if within in missing:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(within))
    parents = dict.fromkeys(path.parent for path in missing)
    if missing:
        make_folders(parents, within)
    for path in missing:
        path.mkdir(exist_ok=True)
    for parent in parents:
        fsync_folder(parent)


def fsync_folder(path: Path) -> None:
    """Flush the directory entries of a folder to disk; Windows cannot, and writes them by itself."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def translate_os_errors(path: Path, preserved: str, needed_bytes: int = 0) -> Iterator[None]:
    """Translate an OSError while writing a file into one of our errors."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise OutOfResources(f"{path} cannot be written; kept: {preserved}; {TOO_MANY_FILES}") from error
        fault = _WRITE_FAULTS.get(error.errno, "refused")
        raise write_error(path, error.strerror or str(error), fault, preserved, needed_bytes) from error


def write_error(path: Path, reason: str, fault: WriteFault, preserved: str, needed_bytes: int = 0) -> SeedbedError:
    """The error for a file that could not be written."""
    if fault == "refused":
        in_the_way = [one for one in path.parents if os.path.lexists(one) and not one.is_dir()]
        hint = f"{in_the_way[0]} is not a folder; name another one" if in_the_way else "check the folder's permissions"
        return StoreError(f"{path} cannot be written: {reason}; kept: {preserved}; {hint}")
    size = f"needs {format_bytes(needed_bytes)}, " if needed_bytes else ""
    return OutOfResources(
        f"{path} could not be written: {reason} ({size}{format_bytes(_free_bytes(path))} free); kept: {preserved}; "
        f"{'free some space' if fault == 'full' else 'check the disk'} and run the same command again"
    )


def _free_bytes(path: Path) -> int:
    """Free bytes on the volume of the nearest existing parent folder."""
    return shutil.disk_usage(next(folder for folder in path.parents if folder.exists())).free


def format_bytes(n_bytes: int) -> str:
    """A size with a decimal unit.

    >>> format_bytes(48_000_000)
    '48.0 MB'
    """
    units = ("bytes", "kB", "MB", "GB", "TB")
    power = min((len(str(n_bytes)) - 1) // 3, len(units) - 1)
    return f"{n_bytes} bytes" if power == 0 else f"{n_bytes / 1000**power:.1f} {units[power]}"


def is_locked(path: Path) -> bool:
    """Whether some process holds this lock now; never creates the lock file."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        _lock(descriptor, shared=True)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _lock(descriptor: int, shared: bool = False, wait: bool = False) -> None:
    """Lock an open file until it is closed; BlockingIOError if another process holds it."""
    try:
        fcntl: Any = importlib.import_module("fcntl")
    except ImportError:
        msvcrt: Any = importlib.import_module("msvcrt")
    else:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        return
    while True:
        os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            return
        except OSError as error:
            if not wait:
                raise BlockingIOError(error.errno, error.strerror) from None
            time.sleep(0.02)


def _acquire_lock(descriptor: int, wait: bool) -> None:
    """Take the lock, retrying because `is_locked` in another process holds it for an instant."""
    for attempts_left in reversed(range(1 if wait else LOCK_ATTEMPTS)):
        try:
            _lock(descriptor, wait=wait)
        except BlockingIOError:
            if not attempts_left:
                raise
            time.sleep(0.02)
        else:
            return


@contextmanager
def file_lock(path: Path, description: str, wait: bool = False) -> Iterator[None]:
    """Hold an flock, which the kernel releases however this process ends; `Busy` names the holder.

    The lock file is never removed: a process that has the old file open and one that creates a new file would both hold
    "the" lock.
    """
    with translate_os_errors(path, "everything"):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            _acquire_lock(descriptor, wait)
        except BlockingIOError:
            os.lseek(descriptor, 0, os.SEEK_SET)
            holder = os.read(descriptor, 200).decode() or "another process"
            message = f"{description} is held by {holder}; wait for it or stop it, then run the same command again"
            raise Busy(message, holder) from None
        with translate_os_errors(path, "everything"):
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, f"process {os.getpid()} since {datetime.now():%Y-%m-%d %H:%M:%S}".encode())
        yield
    finally:
        os.close(descriptor)
