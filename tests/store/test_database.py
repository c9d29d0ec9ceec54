"""Opening a store: created if missing, verified before use, never changed by a reader."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select

from seedbed.errors import MissingData, StoreError
from seedbed.store import Store, database, open_store
from seedbed.store.schema import runs
from tests.store.toy import claim, make_evaluation, make_plan, make_run, run_study


def listing(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}


def pragma(store: Store, name: str) -> object:
    with store._database.transaction() as connection:
        return connection.exec_driver_sql(f"PRAGMA {name}").scalar()


def foreign_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE runs (id)")
    connection.close()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_bytes(b"\0" * 4096), "is not a database"),
        (lambda path: path.write_text("notes about seeds " * 50), "is not a database"),
        (lambda path: path.write_bytes(b"SQLite format 3\0"), "is not a database"),
        (foreign_database, "is a database of another program"),
    ],
)
@pytest.mark.parametrize("read_only", [False, True])
def test_a_foreign_file_is_rejected_and_left_unchanged(
    tmp_path: Path, make: Callable[[Path], object], message: str, read_only: bool
) -> None:
    path = tmp_path / "store.db"
    make(path)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=rf"store\.db {message}.*nothing was changed"):
        open_store(tmp_path, read_only)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.glob("store.db*")] == ["store.db"]


@pytest.mark.parametrize("length", [100, 5000, 20_000])
def test_a_truncated_store_is_rejected(tmp_path: Path, length: int) -> None:
    run_study(tmp_path)
    path = tmp_path / "store.db"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(StoreError, match=r"is damaged"):
        open_store(tmp_path, read_only=True).runs("toy")


def make_newer(home: Path, readable_by: int) -> None:
    """Makes a store of schema 6, which versions from this schema on can read."""
    with sqlite3.connect(home / "store.db") as connection:
        connection.execute("UPDATE meta SET value = '6' WHERE key IN ('schema', 'schema_copy')")
        connection.execute("UPDATE meta SET value = ? WHERE key = 'readable_by'", [str(readable_by)])
    connection.close()


@pytest.mark.parametrize(("read_only", "readable_by"), [(False, 5), (False, 6), (True, 6)])
def test_a_newer_schema_is_rejected_and_left_unchanged(tmp_path: Path, read_only: bool, readable_by: int) -> None:
    open_store(tmp_path).close()
    make_newer(tmp_path, readable_by)
    before = listing(tmp_path)
    with pytest.raises(StoreError, match="has schema 6, written by a newer seedbed; this one knows schema 5"):
        open_store(tmp_path, read_only)
    assert listing(tmp_path) == before


def test_a_newer_schema_that_only_adds_to_this_one_can_be_read(tmp_path: Path) -> None:
    run_study(tmp_path)
    before = open_store(tmp_path, read_only=True).runs("toy")
    make_newer(tmp_path, readable_by=5)
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("ALTER TABLE runs ADD COLUMN mood TEXT DEFAULT 'fine'")
    connection.close()
    assert open_store(tmp_path, read_only=True).runs("toy") == before


@pytest.mark.parametrize("value", ["4", "7", "abc", ""])
def test_a_damaged_schema_number_is_no_other_schema(tmp_path: Path, value: str) -> None:
    run_study(tmp_path)
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'schema'", [value])
    connection.close()
    for read_only in (True, False):
        with pytest.raises(StoreError, match="is damaged: the number of its schema"):
            open_store(tmp_path, read_only)


def test_a_wal_without_its_store_does_not_start_a_new_store(tmp_path: Path) -> None:
    (tmp_path / "store.db-wal").write_bytes(b"rows that only the WAL has")
    with pytest.raises(StoreError, match=r"store\.db-wal is there but store\.db is not"):
        open_store(tmp_path)
    assert not (tmp_path / "store.db").exists()


def test_reading_a_missing_store_fails_and_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"there is no store in .*--home"):
        open_store(tmp_path / "lab", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_leaves_no_files(tmp_path: Path) -> None:
    run_study(tmp_path)
    before = listing(tmp_path)
    with open_store(tmp_path, read_only=True) as store:
        assert len(store.runs("toy")) == 3
        assert store.curves([make_run(0).id])
        with pytest.raises(StoreError, match="readonly"):
            store.register(make_plan(1))
        assert listing(tmp_path) == before
    assert listing(tmp_path) == before


def test_a_reader_sees_the_latest_commit(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    reader = open_store(tmp_path, read_only=True)
    assert reader.studies() == []
    writer = open_store(tmp_path)
    writer.register(make_plan(2))
    assert reader.studies()[0].n_runs == 2
    writer.close()
    assert reader.studies()[0].n_runs == 2


def test_a_reader_retries_if_a_writer_appears_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_study(tmp_path)
    reader = open_store(tmp_path, read_only=True)
    opened: list[str] = []

    def connect_then_write(path: Path, mode: str) -> sqlite3.Connection:
        connection = connect_sqlite(path, mode)
        opened.append(mode)
        if len(opened) == 1:
            with open_store(tmp_path) as writer:
                writer.register(make_plan(5))
        return connection

    connect_sqlite = database._connect_sqlite
    monkeypatch.setattr(database, "_connect_sqlite", connect_then_write)
    assert len(reader._database.fetch(select(runs))) == 5
    assert opened[0] == opened[-1] == "mode=ro&immutable=1"
    assert opened.count("mode=ro&immutable=1") == 2


def test_a_store_deleted_under_a_writer_is_not_recreated(tmp_path: Path) -> None:
    home = tmp_path / "lab"
    store = open_store(home)
    store._database._engine.dispose()
    shutil.rmtree(home)
    with pytest.raises(StoreError, match="cannot be used"):
        store.register(make_plan(1))
    assert not home.exists()


def test_a_home_that_is_a_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "lab").write_text("not a folder")
    with pytest.raises(StoreError, match="cannot be written"):
        open_store(tmp_path / "lab")


def test_a_home_may_have_any_name(tmp_path: Path) -> None:
    home = tmp_path / "a?b#c %20 é"
    run_study(home)
    assert len(open_store(home, read_only=True).runs("toy")) == 3


def test_every_commit_is_flushed_and_foreign_keys_are_enforced(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    found = {name: pragma(store, name) for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")}
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}


def test_a_home_survives_a_change_of_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(Path("lab"))
    monkeypatch.chdir("/")
    store.register(make_plan(1))
    with store.lock("p"):
        pass
    assert (tmp_path / "lab" / "locks" / "p.lock").exists()


def test_threads_may_share_a_store(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.register(make_plan(4))
    ids = claim(store, *([run] for run in make_plan(4).runs))

    def work(index: int) -> None:
        for step in range(10):
            store.record(ids[index], [make_evaluation(step, [0], [index])])

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    curves = store.curves([make_run(seed).id for seed in range(4)])
    assert [curve["val/loss"].values.tolist() for curve in curves.values()] == [
        [float(index)] * 10 for index in range(4)
    ]


def test_the_store_does_not_import_torch() -> None:
    code = "import sys, seedbed.store; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert found.stdout == "False\n"
