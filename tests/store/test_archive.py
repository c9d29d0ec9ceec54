"""Archives: dumped, merged in any order and any number of times, hostile ones refused before anything is written."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import signal
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbed.errors import Busy, DamagedCheckpoint, SeedbedError, StoreError, UsageError
from seedbed.records import CheckpointEvent, Cost, CostEvent, Plan, SampleEvent, Vocabulary
from seedbed.store import open_store
from seedbed.store.archive import MEDIA_TYPE, open_archive, write_archive
from seedbed.store.checkpoints import digest_bytes
from seedbed.store.dump import MergeOutcome, relative_study_text, without_paths
from tests.faults.disk_operations import fault_at, kill
from tests.store.toy import claim, make_evaluation, make_plan, rewrite, run_study, train

ANALYSIS = {
    "run": "", "step": 4, "fingerprint": "f", "split": "val", "n_inputs": 2, "attention": [], "planes": [],
    "metrics": {"circle_share": [0.5, None]}, "attention_errors": {}, "inputs_error": "", "predictions": [],
}  # fmt: skip


def analysis(run: str, step: int = 4, **values: Any) -> dict[str, Any]:
    return ANALYSIS | {"run": run, "step": step} | values


def fill(home: Path, n_runs: int = 3, study: str = "toy") -> Path:
    """A home with trained runs that have everything an archive can hold, except saved states."""
    plan = make_plan(n_runs, study)
    with open_store(home) as store:
        store.register(plan)
        for start in range(0, n_runs, 3):
            [pack] = claim(store, plan.runs[start : start + 3])
            store.record(pack, [SampleEvent(0, 1, "\ud800", "te\0xt", (1, 2), (-0.5, -1.0))])
            store.record(pack, [CostEvent(1, Cost({"compute": 1.5}, {"compute": 1}, 10, 20))])
            store.save(pack, CheckpointEvent(1, {"numbers": np.array([0.1, 0.2, 0.3]), "alive": np.ones(3)}, {}))
            train(store, pack)
        store.save_analysis(plan.runs[0].id, 4, analysis(plan.runs[0].id))
        store.set_note(study, "a note")
        store.add_tags(plan.runs[0].id, ["grokked"])
    return home


def stop_half_way(home: Path, plan: Plan, step: int = 2) -> str:
    """A pack with a saved state; returns its id."""
    with open_store(home) as store:
        store.register(plan)
        [pack] = claim(store, plan.runs)
        numbers = {"numbers": np.array([0.1, 0.2, 0.3]) * step, "alive": np.ones(3, dtype=bool)}
        store.record(pack, [make_evaluation(step, range(3), [1.0 * step] * 3)])
        store.save(pack, CheckpointEvent(step, numbers, {slot: {"w": numbers["numbers"]} for slot in range(3)}))
        store.stop(pack)
    return pack


def export(home: Path, path: Path, **options: Any) -> Path:
    """All runs of all studies of a home, or those whose ids are given as `runs`."""
    wanted = options.pop("runs", None)
    with open_store(home, read_only=True) as store:
        selection = {
            study: [run.run for run in runs if wanted is None or run.run in wanted]
            for study, runs in store.progress().items()
        }
        options = {"weights": "all"} | options
        write_archive(store, store.dump({name: ids for name, ids in selection.items() if ids}, **options), path)
    return path


def merge(path: Path, home: Path) -> MergeOutcome:
    with open_archive(path) as archive, open_store(home) as store:
        return store.merge(archive.dump, archive.read)


def content(home: Path, folder: Path) -> bytes:
    """Everything in a home, as bytes that are equal for equal homes."""
    path = folder / f"{home.name}-{random.random()}.zip"
    return export(home, path, unfinished=True).read_bytes()


@pytest.fixture(autouse=True, scope="module")
def fixed_date() -> Iterator[None]:
    """Homes that are filled in different seconds can be equal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seedbed.store.sql_store._now", lambda: "2030-01-01T00:00:00+00:00")
        yield


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("archives") / "lab")


# ---- what an archive brings ----


