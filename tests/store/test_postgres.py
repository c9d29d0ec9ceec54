"""The PostgreSQL store: the contract, and what differs from SQLite; see tests/postgres_server.py for the server."""

from __future__ import annotations

import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

import seedbed as sb
from seedbed.errors import Busy, DamagedCheckpoint, MissingData, StoreError, UsageError
from seedbed.recorder import Recorder
from seedbed.records import Cost, CostEvent, EvaluationEvent
from seedbed.store import Store, bind_store, open_store, postgres_database
from seedbed.store import postgres as postgres_module
from seedbed.store.postgres import PostgresStore
from tests.cli.invoke import CommandLine
from tests.contracts.test_store import StoreContract, values
from tests.postgres_server import PostgresServer
from tests.store.coordinators import train, train_at_once
from tests.store.toy import claim, make_checkpoint, make_evaluation, make_plan, make_run


@pytest.fixture
def address(postgres: PostgresServer, tmp_path: Path) -> str:
    return postgres.new_store(tmp_path / "lab")


class TestPostgresStore(StoreContract):
    pass


def open_postgres(address: str) -> PostgresStore:
    store = open_store(address)
    assert isinstance(store, PostgresStore)
    return store


LATE_WRITES: dict[str, Callable[[Store, str], object]] = {
    "record": lambda store, pack: store.record(pack, [make_evaluation(7, [0], [9.0])]),
    "save": lambda store, pack: store.save(pack, make_checkpoint(7, [0])),
    "stop": lambda store, pack: store.stop(pack),
    "fail": lambda store, pack: store.fail(pack, "late"),
    "resume": lambda store, pack: store.resume(pack),
    "split": lambda store, pack: store.split(pack),
}


def hold_for_no_time(
    store: Store, n_runs: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, AbstractContextManager[None]]:
    """A new pack of so many runs, and the lease of this store on it, which is over at once and not yet released."""
    store.register(make_plan(n_runs))
    [pack] = claim(store, make_plan(n_runs).runs)
    with monkeypatch.context() as patch:
        patch.setattr(postgres_database, "LEASE_SECONDS", 0.0)
        lease = store.lock(pack)
        lease.__enter__()
    return pack, lease


def give_up(address: str, monkeypatch: pytest.MonkeyPatch, then: Callable[[Store, str], object]) -> list[object]:
    """What a store has after `then` was called by a process whose pack another one has taken over meanwhile."""
    with open_postgres(address) as late, open_postgres(address) as new:
        pack, lease = hold_for_no_time(late, 2, monkeypatch)
        late.record(pack, [make_evaluation(1, [0, 1], [0.5, 0.6])])  # over, but nobody has taken it
        late.save(pack, make_checkpoint(1, [0, 1]))
        with new.lock(pack):
            new.resume(pack)
            before = [new.runs(), values(new, make_run(0).id), new.checkpoints(make_run(0).id), new.pack(pack)]
            try:
                then(late, pack)
            finally:
                after = [new.runs(), values(new, make_run(0).id), new.checkpoints(make_run(0).id), new.pack(pack)]
                new.record(pack, [make_evaluation(2, [0], [0.4])])
                lease.__exit__(None, None, None)
                with pytest.raises(Busy):
                    late.reset([make_run(0).id])  # its end did not release what is held by another process
    return [one for one, two in zip(after, before, strict=True) if one != two]


