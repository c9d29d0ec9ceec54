"""Fast paths refuse what they do not know: a new attention bias, or a subclass, is never silently left out."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import Tensor

from seedbed.models import gpt
from seedbed.models.gpt import GPT, MLP, Attention, Block
from seedbed.models.lstm import LSTM, LSTMCell
from seedbed.sampling.decoders import GPTDecoder, RecomputingDecoder, is_standard, make_decoder
from seedbed.sampling.numpy_decoder import NumpyDecoder
from tests.sampling.factories import make_model


class OutputBiasedAttention(Attention):
    """Attention with something that no fast path has: its heads' outputs depend on the position."""

    def attend(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        heads_out = super().attend(x, *args, **kwargs)
        return heads_out + torch.arange(x.shape[-2], dtype=x.dtype)[-heads_out.shape[-2] :, None]


class ShiftedMLP(MLP):
    def forward(self, *args: Any) -> Tensor:
        return super().forward(*args) + 1.0


class SlowCell(LSTMCell):
    pass


def with_new_attention(model: GPT) -> GPT:
    for block in model.blocks:
        cast(Block, block).attention.__class__ = OutputBiasedAttention
    return model


def with_new_positions(model: GPT) -> GPT:
    """A position encoding of a later version: an attention bias that this test adds to the readable path."""
    for block in model.blocks:
        cast(Block, block).attention.position_encoding = "t5"
    return model


def decoded_and_full(model: GPT, n_runs: int, n_samples: int) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(11, (n_runs, n_samples, 7), generator=torch.Generator().manual_seed(3))
    decoder = make_decoder(model.eval(), n_runs, n_samples, 20)
    with torch.inference_mode():
        decoder.prefill(tokens[..., :2])
        steps = [decoder.step(tokens[..., i]) for i in range(2, 7)]
        return torch.stack(steps, dim=2), model(tokens)[:, :, 2:]


@pytest.mark.parametrize(("n_runs", "n_samples"), [(1, 1), (2, 3)])
def test_a_model_with_an_unknown_part_is_decoded_by_its_own_forward(n_runs: int, n_samples: int) -> None:
    model = with_new_attention(cast(GPT, make_model(n_runs, positions="alibi")))
    assert isinstance(make_decoder(model, n_runs, n_samples, 20), RecomputingDecoder)
    torch.testing.assert_close(*decoded_and_full(model, n_runs, n_samples), rtol=0, atol=1e-11)


def test_known_models_keep_their_cached_decoders() -> None:
    assert isinstance(make_decoder(make_model(), 1, 1, 20), NumpyDecoder)
    assert isinstance(make_decoder(make_model(2), 2, 3, 20), GPTDecoder)


def test_the_cached_decoders_would_leave_the_unknown_part_out() -> None:
    """The negative control: without the refusal, both decoders answer, and wrongly."""
    model = with_new_attention(cast(GPT, make_model(1, positions="none"))).eval()
    tokens = torch.tensor([[[3, 1, 4, 1, 5]]])
    decoder = NumpyDecoder(model, 20)
    with torch.inference_mode():
        decoder.prefill(tokens[..., :2])
        stepped = [decoder.step(tokens[..., i]) for i in range(2, 5)]
        assert not torch.allclose(torch.stack(stepped, dim=2), model(tokens)[:, :, 2:], atol=1e-3)


def test_an_unknown_position_encoding_takes_the_readable_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpt, "can_fuse_attention", lambda *_: True)
    monkeypatch.setattr(gpt, "fused_attention", lambda *_: pytest.fail("the fused kernel does not know it"))
    model = with_new_positions(cast(GPT, make_model(positions="none")))
    model(torch.tensor([[[3, 1, 4]]]))
    assert not is_standard(model)


def test_an_unknown_block_is_not_run_by_the_fused_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpt, "can_fuse_add_norm", lambda *_: True)
    monkeypatch.setattr(gpt, "linear_add_norm", lambda *_, **__: pytest.fail("fuses what it does not know"))
    for norm in ("pre", "post"):
        model = cast(GPT, make_model(norm=norm))
        for block in model.blocks:
            cast(Block, block).mlp.__class__ = ShiftedMLP
        model.eval()(torch.tensor([[[3, 1, 4]]]))


def test_an_lstm_with_other_cells_is_decoded_by_its_own_forward() -> None:
    model = cast(LSTM, make_model(kind="lstm"))
    assert is_standard(model)
    cast(LSTMCell, model.cells[0]).__class__ = SlowCell
    assert isinstance(make_decoder(model, 1, 2, 20), RecomputingDecoder)
