"""Every kept store stays readable, unfinished packs included; those of seedbed 0.1 are upgraded and a copy is kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from seedbed.engines.machine import Machine
from seedbed.errors import MissingData, StoreError
from seedbed.pipeline import SilentObserver, run_studies
from seedbed.records import Annotation, Annotations
from seedbed.settings import Settings
from seedbed.store import open_store, upgrade_store
from seedbed.study.declarations import parse_declarations
from seedbed.study.plan import plan_study
from seedbed.study.read import parse_study

KEPT = Path(__file__).parent / "kept"
SCHEMAS = sorted(path.name for path in KEPT.glob("schema*"))


@pytest.fixture(params=SCHEMAS)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a store that an earlier version wrote."""
    shutil.copytree(KEPT / request.param, tmp_path / "home")
    return tmp_path / "home"


def test_there_is_a_store_of_this_schema_and_of_the_one_before() -> None:
    assert SCHEMAS == ["schema3", "schema4", "schema5"]


def test_runs_keep_their_ids_settings_and_metrics(home: Path) -> None:
    with open_store(home) as store:
        runs = store.runs("finished")
        assert [run.id for run in runs] == [
            "e4f03254e8c4dc2f",
            "8fe84bfc536877eb",
            "4237ab03fd6c0615",
            "5c475879395ae825",
        ]
        assert [run.settings.train.lr for run in runs] == [1e-3, 1e-3, 1e-2, 1e-2]
        assert runs[0].settings.train.steps == 20
        assert runs[0].settings == Settings.from_stored(runs[0].settings.flat())
        curve = store.curves([runs[0].id])[runs[0].id]["val/loss"]
        assert curve.steps.tolist() == [0, 1, 2, 10, 20, 21]
        assert store.load_weights(runs[0].id)["embed.weight"].shape == (10, 8)


def test_a_stored_study_plans_to_the_runs_that_it_has(home: Path) -> None:
    with open_store(home) as store:
        for study in store.studies():
            plan = plan_study(parse_study(study.text, study.name, stored=True))
            assert [run.settings for run in plan.runs] == [run.settings for run in store.runs(study.name)]
            if study.name != "text":  # the id of a text run depends on the installed Python's documentation
                assert [run.id for run in plan.runs] == [run.id for run in store.runs(study.name)]


def test_words_of_an_earlier_version_are_translated(home: Path) -> None:
    with open_store(home) as store:
        [figure] = parse_declarations(store.study("text").text).figures
        [run] = store.runs("text")
    assert (figure.kind, figure.x) == ("sweep", "task.tokenizer")
    assert run.settings.get("task.tokenizer") == "bytes"
    assert run.settings.train.exclusive
    assert not run.settings.train.final_evaluation


def test_an_unfinished_pack_goes_on_from_its_checkpoint(home: Path) -> None:
    with open_store(home) as store:
        plan = plan_study(parse_study(store.study("unfinished").text, "unfinished", stored=True))
        ids = [run.id for run in store.runs("unfinished")]
        before = {run: store.curves([run])[run]["train/loss"] for run in ids}
        saved = [pack.step for pack in store.study_packs("unfinished")]
    assert all(step is not None and 400 < step < 3001 for step in saved)
    run_studies([plan], home, Machine("cpu", 1, "plain"), SilentObserver(), lambda: False)
    with open_store(home, read_only=True) as store:
        assert {run.status for run in store.runs("unfinished")} == {"finished"}
        for run in ids:
            curve = store.curves([run])[run]["train/loss"]
            assert curve.steps[-1] == 3003  # 3,001 steps in whole epochs of two, and the final evaluation
            kept = before[run].steps <= min(step for step in saved if step)
            assert curve.values[: kept.sum()].tolist() == before[run].values[kept].tolist()


def test_reading_an_older_store_names_what_upgrades_it_and_changes_nothing(tmp_path: Path) -> None:
    shutil.copytree(KEPT / "schema3", tmp_path / "home")
    before = (tmp_path / "home" / "store.db").read_bytes()
    with pytest.raises(StoreError, match=r"schema 3, written by an earlier seedbed; .* `seedbed upgrade --home"):
        open_store(tmp_path / "home", read_only=True)
    assert (tmp_path / "home" / "store.db").read_bytes() == before


def test_upgrading_keeps_a_copy_and_says_so(tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(KEPT / "schema3", home)
    assert "from schema 3 to 5; a copy of it as it was" in upgrade_store(home)
    assert (home / "store.db.schema3").stat().st_size > 10_000
    with open_store(home, read_only=True) as store:
        assert len(store.runs("finished")) == 4
    assert "already; nothing was changed" in upgrade_store(home)
    with pytest.raises(MissingData, match="there is no store"):
        upgrade_store(tmp_path / "elsewhere")


def test_an_upgrade_that_fails_leaves_the_store_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    shutil.copytree(KEPT / "schema3", home)

    def break_off(*_: object) -> None:
        raise OSError("no")

    with monkeypatch.context() as patch:
        patch.setattr("seedbed.store.upgrade._all_settings", break_off)
        with pytest.raises(OSError, match="no"):
            open_store(home)
    with open_store(home) as store:
        assert len(store.runs("finished")) == 4


def test_a_store_without_vocabularies_and_notes_can_have_them_after_an_upgrade(tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(KEPT / "schema4", home)
    upgrade_store(home)
    with open_store(home, read_only=True) as reader:
        [run] = reader.runs("text")
        assert run.dataset_info is not None
        assert reader.load_vocabulary(run.dataset_info.digest) is None
        assert reader.dataset_dates() == {}
        assert reader.annotations() == Annotations()
        with open_store(home) as writer:
            writer.set_note("text", "from 0.2")
            writer.remove("text", [run.id])
        assert reader.annotations() == Annotations()
        with open_store(home) as writer:
            writer.set_note("finished", "from 0.2")
        assert reader.annotations() == Annotations({"finished": Annotation("from 0.2")})
