"""Every operation that changes the disk, seen just before it happens: Python's own, and those of SQLite.

    with each_operation(see):          # see(Operation("write", path, offset, data)) may raise, kill or only look
        run_study(home)
    with fault_at(7, kill):            # the same for one of them, or for one and all after it
        run_study(home)

SQLite is reached below its own code: the methods of its files are replaced through ctypes, as its own tests do in C. An
OSError that `see` raises becomes the error code that SQLite gives for it. Where the library cannot be reached (a Python
with SQLite linked into it), commits are seen as a whole, as operations of the kind "commit".
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any

import pytest
from sqlalchemy.engine.default import DefaultDialect

EVERY = int(os.environ.get("FAULTS_EVERY", "1"))  # of the operations that slow tests try: make faults EVERY=9
OK, FULL, CANTOPEN, IOERR = 0, 13, 14, 10
IOERR_CODES = {"write": IOERR | 3 << 8, "sync": IOERR | 4 << 8, "truncate": IOERR | 6 << 8, "unlink": IOERR | 10 << 8}
OPEN_CREATE = 0x4
JOURNAL_TYPES = 0x800 | 0x4000 | 0x80000  # main journal, super-journal, WAL: SQLite syncs their folder with them


@dataclass(frozen=True)
class Operation:
    """One change of the disk; `kind` is create, write, truncate, sync, rename, unlink, mkdir, rmdir or commit."""

    kind: str
    path: str
    offset: int = 0
    data: bytes = b""
    target: str = ""  # of a rename
    by_sqlite: bool = False
    with_folder: bool = False  # a sync or unlink that syncs the folder as well

    def __str__(self) -> str:
        return f"{self.kind} {Path(self.path).name}"


See = Callable[[Operation], None]


# ---- Python's operations ----


def _absolute(path: Any, dir_fd: int | None = None) -> str:
    name = os.fsdecode(path)
    if dir_fd is not None and not os.path.isabs(name):
        return os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), name)
    return os.path.abspath(name)


def _path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")


def _python_operations(see: See) -> dict[str, Callable[..., Any]]:
    """Replacements of functions of `os`."""
    original = {name: getattr(os, name) for name in (
        "open", "write", "ftruncate", "fsync", "replace", "rename", "unlink", "remove", "mkdir", "rmdir"
    )}  # fmt: skip

    def open_file(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        full = _absolute(path, dir_fd)
        if flags & os.O_CREAT and not os.path.lexists(full):
            see(Operation("create", full))
        elif flags & os.O_TRUNC:
            see(Operation("truncate", full))
        return int(original["open"](path, flags, mode, dir_fd=dir_fd))

    def write(descriptor: int, data: Any) -> int:
        path = _path_of(descriptor)
        if path.startswith("/"):  # not a pipe or a socket
            see(Operation("write", path, os.lseek(descriptor, 0, os.SEEK_CUR), bytes(data)))
        return int(original["write"](descriptor, data))

    def ftruncate(descriptor: int, length: int) -> None:
        see(Operation("truncate", _path_of(descriptor), length))
        original["ftruncate"](descriptor, length)

    def fsync(descriptor: int) -> None:
        see(Operation("sync", _path_of(descriptor)))
        original["fsync"](descriptor)

    def moving(name: str) -> Callable[..., None]:
        def move(source: Any, target: Any, **more: Any) -> None:
            see(Operation("rename", _absolute(source), target=_absolute(target)))
            original[name](source, target, **more)

        return move

    def changing(kind: str, name: str) -> Callable[..., None]:
        def change(path: Any, *args: Any, dir_fd: int | None = None) -> None:
            full = _absolute(path, dir_fd)
            if os.path.lexists(full) == (kind != "mkdir"):  # else it fails by itself
                see(Operation(kind, full))
            original[name](path, *args, dir_fd=dir_fd)

        return change

    return {
        "open": open_file, "write": write, "ftruncate": ftruncate, "fsync": fsync,
        "replace": moving("replace"), "rename": moving("rename"), "unlink": changing("unlink", "unlink"),
        "remove": changing("unlink", "remove"), "mkdir": changing("mkdir", "mkdir"),
        "rmdir": changing("rmdir", "rmdir"),
    }  # fmt: skip


# ---- SQLite's operations ----

POINTER = ctypes.c_void_p
XWRITE = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER, ctypes.c_int, ctypes.c_int64)
XTRUNCATE = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, ctypes.c_int64)
XSYNC = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, ctypes.c_int)
XOPEN = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER, POINTER, ctypes.c_int, ctypes.POINTER(ctypes.c_int))
XDELETE = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, ctypes.c_char_p, ctypes.c_int)


class FileMethods(ctypes.Structure):
    """`sqlite3_io_methods`, of version 3."""

    _fields_ = (
        ("version", ctypes.c_int), ("close", POINTER), ("read", POINTER), ("write", XWRITE), ("truncate", XTRUNCATE),
        ("sync", XSYNC), ("rest", POINTER * 13),
    )  # fmt: skip


class FileSystem(ctypes.Structure):
    """`sqlite3_vfs`, as far as it is needed."""

    _fields_ = (
        ("version", ctypes.c_int), ("file_size", ctypes.c_int), ("max_path", ctypes.c_int), ("next", POINTER),
        ("name", ctypes.c_char_p), ("data", POINTER), ("open", XOPEN), ("delete", XDELETE),
    )  # fmt: skip


def find_sqlite() -> Any:
    """SQLite's library as Python has loaded it, or None if its functions cannot be reached."""
    extension = importlib.import_module("_sqlite3")
    path = getattr(extension, "__file__", None)
    try:
        library = ctypes.CDLL(path)
        library.sqlite3_vfs_find.restype = ctypes.POINTER(FileSystem)
        library.sqlite3_libversion.restype = ctypes.c_char_p
    except (OSError, AttributeError, TypeError):
        return None
    return library if library.sqlite3_libversion().decode() == sqlite3.sqlite_version else None


