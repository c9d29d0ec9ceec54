"""Ensembles of seeds against the mean of softmax of separately loaded runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import seedbed
from seedbed.cli import app
from seedbed.data.batch import Batch
from seedbed.errors import MissingData, UsageError
from seedbed.pipeline import Machine, SilentObserver, run_studies
from seedbed.report.ensemble_analysis import EnsembleResult, ensemble_study, ensemble_table
from seedbed.store import open_store
from seedbed.study.plan import plan_named
from seedbed.tasks.base import make_batches

TINY = ("train.steps=8", "train.eval_first=0", "train.eval_every=4", "train.batch_size=8", "seeds=3", "train.lr=0.03")
SMALL_GPT = ("model.dim=8", "model.heads=2", "model.layers=1")


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seedbed.engines.machine.n_cores", lambda: 1)


def train(home: Path, file: Path, text: str, overrides: Sequence[str] = TINY) -> None:
    file.write_text(text, encoding="utf-8")
    plan = plan_named(str(file), overrides)
    run_studies([plan], home, Machine("cpu", 1, "plain"), SilentObserver(), lambda: False)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two text models and a classifier, three seeds each."""
    folder = tmp_path_factory.mktemp("ensembles")
    words = np.random.default_rng(0).choice(["my", "lord", "the", "king", "says", "no"], 700)
    (folder / "play.txt").write_text(" ".join(words), encoding="utf-8")
    (folder / "moods.tsv").write_text(
        "".join(f"{'ab'[i % 2]}\tday {i % 7} was {'so' * (i % 2)} {i % 5}\n" for i in range(90)), encoding="utf-8"
    )
    text = f'[base]\ntask = {{ kind = "text", corpus = "{folder / "play.txt"}", length = 12 }}\n'
    train(
        folder / "lab", folder / "texts.toml", text + "[grid]\nmodel.kind = ['gpt', 'lstm']\n", [*TINY, "model.dim=8"]
    )
    labels = (
        f'[base]\ntask = {{ kind = "labels", corpus = "{folder / "moods.tsv"}", length = 8 }}\nmodel.kind = "encoder"\n'
    )
    train(folder / "lab", folder / "labels.toml", labels, [*TINY, *SMALL_GPT])
    return folder / "lab"


def mean_of_softmax(result: EnsembleResult, home: Path) -> tuple[float, float]:
    """Loss and accuracy of the ensemble on validation data: runs loaded one by one, averaged in NumPy."""
    loaded = [seedbed.load(run.id, home) for run in result.runs]
    first = result.runs[0]
    batches = make_batches([first.settings], [first.seed], "cpu")
    [val] = [split for split in batches.eval_splits if split.name == "val" and not split.metric_suffix]
    targets, probabilities = [], []
    for batch in batches.eval_chunks():
        probabilities.append(np.mean([softmax(forward(run, batch)) for run in loaded], axis=0))
        mask = torch.ones_like(batch.targets, dtype=torch.bool) if batch.target_mask is None else batch.target_mask
        targets.append(torch.where(mask, batch.targets, -1)[0].numpy())
    rows = np.flatnonzero(val.sample_mask[0].numpy()) + val.sample_slice.start
    p, t = np.concatenate(probabilities)[rows], np.concatenate(targets)[rows]
    scored = t >= 0
    chosen = np.take_along_axis(p, np.where(scored, t, 0)[..., None], -1)[..., 0]
    return float(-np.log(chosen[scored]).mean()), float((p.argmax(-1) == t)[scored].mean())


def forward(run: seedbed.LoadedRun, batch: Batch) -> np.ndarray:
    with torch.no_grad():
        if run.run.settings.task.predicts == "label":
            logits = run.model(batch.inputs, sample_mask=torch.ones_like(batch.weights, dtype=torch.bool))
        else:
            logits = run.model(batch.inputs)
    return logits[0].double().numpy()


def softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


