"""Going on with other versions or hardware than a pack was started with: said when it happens, and in the report."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from seedbed.engines.machine import Machine
from seedbed.pipeline import SilentObserver, describe_environment, run_studies
from seedbed.report.sections import describe_environment_changes, environment_tables
from seedbed.report.study_runs import load_run_curves
from seedbed.store import Store, open_store
from seedbed.study.plan import plan_study
from seedbed.study.read import parse_study
from tests.store.toy import PLACEMENT, claim, make_checkpoint, make_plan, rewrite

KEPT = Path(__file__).parent / "kept" / "schema5"
UNTIL = 560  # both packs of the study were stopped before
CPU = Machine("cpu", 1, "plain")


class Listener(SilentObserver):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def report(self, text: str) -> None:
        self.heard.append(text)


def go_on(home: Path, started_with: dict[str, str]) -> list[str]:
    """What is said when the unfinished study goes on that was started in another environment."""
    with open_store(home) as store:
        rewrite(
            store, "UPDATE packs SET environment = :started WHERE open",
            {"started": json.dumps([{"step": 0, **describe_environment(PLACEMENT), **started_with}])},
        )  # fmt: skip
        plan = plan_study(parse_study(store.study("unfinished").text, "unfinished", stored=True))
    listener = Listener()
    run_studies([plan], home, CPU, listener, lambda: False, until=UNTIL)
    return [text for text in listener.heard if "go on with" in text]


@pytest.mark.parametrize(
    ("name", "value"),
    [("seedbed", "0.0.1"), ("torch", "1.2.3"), ("processor", "another one"), ("device", "cuda:0")],
)
def test_another_environment_is_said_once_at_run_and_in_the_report(tmp_path: Path, name: str, value: str) -> None:
    home = tmp_path / "home"
    shutil.copytree(KEPT, home)
    [said] = go_on(home, {name: value})
    now = describe_environment(PLACEMENT)[name]
    expected = f"{name} {now} instead of {value.partition(':')[0]}"
    assert expected in said
    with open_store(home, read_only=True) as store:
        table = environment_tables(store, "unfinished", load_run_curves(store, "unfinished"))[0]
    assert any("went on from step 5" in note and expected in note for note in table.notes)


def test_control_the_same_environment_is_not_mentioned(tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(KEPT, home)
    assert go_on(home, {}) == []
    with open_store(home, read_only=True) as store:
        assert describe_environment_changes(store.study_packs("unfinished")) == []


def test_the_gpu_is_a_part_of_the_environment_where_there_is_one() -> None:
    assert "gpu" not in describe_environment(PLACEMENT)
    assert describe_environment(replace(PLACEMENT, device="cuda"), "cuda:1")["gpu"]


def resume_with(store: Store, pack: str, **versions: str) -> None:
    store.resume(pack, {"torch": "2.13.0", "device": "cuda:0"} | versions)


def test_the_report_names_each_change_with_its_step(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.register(make_plan(2))
        [pack] = claim(store, make_plan(2).runs)
        resume_with(store, pack, torch="2.12.0")
        resume_with(store, pack)  # before anything was saved: nothing was trained with 2.12.0
        store.save(pack, make_checkpoint(4))
        resume_with(store, pack, device="cuda:3")  # another GPU of the same kind of machine
        store.save(pack, make_checkpoint(6))
        resume_with(store, pack, torch="2.14.0", device="cpu")
        [said] = describe_environment_changes(store.study_packs("toy"))
    assert said.startswith(
        "2 runs went on from step 6 with torch 2.14.0 instead of 2.13.0, device cpu instead of cuda:"
    )