class SQLiteFiles:
    """Shows `see` what SQLite does to its files from now on, until it is closed."""

    def __init__(self, library: Any, see: See) -> None:
        self._see = see
        self._file_system = library.sqlite3_vfs_find(None).contents
        self._open, self._delete = (
            ctypes.cast(pointer, kind)
            for pointer, kind in ((self._address("open"), XOPEN), (self._address("delete"), XDELETE))
        )
        self._paths: dict[int, tuple[str, bool]] = {}  # by file: its path, and whether its folder is yet to be synced
        self._methods: dict[int, FileMethods] = {}  # by the address of the original methods
        self._ours = XOPEN(self._open_file), XDELETE(self._delete_file)
        self._file_system.open, self._file_system.delete = self._ours

    def _address(self, name: str) -> int:
        offset = getattr(FileSystem, name).offset
        return int(POINTER.from_address(ctypes.addressof(self._file_system) + offset).value or 0)

    def close(self) -> None:
        self._file_system.open, self._file_system.delete = self._open, self._delete

    def _code(self, operation: Operation) -> int:
        try:
            self._see(operation)
        except OSError as error:
            if operation.kind == "create":
                return CANTOPEN
            return FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else IOERR_CODES[operation.kind]
        return OK

    def _open_file(self, system: int, name: int | None, file: int, flags: int, out: Any) -> int:
        path = "" if name is None else os.fsdecode(ctypes.string_at(name))
        is_new = bool(path) and bool(flags & OPEN_CREATE) and not os.path.lexists(path)
        if is_new and (code := self._code(Operation("create", path, by_sqlite=True))):
            POINTER.from_address(file).value = None
            return code
        code = int(self._open(system, name, file, flags, out))
        if code == OK and path:
            self._paths[file] = path, is_new and bool(flags & JOURNAL_TYPES)
            original = POINTER.from_address(file).value or 0
            POINTER.from_address(file).value = ctypes.addressof(self._watched(original))
        return code

    def _watched(self, original: int) -> FileMethods:
        """A copy of the methods of a file that tells what they are about to do."""
        if original in self._methods:
            return self._methods[original]
        theirs = FileMethods.from_address(original)
        methods = FileMethods.from_buffer_copy(theirs)

        def write(file: int, data: int, size: int, offset: int) -> int:
            operation = Operation("write", self._paths[file][0], offset, ctypes.string_at(data, size), by_sqlite=True)
            return self._code(operation) or int(theirs.write(file, data, size, offset))

        def truncate(file: int, size: int) -> int:
            code = self._code(Operation("truncate", self._paths[file][0], size, by_sqlite=True))
            return code or int(theirs.truncate(file, size))

        def sync(file: int, flags: int) -> int:
            path, with_folder = self._paths[file]
            self._paths[file] = path, False
            code = self._code(Operation("sync", path, by_sqlite=True, with_folder=with_folder))
            return code or int(theirs.sync(file, flags))

        methods.write, methods.truncate, methods.sync = XWRITE(write), XTRUNCATE(truncate), XSYNC(sync)
        self._methods[original] = methods
        return methods

    def _delete_file(self, system: int, name: bytes, sync_folder: int) -> int:
        path = os.fsdecode(name)
        if os.path.lexists(path):
            code = self._code(Operation("unlink", path, by_sqlite=True, with_folder=bool(sync_folder)))
            if code:
                return code
        return int(self._delete(system, name, sync_folder))


@contextmanager
def each_operation(see: See, within: Path | None = None) -> Iterator[None]:
    """Calls `see` before each operation that changes the disk (below `within`); files may be written by many threads.

    Databases that are open already are not watched, but in a fork of this process those opened before stay watched.
    """
    lock, folder = RLock(), None if within is None else str(within.absolute())

    def see_one(operation: Operation) -> None:
        if folder is None or operation.path == folder or operation.path.startswith(folder + os.sep):
            with lock:
                see(operation)

    def commit(dialect: Any, connection: Any) -> None:
        see_one(Operation("commit", folder or ""))
        do_commit(dialect, connection)

    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        for name, function in _python_operations(see_one).items():
            patch.setattr(os, name, function)
        if (library := find_sqlite()) is not None:
            watched = SQLiteFiles(library, see_one)
            _KEPT.append(watched)
            stack.callback(watched.close)
        else:
            do_commit = DefaultDialect.do_commit
            patch.setattr(DefaultDialect, "do_commit", commit)
        yield


_KEPT: list[SQLiteFiles] = []  # connections that outlive their `with` still call their methods


# ---- faults ----

Fault = Callable[[Operation], None]


def kill(_: Operation) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def input_output_error(_: Operation) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def disk_full(operation: Operation) -> None:
    """Files can still be deleted."""
    if operation.kind not in ("unlink", "rmdir"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def fault_at(n: int, fault: Fault, lasting: bool = False, within: Path | None = None) -> Iterator[list[Operation]]:
    """Calls `fault` just before the n-th operation, and all later ones if lasting; yields those so far."""
    operations: list[Operation] = []

    def see(operation: Operation) -> None:
        operations.append(operation)
        if len(operations) == n or (lasting and len(operations) > n):
            fault(operation)

    with each_operation(see, within):
        yield operations
