"""A database in which bits have flipped or rows have vanished: what is read is as it was written, or a named error.

Whatever cannot be read is explained by `seedbed doctor`, and a home that it finds healthy can be read.
"""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from seedbed.api.tidy_results import load_results
from seedbed.errors import SeedbedError, StoreError
from seedbed.records import CheckpointEvent, Placement, SampleEvent, Vocabulary
from seedbed.report.overview import run_tables, runs_table, studies_table
from seedbed.report.sections import environment_tables, study_tables
from seedbed.report.study_answers import answer_study, answers_as_json
from seedbed.report.study_runs import load_run_curves
from seedbed.report.summary_tables import config_tables
from seedbed.settings import DatasetInfo
from seedbed.stats.summary import summaries_to_json, summarise
from seedbed.store import Store, digests, open_store, stored_vocabulary
from seedbed.store.database import _connect_sqlite
from seedbed.store.doctor import examine
from seedbed.store.repair import repair_home
from seedbed.study.declarations import parse_declarations
from tests.store.test_doctor import change
from tests.store.toy import claim, make_plan, make_run, train

N_QUICK, N_LONG, N_PARTS = 100, 10_000, 10
N_QUICK_TRAINED = 40
HEADER_BYTES = 100  # which are looked at before SQLite opens a database
KEPT = (
    Path(__file__).parent.parent / "store" / "kept" / "schema5"
)  # trained by `seedbed run`: three studies, two states
TRAINED = ("finished", "unfinished", "text")
DATASET = "text/1/aa"
Reads: TypeAlias = Mapping[str, Callable[[Store], Any]]
READS: Reads = {
    "studies": lambda store: store.studies(),
    "runs": lambda store: store.runs("toy"),
    "all runs": lambda store: store.runs(),
    "progress": lambda store: store.progress(),
    "curves": lambda store: curves_of(store, [run.id for run in make_plan().runs]),
    "samples": lambda store: [repr(store.samples(run.id)) for run in make_plan().runs],
    "checkpoints": lambda store: [store.checkpoints(run.id) for run in make_plan().runs],
    "with weights": lambda store: store.runs_with_weights(),
    "settled": lambda store: store.settled_runs(),
    "packs": lambda store: store.study_packs("toy"),
    "annotations": lambda store: store.annotations(),
    "vocabulary": lambda store: (store.load_vocabulary(DATASET), store.dataset_dates()),
    "summary": lambda store: summaries_to_json(summarise(load_run_curves(store, "toy"))),
    "results": lambda store: str(list(load_results(store, "toy"))),
    "dump": lambda store: store.dump({"toy": [run.id for run in make_plan().runs]}, "all").model_dump_json(),
}


VERBS: Reads = {  # what verbs print of a trained home
    "ls": lambda store: repr(studies_table(store.studies(), store.annotations())),
    "ls STUDY": lambda store: [repr(runs_table(store, name, store.runs(name))) for name in TRAINED],
    "show": lambda store: [repr(config_tables(summarise(load_run_curves(store, name)))) for name in TRAINED],
    "show RUN": lambda store: [repr(run_tables(store, store.runs(name)[0])) for name in TRAINED],
    "answer": lambda store: [repr(answers_as_json(name, answer_study(store, name))) for name in TRAINED],
    "report": lambda store: [repr(tables_of_report(store, name)) for name in TRAINED],
    "results": lambda store: [str(list(load_results(store, name))) for name in TRAINED],
    "weights": lambda store: [
        (run.id, {name: array.tobytes() for name, array in store.load_weights(run.id).items()})
        for run in store.runs() if run.id in store.runs_with_weights()
    ],
    "vocabulary": lambda store: [stored_vocabulary(store, run) for run in store.runs("text")],
    "going on": lambda store: [store.can_resume(pack.id) for pack in store.study_packs("unfinished")],
    "export": lambda store: store.dump(
        {name: [run.id for run in store.runs(name)] for name in TRAINED}, "all", unfinished=True
    ).model_dump_json(),
}  # fmt: skip


def tables_of_report(store: Store, study: str) -> list[Any]:
    runs = load_run_curves(store, study)
    declared = parse_declarations(store.study(study).text)
    return [*study_tables(store, study, declared, runs), *environment_tables(store, study, runs)]


