"""`examine` finds what is wrong with a home and changes nothing; `repair_home` saves what can be verified."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from seedbed.errors import Busy, MissingData, StoreError, UsageError
from seedbed.records import CheckpointEvent
from seedbed.store import doctor, open_store
from seedbed.store.doctor import Diagnosis, examine
from seedbed.store.repair import repair_home
from seedbed.study.plan import plan_study
from seedbed.study.read import parse_study
from tests.cli.invoke import CommandLine
from tests.store.test_archive import analysis
from tests.store.toy import claim, make_evaluation, make_plan, make_run, snapshot, train

KEPT = Path(__file__).parent / "kept"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a finished study, and an unfinished pack of another one that has two saved states."""
    home = tmp_path / "lab"
    with open_store(home) as store:
        store.register(make_plan(3))
        [pack] = claim(store, make_plan(3).runs)
        train(store, pack)
        unfinished = make_plan(2, "unfinished", lr=0.1)
        store.register(unfinished)
        [pack] = claim(store, unfinished.runs)
        for step in (1, 2):
            store.record(pack, [make_evaluation(step, range(2), [0.5, 0.25])])
            store.save(pack, CheckpointEvent(step, {"x": np.arange(2.0)}, {0: {"w": np.ones(2)}}))
        store.stop(pack)
    return home


def contents(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}


def change(home: Path, statement: str) -> None:
    with closing(sqlite3.connect(home / "store.db")) as connection:
        connection.execute(statement)
        connection.commit()


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def own_findings(found: Diagnosis) -> list[str]:
    """The findings that are not about this machine."""
    return [str(one) for one in found.findings if not one.what.startswith("SQLite ") and " are free " not in one.what]


def state_of(home: Path, step: int) -> Path:
    [path] = (home / "checkpoints" / "packs").glob(f"*/{step:09d}.safetensors")
    return path


def test_a_healthy_home_has_no_findings_and_is_not_changed(home: Path) -> None:
    before = contents(home)
    found = examine(home)
    assert own_findings(found) == []
    assert found.counts == {"studies": 2, "runs": 5, "packs": 2, "weights": 8, "analyses": 0, "states": 1}
    assert contents(home) == before


@pytest.mark.parametrize("schema", ["schema3", "schema4", "schema5"])
def test_a_kept_store_is_healthy_or_to_be_upgraded(tmp_path: Path, schema: str) -> None:
    shutil.copytree(KEPT / schema, tmp_path / "home")
    findings = own_findings(examine(tmp_path / "home"))
    assert (findings == []) is (schema == "schema5")
    for finding in findings:
        assert "written by an earlier seedbed" in finding
        assert f"type: seedbed upgrade --home {tmp_path / 'home'}" in finding
        assert finding.startswith("warning")


def orphan_folder(home: Path) -> None:
    (home / "checkpoints" / "abcd").mkdir()


def orphan_weights(home: Path) -> None:
    folder = home / "checkpoints" / make_run(0).id
    shutil.copy(folder / "000000002.safetensors", folder / "000000003.safetensors")


def state_of_nothing(home: Path) -> None:
    (home / "checkpoints" / "packs" / "abcd").mkdir()


def interrupted_write(home: Path) -> None:
    (home / "checkpoints" / make_run(0).id / "000000009.safetensors.part").write_bytes(b"x")


def interrupted_import(home: Path) -> None:
    (home / "imports" / "abcd").mkdir(parents=True)


def damaged_analysis(home: Path) -> None:
    run = make_run(0).id
    with open_store(home) as store:
        store.save_analysis(run, 2, analysis(run, 2))
    path = home / "checkpoints" / run / "000000002.analysis.json"
    path.write_bytes(path.read_bytes().replace(b"0.5", b"0.7"))


def without_database(home: Path) -> None:
    (home / "store.db").unlink()


def not_a_database(home: Path) -> None:
    (home / "store.db").write_bytes(b"hello")


