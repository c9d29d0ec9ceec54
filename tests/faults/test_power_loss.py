"""Power loss: the operations of a study are recorded and replayed up to every fsync on a model of a disk.

What the disk then holds is everything in order, or only what was synced, or that and a random part of the rest, writes
torn at sectors. What the store had acknowledged must be there, and the same command ends with the same bytes.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from seedbed.errors import SeedbedError
from seedbed.records import StoredEvent
from seedbed.store import open_store
from seedbed.store.database import _WRITER_PRAGMAS
from seedbed.store.sqlite import SQLiteStore
from tests.faults.disk_operations import EVERY, Operation, each_operation, find_sqlite
from tests.faults.test_command_faults import Lab, content, differences, lab, run_command
from tests.store.toy import run_study, snapshot

assert lab  # a fixture
SECTOR = 512
LOSSES = ("nothing", "unsynced", "some")  # what a power loss takes of what was not synced
QUICK_STRIDE = 5

pytestmark = pytest.mark.skipif(find_sqlite() is None, reason="SQLite is linked into this Python")


@dataclass(frozen=True)
class Acknowledged:
    """The store has returned from recording or saving everything up to this step."""

    step: int


Log: TypeAlias = Sequence[Operation | Acknowledged]


# ---- a disk with a cache ----


@dataclass
class File:
    """The bytes of a file on the disk, and the changes that are still in the cache: (offset, data), or (size, None)."""

    synced: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def content(self, lost: str, generator: random.Random) -> bytes:
        data = bytearray(self.synced)
        for offset, new in [] if lost == "unsynced" else self.pending:
            if new is None:
                if lost == "nothing" or generator.random() < 0.5:
                    data = data[:offset].ljust(offset, b"\0")
                continue
            for start in range(0, len(new), SECTOR if lost == "some" else max(1, len(new))):
                if lost == "nothing" or generator.random() < 0.5:
                    part = new[start : start + SECTOR] if lost == "some" else new
                    data = data.ljust(offset + start, b"\0")
                    data[offset + start : offset + start + len(part)] = part
        return bytes(data)

    def sync(self) -> None:
        self.synced, self.pending = self.content("nothing", random.Random()), []


Entries: TypeAlias = dict[str, "File | None"]  # None: a folder


class Disk:
    """Folders and files below a folder that is there, as operations change them."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self._cached: dict[str, Entries] = {self.root: {}}
        self._synced: dict[str, Entries] = {self.root: {}}
        self._former: dict[str, str] = {}  # names before a rename: it is on the disk as a whole or not at all

    def _folder(self, path: str) -> tuple[Entries, str]:
        folder, _, name = path.rpartition("/")
        return self._cached[folder], name

    def apply(self, one: Operation) -> None:
        if one.kind == "sync" and one.path in self._cached:
            self._synced[one.path] = dict(self._cached[one.path])
            return
        folder, name = self._folder(one.path)
        if one.kind == "create":
            folder[name] = File()
        elif one.kind == "mkdir":
            folder[name], self._cached[one.path], self._synced[one.path] = None, {}, {}
        elif one.kind in ("unlink", "rmdir"):
            del folder[name]
        elif one.kind == "rename":
            target, new = self._folder(one.target)
            target[new] = folder.pop(name)
            self._former[one.target] = name
        elif (file := folder[name]) is not None:
            if one.kind == "sync":
                file.sync()
            else:
                file.pending.append((one.offset, one.data if one.kind == "write" else None))
        if one.with_folder:
            self._synced[one.path.rpartition("/")[0]] = dict(folder)

    def restore(self, target: Path, lost: str, generator: random.Random) -> None:
        """Writes what is on the disk after a power loss."""
        self._restore_folder(self.root, target, lost, generator)

    def _restore_folder(self, folder: str, target: Path, lost: str, generator: random.Random) -> None:
        target.mkdir()
        synced, cached = self._synced[folder], self._cached.get(folder, {})
        entries: Entries = dict(cached if lost == "nothing" else synced)
        if lost == "some":
            kept: dict[str, bool] = {}
            for name in sorted({*synced, *cached}):
                is_kept = kept.setdefault(self._former.get(f"{folder}/{name}", name), generator.random() < 0.5)
                if synced.get(name, name) is not cached.get(name, name) and is_kept:
                    entries.pop(name, None)
                    entries |= {name: cached[name]} if name in cached else {}
        for name, file in entries.items():
            if file is None:
                self._restore_folder(f"{folder}/{name}", target / name, lost, generator)
            else:
                (target / name).write_bytes(file.content(lost, generator))