def test_an_empty_home_becomes_the_same_and_stays_so_when_the_archive_is_merged_again(lab, tmp_path):
    path = export(lab, tmp_path / "lab.zip")
    assert len(merge(path, tmp_path / "new").new) == 3
    expected = content(lab, tmp_path)
    assert content(tmp_path / "new", tmp_path) == expected == path.read_bytes()
    again = merge(path, tmp_path / "new")
    assert (len(again.same), again.files) == (3, ())
    assert content(tmp_path / "new", tmp_path) == expected
    with open_store(lab, read_only=True) as one, open_store(tmp_path / "new", read_only=True) as two:
        for run in one.runs():
            assert two.run(run.id) == run
            assert two.samples(run.id) == one.samples(run.id)
            assert two.checkpoints(run.id) == one.checkpoints(run.id)
            assert two.load_analyses(run.id) == one.load_analyses(run.id)
            for saved in one.checkpoints(run.id):
                np.testing.assert_equal(two.load_weights(run.id, saved.step), one.load_weights(run.id, saved.step))
        assert two.study_packs("toy") == one.study_packs("toy")
        assert two.annotations() == one.annotations()


def test_the_same_home_gives_the_same_bytes(lab, tmp_path):
    assert export(lab, tmp_path / "a.zip").read_bytes() == export(lab, tmp_path / "b.zip").read_bytes()


def test_weights_travel_as_asked_and_can_follow_later(lab, tmp_path):
    counts = {}
    for weights in ("none", "last", "all"):
        with open_archive(export(lab, tmp_path / f"{weights}.zip", weights=weights)) as archive:
            counts[weights] = sum(file.kind == "weights" for file in archive.dump.files)
    assert counts == {"none": 0, "last": 3, "all": 6}
    for weights, n_added in (("none", 1), ("last", 3), ("all", 3)):
        assert len(merge(tmp_path / f"{weights}.zip", tmp_path / "new").files) == n_added
    assert content(tmp_path / "new", tmp_path) == content(lab, tmp_path)


