"""Stored samples become curves of copying and of new words, beside those of held-out text."""

from __future__ import annotations

import numpy as np
import pytest

from seedbed.records import CheckpointEvent, EvaluationEvent, FinishEvent, Placement, SampleEvent
from seedbed.report.study_runs import load_run_curves
from seedbed.stats.stopping_advice import advise_stopping_for_runs
from seedbed.store import open_store
from seedbed.study.pack import Capacity, pack_runs
from seedbed.study.plan import plan_named

TRAIN = "the quick brown fox jumps over the lazy dog and runs away from the old grey wolf that sleeps. " * 12
HELD_OUT = "some other sentences about sailing boats in winter storms, harbours, nets and cold hands again. "
INVENTED = "zxcv qwpo mnbt lkjh gfds poiu ytre wqas dfgh jklz xcvb nmqw ertyu iopas dfghj klzx cvbnm qwert"


@pytest.fixture
def home(tmp_path):
    """One text run with a sample at step 10 that invents everything and one at step 20 that copies everything."""
    (tmp_path / "corpus.txt").write_text(TRAIN + HELD_OUT, encoding="utf-8")
    share = len(HELD_OUT) / len(TRAIN + HELD_OUT)
    (tmp_path / "mine.toml").write_text(
        f'seeds = [3]\n[base.task]\nkind = "text"\ncorpus = "{tmp_path}/corpus.txt"\nlength = 8\n'
        f"val_fraction = {share}\n"
        "[base.model]\ndim = 8\nheads = 2\n[base.train]\nsteps = 20\nbatch_size = 4\nsample_every = 10\n",
        encoding="utf-8",
    )
    plan = plan_named(str(tmp_path / "mine.toml"))
    with open_store(tmp_path / "lab") as store:
        store.register(plan)
        (pack,) = store.claim(pack_runs(plan.runs, Capacity(2**40, 8, 1)), lambda _: Placement())
        with store.lock(pack.id):
            store.resume(pack.id)
            losses = [EvaluationEvent(step, (0,), ("val/loss",), np.array([[9.0 - step]])) for step in (0, 10, 20)]
            texts = {10: INVENTED, 20: TRAIN[: len(INVENTED)]}
            samples = [SampleEvent(0, step, "", text, (1,), (-1.0,)) for step, text in texts.items()]
            store.record(pack.id, [losses[0], losses[1], samples[0], losses[2], samples[1], FinishEvent(0, 20)])
            store.save(pack.id, CheckpointEvent(20, {"step": np.array([20])}, {}))
            store.finish(pack.id)
    return tmp_path / "lab"


def test_an_invented_sample_copies_nothing_and_a_verbatim_one_everything(home):
    with open_store(home, read_only=True) as store:
        (run,) = load_run_curves(store, "mine")
    assert run.curves["copied"].steps.tolist() == [10, 20]
    assert run.curves["copied"].values.tolist() == pytest.approx([0.0, 1.0])
    assert run.curves["new_words"].values.tolist() == pytest.approx([1.0, 0.0])
    assert (run.curves["copied[held-out]"].values < 0.5).all()


def test_stopping_advice_says_when_samples_copy_more_than_real_text(home):
    with open_store(home, read_only=True) as store:
        advice = advise_stopping_for_runs(load_run_curves(store, "mine"), "val/loss")
    assert advice is not None
    assert advice.copying == 20


def test_without_the_corpus_the_other_metrics_are_still_there(home):
    (home.parent / "corpus.txt").unlink()
    with open_store(home, read_only=True) as store:
        (run,) = load_run_curves(store, "mine")
    assert "val/loss" in run.curves
    assert "copied" not in run.curves