def cuts(log: Log) -> list[int]:
    """Just before each sync, right after each acknowledgement, and after everything."""
    syncs = [index for index, one in enumerate(log) if isinstance(one, Operation) and one.kind == "sync"]
    return sorted({*syncs, *(index + 1 for index, one in enumerate(log) if isinstance(one, Acknowledged)), len(log)})


def after_power_losses(
    log: Log, root: Path, folder: Path, stride: int, seeds: Sequence[int] = (0,)
) -> Iterator[tuple[str, Path, int]]:
    """A name, the folder as it is after a power loss, and the last step that was acknowledged, for many cuts."""
    disk, last, wanted = Disk(root), -1, cuts(log)
    wanted = [*wanted[::stride], wanted[-1]]
    for index in range(len(log) + 1):
        if index in wanted:
            for lost in LOSSES:
                for seed in seeds if lost == "some" else (0,):
                    name = f"{index}-{lost}-{seed}"
                    disk.restore(folder / name, lost, random.Random(f"{seed} {index}"))
                    yield name, folder / name, last
        if index < len(log):
            one = log[index]
            if isinstance(one, Acknowledged):
                last = one.step
            else:
                disk.apply(one)


# ---- the store ----


def record_study(home: Path) -> Log:
    """What the toy study does to the disk, and when the store has acknowledged what."""
    log: list[Operation | Acknowledged] = []
    record, finish = SQLiteStore.record, SQLiteStore.finish

    def recorded(store: SQLiteStore, pack_id: str, events: Sequence[StoredEvent]) -> None:
        record(store, pack_id, events)
        log.append(Acknowledged(min(event.step for event in events)))

    def finished(store: SQLiteStore, pack_id: str) -> None:
        finish(store, pack_id)
        log.append(Acknowledged(99))

    with pytest.MonkeyPatch.context() as patch, each_operation(log.append, home.parent):
        patch.setattr(SQLiteStore, "record", recorded)
        patch.setattr(SQLiteStore, "finish", finished)
        run_study(home)
    return log


@dataclass(frozen=True)
class Expected:
    """What the toy study leaves when nothing happens."""

    snapshot: dict[str, Any]
    files: list[str]