def curves_of(store: Store, run_ids: list[str]) -> dict[str, Any]:
    return {
        f"{run} {name}": (curve.steps.tobytes(), curve.values.tobytes())
        for run, named in store.curves(run_ids).items()
        for name, curve in named.items()
    }


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with everything in it that a verb reads, in one file."""
    home = tmp_path_factory.mktemp("damage") / "lab"
    info = DatasetInfo(vocab_size=5, context_length=3, n_train=2, digest=DATASET)
    plan = make_plan(3)
    plan = replace(plan, runs=tuple(replace(run, dataset_info=info) for run in plan.runs))
    with open_store(home) as store:
        store.register(plan)
        store.register(make_plan(2, "other"))
        store.save_vocabulary(DATASET, Vocabulary("characters", ("<pad>", "a", "b")))
        [pack] = claim(store, plan.runs)
        store.resume(pack, {"torch": "2.13"})
        store.record(pack, [SampleEvent(slot, 1, "my", " lord", (3, 1), (-0.5, -1.5), 0) for slot in range(3)])
        state = {"numbers": np.array([0.1, 0.2, 0.3]), "alive": np.ones(3, dtype=bool)}
        store.save(pack, CheckpointEvent(1, state, {}))
        train(store, pack)
        store.set_note("toy", "shown in week 3")
        store.add_tags(plan.runs[1].id, ["grokked"])
    with closing(sqlite3.connect(home / "store.db")) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return home


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("damage") / "trained"
    shutil.copytree(KEPT, home)
    open_store(home).close()  # a command of this version that writes stores how the tables are defined
    return home


def read_all(home: Path, reads: Reads = READS) -> dict[str, Any]:
    """What each read returns, or the error that it ends with."""
    found: dict[str, Any] = {}
    try:
        with open_store(home, read_only=True) as store:
            for name, reading in reads.items():
                try:
                    found[name] = reading(store)
                except SeedbedError as error:
                    found[name] = error
    except SeedbedError as error:
        found["open"] = error
    except Exception as error:  # a bug, to be counted
        found["open"] = AssertionError(f"after {list(found)[-1:]}: {type(error).__name__}: {error}")
    return found


def statements_of(home: Path, reads: Reads) -> list[str]:
    """What SQLite is asked by reads, and when the store is opened; equal answers give equal results."""
    statements: dict[str, None] = {}

    def connect(path: Path, mode: str) -> sqlite3.Connection:
        connection = _connect_sqlite(path, mode)
        connection.set_trace_callback(lambda statement: statements.update({statement: None}))
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seedbed.store.database._connect_sqlite", connect)
        read_all(home, reads)
    return [statement for statement in statements if statement.startswith(("SELECT", "PRAGMA"))]


def answers(home: Path, statements: Iterable[str]) -> dict[str, str]:
    """The rows that SQLite itself gives for each statement, or its error."""
    found = {}
    with closing(_connect_sqlite(home / "store.db", "mode=ro&immutable=1")) as connection:
        for sql in statements:
            try:
                found[sql] = repr(connection.execute(sql).fetchall())
            except (sqlite3.Error, UnicodeDecodeError) as error:  # or its error, in which there is damaged text
                found[sql] = repr(error)
    return found


def crash_of_writer(home: Path) -> list[str]:
    """What a command that writes ends with, if that is not one of our errors; it may change the damaged home."""
    try:
        with open_store(home) as store:
            store.register(make_plan(1, "more"))
            store.claim([], lambda _: Placement())
    except SeedbedError:
        return []
    except Exception as error:
        return [f"writing: {type(error).__name__}: {error}"]
    finally:
        for path in home.glob("store.db-*"):
            path.unlink()
    return []


def flip_bits(lab: Path, folder: Path, n: int, seed: int, reads: Reads = READS) -> tuple[Counter[str], list[str]]:
    """How many of n single flips left everything as it was, were named, were served, or ended in a traceback.

    Of those that were named, "unexplained" are those of which doctor finds nothing. A read is not repeated where SQLite
    answers everything it asks as before.
    """
    home = folder / "flipped"
    shutil.copytree(lab, home)
    whole, outcomes, faults = (lab / "store.db").read_bytes(), Counter[str](), list[str]()
    expected = read_all(lab, reads)
    assert examine(home).errors == []
    assert not [found for found in expected.values() if isinstance(found, Exception)]
    asked = {name: statements_of(home, {name: reading}) for name, reading in reads.items()}
    assert all(asked.values())
    statements = {sql for of_read in asked.values() for sql in of_read}
    before = answers(home, statements)
    generator = random.Random(seed)
    for _ in range(n):
        bit = generator.randrange(8 * len(whole))
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        (home / "store.db").write_bytes(flipped)
        after = answers(home, statements)
        has_header = flipped[:HEADER_BYTES] == whole[:HEADER_BYTES]
        is_same = {name: has_header and all(after[sql] == before[sql] for sql in asked[name]) for name in reads}
        found = (
            {} if all(is_same.values()) else read_all(home, {name: reads[name] for name in reads if not is_same[name]})
        )
        crashed = [str(one) for one in found.values() if isinstance(one, AssertionError)]
        wrong = [name for name, one in found.items() if not isinstance(one, Exception) and one != expected[name]]
        named = [str(one) for one in found.values() if isinstance(one, SeedbedError)]
        is_explained = not found or bool(examine(home).errors)
        crashed += crash_of_writer(home) if found else []
        outcome = "traceback" if crashed else "wrong" if wrong else "named" if named else "same"
        outcomes[outcome] += 1
        outcomes["unexplained"] += outcome != "same" and not is_explained
        faults += [f"bit {bit}: {fault}" for fault in crashed + wrong + ([] if is_explained else named[:1])]
    return outcomes, faults


def test_flipped_bits_are_named_and_never_served(lab: Path, tmp_path: Path) -> None:
    outcomes, faults = flip_bits(lab, tmp_path, N_QUICK, seed=1)
    assert outcomes["wrong"] == outcomes["traceback"] == outcomes["unexplained"] == 0, faults
    assert outcomes["named"] > N_QUICK / 20


def test_a_vanished_study_or_run_is_missed_by_all_that_list_them(lab: Path, tmp_path: Path) -> None:
    """Also by what lists the runs of all studies, or those of which something is said."""
    listing = ("studies", "all runs", "progress", "with weights", "settled")
    for name, statement in {
        "study": "DELETE FROM studies WHERE name = 'other'", "run": f"DELETE FROM runs WHERE id = '{make_run(1).id}'",
    }.items():  # fmt: skip
        home = tmp_path / name
        shutil.copytree(lab, home)
        change(home, statement)
        found = read_all(home)
        assert [one for one in listing if not isinstance(found[one], StoreError)] == []


def test_a_run_that_seems_unsettled_is_noticed(lab: Path, tmp_path: Path) -> None:
    shutil.copytree(lab, tmp_path / "lab")
    change(tmp_path / "lab", "UPDATE runs SET settled = 0")
    assert isinstance(read_all(tmp_path / "lab")["settled"], StoreError)


def test_a_vanished_vocabulary_is_missed_by_what_lists_them(lab: Path, tmp_path: Path) -> None:
    shutil.copytree(lab, tmp_path / "lab")
    change(tmp_path / "lab", "DELETE FROM vocabularies")
    with open_store(tmp_path / "lab", read_only=True) as store, pytest.raises(StoreError, match="vocabularies"):
        store.dataset_dates()


@pytest.mark.parametrize(
    ("table", "reads"),
    [("studies", ("studies", "all runs", "settled", "with weights")), ("notes", ("annotations", "dump")),
     ("vocabularies", ("vocabulary", "dump"))],
)  # fmt: skip
def test_a_row_that_only_the_index_still_has_is_missed(
    lab: Path, tmp_path: Path, table: str, reads: tuple[str, ...]
) -> None:
    """The page of the table says that it has one row less."""
    shutil.copytree(lab, tmp_path / "lab")
    with closing(sqlite3.connect(lab / "store.db")) as connection:
        [(page,)] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [table])
        [(size,)] = connection.execute("PRAGMA page_size")
    whole = bytearray((lab / "store.db").read_bytes())
    header = (page - 1) * size
    assert whole[header] == 13  # a leaf of a table
    assert whole[header + 4] > 0
    whole[header + 4] -= 1
    (tmp_path / "lab" / "store.db").write_bytes(whole)
    found = read_all(tmp_path / "lab")
    assert [name for name in reads if not isinstance(found[name], StoreError)] == []


def damage_an_index(whole: Path, home: Path, index: str, key: str) -> None:
    """The last character of a key changes in an index, so that its row is not found by it."""
    shutil.copytree(whole, home)
    with closing(sqlite3.connect(home / "store.db")) as connection:
        [(page,)] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [index])
        [(size,)] = connection.execute("PRAGMA page_size")
    data, start = (home / "store.db").read_bytes(), (page - 1) * size
    damaged = data[start : start + size].replace(key.encode(), key[:-1].encode() + b"~")
    assert damaged != data[start : start + size]
    (home / "store.db").write_bytes(data[:start] + damaged + data[start + size :])


@pytest.mark.parametrize("has_list", [True, False])
def test_a_row_that_its_index_does_not_find_is_missed(lab: Path, tmp_path: Path, has_list: bool) -> None:
    """Bits 360,335 and 360,346 of the trained home, in which an earlier version had stored no list of vocabularies."""
    shutil.copytree(lab, tmp_path / "old")
    change(tmp_path / "old", f"DELETE FROM meta WHERE key = 'vocabularies' AND NOT {has_list}")
    damage_an_index(tmp_path / "old", tmp_path / "lab", "sqlite_autoindex_vocabularies_1", DATASET)
    with open_store(tmp_path / "lab", read_only=True) as store, pytest.raises(StoreError, match="is damaged: "):
        store.load_vocabulary(DATASET)


def test_a_row_is_missed_that_vanished_since_a_command_that_writes_has_listed_it(lab: Path, tmp_path: Path) -> None:
    """Whatever version has created the home."""
    shutil.copytree(lab, tmp_path / "lab")
    change(tmp_path / "lab", "DELETE FROM meta WHERE key IN ('studies', 'notes', 'vocabularies')")
    open_store(tmp_path / "lab").close()
    for table in ("vocabularies", "notes", "studies"):
        change(tmp_path / "lab", f"DELETE FROM {table}")
    found = read_all(tmp_path / "lab")
    assert [name for name in ("vocabulary", "annotations", "studies") if not isinstance(found[name], StoreError)] == []


@pytest.mark.parametrize("table", ["runs", "packs", "costs"])
def test_packs_are_missed_whose_rows_an_index_does_not_find(trained: Path, tmp_path: Path, table: str) -> None:
    """Bit 425,031 of the trained home: a run that its index had lost took its pack with it."""
    with open_store(trained, read_only=True) as store:
        pack = store.study_packs("unfinished")[0]
    key = pack.runs[0] if table == "runs" else pack.id
    damage_an_index(trained, tmp_path / "home", f"sqlite_autoindex_{table}_1", key)
    assert isinstance(read_all(tmp_path / "home", VERBS)["going on"], StoreError)
    with open_store(tmp_path / "home", read_only=True) as store, pytest.raises(StoreError, match="is damaged: "):
        store.can_resume(pack.id) if table == "costs" else store.study_packs("unfinished")
    if table == "runs":
        with open_store(tmp_path / "home", read_only=True) as store, pytest.raises(StoreError, match="is missing"):
            store.pack_members(pack.id)


def test_a_run_that_its_index_does_not_find_is_not_said_to_be_unknown(lab: Path, tmp_path: Path) -> None:
    damage_an_index(lab, tmp_path / "lab", "sqlite_autoindex_runs_1", make_run(1).id)
    with open_store(tmp_path / "lab", read_only=True) as store, pytest.raises(StoreError, match="is missing"):
        store.run(make_run(1).id)


def test_an_unfinished_pack_that_vanished_is_missed_by_export(trained: Path, tmp_path: Path) -> None:
    """Bit 196,685 of the trained home: its index has lost a pack that is to be exported with its state."""
    shutil.copytree(trained, tmp_path / "home")
    change(tmp_path / "home", "DELETE FROM packs WHERE open")
    assert isinstance(read_all(tmp_path / "home", VERBS)["export"], StoreError)


def damage_a_definition(lab: Path, home: Path) -> None:
    """A bit of the type of a column, in the statement that has made the table: bit 874,479 of an earlier toy home."""
    shutil.copytree(lab, home)
    whole = (lab / "store.db").read_bytes()
    at = whole.index(b"VARCHAR", whole.index(b"CREATE TABLE vocabularies"))
    (home / "store.db").write_bytes(whole[:at] + b"\xd6" + whole[at + 1 :])


def test_a_damaged_definition_of_a_table_is_explained_and_not_written_to(lab: Path, tmp_path: Path) -> None:
    damage_a_definition(lab, tmp_path / "lab")
    assert isinstance(read_all(tmp_path / "lab")["dump"], StoreError)
    assert "definition" in " ".join(error.what for error in examine(tmp_path / "lab").errors)
    with pytest.raises(StoreError, match="is damaged: "):
        open_store(tmp_path / "lab")
    repair_home(tmp_path / "lab", tmp_path / "new")
    assert read_all(tmp_path / "new")["summary"] == read_all(lab)["summary"]


def test_damaged_text_in_a_message_of_sqlite_is_no_traceback(lab: Path, tmp_path: Path) -> None:
    """SQLite quotes the word that it cannot parse, which Python cannot decode."""
    shutil.copytree(lab, tmp_path / "lab")
    whole = (lab / "store.db").read_bytes()
    (tmp_path / "lab" / "store.db").write_bytes(whole.replace(b"CREATE TABLE notes", b"CREATE T\xc1BLE notes"))
    for read_only in (True, False):
        with pytest.raises(StoreError, match="is damaged: "):
            open_store(tmp_path / "lab", read_only=read_only)
    assert examine(tmp_path / "lab").errors


def test_control_without_their_digests_a_damaged_definition_is_not_explained(lab: Path, tmp_path: Path) -> None:
    shutil.copytree(lab, tmp_path / "old")
    change(tmp_path / "old", "DELETE FROM meta WHERE key = 'tables'")
    damage_a_definition(tmp_path / "old", tmp_path / "lab")
    assert isinstance(read_all(tmp_path / "lab")["dump"], StoreError)
    assert examine(tmp_path / "lab").errors == []


@pytest.mark.parametrize("table", ["vocabularies", "notes"])
def test_vanished_vocabularies_and_notes_are_missed_by_export(lab: Path, tmp_path: Path, table: str) -> None:
    home = tmp_path / "lab"
    shutil.copytree(lab, home)
    with closing(sqlite3.connect(home / "store.db")) as connection, connection:
        connection.execute(f"DELETE FROM {table}")
    with open_store(home, read_only=True) as store, pytest.raises(StoreError, match=f"the list of {table}"):
        READS["dump"](store)


def test_no_verb_shows_what_a_flipped_bit_has_changed_and_doctor_explains_it(trained: Path, tmp_path: Path) -> None:
    outcomes, faults = flip_bits(trained, tmp_path, N_QUICK_TRAINED, seed=1, reads=VERBS)
    assert outcomes["wrong"] == outcomes["traceback"] == outcomes["unexplained"] == 0, faults
    assert outcomes["named"] > N_QUICK_TRAINED / 20


@pytest.mark.slow
@pytest.mark.parametrize("part", range(N_PARTS))  # to go on where it was stopped: -k "toy and 3"
@pytest.mark.parametrize("kind", ["toy", "trained"])
def test_ten_thousand_flipped_bits_are_named_and_never_served(
    lab: Path, trained: Path, tmp_path: Path, kind: str, part: int
) -> None:
    home, reads = {"toy": (lab, READS), "trained": (trained, VERBS)}[kind]
    outcomes, faults = flip_bits(home, tmp_path, N_LONG // N_PARTS, seed=2 + part, reads=reads)
    print(kind, part, dict(outcomes))
    assert outcomes["wrong"] == outcomes["traceback"] == outcomes["unexplained"] == 0, faults


def test_control_without_digests_verbs_show_wrong_numbers_and_doctor_finds_nothing(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(trained, tmp_path / "home")
    with open_store(trained, read_only=True) as store:
        run = store.runs("finished")[0].id
        number = store.curves([run])[run]["val/loss"].values[-1]
    whole = (trained / "store.db").read_bytes()
    (tmp_path / "home" / "store.db").write_bytes(whole.replace(number.tobytes(), (number / 2).tobytes()))
    assert isinstance(read_all(tmp_path / "home", VERBS)["show"], StoreError)
    assert examine(tmp_path / "home").errors
    monkeypatch.setattr(digests, "_verify", lambda *_: None)
    found, expected = read_all(tmp_path / "home", VERBS), read_all(trained, VERBS)
    assert {"show", "results", "export"} <= {name for name in expected if found[name] != expected[name]}
    assert examine(tmp_path / "home").errors == []


def test_control_without_digests_a_flipped_bit_is_served(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, run = (lab / "store.db").read_bytes(), make_run(0).id
    with open_store(lab, read_only=True) as store:
        number = store.curves([run])[run]["val/loss"].values[-1]
    flipped = whole.replace(number.tobytes(), (-number).tobytes())
    assert flipped != whole
    (tmp_path / "store.db").write_bytes(flipped)
    assert isinstance(read_all(tmp_path)["curves"], StoreError)
    monkeypatch.setattr(digests, "_verify", lambda *_: None)
    found, expected = read_all(tmp_path)["curves"], read_all(lab)["curves"]
    assert {name for name in expected if found[name] != expected[name]} == {f"{run} val/loss"}


CHANGES = {
    "DELETE FROM evaluations WHERE step = 2": "evaluations of run",
    "DELETE FROM evaluations WHERE run LIKE '0001%'": "evaluations of run 0001",
    "UPDATE evaluations SET numbers = zeroblob(16) WHERE step = 2": "the evaluations of run",
    "UPDATE evaluations SET step = 17 WHERE step = 2": "the evaluations of run",
    "INSERT INTO evaluations SELECT run, 99, names, numbers FROM evaluations WHERE step = 2": "more evaluations of run",
    'UPDATE metric_names SET names = \'["norm", "val/loss"]\'': "list of metric names",
    "UPDATE runs SET step = step + 1": "run 0000",
    "UPDATE runs SET seed = seed + 1": "run 0000",
    "UPDATE runs SET settings = '{'": "run 0000",
    "DELETE FROM runs WHERE id LIKE '0002%'": "missing: 0002",
    "DELETE FROM study_runs WHERE position = 1": "the list of runs of study",
    "DELETE FROM studies WHERE name = 'other'": "the list of studies",
    "DELETE FROM samples WHERE step = 1": "samples of run",
    "DELETE FROM checkpoints WHERE step = 4": "checkpoints of run",
    "UPDATE packs SET seconds = '{\"compute\": 9}'": "pack",
    "DELETE FROM costs": "pack",
    "DELETE FROM packs": "pack",
    "UPDATE runs SET pack = NULL": "run 0000",
    "DELETE FROM notes": "the list of notes",
    "DELETE FROM vocabularies": "the list of vocabularies",
    "DROP TABLE vocabularies": "the table of vocabularies is missing",
    "DROP TABLE notes": "the table of notes is missing",
}


@pytest.mark.parametrize("statement", CHANGES)
def test_a_changed_or_vanished_row_is_named_with_its_place_and_what_to_do(
    lab: Path, tmp_path: Path, statement: str
) -> None:
    shutil.copytree(lab, tmp_path / "lab")
    with closing(sqlite3.connect(tmp_path / "lab" / "store.db")) as connection:
        connection.execute(statement)
        connection.commit()
    found = read_all(tmp_path / "lab").values()
    errors = [str(one) for one in found if isinstance(one, StoreError)]
    assert errors
    assert not [one for one in found if isinstance(one, AssertionError)]
    assert all("store.db is damaged: " in error for error in errors)
    assert any(CHANGES[statement] in error for error in errors), errors
    assert re.search("nothing was changed; .*home", errors[0])


def test_a_damaged_run_is_not_covered_up_by_recording_more(lab: Path, tmp_path: Path) -> None:
    plan = make_plan(2)
    with open_store(tmp_path) as store:
        store.register(plan)
        [pack] = claim(store, plan.runs)
        with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
            connection.execute("UPDATE runs SET step = 5 WHERE id = ?", [make_run(1).id])
            connection.commit()
        with pytest.raises(StoreError, match=f"damaged: run {make_run(1).id}"):
            store.stop(pack)
        assert store.run(make_run(0).id).status == "planned"