def test_damaged_weights_are_left_out_and_reported(tmp_path):
    home = fill(tmp_path / "lab")
    damaged, *_ = sorted((home / "checkpoints").rglob("*.safetensors"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    said: list[str] = []
    with open_store(home, read_only=True) as store:
        dump = store.dump({"toy": [run.id for run in store.runs()]}, "all")
        written = write_archive(store, dump, tmp_path / "lab.zip", said.append)
    assert len(written.files) == len(dump.files) - 1
    assert "is damaged" in said[0]
    merge(tmp_path / "lab.zip", tmp_path / "new")


def test_vocabularies_travel_with_their_runs(tmp_path):
    from tests.contracts.test_store import make_text_plan

    plan, vocabulary = make_text_plan("text/1/aa"), Vocabulary("bpe", ("<pad>", "\ud800"), (("a", "b"),), ("no",))
    with open_store(tmp_path / "lab") as store:
        store.register(plan)
        store.save_vocabulary("text/1/aa", vocabulary)
    merge(export(tmp_path / "lab", tmp_path / "lab.zip"), tmp_path / "new")
    with open_store(tmp_path / "new", read_only=True) as store:
        assert store.load_vocabulary("text/1/aa") == vocabulary


# ---- going on ----


def test_a_stopped_pack_goes_on_with_the_same_bytes(tmp_path):
    plan = make_plan()
    stop_half_way(tmp_path / "lab", plan)
    export(tmp_path / "lab", tmp_path / "lab.zip", unfinished=True)
    merge(tmp_path / "lab.zip", tmp_path / "new")
    for home in (tmp_path / "lab", tmp_path / "new"):
        with open_store(home) as store:
            train(store, claim(store, plan.runs)[0])
    assert content(tmp_path / "new", tmp_path) == content(tmp_path / "lab", tmp_path)


def test_without_its_state_a_run_starts_again_and_keeps_no_stale_evaluation(tmp_path):
    plan = make_plan()
    stop_half_way(tmp_path / "lab", plan)
    merge(export(tmp_path / "lab", tmp_path / "lab.zip"), tmp_path / "new")
    run_study(tmp_path / "whole")
    with open_store(tmp_path / "new") as store:
        assert store.curves(["0000d001".replace("0000d", "00000d")])["00000d001"]["val/loss"].steps.tolist() == [2]
        [pack] = claim(store, plan.runs)
        assert store.resume(pack) is None
        train(store, pack)
    with open_store(tmp_path / "whole", read_only=True) as one, open_store(tmp_path / "new", read_only=True) as two:
        ids = [run.id for run in one.runs()]
        np.testing.assert_equal(
            [two.curves(ids)[run]["val/loss"].values for run in ids],
            [one.curves(ids)[run]["val/loss"].values for run in ids],
        )


def test_a_pack_travels_with_the_neighbours_that_train_with_the_chosen_run(tmp_path):
    plan = make_plan()
    stop_half_way(tmp_path / "lab", plan)
    path = export(tmp_path / "lab", tmp_path / "lab.zip", unfinished=True, runs={plan.runs[0].id})
    assert len(merge(path, tmp_path / "new").new) == 3
    with open_store(tmp_path / "new") as store:
        assert [run.id for run in store.runs("toy")] == [plan.runs[0].id]
        [pack] = claim(store, plan.runs[:1])
        assert len(store.pack_members(pack)) == 3


def test_a_pack_that_is_being_trained_is_not_exported_with_its_state(tmp_path):
    pack = stop_half_way(tmp_path / "lab", make_plan())
    with open_store(tmp_path / "lab") as store, store.lock(pack), pytest.raises(Busy, match="is being trained"):
        export(tmp_path / "lab", tmp_path / "lab.zip", unfinished=True)
    assert not (tmp_path / "lab.zip").exists()


# ---- merging ----


def test_two_parts_of_a_study_become_the_whole_in_either_order(tmp_path):
    whole = fill(tmp_path / "whole", 6)
    ids = [run.id for run in make_plan(6).runs]
    one = export(whole, tmp_path / "one.zip", runs={*ids[:3]})
    two = export(whole, tmp_path / "two.zip", runs={*ids[3:]})
    for name, parts in (("ab", (one, two)), ("ba", (two, one)), ("aba", (one, two, one))):
        for part in parts:
            merge(part, tmp_path / name)
        with open_store(whole, read_only=True) as store, open_store(tmp_path / name, read_only=True) as merged:
            assert {run.id: run for run in merged.runs("toy")} == {run.id: run for run in store.runs("toy")}
            assert merged.study("toy").axes == store.study("toy").axes
    assert content(tmp_path / "ab", tmp_path) == content(whole, tmp_path)


def test_configs_of_two_machines_make_their_difference_an_axis(tmp_path):
    for home, lr in (("a", 0.001), ("b", 0.01)):
        with open_store(tmp_path / home) as store:
            store.register(make_plan(2, axes=(), lr=lr))
    merge(export(tmp_path / "b", tmp_path / "b.zip"), tmp_path / "a")
    with open_store(tmp_path / "a", read_only=True) as store:
        assert (store.study("toy").n_runs, store.study("toy").axes) == (4, ("train.lr",))


def test_other_runs_and_studies_of_a_home_stay_as_they_are(lab, tmp_path):
    home = fill(tmp_path / "own", 2 * 3, "other")
    with open_store(home) as store:
        store.remove("other", [run.id for run in make_plan(3).runs])
        before = store.runs("other")
    merge(export(lab, tmp_path / "lab.zip"), home)
    with open_store(home, read_only=True) as store:
        assert store.runs("other") == before
        assert len(store.runs("toy")) == 3
        assert store.load_weights(before[0].id)


def test_the_run_that_was_trained_further_wins_on_either_side(tmp_path):
    plan, done = make_plan(), tmp_path / "done"
    run_study(done)
    stop_half_way(tmp_path / "part", plan)
    part = export(tmp_path / "part", tmp_path / "part.zip", unfinished=True)
    before = content(done, tmp_path)
    assert len(merge(part, done).behind) == 3
    assert content(done, tmp_path) == before
    assert len(merge(export(done, tmp_path / "done.zip"), tmp_path / "part").updated) == 3
    assert content(tmp_path / "part", tmp_path) == before
    assert not list((tmp_path / "part" / "checkpoints").glob("packs/*/*"))


def test_an_ended_run_with_other_numbers_is_kept(lab, tmp_path):
    home = fill(tmp_path / "own")
    with open_store(home) as store:
        store.reset([run.id for run in make_plan().runs])
        [pack] = claim(store, make_plan().runs)
        store.record(pack, [make_evaluation(1, range(3), [7.0] * 3)])
        store.fail(pack, "as it were")
    with open_store(home) as store:
        train(store, claim(store, make_plan().runs)[0])
    with open_store(home) as store:  # one number differs
        rewrite(store, "UPDATE evaluations SET numbers = zeroblob(16) WHERE step = 1")
    before = content(home, tmp_path)
    assert len(merge(export(lab, tmp_path / "lab.zip"), home).different) == 3
    assert content(home, tmp_path) == before


def test_a_saved_state_is_not_lost_to_a_run_without_one(tmp_path):
    plan = make_plan()
    stop_half_way(tmp_path / "here", plan, step=2)
    stop_half_way(tmp_path / "there", plan, step=4)
    stateless = export(tmp_path / "there", tmp_path / "stateless.zip")
    assert len(merge(stateless, tmp_path / "here").behind) == 3
    with_state = export(tmp_path / "there", tmp_path / "state.zip", unfinished=True)
    assert len(merge(with_state, tmp_path / "here").updated) == 3
    with open_store(tmp_path / "here") as store:
        assert store.resume(claim(store, plan.runs)[0])[0] == 4


def test_a_run_that_is_being_trained_here_is_not_replaced(tmp_path):
    pack = stop_half_way(tmp_path / "lab", make_plan())
    run_study(tmp_path / "done")
    path = export(tmp_path / "done", tmp_path / "done.zip")
    with open_store(tmp_path / "lab") as store, store.lock(pack), pytest.raises(Busy):
        merge(path, tmp_path / "lab")
    assert not (tmp_path / "lab" / "imports").exists()


@pytest.mark.parametrize("stride", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_any_operation_the_home_is_as_before_or_complete(tmp_path, stride):
    plan = make_plan()
    run_study(tmp_path / "done")
    with open_store(tmp_path / "done") as store:
        store.save_analysis(plan.runs[0].id, 4, analysis(plan.runs[0].id))
    path = export(tmp_path / "done", tmp_path / "done.zip")
    complete, kills, found = content(tmp_path / "done", tmp_path), 0, set()
    for n in itertools.count(1, stride):
        home = tmp_path / f"home{n}"
        stop_half_way(home, plan)
        before = content(home, tmp_path)
        child = os.fork()
        if child == 0:
            with fault_at(n, kill, within=home):
                merge(path, home)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
            break
        kills += 1
        after = content(home, tmp_path)  # a reader: it tidies up
        assert after in (before, complete), n
        found.add(after == complete)
        assert not (home / "imports").exists()
        merge(path, home)
        assert content(home, tmp_path) == complete
    assert kills > 100 / stride
    assert found == {True, False}


# ---- what an archive says of this machine ----


def test_an_archive_names_no_path_of_this_machine(tmp_path, monkeypatch):
    home = fill(tmp_path / "ada-lovelace" / "lab")
    monkeypatch.setenv("HOME", "/home/ada-lovelace")
    with open_store(home) as store:
        run = make_plan().runs[0].id
        store.save_analysis(run, 4, analysis(run, inputs_error="notes.txt is not in /home/ada-lovelace/my texts"))
        store.set_note("toy", f"see {home}/plot.svg, ~/plans/a.md and C:\\Users\\ada-lovelace\\b.txt")
        texts = json.dumps({"task.corpus": "/home/ada-lovelace/notes.txt", "task.operator": "/"})
        study = f'name = "toy"\n[base]\ntask.corpus = "{home}/notes.txt"\ntask.operator = "/"\n'
        rewrite(store, "UPDATE runs SET settings = json_patch(settings, :it)", {"it": texts})
        rewrite(store, "UPDATE runs SET cause = :it", {"it": f"no file '{home}/notes.txt' \x1b[1m"})
        rewrite(store, "UPDATE studies SET text = :it", {"it": study})
    path = export(home, tmp_path / "lab.zip")
    assert b"ada-lovelace" not in path.read_bytes()
    assert str(tmp_path).encode() not in path.read_bytes()
    with open_archive(path) as archive:
        [study] = archive.dump.studies
        assert study.text == 'name = "toy"\n[base]\ntask.corpus = "notes.txt"\ntask.operator = "/"\n'
        assert archive.dump.runs[0].settings["task.corpus"] == "notes.txt"
        assert archive.dump.runs[0].settings["task.operator"] == "/"
        assert archive.dump.runs[0].cause == "no file 'notes.txt'  [1m"


def test_texts_that_only_look_like_paths_stay():
    for text in ("12 / 4 = 3", "and/or", "https://example.org/a/b", "val/loss", "1/2 and 3/4"):
        assert without_paths(text) == text
    assert relative_study_text('text = "12 / 4 = 3"\noperator = "/"') == 'text = "12 / 4 = 3"\noperator = "/"'


# ---- hostile archives ----


def unpack(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def forge(
    path: Path,
    members: dict[str, bytes] | list[tuple[str, bytes]],
    change: Callable[[zipfile.ZipInfo], None] = lambda _: None,
    compression: int = zipfile.ZIP_STORED,
) -> Path:
    """An archive with a right digest at its end, whatever it holds."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in dict(members).items() if isinstance(members, dict) else members:
            entry = zipfile.ZipInfo(name)
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            entry.compress_type = compression if name != "mimetype" else zipfile.ZIP_STORED
            change(entry)
            archive.writestr(entry, data)
        archive.comment = b"0" * 64
    return sign(path)


def sign(path: Path) -> Path:
    data = path.read_bytes()[:-64]
    path.write_bytes(data + hashlib.blake2b(data, digest_size=32).hexdigest().encode())
    return path


def assert_refused(path: Path, folder: Path, match: str = ".") -> None:
    home = folder / "victim"
    with pytest.raises(SeedbedError, match=match) as refused:
        merge(path, home)
    assert refused.value.exit_code == 4
    assert "\n" not in str(refused.value)
    assert str(refused.value).isprintable()
    assert "the home is as it was" in str(refused.value)
    assert not home.exists()


@pytest.fixture
def members(lab: Path, tmp_path: Path) -> dict[str, bytes]:
    return unpack(export(lab, tmp_path / "good.zip"))


def with_rows(members: dict[str, bytes], change: Callable[[Any], object]) -> dict[str, bytes]:
    rows = json.loads(members["rows.json"])
    change(rows)
    return members | {"rows.json": json.dumps(rows).encode()}


def test_a_forged_archive_without_a_fault_is_accepted(members, tmp_path):
    """The control: it is the faults below that are refused, not the forgery."""
    forged = forge(tmp_path / "forged.zip", with_rows(members, lambda _: None))
    assert len(merge(forged, tmp_path / "new").new) == 3


def test_any_flipped_byte_is_noticed(lab, tmp_path):
    good = export(lab, tmp_path / "good.zip").read_bytes()
    draw = random.Random(0)
    places = {*range(60), *range(len(good) - 400, len(good)), *draw.sample(range(len(good)), 200)}
    for place in sorted(places):
        (tmp_path / "bad.zip").write_bytes(
            good[:place] + bytes([good[place] ^ (1 << draw.randrange(8))]) + good[place + 1 :]
        )
        assert_refused(tmp_path / "bad.zip", tmp_path)


def test_any_truncation_is_noticed(lab, tmp_path):
    good = export(lab, tmp_path / "good.zip").read_bytes()
    for n_bytes in (0, 1, 30, 63, 64, 100, len(good) // 2, len(good) - 64, len(good) - 1):
        (tmp_path / "bad.zip").write_bytes(good[:n_bytes])
        assert_refused(tmp_path / "bad.zip", tmp_path)
    (tmp_path / "bad.zip").write_bytes(good + b"!")
    assert_refused(tmp_path / "bad.zip", tmp_path)


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/evil", "weights/../../evil", "a\\..\\evil", "weights/ffff/000000004.safetensors", "x"]
)
def test_a_file_that_no_row_names_is_refused(name, members, tmp_path):
    assert_refused(forge(tmp_path / "bad.zip", members | {name: b"x"}), tmp_path, "do not match")
    assert not (tmp_path / "evil").exists()


def test_names_that_occur_twice_are_refused(members, tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"):
        path = forge(tmp_path / "bad.zip", [*members.items(), ("rows.json", members["rows.json"])])
    assert_refused(path, tmp_path, "twice")


def test_links_folders_and_encrypted_files_are_refused(members, tmp_path):
    for attributes in (0o120777 << 16, 0o040755 << 16, 0o100755 << 16, 0):
        forged = forge(tmp_path / "bad.zip", members, lambda entry: setattr(entry, "external_attr", attributes))  # noqa: B023
        assert_refused(forged, tmp_path, "not a plain file")
    data = bytearray(forge(tmp_path / "bad.zip", members).read_bytes())
    place = data.index(b"PK\x01\x02")
    data[place + 8] |= 1  # encrypted
    (tmp_path / "bad.zip").write_bytes(data)
    assert_refused(sign(tmp_path / "bad.zip"), tmp_path, "not a plain file")


def test_compressed_bombs_are_refused_unread(members, tmp_path):
    rows = members["rows.json"] + b" " * 10**8
    bomb = forge(tmp_path / "bad.zip", members | {"rows.json": rows}, compression=zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 10**6
    assert_refused(bomb, tmp_path, "not a plain file")


@pytest.mark.parametrize("size", [2**31 - 1, 10**6, 1])
def test_declared_sizes_that_are_not_the_real_ones_are_refused(size, members, tmp_path):
    data = bytearray(forge(tmp_path / "bad.zip", members).read_bytes())
    place = data.rindex(b"PK\x01\x02")  # the entry of the last file
    data[place + 20 : place + 28] = size.to_bytes(4, "little") * 2
    (tmp_path / "bad.zip").write_bytes(data)
    assert_refused(sign(tmp_path / "bad.zip"), tmp_path)


def test_wrong_digests_and_foreign_files_are_refused(members, tmp_path):
    weights, *others = (name for name in members if name.startswith("weights/"))
    swapped = members | {weights: members[others[-1]]}
    assert_refused(forge(tmp_path / "bad.zip", swapped), tmp_path, "match")

    def adopt(rows: Any) -> None:
        """The digest and size of another run's weights: their identity gives them away."""
        by_name = {f"weights/{file['owner']}/{file['step']:09d}.safetensors": file for file in rows["files"]}
        by_name[weights] |= {key: by_name[others[-1]][key] for key in ("bytes", "digest")}

    assert_refused(forge(tmp_path / "bad.zip", with_rows(swapped, adopt)), tmp_path, "should hold the weights of run")


def test_files_that_are_not_what_they_should_be_are_refused(members, tmp_path):
    [name] = [name for name in members if name.startswith("analysis/")]
    good = json.loads(members[name])

    def replaced(data: bytes) -> dict[str, bytes]:
        def change(rows: Any) -> None:
            [file] = [file for file in rows["files"] if file["kind"] == "analysis"]
            file |= {"bytes": len(data), "digest": digest_bytes(data)}

        return with_rows(members | {name: data}, change)

    faults: list[Any] = [
        [], {}, None, good | {"run": "ffff"}, good | {"step": 5}, good | {"metrics": {"a": ["x", None]}},
        good | {"metrics": {"a": [1.0]} | {"b": 3}}, good | {"inputs_error": "\x1b[2J"}, good | {"split": {}},
        good | {"attention": [{"text": 1}]}, good | {"planes": [1]}, good | {"predictions": [{}]},
        good | {"attention_errors": {"a": 1}},
    ]  # fmt: skip
    for fault in faults:
        assert_refused(forge(tmp_path / "bad.zip", replaced(json.dumps(fault).encode())), tmp_path, "analysis")
    assert_refused(forge(tmp_path / "bad.zip", replaced(b"[" * 10**5)), tmp_path, "analysis")
    assert_refused(forge(tmp_path / "bad.zip", replaced(b"{")), tmp_path, "analysis")


def test_rows_that_are_not_json_are_refused(members, tmp_path):
    for data in (b"", b"{", b"[]", b"null", b"\xff", b"[" * 10**5, b'{"runs": NaN}', b'{"studies": {}}', b"{} {}"):
        assert_refused(forge(tmp_path / "bad.zip", members | {"rows.json": data}), tmp_path)


def put(*path: Any) -> Callable[[Any], None]:
    """A change of the value at a path of keys; the last one is the value."""

    def change(rows: Any) -> None:
        *way, last, value = path
        for key in way:
            rows = rows[key]
        rows[last] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        put("runs", 0, "id", "../../../etc"), put("runs", 0, "id", "FFFF"), put("runs", 0, "id", "f\n"),
        put("runs", 0, "id", "f" * 65), put("runs", 0, "id", ""), put("runs", 0, "id", 7),
        put("runs", 0, "seed", 10**400), put("runs", 0, "seed", 2**63), put("runs", 0, "seed", "0"),
        put("runs", 0, "seed", 0.5), put("runs", 0, "seed", True), put("runs", 0, "step", -1),
        put("runs", 0, "step", 10**13), put("runs", 0, "status", "running"), put("runs", 0, "status", "won"),
        put("runs", 0, "settled", 1), put("runs", 0, "pack", "abcdef"), put("runs", 0, "cause", "\x1b]0;x\x07"),
        put("runs", 0, "cause", "\x9b31m"), put("runs", 0, "extra", 1), put("runs", 0, "settings", []),
        put("runs", 0, "settings", "task.corpus", "/etc/passwd"), put("runs", 0, "settings", "train.lr", 1e400),
        put("runs", 0, "settings", "train.lr", 10**400), put("runs", 0, "settings", "x", "\x00"),
        put("runs", 0, "settings", "\x1b[1m", 1), put("runs", 0, "parameters", "total", "many"),
        put("runs", 0, "dataset", {"digest": 1}), put("runs", 1, "id", "00000d001"),
        put("studies", 0, "name", "../up"), put("studies", 0, "name", "/tmp/x"), put("studies", 0, "name", ""),
        put("studies", 0, "name", "a\x1b[2Jb"), put("studies", 0, "text", "= not toml"),
        put("studies", 0, "text", 'question = "\x1b[2J"'), put("studies", 0, "text", 'question = "\\u001b[2J"'),
        put("studies", 0, "created", "\x08"), put("studies", 0, "runs", ["ffff"]), put("studies", 0, "runs", []),
        put("studies", 0, "axes", {"a": 1}), put("packs", 0, "id", "packs/../x"), put("packs", 0, "open", True),
        put("packs", 0, "seconds", {"compute": "long"}), put("packs", 0, "peak", 2**70),
        put("packs", 0, "placement", "device", "\x1b"), put("packs", 0, "environment", [{"a": []}]),
        put("evaluations", 0, "run", "ffff"), put("evaluations", 0, "numbers", "AAAA"),
        put("evaluations", 0, "numbers", "not base64!"), put("evaluations", 0, "steps", [1, 1, 1, 1, 1]),
        put("evaluations", 0, "names", []), put("evaluations", 0, "names", ["val/loss", "val/loss"]),
        put("samples", 0, "run", "ffff"), put("samples", 0, "tokens", "AAAA"), put("samples", 0, "text", "/w=="),
        put("samples", 0, "number", -1), put("notes", 0, "study", "other"), put("notes", 1, "run", "ffff"),
        put("notes", 0, "note", "\x1b[2J"), put("notes", 0, "tags", "grokked"), put("files", 0, "owner", "ffff"),
        put("files", 0, "kind", "secret"), put("files", 0, "bytes", 2**70), put("files", 0, "digest", "f" * 63),
        put("files", 0, "step", 3), put("files", []), put("studies", []), put("vocabularies", [{"dataset": "x"}]),
        put("vocabularies", [{"dataset": "x", "created": "", "content": "e30="}]), put("something", 1),
    ],
)  # fmt: skip
def test_rows_that_no_store_could_have_written_are_refused(change, members, tmp_path):
    assert_refused(forge(tmp_path / "bad.zip", with_rows(members, change)), tmp_path)


def test_a_state_that_is_not_the_packs_is_refused(tmp_path):
    pack = stop_half_way(tmp_path / "lab", make_plan())
    good = unpack(export(tmp_path / "lab", tmp_path / "good.zip", unfinished=True))
    assert f"state/{pack}/000000002.safetensors" in good
    for change in (put("packs", 0, "members", []), put("packs", 0, "step", 3), put("packs", 0, "open", False)):
        assert_refused(forge(tmp_path / "bad.zip", with_rows(good, change)), tmp_path)


def test_an_archive_of_a_later_format_says_so(members, tmp_path):
    later = members | {"mimetype": MEDIA_TYPE.replace(b"=1", b"=2")}
    assert_refused(forge(tmp_path / "bad.zip", later), tmp_path, "version=2, which needs another version")


def test_a_file_that_is_not_an_archive_is_neither_read_nor_overwritten(lab, tmp_path):
    other = tmp_path / "thesis.zip"
    forge(other, {"thesis.txt": b"years of work"})
    before = other.read_bytes()
    with pytest.raises(StoreError, match="not an archive that"), open_archive(other):
        pass
    with pytest.raises(UsageError, match="name another file"):
        export(lab, other)
    assert other.read_bytes() == before
    with pytest.raises(UsageError, match="is not there"), open_archive(tmp_path / "missing.zip"):
        pass


def test_a_missing_state_is_not_exported_as_if_it_were_there(tmp_path):
    pack = stop_half_way(tmp_path / "lab", make_plan())
    (tmp_path / "lab" / "checkpoints" / "packs" / pack / "000000002.safetensors").unlink()
    with pytest.raises(DamagedCheckpoint, match="missing"):
        export(tmp_path / "lab", tmp_path / "lab.zip", unfinished=True)
    export(tmp_path / "lab", tmp_path / "lab.zip")
