"""What results show of themselves in a terminal and in a notebook."""

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
from tests.interp.made import ARITHMETIC, HEBREW, made_run, text_dials

EVIL = "<script>&\"'"


def sample_of(text, **more):
    return Sample("", text, tuple(range(len(text))), (-1.0,) * len(text), tuple(text), **more)


@pytest.mark.parametrize(
    "result",
    [
        sample_of(EVIL),
        Sample(EVIL, "a", (1,), (-1.0,), ("a",)),
        Samples([sample_of(EVIL)]),
        TokenProbabilities([TokenProbability(EVIL, 1, 0.5)]),
        ActivationCache({EVIL: torch.ones(2)}),
    ],
    ids=lambda result: type(result).__name__,
)
def test_what_a_model_writes_is_escaped(result):
    shown = result._repr_html_()
    assert "<script" not in shown
    assert "&lt;" in shown


def test_surprising_tokens_have_the_stronger_colour():
    shown = Sample("", "abc", (1, 2, 3), (-0.01, -2.0, -60.0), ("a", "b", "c"))._repr_html_()
    strengths = [float(part.split(")")[0].rsplit(" ", 1)[1]) for part in shown.split("rgba(")[1:]]
    assert strengths[0] < strengths[1] < strengths[2] == 0.6


def test_text_follows_its_own_direction_and_copied_characters_are_underlined():
    shown = sample_of("שלום לך", copied=(CopiedSpan(0, 4),))._repr_html_()
    assert 'dir="auto"' in shown
    assert shown.count("<u ") == 4
    assert "verbatim in the training text" in shown
    assert "verbatim" not in sample_of("שלום")._repr_html_()


def test_results_of_a_run_show_themselves(tmp_path):
    model = made_run(text_dials(tmp_path, HEBREW))
    text = HEBREW[:12]
    read = model.surprisal(text)
    assert repr(read) == f"<surprisal of {read}>"
    assert f"{read.bits_per_byte:.4f} per byte" in read._repr_html_()
    assert "%" in repr(model.top_next_tokens(text))
    assert repr(model.sample(text, 3)).startswith("<sample of 3 tokens, ")
    tapped = model.activations(text, "blocks.0.attn.hook_pattern")
    assert repr(tapped).startswith("blocks.0.attention.pattern  2 × 12 × 12  ")
    assert torch.equal(tapped["blocks.0.attn.hook_pattern"], tapped["blocks.0.attention.pattern"])
    with pytest.raises(KeyError):
        tapped["embed"]


def test_attention_is_a_tensor_that_knows_its_tokens_and_draws_itself():
    plain = made_run(ARITHMETIC)
    drawing = LoadedRun(plain.run, plain.step, weights_of(plain), lambda loaded, given: f"{loaded.step} {given}")
    found = drawing.attention("3 + 4 =")
    assert isinstance(found, AttentionTensor)
    assert found.pieces == ("BOS", "3", "+", "4", "=")
    assert repr(found) == "<attention of 3 layers × 2 heads over 5 tokens>"
    assert found._repr_html_() == "5 3 + 4 ="
    assert type(found + 1) is torch.Tensor
    assert plain.attention("3 + 4 =")._repr_html_() == "&lt;attention of 3 layers × 2 heads over 5 tokens&gt;"


def weights_of(loaded):
    return {name: held[0].detach().numpy() for name, held in loaded.model.named_parameters()}
