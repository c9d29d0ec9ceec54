"""A confound, an unfinished, a diverged and a failed run are each named wherever a study is answered."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from seedbed.cli import app
from seedbed.records import DivergenceEvent, EvaluationEvent, FinishEvent, Pack, Placement
from seedbed.store import open_store
from seedbed.study.plan import plan_named

from .web.conftest import client_of

STUDY = """
question = "Which model is better?"
seeds = 8

[base]
model = { dim = 16, layers = 1 }
task = { p = 7 }

[[zip]]
model.kind = ["gpt", "lstm"]
train.steps = [60, 1201]
"""
QUESTIONS = """
[[questions]]
ask = "which is better"
metric = "val/accuracy"
between = "model.kind"
"""
EXPECTED = (
    "No verdict: the groups also differ in steps (60 vs 1,201)",
    "1 of 16 runs diverged",
    "1 of 16 runs failed",
    "1 of 16 runs is unfinished (stopped at step 20 of",
    "5 paired seeds",
)


@pytest.fixture(scope="module", params=["", QUESTIONS], ids=["default question", "question"])
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study whose groups differ in two settings; of the GPTs, seed 5 was stopped, seed 6 diverged, seed 7 failed."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "planted.toml").write_text(STUDY + request.param)
    plan = plan_named(str(folder / "planted.toml"))
    by_seed = {run.seed: run for run in plan.runs if run.settings.model.kind == "gpt"}
    groups = {"stopped": (by_seed[5],), "diverged": (by_seed[6],), "failed": (by_seed[7],)}
    dead = {run.id for runs in groups.values() for run in runs}
    groups["finished"] = tuple(run for run in plan.runs if run.id not in dead)
    with open_store(folder / "lab") as store:
        store.register(plan)
        packs = store.claim([Pack(name, runs, 1) for name, runs in groups.items()], lambda _: Placement())
        for pack, (name, runs) in zip(packs, groups.items(), strict=True):
            values = np.array([[0.5 + run.seed / 100 + 0.2 * (run.settings.model.kind == "gpt")] for run in runs])
            with store.lock(pack.id):
                store.resume(pack.id)
                slots = tuple(range(len(runs)))
                store.record(pack.id, [EvaluationEvent(20, slots, ("val/accuracy",), values)])
                if name == "stopped":
                    store.stop(pack.id)
                elif name == "failed":
                    store.fail(pack.id, "its worker process died")
                elif name == "diverged":
                    store.record(pack.id, [DivergenceEvent(0, 20, "the loss became infinite")])
                    store.finish(pack.id)
                else:
                    store.record(pack.id, [FinishEvent(slot, 60) for slot in slots])
                    store.finish(pack.id)
    return folder / "lab"


def command(home: Path, *arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments, "--home", str(home)])
    assert done.exit_code == 0, done.output
    return done.stdout


def written_report(home: Path) -> str:
    folder = home.parent / "report"
    command(home, "report", "planted", "--out", str(folder))
    return unescape(re.sub(r"<[^>]+>", "", next(folder.glob("*.html")).read_text(encoding="utf-8")))


def study_page(home: Path) -> str:
    with client_of(home) as client:
        [answer] = client.get("/api/answers/planted").json()["answers"]
    return f"{answer['sentence']} {answer['warning']}"


def compare_page(home: Path) -> str:
    with client_of(home) as client:
        found = client.get("/api/compare", params={"a": "planted", "by": "model.kind"}).json()
    assert found["verdict"] == "no verdict"
    assert {row[-1] for row in found["tables"][1]["rows"]} == {"no verdict"}
    return " ".join([found["sentence"], *found["notes"]])


@pytest.mark.parametrize(
    "read",
    [
        lambda home: command(home, "answer", "planted"),
        lambda home: command(home, "compare", "planted", "model.kind"),
        written_report,
        study_page,
        compare_page,
    ],
    ids=["answer", "compare", "report", "study page", "compare page"],
)
def test_a_confound_and_dead_and_unfinished_runs_are_named(home: Path, read: Callable[[Path], str]) -> None:
    text = " ".join(read(home).split())
    for expected in EXPECTED:
        assert expected in text


def test_a_confounded_comparison_gets_its_verdict_on_request(home: Path) -> None:
    text = command(home, "compare", "planted", "model.kind", "--confounded")
    assert text.startswith("[cannot tell] We cannot tell GPT and LSTM apart in best validation accuracy (")
    assert "(the groups also differ in steps (60 vs 1,201))" in text
    with client_of(home) as client:
        query = {"a": "planted", "by": "model.kind", "confounded": "true"}
        page = client.get("/api/compare", params=query).json()
    assert f"[cannot tell] {page['sentence']}" == text.partition("\n")[0]
    assert (page["verdict"], page["command"].split()[-1]) == ("cannot tell", "--confounded")
    document = json.loads(command(home, "answer", "planted", "--json"))
    assert document["answers"][0]["verdict"] == "no verdict"
