"""Sampling: cached equals uncached, draws depend on seed and number alone, and follow the filtered softmax."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from seedbed.errors import UsageError
from seedbed.sampling.decoders import GPTDecoder, LSTMDecoder, make_decoder
from seedbed.sampling.filters import SamplingFilters, filtered_probabilities
from seedbed.sampling.numpy_decoder import NumpyDecoder
from seedbed.sampling.sampler import generate_tokens, stream_tokens, window_start
from tests.sampling.made import FACTS, make_model, write_plainly

PROMPT = torch.tensor([[[3, 1, 4]]])
CASES = [
    pytest.param(dials, hop, id=f"{dials.get('positions', 'lstm')}-{dials.get('norm', '')}-hop{hop}")
    for dials in [
        *(
            {"positions": kind, "norm": "pre", "final_norm": True}
            for kind in ("learned", "sinusoidal", "rotary", "none")
        ),
        *({"positions": kind, "norm": "post", "activation": "relu"} for kind in ("learned", "sinusoidal", "alibi")),
        {"positions": "alibi", "norm": "pre", "tied": True, "mlp_bias": True, "attention_bias": False},
        {"kind": "lstm", "projection": 5, "gate_biases": 2},
    ]
    for hop in (0, 1, 4, 9)
    if not (hop and "kind" in dials) and not (hop == 0 and dials.get("positions") == "learned")
]


@pytest.mark.parametrize(("dials", "hop"), CASES)
@pytest.mark.parametrize(("n_runs", "n_samples"), [(1, 1), (1, 3), (3, 2)])
def test_cached_generation_equals_uncached_within_and_past_the_context(dials, hop, n_runs, n_samples):
    model, seeds = make_model(n_runs, **dials), list(range(n_runs))
    written = generate_tokens(model, FACTS.context_length, PROMPT, 25, seeds, n_samples, hop=hop)
    tokens, logs = write_plainly(model, PROMPT, 25, seeds, n_samples, hop)
    assert written.tokens.tolist() == tokens.tolist()
    np.testing.assert_allclose(written.log_probabilities, logs, rtol=0, atol=1e-11)


@pytest.mark.parametrize("positions", ["alibi", "rotary", "none"])
@pytest.mark.parametrize(("n_runs", "n_samples"), [(1, 1), (1, 3), (2, 2)])
def test_a_decoder_whose_room_grows_remembers_all_it_has_read(positions, n_runs, n_samples):
    """Past 32 and 64 tokens without a window; the prompt of 40 is longer than the first room."""
    model = make_model(n_runs, positions=positions)
    for n in (3, 40):
        prompt = torch.randint(11, (1, 1, n), generator=torch.Generator().manual_seed(n))
        decoder, drawn = make_decoder(model, n_runs, n_samples, 110), torch.randint(11, (n_runs, n_samples, 70))
        with torch.inference_mode():
            decoder.prefill(prompt.expand(n_runs, -1, -1))
            stepped = torch.stack([decoder.step(drawn[..., i]) for i in range(70)], dim=2)
            whole = model.eval()(torch.cat([prompt.expand(n_runs, n_samples, -1), drawn], dim=-1))
        torch.testing.assert_close(stepped, whole[:, :, n:], rtol=0, atol=1e-11)


@pytest.mark.parametrize("n_samples", [1, 3])
def test_a_decoder_begun_again_has_forgotten_what_it_read(n_samples):
    model = make_model()
    first, again = (make_decoder(model, 1, n_samples, 9) for _ in range(2))
    tokens = torch.full((1, n_samples), 5)
    with torch.inference_mode():
        again.prefill(torch.tensor([[[7, 7, 7, 7]]]))
        again.step(tokens)
        for decoder in (first, again):
            decoder.prefill(PROMPT)
        assert torch.equal(first.step(tokens), again.step(tokens))


def test_in_single_precision_cached_logits_are_as_near_as_rounding_allows():
    model = make_model(dtype=torch.float32, positions="alibi", norm="pre", final_norm=True)
    exact = deepcopy(model).double()
    for n_samples in (1, 4):
        decoder = make_decoder(model, 1, n_samples, 30)
        tokens = torch.randint(11, (1, 1, 30), generator=torch.Generator().manual_seed(1)).expand(1, n_samples, -1)
        with torch.inference_mode():
            decoder.prefill(tokens[:, :1, :0])
            stepped = torch.stack([decoder.step(tokens[..., i]) for i in range(30)], dim=2)
        torch.testing.assert_close(stepped.double(), exact.eval()(tokens).detach(), rtol=0, atol=2e-4)


def test_another_hop_past_the_context_gives_other_probabilities():
    """The negative control of the test above: hops matter, but not before the context is full."""
    model = make_model(positions="learned")
    first, second = (generate_tokens(model, 9, PROMPT, 25, [0], hop=hop).log_probabilities[0, 0] for hop in (1, 4))
    np.testing.assert_allclose(first[:7], second[:7], rtol=0, atol=1e-11)
    assert abs(first - second)[7:].max() > 1e-3


def test_one_sample_alone_is_read_by_numpy_and_several_by_torch():
    """So the cases above cover all three decoders."""
    gpt, lstm = make_model(), make_model(kind="lstm")
    found = [type(make_decoder(model, 1, n, 9)) for model, n in ((gpt, 1), (gpt, 2), (lstm, 1))]
    assert found == [NumpyDecoder, GPTDecoder, LSTMDecoder]


@pytest.mark.parametrize("kind", ["gpt", "lstm"])
def test_a_sample_is_the_same_whatever_is_drawn_beside_it(kind):
    model = make_model(3, kind=kind)
    alone = generate_tokens(model, 9, PROMPT, 20, [7, 8, 9], n_samples=1)
    beside = generate_tokens(model, 9, PROMPT, 20, [7, 8, 9], n_samples=5)
    assert alone.tokens[:, 0].tolist() == beside.tokens[:, 0].tolist()
    assert len({tuple(row) for row in beside.tokens[0].tolist()}) == 5


def test_equal_seeds_write_equal_texts_and_other_seeds_others():
    model = make_model()
    first, again, other = (generate_tokens(model, 9, PROMPT, 20, [seed]).tokens.tolist() for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("n_samples", [1, 3])
def test_a_model_in_training_mode_writes_without_dropout_and_stays_in_it(n_samples):
    model = make_model(embedding_dropout=0.5, attention_dropout=0.5, mlp_dropout=0.5, residual_dropout=0.5, dropout=0.5)
    model.train()
    in_training = generate_tokens(model, 9, PROMPT, 20, [1], n_samples)
    assert model.training
    model.eval()
    assert generate_tokens(model, 9, PROMPT, 20, [1], n_samples).tokens.tolist() == in_training.tokens.tolist()


def test_tokens_come_one_by_one_and_leave_torch_as_it_was():
    threads = torch.get_num_threads()
    stream = stream_tokens(make_model(), 9, PROMPT, 1_000_000, [0])
    for _ in range(3):
        assert next(stream).tokens.shape == (1, 1)
        assert torch.get_num_threads() == threads
        assert not torch.is_inference_mode_enabled()
        assert torch.backends.mkldnn.enabled


def test_a_prompt_longer_than_the_context_counts_by_its_end():
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
    drawn = next(stream_tokens(model, 9, PROMPT, 1, [3], n_samples=100_000, filters=filters)).tokens
    expected = filtered_probabilities(model.eval()(PROMPT)[0, 0, -1].detach(), filters).numpy()
    counts = np.bincount(drawn[0], minlength=11)
    assert counts[expected == 0].sum() == 0
    assert chisquare(counts[expected > 0], 100_000 * expected[expected > 0]).pvalue > 1e-3


def test_tokens_of_one_long_sample_follow_the_softmax_too():
    """Draws at successive places are independent as well: with zero weights every token has the same chance."""
    model = make_model(kind="lstm", layers=1, dim=2)
    for parameter in model.parameters():
        parameter.data.zero_()
    counts = np.bincount(generate_tokens(model, 9, PROMPT, 3_000, [4]).tokens[0, 0], minlength=11)
    assert chisquare(counts).pvalue > 1e-3


def test_greedy_takes_the_likeliest_token_every_time():
    model = make_model()
    written = generate_tokens(model, 9, PROMPT, 6, [0], filters=SamplingFilters(temperature=0)).tokens[0, 0]
    history = PROMPT
    for token in written:
        assert token == model.eval()(history)[0, 0, -1].argmax()
        history = torch.cat([history, torch.tensor([[[token]]])], dim=-1)


def test_a_window_never_holds_more_than_the_context_nor_less_than_it_without_a_hop():
    for context, hop in ((9, 1), (9, 4), (9, 9), (128, 32)):
        held = [n - window_start(n, context, hop) for n in range(context + 1, 5 * context)]
        assert max(held) == context
        assert min(held) == context - hop + 1


def test_a_run_with_weights_that_are_not_finite_leaves_its_neighbours_alone():
    model = make_model(2)
    good = generate_tokens(model, 9, PROMPT, 5, [0, 0]).tokens[1]
    model.embed.weight.data[0] = float("nan")
    written = generate_tokens(model, 9, PROMPT, 5, [0, 0])
    assert np.isnan(written.log_probabilities[0]).all()
    assert written.tokens[1].tolist() == good.tolist()


@pytest.mark.parametrize(
    ("dials", "options", "said"),
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
def test_what_makes_no_sense_is_refused_in_one_sentence(dials, options, said):
    arguments = {"prompt": PROMPT, "n_tokens": 5, "seeds": [0]} | options
    with pytest.raises(UsageError, match=said):
        list(stream_tokens(make_model(**dials), 9, **arguments))
