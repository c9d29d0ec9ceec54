"""Shipped studies of text and labels from file to store, on texts that the test writes; and an interruption."""

from __future__ import annotations

import pytest

from seedbed.pipeline import Machine, run_studies
from seedbed.store.store import Store
from seedbed.study.plan import plan_named

MACHINE = Machine("cpu", 1, "plain")


class Nobody:
    def say(self, text): ...

    def begin(self, packs): ...

    def see(self, pack, event): ...


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    """As the other tests; two threads would go on spinning in this process."""
    monkeypatch.setattr("seedbed.engines.machine.n_cores", lambda: 1)


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "play.txt").write_text("my lord, the king is here. what says he? not a word, my lord. " * 40)
    (tmp_path / "moods.tsv").write_text(
        "".join(f"{'ab'[i % 2]}\tday {i % 7} was {'so' * (i % 2)}\n" for i in range(60))
    )
    return tmp_path


STUDIES = {
    "characters/overfit": ("play.txt", ["task.data_fraction=1.0", "train.sample_every=10"]),
    "speeches/language-model": ("play.txt", ["task.data_fraction=1.0"]),
    "speeches/classifier": ("moods.tsv", ["task.data_fraction=1.0"]),
    "wikitext/depth": ("play.txt", ["task.tokenizer=characters", "task.data_fraction=0.5"]),
}


def plan(study, texts):
    corpus, more = STUDIES[study]
    return plan_named(study, [f"task.corpus={texts / corpus}", "scale=tiny", "seeds=2", *more])


def everything(home, study):
    """All readings and samples of a study, by run."""
    with Store.open(home) as store:
        runs = store.runs(study)
        assert {run.status for run in runs} == {"finished"}
        curves = store.curves([run.id for run in runs])
        readings = {
            (run, name): (curve.steps.tolist(), curve.values.tobytes())
            for run, named in curves.items()
            for name, curve in named.items()
        }
        weights = {
            (run.id, name): array.tobytes() for run in runs for name, array in store.load_weights(run.id).items()
        }
        return readings, weights


@pytest.mark.parametrize("study", STUDIES)
def test_an_interrupted_study_ends_as_an_uninterrupted_one(study, texts):
    planned = plan(study, texts)
    outcome = run_studies([planned], texts / "whole", MACHINE, Nobody(), should_stop=lambda: False)
    assert outcome.counts == {"finished": len(planned.runs)}
    calls = iter(range(1_000_000))
    stopped = run_studies([planned], texts / "parts", MACHINE, Nobody(), should_stop=lambda: next(calls) > 12)
    assert stopped.stopped
    run_studies([planned], texts / "parts", MACHINE, Nobody(), should_stop=lambda: False)
    assert everything(texts / "parts", study) == everything(texts / "whole", study)


def test_samples_reach_the_store(texts):
    run_studies([plan("characters/overfit", texts)], texts / "lab", MACHINE, Nobody(), should_stop=lambda: False)
    with Store.open(texts / "lab") as store:
        for run in store.runs("characters/overfit"):
            samples = store.samples(run.id)
            assert [(one.step, one.prompt) for one in samples] == [(10, "my lord"), (20, "my lord")]
            assert all(len(one.text) == 20 for one in samples)
