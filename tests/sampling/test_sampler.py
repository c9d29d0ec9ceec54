"""Sampling: cached equals uncached, samples depend on seed and index alone and follow the filtered softmax."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from seedbed.errors import UsageError
from seedbed.models.decoding import StatefulDecoder
from seedbed.models.fast.gpt_decoder import GPTDecoder
from seedbed.models.fast.numpy_decoder import NumpyDecoder
from seedbed.sampling.filters import SamplingFilters, filtered_probabilities
from seedbed.sampling.sampler import generate_tokens, stream_tokens, window_start
from tests.sampling.factories import DATASET_INFO, generate_uncached, make_model

PROMPT = torch.tensor([[[3, 1, 4]]])
CASES = [
    pytest.param(
        model_settings, hop, id=f"{model_settings.get('positions', 'lstm')}-{model_settings.get('norm', '')}-hop{hop}"
    )
    for model_settings in [
        *(
            {"positions": kind, "norm": "pre", "final_norm": True}
            for kind in ("learned", "sinusoidal", "rotary", "none")
        ),
        *({"positions": kind, "norm": "post", "activation": "relu"} for kind in ("learned", "sinusoidal", "alibi")),
        {"positions": "alibi", "norm": "pre", "tied": True, "mlp_bias": True, "attention_bias": False},
        {"kind": "lstm", "projection": 5, "gate_biases": 2},
    ]
    for hop in (0, 1, 4, 9)
    if not (hop and "kind" in model_settings) and not (hop == 0 and model_settings.get("positions") == "learned")
]


@pytest.mark.parametrize(("model_settings", "hop"), CASES)
@pytest.mark.parametrize(("n_runs", "n_samples"), [(1, 1), (1, 3), (3, 2)])
def test_cached_generation_equals_uncached_within_and_past_the_context(model_settings, hop, n_runs, n_samples):
    model, seeds = make_model(n_runs, **model_settings), list(range(n_runs))
    generated = generate_tokens(model, DATASET_INFO.context_length, PROMPT, 25, seeds, n_samples, hop=hop)
    tokens, log_probabilities = generate_uncached(model, PROMPT, 25, seeds, n_samples, hop)
    assert generated.tokens.tolist() == tokens.tolist()
    np.testing.assert_allclose(generated.log_probabilities, log_probabilities, rtol=0, atol=1e-11)


@pytest.mark.parametrize("positions", ["alibi", "rotary", "t5", "none"])
@pytest.mark.parametrize(("n_runs", "n_samples"), [(1, 1), (1, 3), (2, 2)])
def test_a_growing_kv_cache_keeps_all_positions(positions, n_runs, n_samples):
    """Past 32 and 64 tokens without a window; the prompt of 40 exceeds the initial cache."""
    model = make_model(n_runs, positions=positions)
    for n in (3, 40):
        prompt = torch.randint(11, (1, 1, n), generator=torch.Generator().manual_seed(n))
        decoder, tokens = (
            model.family.make_decoder(model, n_runs, n_samples, 110),
            torch.randint(11, (n_runs, n_samples, 70)),
        )
        with torch.inference_mode():
            decoder.prefill(prompt.expand(n_runs, -1, -1))
            stepped = torch.stack([decoder.step(tokens[..., i]) for i in range(70)], dim=2)
            uncached = model.eval()(torch.cat([prompt.expand(n_runs, n_samples, -1), tokens], dim=-1))
        torch.testing.assert_close(stepped, uncached[:, :, n:], rtol=0, atol=1e-11)


@pytest.mark.parametrize("n_samples", [1, 3])
def test_prefill_resets_a_decoder(n_samples):
    model = make_model()
    fresh, reused = (model.family.make_decoder(model, 1, n_samples, 9) for _ in range(2))
    tokens = torch.full((1, n_samples), 5)
    with torch.inference_mode():
        reused.prefill(torch.tensor([[[7, 7, 7, 7]]]))
        reused.step(tokens)
        for decoder in (fresh, reused):
            decoder.prefill(PROMPT)
        assert torch.equal(fresh.step(tokens), reused.step(tokens))


def test_float32_cached_logits_match_float64_up_to_rounding():
    model = make_model(dtype=torch.float32, positions="alibi", norm="pre", final_norm=True)
    exact = deepcopy(model).double()
    for n_samples in (1, 4):
        decoder = model.family.make_decoder(model, 1, n_samples, 30)
        tokens = torch.randint(11, (1, 1, 30), generator=torch.Generator().manual_seed(1)).expand(1, n_samples, -1)
        with torch.inference_mode():
            decoder.prefill(tokens[:, :1, :0])
            stepped = torch.stack([decoder.step(tokens[..., i]) for i in range(30)], dim=2)
        torch.testing.assert_close(stepped.double(), exact.eval()(tokens).detach(), rtol=0, atol=2e-4)


def test_another_hop_past_the_context_gives_other_probabilities():
    """Negative control of the cached = uncached test: hops matter, but not before the context is full."""
    model = make_model(positions="learned")
    first, second = (generate_tokens(model, 9, PROMPT, 25, [0], hop=hop).log_probabilities[0, 0] for hop in (1, 4))
    np.testing.assert_allclose(first[:7], second[:7], rtol=0, atol=1e-11)
    assert abs(first - second)[7:].max() > 1e-3


def test_a_single_sample_is_decoded_by_numpy_and_several_by_torch():
    """So the cases above cover all three decoders."""
    gpt, lstm = make_model(), make_model(kind="lstm")
    kinds = [type(model.family.make_decoder(model, 1, n, 9)) for model, n in ((gpt, 1), (gpt, 2), (lstm, 1))]
    assert kinds == [NumpyDecoder, GPTDecoder, StatefulDecoder]


@pytest.mark.parametrize("kind", ["gpt", "lstm"])
def test_a_sample_does_not_depend_on_the_number_of_samples(kind):
    model = make_model(3, kind=kind)
    single = generate_tokens(model, 9, PROMPT, 20, [7, 8, 9], n_samples=1)
    batch = generate_tokens(model, 9, PROMPT, 20, [7, 8, 9], n_samples=5)
    assert single.tokens[:, 0].tolist() == batch.tokens[:, 0].tolist()
    assert len({tuple(row) for row in batch.tokens[0].tolist()}) == 5


def test_equal_seeds_generate_equal_tokens_and_different_seeds_different_ones():
    model = make_model()
    first, again, other = (generate_tokens(model, 9, PROMPT, 20, [seed]).tokens.tolist() for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("n_samples", [1, 3])
def test_a_model_in_training_mode_generates_without_dropout_and_stays_in_training_mode(n_samples):
    model = make_model(embedding_dropout=0.5, attention_dropout=0.5, mlp_dropout=0.5, residual_dropout=0.5, dropout=0.5)
    model.train()
    in_training = generate_tokens(model, 9, PROMPT, 20, [1], n_samples)
    assert model.training
    model.eval()
    assert generate_tokens(model, 9, PROMPT, 20, [1], n_samples).tokens.tolist() == in_training.tokens.tolist()


def test_tokens_are_streamed_and_torch_settings_are_restored():
    n_threads = torch.get_num_threads()
    stream = stream_tokens(make_model(), 9, PROMPT, 1_000_000, [0])
    for _ in range(3):
        assert next(stream).tokens.shape == (1, 1)
        assert torch.get_num_threads() == n_threads
        assert not torch.is_inference_mode_enabled()
        assert torch.backends.mkldnn.enabled


def test_a_prompt_longer_than_the_context_is_truncated_to_its_end():
    model, long = make_model(), torch.randint(11, (1, 1, 40), generator=torch.Generator().manual_seed(2))
    assert (
        generate_tokens(model, 9, long, 15, [0]).tokens.tolist()
        == generate_tokens(model, 9, long[..., -9:], 15, [0]).tokens.tolist()
    )


@pytest.mark.parametrize(
    "filters",
    [SamplingFilters(), SamplingFilters(0.7, top_k=6), SamplingFilters(1.3, top_p=0.8), SamplingFilters(0.9, 8, 0.9)],
)
def test_a_hundred_thousand_tokens_follow_the_filtered_softmax(filters):
    model = make_model()
    tokens = next(stream_tokens(model, 9, PROMPT, 1, [3], n_samples=100_000, filters=filters)).tokens
    expected = filtered_probabilities(model.eval()(PROMPT)[0, 0, -1].detach(), filters).numpy()
    counts = np.bincount(tokens[0], minlength=11)
    assert counts[expected == 0].sum() == 0
    assert chisquare(counts[expected > 0], 100_000 * expected[expected > 0]).pvalue > 1e-3


def test_tokens_of_one_long_sample_follow_the_softmax_too():
    """Successive draws are independent too: with zero weights every token has the same probability."""
    model = make_model(kind="lstm", layers=1, dim=2)
    for parameter in model.parameters():
        parameter.data.zero_()
    counts = np.bincount(generate_tokens(model, 9, PROMPT, 3_000, [4]).tokens[0, 0], minlength=11)
    assert chisquare(counts).pvalue > 1e-3


def test_greedy_sampling_takes_the_most_likely_token():
    model = make_model()
    generated = generate_tokens(model, 9, PROMPT, 6, [0], filters=SamplingFilters(temperature=0)).tokens[0, 0]
    history = PROMPT
    for token in generated:
        assert token == model.eval()(history)[0, 0, -1].argmax()
        history = torch.cat([history, torch.tensor([[[token]]])], dim=-1)


def test_a_window_holds_between_context_minus_hop_plus_one_and_context_tokens():
    for context, hop in ((9, 1), (9, 4), (9, 9), (128, 32)):
        sizes = [n - window_start(n, context, hop) for n in range(context + 1, 5 * context)]
        assert max(sizes) == context
        assert min(sizes) == context - hop + 1


def test_a_run_with_non_finite_weights_does_not_affect_its_neighbours():
    model = make_model(2)
    expected = generate_tokens(model, 9, PROMPT, 5, [0, 0]).tokens[1]
    model.embed.weight.data[0] = float("nan")
    generated = generate_tokens(model, 9, PROMPT, 5, [0, 0])
    assert np.isnan(generated.log_probabilities[0]).all()
    assert generated.tokens[1].tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("model_settings", "options", "message"),
    [
        ({"positions": "learned"}, {"hop": 0}, "learned positions for 9 tokens only"),
        ({}, {"hop": 10}, "from 0 .no window. to the context, 9"),
        ({}, {"hop": -1}, "hop = -1"),
        ({"kind": "lstm"}, {"hop": 3}, "carries its state"),
        ({}, {"n_tokens": 0}, "tokens = 0"),
        ({}, {"n_samples": 0}, "at least 1"),
        ({}, {"prompt": torch.zeros(1, 1, 0, dtype=torch.int64)}, "no token"),
    ],
)
def test_invalid_arguments_are_refused(model_settings, options, message):
    arguments = {"prompt": PROMPT, "n_tokens": 5, "seeds": [0]} | options
    with pytest.raises(UsageError, match=message):
        list(stream_tokens(make_model(**model_settings), 9, **arguments))
