"""Generation with tensors that stay in place, as CUDA graphs need it, equals plain generation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seedbed.sampling.filters import SamplingFilters
from seedbed.sampling.sampler import NO_FILTERS, generate_tokens
from seedbed.sampling.static_generator import StaticGenerator
from seedbed.settings import Settings
from seedbed.training.sample_logger import BackgroundGenerator, SampleLogger
from seedbed.training.trainer import Trainer
from tests.sampling.factories import DATASET_INFO, make_model

CONTEXT = DATASET_INFO.context_length
MODELS = [
    *({"positions": kind, "norm": "pre", "final_norm": True} for kind in ("learned", "sinusoidal", "rotary", "none")),
    *({"positions": kind, "norm": "post", "activation": "relu"} for kind in ("learned", "alibi", "t5")),
    {"positions": "alibi", "norm": "pre", "tied": True, "mlp_bias": True, "attention_bias": False},
    {"kind": "lstm", "projection": 5, "gate_biases": 2},
    {"kind": "gru", "layers": 2},
]


def make_generator(model, prompt, n_tokens, seeds, n_samples, filters=NO_FILTERS, capture=lambda fn: fn):
    return StaticGenerator(model, CONTEXT, prompt, n_tokens, seeds, n_samples, filters, capture)


def call_twice(fn):
    """Capturing calls a function before it is replayed; what that leaves behind must not matter."""
    with torch.no_grad():
        fn()
        fn()
    return fn


@pytest.mark.parametrize("model_settings", MODELS, ids=str)
@pytest.mark.parametrize(("n_runs", "n_samples"), [(1, 1), (1, 3), (3, 2)])
@pytest.mark.parametrize("prompt_length", [1, 3, CONTEXT + 2])
def test_static_generation_equals_plain_generation(model_settings, n_runs, n_samples, prompt_length):
    model, seeds = make_model(n_runs, **model_settings), list(range(n_runs))
    prompt = torch.randint(11, (1, 1, prompt_length), generator=torch.Generator().manual_seed(prompt_length))
    filters = SamplingFilters(temperature=0.8, top_k=7, top_p=0.9)
    generator = make_generator(model, prompt, 25, seeds, n_samples, filters, call_twice)
    expected = generate_tokens(model, CONTEXT, prompt, 25, seeds, n_samples, filters)
    for _ in range(2):
        generator.run()
        assert generator.tokens.tolist() == expected.tokens.tolist()
        np.testing.assert_allclose(generator.log_probabilities, expected.log_probabilities, rtol=0, atol=1e-11)


def test_samples_are_drawn_from_the_weights_of_the_moment_they_were_started():
    model = make_model(1, positions="learned")
    weights = next(model.parameters()).detach()
    source, prompt = weights.clone(), torch.tensor([[[3, 1]]])
    expected = generate_tokens(model, CONTEXT, prompt, 12, [0]).tokens.tolist()
    background = BackgroundGenerator(
        lambda capture: make_generator(model, prompt, 12, [0], 1, capture=capture),
        {"weights": weights},
        {"weights": source},
    )
    host_copy = background.start()
    source.mul_(-50)  # training goes on
    assert host_copy.tensors["tokens"].tolist() == expected
    assert background.start().tensors["tokens"].tolist() != expected


def test_a_pack_tries_out_its_decoder_with_as_many_runs_as_it_has(tmp_path, monkeypatch):
    """With the tokens of one run, recurrent models of several runs stopped at their first sample on a GPU."""
    (tmp_path / "text.txt").write_text("the cat sat on the mat " * 20, encoding="utf-8")
    base = {"task.kind": "text", "task.corpus": str(tmp_path / "text.txt"), "task.length": 8, "model.kind": "lstm"}
    settings = [Settings.from_flat(base | {"train.sample_every": 1, "train.sample_tokens": 3})] * 3
    trainer = Trainer(settings, [0, 1, 2], "cpu", torch.float32, "plain")
    logger, n_runs_tried = SampleLogger(settings[0], [0, 1, 2], trainer), []
    monkeypatch.setattr(
        type(trainer.model.family), "make_static_decoder", lambda _self, _model, n_runs, *_: n_runs_tried.append(n_runs)
    )
    assert logger._make_background_generator() is None
    assert n_runs_tried == [3]