@pytest.mark.parametrize("study", ["texts", "labels"])
def test_an_ensemble_is_the_mean_of_the_probabilities_of_separately_loaded_runs(study: str, home: Path) -> None:
    results = ensemble_study(home, study)
    assert [len(result.runs) for result in results] == ([3, 3] if study == "texts" else [3])
    for result in results:
        loss, accuracy = mean_of_softmax(result, home)
        assert result.metrics["val/loss"].ensemble == pytest.approx(loss, rel=1e-5)
        assert result.metrics["val/accuracy"].ensemble == pytest.approx(accuracy, abs=1e-9)


@pytest.mark.parametrize("study", ["texts", "labels"])
def test_members_have_the_values_that_training_recorded_and_are_worse_on_average(study: str, home: Path) -> None:
    for result in ensemble_study(home, study):
        with open_store(home, read_only=True) as store:
            curves = store.curves([run.id for run in result.runs])
        for name, values in result.metrics.items():
            recorded = [curves[run.id][name].values[-1] for run in result.runs]
            np.testing.assert_allclose(values.members, recorded, rtol=1e-5, err_msg=name)
        loss = result.metrics["val/loss"]
        assert len(set(loss.members)) == 3
        assert loss.ensemble < np.mean(loss.members)  # Jensen's inequality
        assert result.best_member("val/loss") == min(loss.members)
        assert result.best_member("val/accuracy") == max(result.metrics["val/accuracy"].members)


def test_runs_that_draw_their_splits_by_seed_have_no_ensemble(tmp_path: Path) -> None:
    train(tmp_path / "lab", tmp_path / "sums.toml", "[base]\ntask.p = 5\n", [*TINY, *SMALL_GPT])
    with pytest.raises(UsageError, match="no held-out data in common, since each draws its split by its seed"):
        ensemble_study(tmp_path / "lab", "sums")


def test_what_is_missing_is_said(home: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="at least two seeds"):
        ensemble_study(home, "texts", ["seed=1"])
    corpus = tmp_path / "gone.txt"
    corpus.write_text("to be or not to be, that is the question. " * 30, encoding="utf-8")
    text = f'[base]\ntask = {{ kind = "text", corpus = "{corpus}", length = 12 }}\n'
    train(tmp_path / "lab", tmp_path / "gone.toml", text, [*TINY, *SMALL_GPT])
    corpus.unlink()
    with pytest.raises(MissingData, match=r"gone\.txt"):
        ensemble_study(tmp_path / "lab", "gone")


def test_the_table_has_a_row_for_each_config_and_metric(home: Path) -> None:
    results = ensemble_study(home, "texts")
    table = ensemble_table("texts", results)
    assert len(table.rows) == sum(len(result.metrics) for result in results)
    assert {row[0] for row in table.rows} == {"GPT", "LSTM"}
    assert {name.partition("/")[0] for _, name, *_ in table.rows} == {"val"}
    for (row, column), result in ((place, results[place[0] // len(results[0].metrics)]) for place in table.best):
        name = table.rows[row][1]
        better = np.less if name != "val/accuracy" else np.greater
        assert column == 3
        assert better(result.metrics[name].ensemble, result.best_member(name))


def test_the_command_prints_ensembles_and_refuses_in_one_sentence(home: Path) -> None:
    def invoke(*words: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(app, ["ensemble", *words, "--home", str(home)])
        return done.exit_code, done.stdout, done.stderr

    code, output, _ = invoke("texts", "--only", "model.kind=gpt", "--json")
    [document] = json.loads(output)
    assert code == 0
    assert document["seeds"] == [0, 1, 2]
    assert document["metrics"]["val/loss"]["ensemble"] < np.mean(document["metrics"]["val/loss"]["members"])
    assert "best single" in invoke("texts")[1]
    assert invoke("texts", "--step", "never")[0] == 2
    assert invoke("texts", "--device", "abacus")[0] == 2
    assert invoke("texts", "--only", "seed=1")[0] == 4
