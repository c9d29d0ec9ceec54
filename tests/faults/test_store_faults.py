"""The store under kills, full disks, damaged files and concurrent processes: nothing is lost, duplicated or misread.

Fault points are enumerated: the first, second, third … operation fails until none does (SQLite's own test method).
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import random
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from seedbed.errors import DamagedCheckpoint, OutOfResources, StoreError
from seedbed.records import Arrays, CheckpointEvent, FinishEvent, StoredEvent
from seedbed.store import Store, open_store
from seedbed.store.checkpoints import (
    CheckpointFile,
    CheckpointIdentity,
    digest_bytes,
    read_checkpoint,
    write_checkpoint,
)
from seedbed.store.durable_files import make_folders
from tests.faults.disk_operations import (
    EVERY,
    Fault,
    Operation,
    disk_full,
    each_operation,
    fault_at,
    input_output_error,
    kill,
)
from tests.store.toy import (
    PLACEMENT,
    Commit,
    claim,
    make_checkpoint,
    make_evaluation,
    make_pack,
    make_plan,
    make_run,
    record_then_save,
    run_study,
    save_then_record,
    snapshot,
    train,
)

FORK = multiprocessing.get_context("fork")
CANNOT_OPEN = "unable to open database file; check that it is there, may be written, and has space"
STRIDE = 5  # of all operations every fifth is tried always, and each by `make faults`


def killed_at(n: int, home: Path, commit: Commit) -> bool:
    """Whether a process that runs the toy study was killed at its n-th operation."""
    child = os.fork()
    if child == 0:
        with fault_at(n, kill, within=home):
            run_study(home, commit)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    home = tmp_path_factory.mktemp("uninterrupted")
    run_study(home)
    return snapshot(home)


# ---- kills ----


def test_the_reference_study_has_an_early_end_a_divergence_and_a_final_evaluation(
    uninterrupted: dict[str, Any],
) -> None:
    assert [(run.status, run.step) for run in uninterrupted["runs"]] == [
        ("finished", 4),
        ("diverged", 3),
        ("finished", 6),
    ]
    steps = [len(curve[0]) // 8 for (_, name), curve in uninterrupted["curves"].items() if name == "val/loss"]
    assert steps == [5, 3, 7]
    assert [len(steps) for steps in uninterrupted["checkpoints"]] == [2, 1, 3]


def test_killed_at_any_operation_the_resumed_study_has_the_same_bytes(
    tmp_path: Path, uninterrupted: dict[str, object]
) -> None:
    check_kills(tmp_path, uninterrupted, STRIDE)


@pytest.mark.slow
def test_killed_at_every_operation_the_resumed_study_has_the_same_bytes(
    tmp_path: Path, uninterrupted: dict[str, object]
) -> None:
    check_kills(tmp_path, uninterrupted, EVERY)


def check_kills(folder: Path, uninterrupted: dict[str, object], stride: int) -> None:
    n = 1
    while killed_at(n, home := folder / str(n), record_then_save):
        run_study(home)
        assert snapshot(home) == uninterrupted, f"killed before operation {n}"
        n += stride
    print(f"killed at {n // stride} operations")
    assert n > 250


def test_killed_again_while_resuming_the_study_has_the_same_bytes(
    tmp_path: Path, uninterrupted: dict[str, object]
) -> None:
    for first in range(60, 300, 30):
        home = tmp_path / str(first)
        assert killed_at(first, home, record_then_save)
        killed_at(first % 7 + 1, home, record_then_save)
        run_study(home)
        assert snapshot(home) == uninterrupted, f"killed before operation {first}, then {first % 7 + 1}"


def test_control_saving_before_recording_loses_metrics(tmp_path: Path, uninterrupted: dict[str, object]) -> None:
    """The protection switched off: some kill between the two leaves a state that is ahead of its metrics."""
    n_wrong, n = 0, 150
    while n_wrong == 0 and killed_at(n, home := tmp_path / str(n), save_then_record):
        try:
            run_study(home)
            n_wrong += snapshot(home) != uninterrupted
        except ValueError:  # a run whose end was never recorded
            n_wrong += 1
        n += 3
    assert n_wrong > 0


def test_metrics_up_to_the_checkpoint_are_stored_right_after_a_kill(tmp_path: Path) -> None:
    """Without running again: what was committed before the kill can be read, and no file is partly written."""
    for n in range(150, 300, 16):
        home = tmp_path / str(n)
        assert killed_at(n, home, record_then_save)
        with open_store(home, read_only=True) as store:
            runs = store.runs("toy")
            curves = store.curves([run.id for run in runs])
            for run in runs:
                last = max(curves[run.id]["val/loss"].steps)
                assert curves[run.id]["val/loss"].steps.tolist() == list(range(1, last + 1))
                for checkpoint in store.checkpoints(run.id):
                    assert checkpoint.step <= last
                    store.load_weights(run.id, checkpoint.step)


# ---- disks ----


@pytest.mark.parametrize("fault", [input_output_error, disk_full])
def test_a_failing_disk_stops_with_a_clear_error_and_the_study_can_be_resumed(
    tmp_path: Path, uninterrupted: dict[str, object], fault: Fault
) -> None:
    check_failures(tmp_path, uninterrupted, fault, STRIDE)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [input_output_error, disk_full])
def test_a_disk_that_fails_at_any_operation_stops_with_a_clear_error_and_the_study_can_be_resumed(
    tmp_path: Path, uninterrupted: dict[str, object], fault: Fault
) -> None:
    check_failures(tmp_path, uninterrupted, fault, EVERY)


def check_failures(folder: Path, uninterrupted: dict[str, object], fault: Fault, stride: int) -> None:
    """An error of one operation, or a disk that stays full."""
    n, lasting, messages, others = 2, fault is disk_full, list[str](), list[str]()
    while True:
        home = folder / str(n)
        with fault_at(n, fault, lasting, home) as operations:
            try:
                run_study(home)
            except OutOfResources as error:
                messages.append(str(error))
            except StoreError as error:  # SQLite cannot create a file, and does not say why
                others.append(str(error))
        assert not list(home.rglob("*.part"))
        if len(operations) < n:
            break
        run_study(home)
        assert snapshot(home) == uninterrupted, f"failed at operation {n}"
        n += stride
    assert n > 250
    assert len(messages) > 0.8 * n / stride  # SQLite copes with some by itself
    assert {message.partition("cannot be used: ")[2] for message in others} <= {CANNOT_OPEN}
    assert all("free)" in message and "kept:" in message for message in messages)
    print(f"{fault.__name__} at {n // stride} operations, {len(messages)} reported")


def test_a_full_disk_names_the_file_the_sizes_and_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    store.register(make_plan(1))
    [pack_id] = claim(store, make_plan(1).runs)
    store.save(pack_id, make_checkpoint(2, [0]))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OutOfResources) as caught:
            store.save(pack_id, make_checkpoint(1234, [0]))
    for part in ("000001234.safetensors", "No space left", "needs", "bytes", "free", "the state of step 2"):
        assert part in str(caught.value)
    resumed = store.resume(pack_id)
    assert resumed is not None
    assert resumed[0] == 2


def test_one_failed_file_leaves_the_others_complete_and_the_database_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of five files written concurrently one fails: its error is raised only after all writes have ended."""
    store = open_store(tmp_path)
    store.register(make_plan(4))
    [pack_id] = claim(store, make_plan(4).runs)
    store.save(pack_id, make_checkpoint(2, range(4)))
    refused, replace = make_run(2).id, os.replace

    def refuse(source: Path, target: Path) -> None:
        if Path(target).parent.name == refused:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        time.sleep(0.05)
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.raises(OutOfResources, match=rf"{refused}/000000004\.safetensors .*the state of step 2"):
            store.save(pack_id, make_checkpoint(4, range(4)))
    assert not list(tmp_path.rglob("*.part"))
    written = {path.parent.name for path in (tmp_path / "checkpoints").rglob("000000004.safetensors")}
    assert written == {make_run(seed).id for seed in (0, 1, 3)} | {pack_id}
    assert [[checkpoint.step for checkpoint in store.checkpoints(make_run(seed).id)] for seed in range(4)] == [[2]] * 4
    resumed = store.resume(pack_id)
    assert resumed is not None
    assert resumed[0] == 2


