"""Successive halving over real training: what is trained, resumed, repeated and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seedbed.cli import app
from seedbed.errors import MissingData, UsageError
from seedbed.pipeline import Machine, StudyOutcome, run_studies
from seedbed.records import Plan
from seedbed.report.search_table import final_ranking, search_as_json, search_table
from seedbed.search import search_study
from seedbed.stats.successive_halving import HalvingResult
from seedbed.store import open_store
from seedbed.study.plan import plan_named

SMALL = (
    "task.p=5", "model.dim=8", "model.heads=2", "model.layers=1", "train.steps=18", "train.eval_first=0",
    "train.eval_every=2", "train.batch_size=32", "seeds=2", "train.lr=1e-5,1e-4,1e-3,1e-2,3e-2",
)  # fmt: skip


class Trainer:
    """Trains plans, remembers what it was asked for, and stops after a number of polls."""

    def __init__(self, home: Path, max_polls: int = 10**9) -> None:
        self.home, self.max_polls = home, max_polls
        self.calls: list[tuple[int, int | None]] = []

    def __call__(self, plan: Plan, until: int | None) -> StudyOutcome:
        self.calls.append((len(plan.runs), until))
        return run_studies([plan], self.home, Machine("cpu", 1, "plain"), self, self.should_stop, until=until)

    def should_stop(self) -> bool:
        self.max_polls -= 1
        return self.max_polls < 0

    def report(self, text: str) -> None: ...

    def on_start(self, packs: object) -> None: ...

    def on_event(self, pack: object, event: object) -> None: ...

    def on_split(self, pack: object, parts: object) -> None: ...


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seedbed.engines.machine.n_cores", lambda: 1)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, HalvingResult]:
    home = tmp_path_factory.mktemp("searched")
    trainer = Trainer(home)
    result = search_study(plan_named("quickstart", SMALL), home, trainer, "train/loss", n_rungs=3, factor=2)
    assert trainer.calls == [(10, 6), (6, 10), (4, None)]  # 5, 3 and 2 configs of 2 seeds
    return home, result


def test_dropped_configs_stay_at_their_rung_and_the_best_are_finished(searched: tuple[Path, HalvingResult]) -> None:
    home, result = searched
    with open_store(home, read_only=True) as store:
        runs = store.runs("quickstart")
    reached = {run.settings.train.lr: (run.status, run.step) for run in runs}
    ranking = [one.candidate.config["train.lr"] for one in final_ranking(result)]
    assert [reached[lr] for lr in ranking] == [
        ("finished", 18), ("finished", 18), ("stopped", 10), ("stopped", 6), ("stopped", 6),
    ]  # fmt: skip
    assert ranking[-1] == 1e-5  # after 6 steps, the slower a learning rate the worse


def test_each_rung_keeps_the_configs_with_the_lowest_mean_so_far(searched: tuple[Path, HalvingResult]) -> None:
    home, result = searched
    with open_store(home, read_only=True) as store:
        runs = store.runs("quickstart")
        curves = store.curves([run.id for run in runs])
    for rung, later in zip(result.rungs, result.rungs[1:], strict=False):
        means: dict[float, float] = {}
        for one in rung.ranking:
            own = [curves[run_id]["train/loss"] for run_id in one.candidate.run_ids]
            best = [min(curve.values[curve.steps <= rung.step]) for curve in own]
            means[one.candidate.config["train.lr"]] = sum(best) / len(best)
            assert one.value.mean == pytest.approx(means[one.candidate.config["train.lr"]], rel=1e-12)
        kept = sorted(means, key=lambda lr: means[lr])[: rung.n_kept]
        assert [one.candidate.config["train.lr"] for one in later.ranking] != []
        assert {one.candidate.config["train.lr"] for one in later.ranking} == set(kept)


def test_a_repeated_search_trains_nothing_and_decides_the_same(searched: tuple[Path, HalvingResult]) -> None:
    home, result = searched
    trainer = Trainer(home)
    assert search_study(plan_named("quickstart", SMALL), home, trainer, "train/loss", 3, 2) == result
    assert trainer.calls == []


def test_an_interrupted_search_ends_like_one_that_was_not(searched: tuple[Path, HalvingResult], tmp_path: Path) -> None:
    _, whole = searched
    plan, n_interruptions = plan_named("quickstart", SMALL), 0
    while True:
        result = search_study(plan, tmp_path, Trainer(tmp_path, max_polls=9), "train/loss", 3, 2)
        if result.is_complete:
            break
        n_interruptions += 1
        assert len(result.rungs) < 3
    assert n_interruptions > 2
    assert search_as_json(result) == search_as_json(whole)


def test_a_dropped_config_can_be_trained_to_its_end_without_changing_the_decision(
    searched: tuple[Path, HalvingResult], tmp_path: Path
) -> None:
    home, result = searched
    plan = plan_named("quickstart", SMALL)
    dropped = [run for run in plan.runs if run.settings.train.lr == 1e-5]
    trainer = Trainer(home)
    outcome = trainer(Plan(plan.study, plan.text, plan.axes, tuple(dropped)), None)
    assert outcome.counts == {"finished": 2}
    assert search_study(plan, home, trainer, "train/loss", 3, 2) == result


@pytest.mark.parametrize(
    ("overrides", "metric", "error", "what"),
    [
        ((), "norm", UsageError, "whose best value is known"),
        ((), "val/", UsageError, "whose best value is known"),
        ((), "test/loss", MissingData, "they have train/accuracy"),
        (("train.lr=0.1",), "val/loss", UsageError, "has one config"),
        (("train.steps=4",), "val/loss", UsageError, "do not fit"),
        (("train.seconds=9",), "val/loss", UsageError, "a budget of time"),
        (("task.p=5,7",), "val/loss", UsageError, "predict different tokens"),
    ],
)
def test_what_cannot_be_ranked_is_refused(
    overrides: tuple[str, ...], metric: str, error: type[Exception], what: str, tmp_path: Path
) -> None:
    names = {one.partition("=")[0] for one in overrides} | (
        {"train.steps"} if "train.seconds=9" in overrides else set()
    )
    kept = [one for one in SMALL if one.partition("=")[0] not in names]
    with pytest.raises(error, match=what):
        search_study(plan_named("quickstart", [*kept, *overrides]), tmp_path, Trainer(tmp_path), metric)


def test_the_table_lists_every_config_once_and_what_was_saved(searched: tuple[Path, HalvingResult]) -> None:
    table = search_table(searched[1])
    assert table.columns == ("config", "step 6", "step 10", "step 18")
    assert [cells.count("–") for cells in table.rows] == [0, 0, 1, 2, 2]
    assert any("116 of the 180 model-steps" in note for note in table.notes)  # 2 × (2 × 18 + 10 + 2 × 6)


def test_the_command_searches_and_repeats_itself(tmp_path: Path) -> None:
    command = ["search", "quickstart", *SMALL, "--metric", "train/loss", "--factor", "2", "--home", str(tmp_path)]
    first = CliRunner().invoke(app, [*command, "--workers", "1"])
    assert first.exit_code == 0, first.output
    assert "configs by rung: 5 to step 6, 3 to step 10 and 2 to step 18" in first.stderr
    assert "training 5 configs to step 6" in first.stderr
    assert "training 2 configs to the end" in first.stderr
    again = CliRunner().invoke(app, [*command, "--json"])
    assert "training" not in again.stderr
    document = json.loads(again.stdout)
    assert (document["model_steps"], document["model_steps_of_all"]) == (116, 180)
    assert [len(rung["ranking"]) for rung in document["rungs"]] == [5, 3, 2]
    refused = CliRunner().invoke(app, [*command[:-4], "--metric", "nonsense", "--home", str(tmp_path)])
    assert refused.exit_code == 2
