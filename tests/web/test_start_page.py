"""The Start page without a browser: accepted requests, form fields, problems at their settings, started jobs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from seedbed.errors import Busy, OutOfResources
from seedbed.settings import Settings
from seedbed.study.plan import plan_named
from seedbed.web.jobs import Job, JobManager, JobSpec
from seedbed.web.plan_preview import (
    MAX_PLANNED_RUNS,
    FieldProblem,
    PlanPreview,
    PlanRequest,
    build_form,
    format_override_value,
    preview_plan,
)
from seedbed.web.processes import ProcessPool

from ..report.factories import fill
from .conftest import client_of

ORIGIN = "http://127.0.0.1:8765"


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with client_of(tmp_path_factory.mktemp("empty") / "lab") as opened:
        yield opened


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("stored")
    fill(home, "toy")
    return home


@pytest.fixture
def never_spawned(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The job specs that would have been started."""
    specs: list[JobSpec] = []

    def start(_: JobManager, spec: JobSpec) -> Job:
        specs.append(spec)
        return Job("0" * 16, spec.study, spec.overrides, "", "running", "", "", (), len(spec.runs))

    monkeypatch.setattr(JobManager, "start", start)
    return specs


def problems(*overrides: str, study: str = "quickstart") -> list[FieldProblem]:
    found = preview_plan(Path("nowhere"), PlanRequest(study, "shipped", overrides))
    assert not isinstance(found, PlanPreview)
    return list(found)


# ---- the plan ----


def test_the_plan_is_that_of_the_command_line(empty: TestClient) -> None:
    overrides = ["train.weight_decay=0,1", "seeds=3"]
    found = empty.get("/api/start/plan", params={"study": "quickstart", "override": overrides}).json()
    plan = plan_named("quickstart", overrides)
    assert (found["runs"], found["problems"]) == (len(plan.runs), [])
    assert found["tables"][0]["title"] == "quickstart: 2 configs, 6 runs, seeds 0–2"
    assert [row[0] for row in found["tables"][0]["rows"]] == ["weight decay 0", "weight decay 1"]


def test_a_stored_study_is_planned_from_its_stored_text(stored: Path) -> None:
    found = preview_plan(stored, PlanRequest("toy", "stored"))
    assert isinstance(found, PlanPreview)
    assert found.job_spec.study_text.startswith('name = "toy"')


def test_a_preview_counts_the_runs_that_have_ended_and_estimates_only_the_others(trained_home: Path) -> None:
    found = preview_plan(trained_home, PlanRequest("tiny/rule", "stored"))
    more = preview_plan(trained_home, PlanRequest("tiny/rule", "stored", ("seeds=3",)))
    assert isinstance(found, PlanPreview)
    assert isinstance(more, PlanPreview)
    assert (found.n_ended, found.seconds) == (4, 0)
    assert more.n_ended == 4  # and a third seed is new
    assert more.seconds > 0


def test_every_problem_is_reported_at_its_setting() -> None:
    found = problems("train.lr=fast", "train.steps=0", "seeds=-1", "scale=huge")
    assert {problem.setting for problem in found} == {"train.lr", "train.steps", "seeds"}  # the scale is checked later
    assert all("expected" in problem.message for problem in found)
    assert problems("scale=huge")[0].setting == "scale"
    assert problems("model.heads=3") == [FieldProblem("model.heads", "model.heads = 3 does not divide model.dim = 32")]


def test_a_conflict_with_the_file_is_reported_at_the_overridden_setting() -> None:
    assert problems("model.dim=30") == [FieldProblem("model.dim", "model.heads = 4 does not divide model.dim = 30")]


@pytest.mark.parametrize(
    "override",
    ["--home=/tmp/other", "-h", "--restart", "--", "--device=cuda", "home=/tmp", "../../etc/passwd", "study.toml",
     "model.layers", "=1", " ", "model.layers =1", "__class__=1", "train.prompt=a\nb", "train.prompt=\x1b[2J",
     "train.lr=" + "1" * 3000],
)  # fmt: skip
def test_invalid_overrides_are_rejected_and_nothing_is_started(
    empty: TestClient, never_spawned: list[Any], override: str
) -> None:
    found = empty.post("/api/start", json={"study": "quickstart", "overrides": [override]}).json()
    assert len(found["problems"]) == 1
    assert never_spawned == []


@pytest.mark.parametrize(
    "value", ["/etc/passwd", "../poem.txt", "shakespeare,/etc/passwd", "[/etc/passwd]", '"/etc/passwd"']
)
def test_no_file_of_the_server_can_be_named(value: str) -> None:
    for override in (f"task.corpus={value}", f"model.embeddings={value}"):
        (found,) = problems(override, study="characters/shakespeare")
        assert found.setting == override.partition("=")[0]
        assert "command line" in found.message


@pytest.mark.parametrize(
    "study", ["../quickstart", "/etc/passwd", "quickstart.toml", "pyproject.toml", "", "a" * 5000, "x\x00y"]
)
@pytest.mark.parametrize("source", ["shipped", "stored"])
def test_a_study_is_a_name_and_never_a_path(
    empty: TestClient, never_spawned: list[Any], study: str, source: str
) -> None:
    for path in ("plan", "form"):
        assert empty.get(f"/api/start/{path}", params={"study": study, "source": source}).status_code in (400, 404)
    assert empty.post("/api/start", json={"study": study, "source": source}).status_code in (400, 404)
    assert never_spawned == []