def test_the_files_of_a_checkpoint_are_synced_concurrently_and_their_common_folder_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    store.register(make_plan(3))
    [pack_id] = claim(store, make_plan(3).runs)
    barrier, fsync, synced = Barrier(4, timeout=10), os.fsync, list[str]()

    def fsync_at_barrier(descriptor: int) -> None:
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        synced.append(name)
        if name.endswith(".part"):
            barrier.wait()
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync_at_barrier)
        store.save(pack_id, make_checkpoint(2, range(3)))
    assert sum(name.endswith(".part") for name in synced) == 4
    assert synced.count(str(tmp_path / "checkpoints")) == 2  # for its new folders: of the runs, and of the packs


def test_a_database_that_may_not_grow_is_out_of_resources_and_keeps_its_rows(tmp_path: Path) -> None:
    """A real error of SQLite, not a simulated one."""
    store = open_store(tmp_path)
    store.register(make_plan(1))
    [pack_id] = claim(store, make_plan(1).runs)
    store.record(pack_id, [make_evaluation(0, [0], [0.5])])
    with store._database.transaction() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")  # SQLite raises this to the current size
    with pytest.raises(OutOfResources, match=r"store\.db could not be written: database or disk is full .*free.*kept:"):
        store.record(pack_id, [make_evaluation(step, [0], [0.5]) for step in range(2000)])
    assert store.curves([make_run(0).id])[make_run(0).id]["val/loss"].steps.tolist() == [0]


