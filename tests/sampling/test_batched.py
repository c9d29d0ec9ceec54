"""Several runs from one prompt: each generates the same text as alone, and runs of one shape are stacked."""

from __future__ import annotations

import pytest

import seedbed
from seedbed.errors import MissingData
from seedbed.sampling.batched import group_by_shape, sample_runs, stack_runs, stream_runs
from tests.sampling.test_loaded_run import run_cli, store_run

SETTINGS = {"model.heads": 2, "model.dim": 8, "model.layers": 1}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("lab")
    (home / "letters.txt").write_text("my lord, she said: good night!\n" * 20, encoding="utf-8")
    return home


@pytest.fixture(scope="module")
def runs(home):
    """Two of one shape, one wider, and an LSTM."""
    text = SETTINGS | {"task.kind": "text", "task.corpus": str(home / "letters.txt"), "task.length": 12}
    lstm = {name: value for name, value in text.items() if name != "model.heads"} | {"model.kind": "lstm"}
    shapes = [(text, 3), (text | {"model.dim": 12}, 3), (text | {"train.lr": 0.5}, 4), (lstm, 3)]
    ids = [store_run(home, settings, seed) for settings, seed in shapes]
    return seedbed.load_all(ids, home)


def test_runs_of_one_shape_are_stacked_into_one_model(runs):
    assert group_by_shape(runs) == [[0, 2], [1], [3]]
    assert stack_runs([runs[0], runs[2]]).embed.weight.shape[0] == 2


def test_batched_runs_generate_the_same_text_as_runs_alone(runs):
    batched = sample_runs(runs, "my", 30, n=2, seed=5)
    for run, samples in zip(runs, batched, strict=True):
        alone = run.sample("my", 30, n=2, seed=5)
        assert [one.tokens for one in samples] == [one.tokens for one in alone]
        assert samples[1].log_probabilities == pytest.approx(alone[1].log_probabilities, abs=1e-4)


def test_chunks_name_their_run_and_sample_and_are_interleaved(runs):
    stream = stream_runs(runs, "my", 30, n=2)
    first = [next(stream) for _ in range(5)]
    assert [(chunk.run, chunk.sample) for chunk in first] == [(0, 0), (0, 1), (2, 0), (2, 1), (0, 0)]


def test_equations_are_answered_by_every_run_of_a_study(home):
    ids = [store_run(home, SETTINGS | {"task.p": 7}, seed) for seed in (1, 2)]
    out, _ = run_cli("sample", *ids, "--home", home, "--prompt", "2 + 3 =", "--tokens", 1)
    assert [line.split(",")[0] for line in out.splitlines() if line.startswith("──")] == [
        f"── run {run_id}" for run_id in ids
    ]
    assert out.count("most likely next: ") == 2


def test_a_study_name_loads_its_runs_that_have_weights(home, runs):
    loaded = seedbed.load_all("toy", home)
    assert {run.run.id for run in runs} <= {run.run.id for run in loaded}
    with pytest.raises(MissingData):
        seedbed.load_all("nothing", home)