@pytest.mark.parametrize("kind", LATE_WRITES)
def test_a_process_that_was_given_up_cannot_write_late(
    kind: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_late(store: Store, pack: str) -> None:
        with pytest.raises(Busy, match=r"pack \w+ was given up.*taken over by process \d+ since"):
            LATE_WRITES[kind](store, pack)

    assert give_up(address, monkeypatch, write_late) == []


def test_without_the_fencing_number_a_late_write_arrives(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_database.PostgresDatabase, "_check_fences", lambda *_: None)
    assert give_up(address, monkeypatch, LATE_WRITES["record"])


def load_state_beside_a_late_writer(address: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """A number in the state and the weights that a pack has after its late and its new holder saved the same step."""
    with open_postgres(address) as late, open_postgres(address) as new:
        pack, lease = hold_for_no_time(late, 1, monkeypatch)
        saving = late.begin_save(pack, make_checkpoint(7, [0], weight=1.0))
        with new.lock(pack):
            new.resume(pack)
            new.save(pack, make_checkpoint(7, [0], weight=2.0))
            saving.write()
            with pytest.raises(Busy, match="was given up"):
                saving.commit()
            state = new.resume(pack)
            assert state is not None
            assert new.load_weights(make_run(0).id)["w"][0, 0] == state[1]["x"][0]
        lease.__exit__(None, None, None)
        return float(state[1]["x"][0])


def test_a_process_that_was_given_up_overwrites_no_file_of_the_one_that_goes_on(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_state_beside_a_late_writer(address, monkeypatch) == 2.0


def test_without_digests_in_their_names_the_file_of_a_late_writer_damages_a_checkpoint(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresStore, "_has_digests_in_names", False)
    with pytest.raises(DamagedCheckpoint):
        load_state_beside_a_late_writer(address, monkeypatch)


def test_a_process_that_was_suspended_after_a_commit_deletes_no_later_state(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_postgres(address) as late, open_postgres(address) as new:
        pack, lease = hold_for_no_time(late, 1, monkeypatch)
        late.save(pack, make_checkpoint(1))
        write = late._database.write_pack

        def write_and_be_given_up(pack_id: str, change: Callable[[Any], Any]) -> Any:
            kept = write(pack_id, change)
            with new.lock(pack):
                new.resume(pack)
                new.save(pack, make_checkpoint(3))
            return kept

        monkeypatch.setattr(late._database, "write_pack", write_and_be_given_up)
        late.save(pack, make_checkpoint(2))
        monkeypatch.undo()
        with new.lock(pack):
            found = new.resume(pack)
        assert found is not None
        assert found[0] == 3
        lease.__exit__(None, None, None)


def write_under_an_earlier_grant(address: str) -> tuple[list[str], dict[int, float]]:
    """What a worker that was given up was told when it wrote, and the numbers that the pack has in the end."""
    errors = []
    with open_postgres(address) as holder, PostgresStore.join(address.partition(":")[2]) as lost:
        with PostgresStore.join(address.partition(":")[2]) as worker:
            holder.register(make_plan(1))
            [pack] = claim(holder, make_plan(1).runs)
            with holder.lock(pack):
                holder.resume(pack)
                with lost.write_under(holder.grant(pack)), worker.write_under(holder.grant(pack)):
                    worker.record(pack, [make_evaluation(1, [0], [0.5])])
                    try:
                        lost.record(pack, [make_evaluation(2, [0], [9.0])])
                    except Busy as busy:
                        errors.append(str(busy))
                    worker.save(pack, make_checkpoint(3, [0]))
                holder.record(pack, [make_evaluation(4, [0], [0.25])])  # it holds the last number itself
        return errors, values(holder, make_run(0).id)


def test_a_worker_that_was_given_up_cannot_write_under_its_grant(address: str) -> None:
    errors, found = write_under_an_earlier_grant(address)
    assert ["was given up" in error for error in errors] == [True]
    assert found == {1: 0.5, 4: 0.25}


def test_without_the_fencing_number_a_worker_that_was_given_up_writes(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_database.PostgresDatabase, "_check_fences", lambda *_: None)
    assert write_under_an_earlier_grant(address) == ([], {1: 0.5, 2: 9.0, 4: 0.25})


def test_a_grant_is_refused_for_a_pack_that_was_taken_over(
    address: str, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_postgres(address) as store:
        store.register(make_plan(1))
        [pack] = claim(store, make_plan(1).runs)
        with store.lock(pack):
            take_over(postgres, pack)
            with pytest.raises(Busy, match="taken over by process 17 on elsewhere"):
                store.grant(pack)


def take_over(postgres: PostgresServer, pack: str) -> None:
    """Does what another process does that takes over the lease of a pack."""
    taken = "number = number + 1, token = 'another', holder = 'process 17 on elsewhere', expires = now() + '1 hour'"
    postgres.execute(f"UPDATE {postgres_database.SCHEMA}.leases SET {taken} WHERE name = '{pack}'")


def test_a_worker_says_from_which_machine_it_cannot_use_the_store(
    address: str, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "JOIN_SECONDS", 0.2)
    with open_postgres(address) as store:
        assert store.shared_address == address
    hidden = address.replace("seedbed@", "seedbed:secret@").partition(":")[2]
    with pytest.raises(
        StoreError, match=rf"from {platform.node()}: there is no .*other/databases.* all nodes must see"
    ):
        PostgresStore.join(hidden.replace("/lab", "/other"))
    postgres.kill()
    try:
        with pytest.raises(
            StoreError, match=rf"the store cannot be used from {platform.node()}: .* cannot be reached"
        ) as caught:
            PostgresStore.join(hidden)
    finally:
        postgres.start()
    assert "secret" not in str(caught.value)


def test_leases_are_renewed_as_long_as_their_process_lives(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_database, "LEASE_SECONDS", 1.5)
    monkeypatch.setattr(postgres_database, "RENEW_SECONDS", 0.1)
    with open_postgres(address) as first, open_postgres(address) as second:
        with first.lock("a"), first.lock("b"):
            time.sleep(2)
            with pytest.raises(Busy, match=r"pack a is held by process \d+ since"), second.lock("a"):
                pass
        with second.lock("a"):
            pass


def cross_updates(address: str, wait_seconds: float) -> list[str]:
    """The names of errors when two transactions change two rows in opposite order."""
    with open_postgres(address) as store, ThreadPoolExecutor(2) as pool:
        store.register(make_plan(2))
        ids, both, database = [run.id for run in make_plan(2).runs], threading.Barrier(2), store._postgres
        database.wait_seconds = wait_seconds

        def change(order: list[str]) -> str:
            attempts = list[int]()

            def update(connection: object) -> None:
                attempts.append(1)
                for number, run in enumerate(order):
                    if number and len(attempts) == 1:
                        both.wait(30)
                    statement = text(f"UPDATE {postgres_database.SCHEMA}.runs SET seed = seed + 1 WHERE id = :run")
                    connection.execute(statement, {"run": run})  # type: ignore[attr-defined]

            try:
                database.write_pack("none", update)
            except Busy as error:
                return type(error).__name__
            return "done"

        return sorted(pool.map(change, [ids, ids[::-1]]))


def test_a_deadlock_is_resolved_by_doing_one_transaction_again(address: str) -> None:
    assert cross_updates(address, wait_seconds=30) == ["done", "done"]


def test_without_repetition_a_deadlock_is_an_error(address: str) -> None:
    assert cross_updates(address, wait_seconds=0) == ["Busy", "done"]


@pytest.mark.parametrize("n_writers", [4])
def test_writers_at_once_lose_nothing(n_writers: int, address: str) -> None:
    """Each registers a study, and then records and saves a pack of its own."""

    def write(number: int) -> None:
        runs = [replace(make_run(seed), id=f"{number:02x}{seed:02x}") for seed in range(2)]
        with open_store(address) as store:
            store.register(replace(make_plan(0, f"study {number}"), runs=tuple(runs)))
            [pack] = claim(store, runs)
            with store.lock(pack):
                store.resume(pack)
                for step in range(1, 9):
                    store.record(pack, [make_evaluation(step, [0, 1], [step, number], name=f"metric {step % 3}")])
                store.save(pack, make_checkpoint(8, [0, 1]))

    with ThreadPoolExecutor(n_writers) as pool:
        list(pool.map(write, range(n_writers)))
    with open_store(address, read_only=True) as store:
        assert {study.name for study in store.studies()} == {f"study {number}" for number in range(n_writers)}
        for curves in store.curves([run.id for run in store.runs()]).values():
            assert sorted(step for curve in curves.values() for step in curve.steps.tolist()) == list(range(1, 9))
        assert len(store.runs_with_weights()) == 2 * n_writers


def test_writing_waits_for_a_server_that_was_killed(address: str, postgres: PostgresServer) -> None:
    with open_store(address) as store:
        store.register(make_plan(1))
        [pack] = claim(store, make_plan(1).runs)
        with store.lock(pack):
            store.record(pack, [make_evaluation(1, [0], [0.5])])
            postgres.kill()
            starter = threading.Timer(1.0, postgres.start)
            starter.start()
            store.record(pack, [make_evaluation(2, [0], [0.25])])
            starter.join()
        assert values(store, make_run(0).id) == {1: 0.5, 2: 0.25}


LOSE_A_CONNECTION = """
import os, socket, sys
from sqlalchemy import text
from seedbed.store import open_store

with open_store(sys.argv[1]) as store:
    attempts = []
    def insert(connection):
        attempts.append(1)
        connection.execute(text("CREATE TEMP TABLE t (a int)"))
        if len(attempts) == 1:
            with socket.socket(fileno=os.dup(connection.connection.driver_connection.fileno())) as end:
                end.shutdown(socket.SHUT_RDWR)
        connection.execute(text("INSERT INTO t VALUES (:a)"), [{"a": 1}, {"a": 2}])
    store._database.write(insert)
    print(len(attempts))
"""


def test_a_connection_that_is_lost_among_many_rows_prints_nothing(address: str) -> None:
    """psycopg logs that it could not end its pipeline, which Python would print."""

    def run(script: str) -> tuple[str, str]:
        done = subprocess.run([sys.executable, "-c", script, address], capture_output=True, text=True, check=True)
        return done.stdout, done.stderr

    assert run(LOSE_A_CONNECTION) == ("2\n", "")
    without = "import logging; logging.getLogger('psycopg').handlers.clear()\n"
    assert "terminating" in run(LOSE_A_CONNECTION.replace("with open", f"{without}with open"))[1]


def test_beyond_its_limit_writing_stops_with_nothing_half_written(address: str, postgres: PostgresServer) -> None:
    with open_postgres(address) as store:
        store.register(make_plan(1))
        [pack] = claim(store, make_plan(1).runs)
        store._postgres.wait_seconds = 0.2
        before = store.runs()
        postgres.kill()
        try:
            with pytest.raises(StoreError, match=r"cannot be reached: .*everything committed is kept"):
                store.record(pack, [make_evaluation(1, [0], [0.5])])
            with pytest.raises(StoreError, match="cannot be reached"):
                open_store(address)
        finally:
            postgres.start()
        assert (store.runs(), values(store, make_run(0).id)) == (before, {})


def test_what_needs_64_bits_or_holds_nul_is_stored_as_it_is(address: str) -> None:
    run = replace(make_run(2**40), id="ab")
    with open_store(address) as store:
        store.register(replace(make_plan(0), runs=(run,), text='a = "\0"'))
        [pack] = claim(store, [run])
        cost = Cost({"compute": 1.0}, {"compute": 2**40}, steady_bytes=2**41, peak_bytes=2**42)
        store.record(pack, [CostEvent(2**33, cost), make_evaluation(2**33, [0], [0.5])])
        store.fail(pack, "\0 and \x01")
        assert (store.run("ab").seed, store.run("ab").cause, store.study("toy").text) == (
            2**40, "\0 and \x01", 'a = "\0"',
        )  # fmt: skip
        assert store.pack(pack).cost == cost
        assert values(store, "ab") == {2**33: 0.5}


def test_a_home_is_bound_to_the_database_that_is_named(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = address.partition("#")[0]
    monkeypatch.setenv("SEEDBED_STORE", url)
    with open_store(tmp_path / "lab") as store:
        store.register(make_plan(2))
        assert store.address == url
    monkeypatch.delenv("SEEDBED_STORE")
    bind_store(tmp_path / "bound", url)
    with open_store(tmp_path / "bound", read_only=True) as store:
        assert len(store.runs("toy")) == 2
    with pytest.raises(UsageError, match="another store"):
        bind_store(tmp_path / "bound", "sqlite:lab")
    assert not (tmp_path / "lab" / "store.db").exists()


def test_a_password_is_in_no_message(postgres: PostgresServer) -> None:
    address = postgres.address("nowhere").replace("seedbed@", "seedbed:secret@")
    with pytest.raises(StoreError, match=r'seedbed:\*\*\*@.*"nowhere" does not exist') as caught:
        open_store(address)
    assert "secret" not in str(caught.value)


def test_without_psycopg_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'psycopg'")

    monkeypatch.setattr(postgres_database, "create_engine", fail)
    with pytest.raises(MissingData, match=r"pip install 'seedbed\[cluster\]'"):
        open_store("postgresql://127.0.0.1/lab")


TINY = ("task.p=5", "model.dim=8", "model.heads=2", "model.layers=1", "train.steps=20", "seeds=2")


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.setenv("SEEDBED_STORE", "")  # which the option sets
    return CommandLine(monkeypatch, capsys, tmp_path / "lab")


def test_every_verb_reads_and_writes_by_the_address(address: str, cli: CommandLine, tmp_path: Path) -> None:
    url, other = address.partition("#")[0], f"sqlite:{tmp_path / 'other'}"

    def call(verb: str, *words: str, store: str = url) -> str:
        return cli(verb, *words, "--store", store).stdout

    call("run", "quickstart", *TINY, "--quiet")
    assert "quickstart" in call("ls")
    call("note", "quickstart", "shared")
    assert "shared" in call("show", "quickstart")
    call("report", "quickstart")
    call("copy", "quickstart", "--to", str(tmp_path / "other"))
    assert "2 runs as they are already" in call("copy", "quickstart", "--to", address, store=other)
    study = sb.Study.stored("quickstart", tmp_path / "elsewhere", store=address)
    assert {run.status for run in study.runs()} == {"finished"}
    assert sb.load(study.runs()[0], tmp_path / "elsewhere", store=address).sample("1 + 2 =")
    with open_store(tmp_path / "other", read_only=True) as copied, open_store(address, read_only=True) as shared:
        assert copied.runs() == shared.runs()
        assert stored_content(copied) == stored_content(shared)
    call("rm", "quickstart", "--yes")
    assert "quickstart" not in call("ls")
    assert "2 runs added" in call("copy", "quickstart", "--to", address, store=other)
    assert not (tmp_path / "lab" / "store.db").exists()


def test_a_lost_lease_costs_one_pack_and_the_command_says_who_has_it(
    address: str, cli: CommandLine, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, taken = Recorder.record, list[str]()

    def record_and_lose(recorder: Recorder, event: Any) -> None:
        if isinstance(event, EvaluationEvent) and event.step >= 20 and not taken:
            take_over(postgres, recorder.pack_id)
            taken.append(recorder.pack_id)
        record(recorder, event)

    monkeypatch.setattr(Recorder, "record", record_and_lose)
    sizes = ("task.p=5", "model.dim=8,16", "model.heads=2", "model.layers=1")
    study = ("quickstart", *sizes, "train.steps=1200", "train.eval_every=20", "seeds=1")
    told = cli("run", *study, "--store", address.partition("#")[0], code=75).stderr
    assert "quickstart is being trained by process 17 on elsewhere (1 pack); wait for it or stop it" in told
    with open_store(address, read_only=True) as store:
        by_pack = {run.pack: run for run in store.runs()}
        lost = by_pack.pop(taken[0])
        assert (lost.status, lost.step) == ("running", max(values(store, lost.id)))
        assert lost.step < 1200
        assert [(run.status, run.step) for run in by_pack.values()] == [("finished", 1200)]


def stored_content(store: Store) -> list[object]:
    """Every number and every weight of all runs."""
    found: list[object] = []
    for run in store.runs():
        curves = store.curves([run.id])[run.id]
        found.append((run.id, {name: (one.steps.tobytes(), one.values.tobytes()) for name, one in curves.items()}))
        found.append(store.checkpoints(run.id))
        found.append({name: array.tobytes() for name, array in store.load_weights(run.id).items()})
    return found


def test_the_option_takes_an_address(cli: CommandLine) -> None:
    assert "postgresql://USER@HOST/DATABASE" in cli("ls", "--store", "shared", code=2).stderr


def check_coordinators(postgres: PostgresServer, folder: Path, n_trials: int) -> list[list[int]]:
    """How many packs each of two commands trained, after it was checked that every run was recorded exactly once."""
    train(f"sqlite:{folder / 'alone'}")
    with open_store(f"sqlite:{folder / 'alone'}", read_only=True) as store:
        expected = stored_content(store)
    names = [f"trial{number}" for number in range(n_trials)]
    for name in names:
        postgres.execute(f"CREATE DATABASE {name}")
    addresses = [f"{postgres.address(name)}#{folder / 'shared'}" for name in names]
    shares = []
    for address, *evaluated in zip(addresses, *train_at_once(addresses), strict=True):
        steps = [tuple(step) for each in evaluated for step in each]
        assert len(steps) == len({*steps})  # no pack was trained by both
        with open_store(address, read_only=True) as store:
            assert {run.status for run in store.runs()} == {"finished"}
            assert stored_content(store) == expected
        shares.append([len({pack.split()[0] for pack, _ in each}) for each in evaluated])
    return shares


def test_two_commands_share_a_study_and_record_each_run_once(postgres: PostgresServer, tmp_path: Path) -> None:
    shares = check_coordinators(postgres, tmp_path, n_trials=2)
    assert {sum(share) for share in shares} == {4}
    assert any(min(share) > 0 for share in shares)