def test_more_than_the_maximum_of_runs_are_rejected() -> None:
    assert f"at most {MAX_PLANNED_RUNS:,}" in problems(f"seeds={MAX_PLANNED_RUNS + 1}")[0].message


def test_a_missing_corpus_is_reported_and_not_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDBED_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (found,) = problems(study="characters/shakespeare")
    assert found == FieldProblem(
        "task.corpus", "shakespeare is not on this machine yet; get it with: seedbed data get shakespeare"
    )


# ---- the form ----


def test_the_form_has_every_setting_with_meaning_and_range() -> None:
    form = build_form(Path("nowhere"), PlanRequest("quickstart", "shipped"))
    fields = {field["name"]: field for group in form["groups"] for field in group["fields"]}
    assert fields.keys() == {*Settings().flat(), "seeds"}  # quickstart has the first kinds of task and model
    assert all(field["meaning"] and field["accepted"] for field in fields.values())
    assert fields["task.operator"]["choices"] == ["+", "-", "*", "/"]
    assert fields["train.lr"]["values"] == ["0.01"]
    assert not fields["train.momentum"]["has_effect"]  # of another optimizer


def test_settings_that_the_study_changes_come_first() -> None:
    first = build_form(Path("nowhere"), PlanRequest("quickstart", "shipped"))["groups"][0]["fields"]
    names = [field["name"] for field in first]
    assert names[0] == "seeds"
    assert {"task.p", "model.dim", "train.weight_decay"} <= set(names)
    assert "train.clip" not in names


def test_another_kind_has_other_settings() -> None:
    form = build_form(Path("nowhere"), PlanRequest("quickstart", "shipped", ("model.kind=lstm",)))
    names = {field["name"] for group in form["groups"] for field in group["fields"]}
    assert "model.gate_biases" in names
    assert "model.heads" not in names


def test_a_varying_setting_is_written_as_an_override_that_plans_the_same_runs() -> None:
    form = build_form(Path("nowhere"), PlanRequest("arithmetic/sanity", "shipped"))
    fields = {field["name"]: field for group in form["groups"] for field in group["fields"]}
    assert fields["model.kind"]["varies"]
    override = f"model.kind={','.join(fields['model.kind']['values'])}"
    own, again = plan_named("arithmetic/sanity"), plan_named("arithmetic/sanity", [override])
    assert {run.id for run in own.runs} == {run.id for run in again.runs}


@pytest.mark.parametrize(
    ("value", "text"), [((2, 3), "[2,3]"), (True, "true"), (1e-8, "1e-08"), (0.1, "0.1"), ("gpt", "gpt")]
)
def test_values_are_written_as_in_overrides(value: Any, text: str) -> None:
    assert format_override_value(value) == text


# ---- starting ----


def test_the_started_job_is_the_planned_one(empty: TestClient, never_spawned: list[JobSpec]) -> None:
    overrides = ["train.steps=20", "seeds=2"]
    found = empty.post("/api/start", json={"study": "quickstart", "overrides": overrides}).json()
    assert found["job"]["n_runs"] == 2
    (spec,) = never_spawned
    assert spec.runs == tuple(run.id for run in plan_named("quickstart", overrides).runs)


def test_a_request_from_another_origin_or_without_a_token_starts_nothing(
    empty: TestClient, never_spawned: list[Any]
) -> None:
    body = {"study": "quickstart"}
    rejected = [
        empty.post("/api/start", json=body, headers={"origin": "http://evil.test"}),
        empty.post("/api/start", json=body, headers={"origin": "null"}),
        empty.post("/api/start", json=body, headers={"x-seedbed-token": "no"}),
        empty.post(
            "/api/start", content="study=quickstart", headers={"content-type": "application/x-www-form-urlencoded"}
        ),
        empty.get("/api/start"),
    ]
    assert [response.status_code for response in rejected] == [403, 403, 403, 415, 405]
    assert never_spawned == []


@pytest.mark.parametrize("id", ["..%2F..%2Fetc", "0" * 15, "zzzzzzzzzzzzzzzz", "%2e%2e", "0" * 4096])
def test_an_unknown_job_id_is_rejected(empty: TestClient, id: str) -> None:
    assert empty.get(f"/api/start/log/{id}").status_code == 404
    for action in ("pause", "resume", "stop", "forget"):
        assert empty.post(f"/api/start/{id}/{action}", json={}).status_code == 404
    assert empty.post(f"/api/start/{'0' * 16}/kill", json={}).status_code == 400


def test_an_empty_home_lists_the_shipped_studies(empty: TestClient) -> None:
    found = empty.get("/api/start/studies").json()
    assert found["shipped"][0]["name"] == "quickstart"
    assert found["stored"] == []
    assert empty.get("/api/start/jobs").json() == {"jobs": [], "more": 0}


# ---- the process pool ----


def test_the_process_pool_is_bounded_offline_and_recovers_from_a_crash() -> None:
    pool = ProcessPool(timeout=4.0)
    try:
        process = pool.run(os.getpid)
        assert process != os.getpid()
        assert pool.run(os.getenv, "SEEDBED_OFFLINE") == "1"
        with pytest.raises(OutOfResources, match="was killed"):
            pool.run(os._exit, 9)
        with pytest.raises(Busy, match="longer than"):
            pool.run(time.sleep, 60)
        assert pool.run(os.getpid) not in (process, os.getpid())
    finally:
        pool.close()
