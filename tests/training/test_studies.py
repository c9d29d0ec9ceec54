"""Shipped text and label studies from study file to store, on small corpora; with and without an interruption."""

from __future__ import annotations

import pytest

from seedbed.pipeline import Machine, SilentObserver, run_studies
from seedbed.store import open_store
from seedbed.study.plan import plan_named

MACHINE = Machine("cpu", 1, "plain")


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    """As in the other tests; a second OpenMP thread would keep spinning in this process."""
    monkeypatch.setattr("seedbed.engines.machine.n_cores", lambda: 1)


@pytest.fixture
def corpora(tmp_path):
    (tmp_path / "play.txt").write_text("my lord, the king is here. what says he? not a word, my lord. " * 40)
    (tmp_path / "moods.tsv").write_text(
        "".join(f"{'ab'[i % 2]}\tday {i % 7} was {'so' * (i % 2)}\n" for i in range(60))
    )
    return tmp_path


STUDIES = {
    "characters/overfit": ("play.txt", ["task.data_fraction=1.0", "train.sample_every=10"]),
    "speeches/language-model": ("play.txt", ["task.data_fraction=1.0"]),
    "speeches/classifier": ("moods.tsv", ["task.data_fraction=1.0"]),
    "wikitext/depth": ("play.txt", ["task.tokenizer=characters", "task.data_fraction=0.5", "model.layers=2"]),
}


def plan(study, corpora):
    corpus, overrides = STUDIES[study]
    return plan_named(study, [f"task.corpus={corpora / corpus}", "scale=tiny", "seeds=2", *overrides])


def stored_results(home, study):
    """All metrics and weights of a study, by run, as bytes."""
    with open_store(home) as store:
        runs = store.runs(study)
        assert {run.status for run in runs} == {"finished"}
        curves = store.curves([run.id for run in runs])
        metrics = {
            (run, name): (curve.steps.tolist(), curve.values.tobytes())
            for run, named in curves.items()
            for name, curve in named.items()
        }
        weights = {
            (run.id, name): array.tobytes() for run in runs for name, array in store.load_weights(run.id).items()
        }
        return metrics, weights


@pytest.mark.parametrize("study", STUDIES)
def test_an_interrupted_study_equals_an_uninterrupted_one(study, corpora):
    study_plan = plan(study, corpora)
    outcome = run_studies([study_plan], corpora / "whole", MACHINE, SilentObserver(), should_stop=lambda: False)
    assert outcome.counts == {"finished": len(study_plan.runs)}
    calls = iter(range(1_000_000))
    stopped = run_studies(
        [study_plan], corpora / "parts", MACHINE, SilentObserver(), should_stop=lambda: next(calls) > 12
    )
    assert stopped.stopped
    run_studies([study_plan], corpora / "parts", MACHINE, SilentObserver(), should_stop=lambda: False)
    assert stored_results(corpora / "parts", study) == stored_results(corpora / "whole", study)


def test_samples_reach_the_store(corpora):
    run_studies(
        [plan("characters/overfit", corpora)], corpora / "lab", MACHINE, SilentObserver(), should_stop=lambda: False
    )
    with open_store(corpora / "lab") as store:
        for run in store.runs("characters/overfit"):
            samples = store.samples(run.id)
            assert [(one.step, one.prompt) for one in samples] == [(10, "my lord"), (20, "my lord")]
            assert all(len(one.text) == 20 for one in samples)