def file_names(folder: Path) -> list[str]:
    """The names of all files but locks, which hold nothing."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return sorted(str(path.relative_to(folder)) for path in files)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    run_study(home := tmp_path_factory.mktemp("expected") / "home")
    return Expected(snapshot(home), file_names(home))


def lost_evaluations(home: Path, expected: Expected, last: int) -> list[str]:
    """Runs of which evaluations up to the last acknowledged step are missing."""
    if last < 0:
        return []
    with open_store(home, read_only=True) as store:
        curves = store.curves([run.id for run in store.runs("toy")])
    lost = []
    for (run, name), (steps, _) in expected.snapshot["curves"].items():
        wanted = [step for step in memoryview(steps).cast("q").tolist() if step <= last]
        found = curves[run][name].steps.tolist() if name in curves.get(run, {}) else []
        lost += [run] if [step for step in found if step <= last] != wanted else []
    return lost


def faults_of_power_losses(
    log: Log, root: Path, folder: Path, expected: Expected, stride: int, seeds: Sequence[int] = (0,)
) -> dict[str, str]:
    """What went wrong, by the name of the power loss; empty if nothing did."""
    faults, n = {}, 0
    folder.mkdir()
    for name, after, last in after_power_losses(log, root, folder, stride, seeds):
        home, n = after / "home", n + 1
        try:
            if lost := lost_evaluations(home, expected, last):
                faults[name] = f"acknowledged up to step {last}, but lost: {lost}"
                continue
            run_study(home)
            if snapshot(home) != expected.snapshot:
                faults[name] = "other bytes"
            elif file_names(home) != expected.files:
                faults[name] = f"files: {file_names(home)}"
        except (SeedbedError, ValueError) as error:
            faults[name] = str(error)
    print(f"{n} power losses at {len(cuts(log)) // stride} of {len(cuts(log))} points: {len(faults)} with faults")
    return faults


@pytest.mark.parametrize(
    ("stride", "seeds"), [(QUICK_STRIDE, (0,)), pytest.param(EVERY, range(8), marks=pytest.mark.slow)]
)
def test_after_a_power_loss_nothing_acknowledged_is_lost_and_the_study_ends_with_the_same_bytes(
    tmp_path: Path, expected: Expected, stride: int, seeds: Sequence[int]
) -> None:
    (root := tmp_path / "root").mkdir()
    log = record_study(root / "home")
    assert len(cuts(log)) > 40
    assert faults_of_power_losses(log, root, tmp_path / "losses", expected, stride, seeds) == {}


def test_the_replayed_disk_is_the_real_one(tmp_path: Path) -> None:
    """The model of the disk, and the recording, are complete: without a loss every byte is there."""
    (root := tmp_path / "root").mkdir()
    log, disk = record_study(root / "home"), Disk(root)
    for one in log:
        if isinstance(one, Operation):
            disk.apply(one)
    disk.restore(tmp_path / "replayed", "nothing", random.Random())
    assert file_names(tmp_path / "replayed") == file_names(root)
    for name in file_names(root):
        assert (tmp_path / "replayed" / name).read_bytes() == (root / name).read_bytes(), name


def without_flushed_commits(patch: pytest.MonkeyPatch) -> None:
    pragmas = [one.replace("FULL", "OFF") for one in _WRITER_PRAGMAS]
    patch.setattr("seedbed.store.database._WRITER_PRAGMAS", pragmas)


def without_synced_folders(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("seedbed.store.durable_files.fsync_folder", lambda _: None)


@pytest.mark.parametrize("without", [without_flushed_commits, without_synced_folders])
def test_control_without_a_protection_a_power_loss_is_noticed(
    tmp_path: Path, expected: Expected, without: Callable[[pytest.MonkeyPatch], None]
) -> None:
    (root := tmp_path / "root").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        without(patch)
        log = record_study(root / "home")
    assert faults_of_power_losses(log, root, tmp_path / "losses", expected, QUICK_STRIDE)


# ---- the command ----


@pytest.mark.slow
def test_after_a_power_loss_the_same_command_ends_with_the_same_bytes(lab: Lab, tmp_path: Path) -> None:
    (root := tmp_path / "root").mkdir()
    record = root.with_suffix(".log")

    def write(operation: Operation) -> None:
        with record.open("ab") as file:
            pickle.dump(operation, file)

    assert run_command(lab.study, root / "home", write).code == 0
    log = []
    with record.open("rb") as file:
        while file.peek(1):
            log.append(pickle.load(file))
    n, faults, folder = 0, {}, tmp_path / "losses"
    folder.mkdir()
    for name, after, _ in after_power_losses(log, root, folder, EVERY):
        n += 1
        if problem := differences(lab, after / "home"):
            faults[name] = problem
    assert content(root / "home") == lab.expected
    print(f"{n} power losses at {len(cuts(log))} points of the command: {len(faults)} with faults")
    assert faults == {}