STUDY = "seedbed run unfinished"
FAULTS: dict[str, tuple[Callable[[Path], None] | str, str, str, str]] = {
    "vanished evaluations": ("DELETE FROM evaluations WHERE step = 2", "error", "evaluations of run", "seedbed repair"),
    "a changed number": ("UPDATE evaluations SET numbers = zeroblob(16)", "error", "evaluations of", "seedbed repair"),
    "a vanished run": (f"DELETE FROM runs WHERE id = '{make_run(1).id}'", "error", make_run(1).id, "seedbed repair"),
    "a vanished pack": ("DELETE FROM packs WHERE NOT open", "error", "is missing or damaged", "seedbed repair"),
    "a vanished study": ("DELETE FROM studies WHERE name = 'toy'", "error", "the list of studies", "seedbed repair"),
    "a run of no study": ("DELETE FROM studies WHERE name = 'toy'", "warning", "to no study", "seedbed repair"),
    "a changed study": ("UPDATE studies SET created = '2999'", "error", "study toy differs", "seedbed repair"),
    "lost weights": (
        lambda home: (home / "checkpoints" / make_run(0).id / "000000002.safetensors").unlink(),
        "error", "the weights of run 00000d001 at step 2 cannot be read", "seedbed repair",
    ),
    "damaged weights": (
        lambda home: damage(home / "checkpoints" / make_run(0).id / "000000002.safetensors"),
        "error", "differ from their stored digest", "seedbed repair",
    ),
    "a damaged state": (lambda home: damage(state_of(home, 2)), "warning", "the work since the state before", STUDY),
    "an older state": (lambda home: damage(state_of(home, 1)), "warning", "it is not needed", STUDY),
    "both states": (
        lambda home: [damage(state_of(home, step)) for step in (1, 2)] and None,
        "error", "to be trained again", f"{STUDY} --home HOME --restart",
    ),
    "files of no run": (orphan_folder, "warning", "abcd has files of a run that is not in the database", "rm -r"),
    "weights without a row": (orphan_weights, "warning", "000000003.safetensors belongs to no row", "rm -r"),
    "a state of no pack": (state_of_nothing, "warning", "is a state of no unfinished pack", "rm -r"),
    "half a file": (interrupted_write, "warning", "left of a write", "rm -r"),
    "half an import": (interrupted_import, "warning", "left of an import that was interrupted", ""),
    "a damaged analysis": (damaged_analysis, "error", "it differs from its digest", "seedbed analyze toy --home"),
    "no database": (without_database, "error", "store.db is missing", ""),
    "another file": (not_a_database, "error", "is not a database", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_with_what_to_type(home: Path, name: str) -> None:
    fault, severity, words, command = FAULTS[name]
    if isinstance(fault, str):
        change(home, fault)
    else:
        fault(home)
    before = contents(home)
    found = examine(home)
    matching = [one for one in found.findings if words in one.what]
    assert matching, own_findings(found)
    assert matching[0].severity == severity
    wanted = command.replace("--home HOME", f"--home {home}")
    if "--restart" in wanted:
        assert sorted(matching[0].command.split()) == sorted(wanted.split())
    else:
        assert matching[0].command.startswith(wanted)
    assert bool(found.errors) == (severity == "error" or name == "a run of no study")
    assert contents(home) == before


def test_control_without_verification_of_rows_a_changed_number_is_not_found(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(home, "UPDATE evaluations SET numbers = zeroblob(16)")
    monkeypatch.setattr("seedbed.store.digests._verify", lambda *_: None)
    assert own_findings(examine(home)) == []


def test_a_pack_that_is_being_trained_is_left_alone(home: Path) -> None:
    damage(state_of(home, 2))
    with open_store(home) as store, store.lock(store.study_packs("unfinished")[0].id):
        assert own_findings(examine(home)) == []
        with pytest.raises(Busy, match="stop it before the home is repaired"):
            repair_home(home, home.parent / "new")


def test_the_machine_is_examined_too(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.sqlite3, "sqlite_version_info", (3, 50, 6))
    monkeypatch.setattr(doctor, "file_system_of", lambda *_: "nfs4")
    monkeypatch.setattr(doctor, "MIN_FREE_BYTES", 10**18)
    monkeypatch.setattr(doctor, "MAX_CLOCK_ERROR", doctor.timedelta(days=-(10**5)))
    found = examine(home)
    text = "\n".join(map(str, found.findings))
    for words in ("fixed in 3.51.3", "network file system (nfs4)", "are free where", "in the future"):
        assert words in text
    assert found.errors == []
    monkeypatch.setattr(doctor.sqlite3, "sqlite_version_info", (3, 51, 3))
    assert not [one for one in examine(home).findings if one.what.startswith("SQLite ")]


def test_a_newer_schema_is_named(home: Path) -> None:
    change(home, "UPDATE meta SET value = '6'")
    [finding] = [one for one in examine(home).findings if "newer" in one.what]
    assert "has schema 6, written by a newer seedbed" in str(finding)
    assert finding.command == "pip install --upgrade seedbed"


def test_there_must_be_a_home(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="there is no store"):
        examine(tmp_path)


# ---- repair ----


def test_a_repaired_home_has_all_of_a_healthy_one(home: Path, tmp_path: Path) -> None:
    before, new = contents(home), tmp_path / "new"
    done = repair_home(home, new)
    assert done.losses == ()
    assert contents(home) == before
    assert own_findings(examine(new)) == []
    assert snapshot(new) == snapshot(home)
    with open_store(new) as store, open_store(home) as old:
        [pack] = store.study_packs("unfinished")
        assert [pack] == old.study_packs("unfinished")
        state = store.resume(pack.id)
        assert state is not None
        assert state[0] == 2
        assert state[1]["x"].tolist() == [0, 1]
    with pytest.raises(UsageError, match="is there already"):
        repair_home(home, new)


@pytest.mark.parametrize("name", [name for name in FAULTS if "database" not in name and "another file" not in name])
def test_a_repaired_home_is_healthy_and_has_no_other_numbers(home: Path, tmp_path: Path, name: str) -> None:
    with open_store(home, read_only=True) as store:
        ids = [run.id for run in store.runs()]
        expected = store.curves(ids)
    fault = FAULTS[name][0]
    if isinstance(fault, str):
        change(home, fault)
    else:
        fault(home)
    before, new = contents(home), tmp_path / "new"
    done = repair_home(home, new)
    assert contents(home) == before
    assert own_findings(examine(new)) == []
    assert bool(done.losses) == bool(examine(home).errors or name in ("a damaged state", "an older state"))
    with open_store(new, read_only=True) as store:
        for run in store.runs():
            for metric, curve in store.curves([run.id])[run.id].items():
                assert curve.values.tobytes() == expected[run.id][metric].values.tobytes()
            for checkpoint in store.checkpoints(run.id):
                assert "w" in store.load_weights(run.id, checkpoint.step)


def test_a_run_without_its_evaluations_is_planned_again(home: Path, tmp_path: Path) -> None:
    change(home, f"DELETE FROM evaluations WHERE run = '{make_run(2).id}'")
    done = repair_home(home, tmp_path / "new")
    assert any(make_run(2).id in loss and "planned again" in loss for loss in done.losses)
    with open_store(tmp_path / "new", read_only=True) as store:
        assert [run.status for run in store.runs("toy")] == ["finished", "diverged", "planned"]


def test_a_pack_goes_on_from_the_state_before_a_damaged_one(home: Path, tmp_path: Path) -> None:
    damage(state_of(home, 2))
    repair_home(home, tmp_path / "new")
    with open_store(tmp_path / "new") as store:
        [pack] = store.study_packs("unfinished")
        state = store.resume(pack.id)
        assert state is not None
        assert state[0] == 1
        assert store.curves([pack.runs[0]])[pack.runs[0]]["val/loss"].steps.tolist() == [1]


def test_runs_of_a_damaged_study_are_recovered_with_their_settings(tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(KEPT / "schema5", home)
    with open_store(home, read_only=True) as store:
        before = store.runs("finished")
    change(home, "UPDATE studies SET text = '?' WHERE name = 'finished'")
    done = repair_home(home, tmp_path / "new")
    assert any("study finished differs from its digest" in loss for loss in done.losses)
    with open_store(tmp_path / "new", read_only=True) as store:
        assert store.runs("recovered") == before
        study = store.study("recovered")
    assert study.axes == ("train.lr",)
    plan = plan_study(parse_study(study.text, "recovered", stored=True))
    assert sorted(run.id for run in plan.runs) == sorted(run.id for run in before)


def test_a_repair_that_fails_leaves_nothing(home: Path, tmp_path: Path) -> None:
    change(home, "DROP TABLE runs")
    done = tmp_path / "new"
    try:
        repair_home(home, done)
    except StoreError:
        assert not done.exists()
    assert not (tmp_path / "new.part").exists()


def test_a_damaged_analysis_is_left_out(home: Path, tmp_path: Path) -> None:
    path = home / "checkpoints" / make_run(0).id / "000000002.analysis.json"
    path.write_text(json.dumps({"run": "another"}))
    done = repair_home(home, tmp_path / "new")
    assert any("seedbed analyze" in loss for loss in done.losses)


# ---- the verbs ----


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path) -> CommandLine:
    return CommandLine(monkeypatch, capsys, home)


def test_the_verbs_print_a_line_for_each_finding_and_exit_with_8_where_something_is_damaged(
    cli: CommandLine, home: Path, tmp_path: Path
) -> None:
    assert f"{home} is healthy: 2 studies, 5 runs" in cli("doctor").stdout
    change(home, "DELETE FROM evaluations WHERE step = 2")
    done = cli("doctor", home, code=8)
    errors = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert len(errors) == 5
    assert all("type: seedbed repair" in line for line in errors)
    assert done.stderr.endswith("[SB033]\n")
    found = json.loads(cli("doctor", "--json", code=8).stdout)
    assert found["healthy"] is False
    assert [one["severity"] for one in found["findings"]].count("error") == 5
    repaired = cli("repair", "--out", tmp_path / "new").stdout
    assert repaired.count("not saved: ") == 10
    assert f"wrote {tmp_path / 'new'}: 2 studies, 5 runs" in repaired
    assert "is healthy" in cli("doctor", tmp_path / "new").stdout


def test_the_verbs_are_for_homes(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDBED_STORE", "postgresql://somewhere/db")
    assert "leave out --store" in cli("doctor", code=2).stderr
    assert "leave out --store" in cli("repair", "--out", "new", code=2).stderr
