"""Representations of results in a terminal and in a notebook."""

from __future__ import annotations

import pytest
import torch

from seedbed.data.suffix_array import CopiedSpan
from seedbed.sampling.loaded_run import LoadedRun
from seedbed.sampling.results import (
    ActivationCache,
    AttentionTensor,
    Sample,
    Samples,
    TokenProbabilities,
    TokenProbability,
)
from tests.interp.factories import ARITHMETIC, HEBREW, make_loaded_run, text_settings

EVIL = "<script>&\"'"


def make_sample(text, **fields):
    return Sample("", text, tuple(range(len(text))), (-1.0,) * len(text), tuple(text), **fields)


@pytest.mark.parametrize(
    "result",
    [
        make_sample(EVIL),
        Sample(EVIL, "a", (1,), (-1.0,), ("a",)),
        Samples([make_sample(EVIL)]),
        TokenProbabilities([TokenProbability(EVIL, 1, 0.5)]),
        ActivationCache({EVIL: torch.ones(2)}),
    ],
    ids=lambda result: type(result).__name__,
)
def test_generated_text_is_escaped(result):
    html = result._repr_html_()
    assert "<script" not in html
    assert "&lt;" in html


def test_surprising_tokens_have_stronger_colours():
    html = Sample("", "abc", (1, 2, 3), (-0.01, -2.0, -60.0), ("a", "b", "c"))._repr_html_()
    opacities = [float(part.split(")")[0].rsplit(" ", 1)[1]) for part in html.split("rgba(")[1:]]
    assert opacities[0] < opacities[1] < opacities[2] == 0.6


def test_text_direction_is_automatic_and_copied_characters_are_underlined():
    html = make_sample("שלום לך", copied_spans=(CopiedSpan(0, 4),))._repr_html_()
    assert 'dir="auto"' in html
    assert html.count("<u ") == 4
    assert "verbatim in the training text" in html
    assert "verbatim" not in make_sample("שלום")._repr_html_()


def test_results_of_a_run_have_readable_representations(tmp_path):
    model = make_loaded_run(text_settings(tmp_path, HEBREW))
    text = HEBREW[:12]
    surprisal = model.surprisal(text)
    assert repr(surprisal) == f"<surprisal of {surprisal}>"
    assert f"{surprisal.bits_per_byte:.4f} per byte" in surprisal._repr_html_()
    assert "%" in repr(model.top_next_tokens(text))
    assert repr(model.sample(text, 3)).startswith("<sample of 3 tokens, ")
    cache = model.activations(text, "blocks.0.attn.hook_pattern")
    assert repr(cache).startswith("blocks.0.attention.pattern  2 × 12 × 12  ")
    assert torch.equal(cache["blocks.0.attn.hook_pattern"], cache["blocks.0.attention.pattern"])
    with pytest.raises(KeyError):
        cache["embed"]


def test_attention_is_a_tensor_with_token_texts_and_an_html_representation():
    plain = make_loaded_run(ARITHMETIC)
    rendering = LoadedRun(plain.run, plain.step, get_weights(plain), lambda loaded, text: f"{loaded.step} {text}")
    attention = rendering.attention("3 + 4 =")
    assert isinstance(attention, AttentionTensor)
    assert attention.pieces == ("BOS", "3", "+", "4", "=")
    assert repr(attention) == "<attention of 3 layers × 2 heads over 5 tokens>"
    assert attention._repr_html_() == "5 3 + 4 ="
    assert type(attention + 1) is torch.Tensor
    assert plain.attention("3 + 4 =")._repr_html_() == "&lt;attention of 3 layers × 2 heads over 5 tokens&gt;"


def get_weights(loaded):
    return {name: parameter[0].detach().numpy() for name, parameter in loaded.model.named_parameters()}
