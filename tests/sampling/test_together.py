"""Several runs from one prompt: each writes what it writes alone, and those of one shape are one model."""

from __future__ import annotations

import pytest

import seedbed
from seedbed.errors import MissingData
from seedbed.sampling.batched import group_by_shape, sample_runs, stack_runs, stream_runs
from tests.sampling.test_load import run_verb, store_run

DIALS = {"model.heads": 2, "model.dim": 8, "model.layers": 1}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("lab")
    (home / "letters.txt").write_text("my lord, she said: good night!\n" * 20, encoding="utf-8")
    return home


@pytest.fixture(scope="module")
def runs(home):
    """Two of one shape, one wider, and an LSTM."""
    text = DIALS | {"task.kind": "text", "task.corpus": str(home / "letters.txt"), "task.length": 12}
    lstm = {name: value for name, value in text.items() if name != "model.heads"} | {"model.kind": "lstm"}
    shapes = [(text, 3), (text | {"model.dim": 12}, 3), (text | {"train.lr": 0.5}, 4), (lstm, 3)]
    ids = [store_run(home, dials, seed) for dials, seed in shapes]
    return seedbed.load_all(ids, home)


def test_runs_of_one_shape_are_one_model(runs):
    assert group_by_shape(runs) == [[0, 2], [1], [3]]
    assert stack_runs([runs[0], runs[2]]).embed.weight.shape[0] == 2


def test_each_run_writes_beside_others_what_it_writes_alone(runs):
    together = sample_runs(runs, "my", 30, n=2, seed=5)
    for run, texts in zip(runs, together, strict=True):
        alone = run.sample("my", 30, n=2, seed=5)
        assert [one.tokens for one in texts] == [one.tokens for one in alone]
        assert texts[1].log_probabilities == pytest.approx(alone[1].log_probabilities, abs=1e-4)


def test_pieces_say_whose_they_are_and_come_while_others_are_still_written(runs):
    first = [next(pieces := stream_runs(runs, "my", 30, n=2)), *(next(pieces) for _ in range(4))]
    assert [(piece.run, piece.sample) for piece in first] == [(0, 0), (0, 1), (2, 0), (2, 1), (0, 0)]


def test_equations_are_answered_by_every_run_of_a_study(home):
    ids = [store_run(home, DIALS | {"task.p": 7}, seed) for seed in (1, 2)]
    out, _ = run_verb("sample", *ids, "--home", home, "--prompt", "2 + 3 =", "--tokens", 1)
    assert [line.split(",")[0] for line in out.splitlines() if line.startswith("──")] == [
        f"── run {one}" for one in ids
    ]
    assert out.count("likeliest next: ") == 2


def test_a_study_stands_for_its_runs_that_have_weights(home, runs):
    loaded = seedbed.load_all("toy", home)
    assert {run.run.id for run in runs} <= {run.run.id for run in loaded}
    with pytest.raises(MissingData):
        seedbed.load_all("nothing", home)