def test_a_failing_fsync_is_not_retried(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.register(make_plan(1))
    [pack_id] = claim(store, make_plan(1).runs)

    synced = list[str]()

    def refuse_the_second(operation: Operation) -> None:
        if operation.kind == "sync":
            synced.append(operation.path)
            if len(synced) > 1:
                input_output_error(operation)

    with each_operation(refuse_the_second, tmp_path / "checkpoints"), pytest.raises(OutOfResources):
        store.save(pack_id, make_checkpoint(2))
    assert len(synced) == 2
    assert store.study_packs("toy")[0].step is None


# ---- damage ----

IDENTITY = CheckpointIdentity("weights", "run", 7, "settings")


@pytest.fixture
def checkpoint(tmp_path: Path) -> tuple[Path, str]:
    path = tmp_path / "some.safetensors"
    arrays: Arrays = {"w": np.linspace(0, 1, 20, dtype=np.float32), "b": np.arange(4)}
    return path, write_checkpoint(CheckpointFile(path, arrays, IDENTITY), "nothing").digest


def test_every_truncation_is_detected(checkpoint: tuple[Path, str]) -> None:
    path, digest = checkpoint
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedCheckpoint):
            read_checkpoint(path, IDENTITY, digest)


@pytest.mark.parametrize("n_flips", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_every_flipped_bit_is_detected(checkpoint: tuple[Path, str], n_flips: int) -> None:
    path, digest = checkpoint
    whole, generator = path.read_bytes(), random.Random(0)
    n_undetected = 0
    for bit in (generator.randrange(8 * len(whole)) for _ in range(n_flips)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(DamagedCheckpoint):
            read_checkpoint(path, IDENTITY, digest)
        n_undetected += _loads(path, digest_bytes(bytes(flipped)))
    assert n_undetected > n_flips / 10  # control: without the digest the format alone does not detect many


def _loads(path: Path, digest: str) -> bool:
    try:
        read_checkpoint(path, IDENTITY, digest)
    except DamagedCheckpoint:
        return False
    return True


def test_swapped_checkpoints_are_rejected(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.register(make_plan(2))
    [pack_id] = claim(store, make_plan(2).runs)
    store.save(pack_id, make_checkpoint(2, [0, 1]))
    one, two = (tmp_path / "checkpoints" / run.id / "000000002.safetensors" for run in make_plan(2).runs)
    one_bytes, two_bytes = one.read_bytes(), two.read_bytes()
    one.write_bytes(two_bytes)
    two.write_bytes(one_bytes)
    for run in make_plan(2).runs:
        with pytest.raises(DamagedCheckpoint, match="differ from their stored digest"):
            store.load_weights(run.id)


def test_a_file_of_another_run_is_rejected_even_with_the_right_digest(checkpoint: tuple[Path, str]) -> None:
    path, digest = checkpoint
    for other in (
        CheckpointIdentity("weights", "other", 7, "settings"),
        CheckpointIdentity("weights", "run", 8, "settings"),
    ):
        with pytest.raises(DamagedCheckpoint, match="but says it is"):
            read_checkpoint(path, other, digest)
    with pytest.raises(DamagedCheckpoint, match="but says it is"):
        read_checkpoint(path, CheckpointIdentity("weights", "run", 7, "other settings"), digest)


class Payload:
    """Creates a file when unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.marker,)


def test_a_pickle_in_place_of_a_checkpoint_is_rejected_and_not_loaded(checkpoint: tuple[Path, str]) -> None:
    path, digest = checkpoint
    marker = path.with_name("marker")
    data = pickle.dumps(Payload(marker))
    path.write_bytes(data)
    for claimed in (digest, digest_bytes(data)):
        with pytest.raises(DamagedCheckpoint):
            read_checkpoint(path, IDENTITY, claimed)
    assert not marker.exists()
    pickle.loads(data)
    assert marker.exists()  # control: the payload works


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 8,
        (2**63).to_bytes(8, "little") + b"{}",
        (100_000_001).to_bytes(8, "little") + b" " * 100,
        (14).to_bytes(8, "little") + b'{"a":"\xff\xff\xff\xff"}',
        (6).to_bytes(8, "little") + b"[[[]]]",
    ],
)
def test_malformed_files_are_rejected(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(data)
    with pytest.raises(DamagedCheckpoint):
        read_checkpoint(path, IDENTITY, digest_bytes(data))


def test_the_error_of_a_damaged_state_names_it_and_what_is_kept_and_what_to_do(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.register(make_plan(1))
    [pack_id] = claim(store, make_plan(1).runs)
    store.record(pack_id, [make_evaluation(1000, [0], [0.5]), make_evaluation(1001, [0], [0.4])])
    store.save(pack_id, make_checkpoint(1000))
    [state] = (tmp_path / "checkpoints" / "packs" / pack_id).iterdir()
    for damage in (lambda: state.write_bytes(state.read_bytes()[:-1]), state.unlink):
        damage()
        with pytest.raises(DamagedCheckpoint) as caught:
            store.resume(pack_id)
        for part in (f"pack {pack_id} at step 1,000", "kept: all its metrics", "--restart"):
            assert part in str(caught.value)
    assert store.curves([make_run(0).id])[make_run(0).id]["val/loss"].steps.tolist() == [1000, 1001]


def damage(path: Path) -> None:
    """Flips a bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def states(home: Path) -> list[Path]:
    return sorted((home / "checkpoints" / "packs").rglob("*.safetensors"))


def test_a_damaged_state_costs_the_work_since_the_one_before(tmp_path: Path, uninterrupted: dict[str, object]) -> None:
    def stop_at_6(store: Store, pack_id: str, events: Sequence[StoredEvent], save: CheckpointEvent) -> None:
        if save.step == 6:
            raise KeyboardInterrupt
        record_then_save(store, pack_id, events, save)

    ended = make_run(0).id
    with pytest.raises(KeyboardInterrupt):
        run_study(tmp_path, stop_at_6)
    assert [path.name for path in states(tmp_path)] == ["000000002.safetensors", "000000004.safetensors"]
    before = open_store(tmp_path, read_only=True).curves([ended])
    damage(states(tmp_path)[-1])
    with open_store(tmp_path) as store:
        resumed = store.resume(states(tmp_path)[-1].parent.name)
        assert resumed is not None
        assert resumed[0] == 2
        assert repr(store.curves([ended])) == repr(before)  # what has ended is not recorded again
    run_study(tmp_path)
    assert snapshot(tmp_path) == uninterrupted
    assert states(tmp_path) == []


def test_a_home_that_is_renamed_stops_the_run_and_is_not_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def renamed_in_the_middle(home: Path) -> None:
        """Renames the home while a checkpoint is being written."""
        with open_store(home) as store:
            store.register(make_plan(3))
            [pack_id] = claim(store, make_plan(3).runs)
            store.save(pack_id, make_checkpoint(2, range(3)))
            pending = store.begin_save(pack_id, make_checkpoint(4, range(3)))
            home.rename(home.with_name("moved"))
            try:
                pending.write()
                pending.commit()
            finally:
                try:
                    store.record(pack_id, [make_evaluation(5, [0], [0.5])])
                finally:
                    store.save(pack_id, make_checkpoint(6, range(3)))

    home = tmp_path / "lab"
    with pytest.raises(StoreError, match=r"cannot be used any more: the home was moved, replaced or unmounted"):
        renamed_in_the_middle(home)
    assert not home.exists() or not [path for path in home.rglob("*") if path.is_file()]
    with open_store(tmp_path / "moved", read_only=True) as store:
        assert [one.step for one in store.checkpoints(make_run(0).id)] == [2]
        assert store.load_weights(make_run(0).id)["w"].shape == (2, 3)

    shutil.rmtree(tmp_path / "moved")
    shutil.rmtree(home, ignore_errors=True)
    monkeypatch.setattr("seedbed.store.database.Database.check_in_place", lambda _: None)  # the control
    monkeypatch.setattr("seedbed.store.checkpoints.make_folders", lambda paths, _: make_folders(paths))
    renamed_in_the_middle(home)
    assert [path for path in home.rglob("*") if path.is_file()]


def test_packs_whose_runs_have_ended_are_closed_by_the_next_claim(tmp_path: Path) -> None:
    plan = make_plan(3)
    with open_store(tmp_path) as store, pytest.MonkeyPatch.context() as patch:
        store.register(plan)
        patch.setattr(type(store), "finish", lambda *_: None)  # as if it had been killed before that
        train(store, claim(store, plan.runs)[0])
        assert states(tmp_path)
    with open_store(tmp_path) as store:
        assert store.settled_runs() == {run.id for run in plan.runs}
        assert claim(store, plan.runs) == []
        assert states(tmp_path) == []
        assert store.study_packs("toy")[0].step is None


def test_restart_recovers_from_a_damaged_state(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.register(make_plan(3))
    [pack_id] = claim(store, make_plan(3).runs)
    store.record(pack_id, [make_evaluation(1, [0], [0.5]), FinishEvent(0, 1)])
    store.save(pack_id, make_checkpoint(1, [0, 1, 2]))
    store.record(pack_id, [make_evaluation(2, [1], [0.5]), FinishEvent(1, 2)])  # its end is in no saved state
    shutil.rmtree(tmp_path / "checkpoints" / "packs")
    with pytest.raises(DamagedCheckpoint):
        store.resume(pack_id)
    store.restart(pack_id)
    assert [run.status for run in store.runs("toy")] == ["finished", "planned", "planned"]
    [pack] = store.claim([make_pack(make_plan(3).runs)], lambda _: PLACEMENT)
    assert pack.runs == (make_run(1).id, make_run(2).id)
    assert store.resume(pack.id) is None


# ---- concurrent processes ----


def in_processes(n: int, work: Callable[[int], None]) -> None:
    """Runs `work` in n forked processes that start together; all must succeed."""
    barrier = FORK.Barrier(n)

    def begin(index: int) -> None:
        barrier.wait(20)
        work(index)

    children = [FORK.Process(target=begin, args=(index,)) for index in range(n)]
    for child in children:
        child.start()
    for child in children:
        child.join(1200)
    assert [child.exitcode for child in children] == [0] * n


def test_32_processes_can_open_a_new_store_at_once(tmp_path: Path) -> None:
    def work(index: int) -> None:
        with open_store(tmp_path / "new" / "lab") as store:
            store.register(make_plan(3))
            assert len(store.runs("toy")) == 3

    in_processes(32, work)
    assert not list((tmp_path / "new" / "lab").glob("store.db.new*"))


@pytest.mark.parametrize("n_commits", [12, pytest.param(1000, marks=pytest.mark.slow)])
def test_16_processes_write_beside_readers_and_lose_nothing(tmp_path: Path, n_commits: int) -> None:
    n_writers, n_readers = 16, 4
    runs = make_plan(n_writers).runs
    with open_store(tmp_path) as store:
        store.register(make_plan(n_writers))
        ids = claim(store, *([run] for run in runs))
    waits = FORK.Array("d", n_writers * n_commits)

    def write(index: int) -> None:
        with open_store(tmp_path) as store, store.lock(ids[index]):
            for step in range(n_commits):
                start = time.monotonic()
                store.record(ids[index], [make_evaluation(step, [0], [index + step / 1024])])
                waits[index * n_commits + step] = time.monotonic() - start

    def read(index: int) -> None:
        with open_store(tmp_path, read_only=True) as store:
            for _ in range(n_commits // 4):
                last = store.curves([runs[index].id])[runs[index].id]
                if last:
                    assert last["val/loss"].values.tolist() == [index + s / 1024 for s in last["val/loss"].steps]

    in_processes(n_writers + n_readers, lambda index: write(index) if index < n_writers else read(index - n_writers))
    curves = open_store(tmp_path, read_only=True).curves([run.id for run in runs])
    for index, run in enumerate(runs):
        assert curves[run.id]["val/loss"].values.tolist() == [index + step / 1024 for step in range(n_commits)]
    ordered = sorted(waits)
    print(f"{n_writers} writers of {n_commits} commits: one takes {ordered[len(ordered) // 2]:.3f} s, "
          f"99 % at most {ordered[len(ordered) * 99 // 100]:.3f} s, all at most {ordered[-1]:.3f} s")  # fmt: skip


def test_processes_that_claim_the_same_runs_get_the_same_packs(tmp_path: Path) -> None:
    runs = make_plan(6).runs
    with open_store(tmp_path) as store:
        store.register(make_plan(6))

    def work(index: int) -> None:
        split = index % 5 + 1
        with open_store(tmp_path) as store:
            claim(store, runs[:split], runs[split:])

    in_processes(8, work)
    members = [run for pack in open_store(tmp_path, read_only=True).study_packs("toy") for run in pack.runs]
    assert sorted(members) == [run.id for run in runs]


def test_a_store_opened_before_a_fork_cannot_be_used_in_the_child(tmp_path: Path) -> None:
    store = open_store(tmp_path)

    def work(index: int) -> None:
        with pytest.raises(StoreError, match="open it again in the child"):
            store.studies()
        with pytest.raises(StoreError, match="open it again in the child"):
            store.register(make_plan(1))

    in_processes(1, work)
    store.register(make_plan(1))


def test_the_lock_of_a_killed_process_is_released(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.register(make_plan(3))
    [pack_id] = claim(store, make_plan(3).runs)
    child = os.fork()
    if child == 0:
        with open_store(tmp_path).lock(pack_id):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert f"process {child} since" in (tmp_path / "locks" / f"{pack_id}.lock").read_text()
    train(store, pack_id)
