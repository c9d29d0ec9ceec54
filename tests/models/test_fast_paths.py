"""Fast paths refuse what they do not know: a new attention bias, or a subclass, is never silently left out."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import Tensor

from seedbed.models.decoding import Decoder, RecomputingDecoder
from seedbed.models.fast import modules
from seedbed.models.fast.gpt_decoder import GPTDecoder, is_standard
from seedbed.models.fast.numpy_decoder import NumpyDecoder
from seedbed.models.gpt import GPT, MLP, Attention, Block
from seedbed.models.layers import Positions, absolute_positions
from seedbed.models.lstm import LSTM, LSTMCell
from seedbed.models.positions import PositionEncoding, alibi_bias
from seedbed.models.sequence_model import SequenceModel
from tests.sampling.factories import DATASET_INFO, make_model


class OutputBiasedAttention(Attention):
    """Attention with something that no fast path has: its heads' outputs depend on the position."""

    def attend(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        heads_out = super().attend(x, *args, **kwargs)
        return heads_out + torch.arange(x.shape[-2], dtype=x.dtype)[-heads_out.shape[-2] :, None]


class ShiftedMLP(MLP):
    def forward(self, *args: Any) -> Tensor:
        return super().forward(*args) + 1.0


class ScaledCell(LSTMCell):
    """A cell with something that no fast path has."""

    def forward(self, *args: Any) -> Any:
        states, final = super().forward(*args)
        return 2 * states, final


class OffsetPositions(PositionEncoding):
    """A position encoding of a later version: a bias that prefers far positions."""

    def bias(self, x: Tensor, positions: Positions, n_past: int) -> Tensor:
        n = x.shape[-2]
        return alibi_bias(-torch.ones(3, dtype=x.dtype), absolute_positions(positions, n, x.device, n_past), n_past + n)


def make_decoder(model: SequenceModel, n_runs: int, n_samples: int) -> Decoder:
    return model.family.make_decoder(model, n_runs, n_samples, 20)


def with_new_attention(model: GPT) -> GPT:
    for block in model.blocks:
        cast(Block, block).attention.__class__ = OutputBiasedAttention
    return model


def with_new_positions(model: GPT) -> GPT:
    model.position_table.__class__ = OffsetPositions
    return model


def decoded_and_full(model: SequenceModel, n_runs: int, n_samples: int) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(11, (n_runs, n_samples, 7), generator=torch.Generator().manual_seed(3))
    decoder = make_decoder(model.eval(), n_runs, n_samples)
    with torch.inference_mode():
        decoder.prefill(tokens[..., :2])
        steps = [decoder.step(tokens[..., i]) for i in range(2, 7)]
        return torch.stack(steps, dim=2), model(tokens)[:, :, 2:]


@pytest.mark.parametrize(("n_runs", "n_samples"), [(1, 1), (2, 3)])
def test_a_model_with_an_unknown_part_is_decoded_by_its_own_forward(n_runs: int, n_samples: int) -> None:
    model = with_new_attention(cast(GPT, make_model(n_runs, positions="alibi")))
    assert isinstance(make_decoder(model, n_runs, n_samples), RecomputingDecoder)
    torch.testing.assert_close(*decoded_and_full(model, n_runs, n_samples), rtol=0, atol=1e-11)


def test_known_models_keep_their_cached_decoders() -> None:
    assert isinstance(make_decoder(make_model(), 1, 1), NumpyDecoder)
    assert isinstance(make_decoder(make_model(2), 2, 3), GPTDecoder)


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
    monkeypatch.setattr(modules, "can_fuse_attention", lambda *_: True)
    monkeypatch.setattr(modules, "fused_attention", lambda *_: pytest.fail("the fused kernel does not know it"))
    model = with_new_positions(cast(GPT, make_model(positions="none")))
    model(torch.tensor([[[3, 1, 4]]]))
    assert not is_standard(model)
    torch.testing.assert_close(*decoded_and_full(model, 1, 1), rtol=0, atol=1e-11)


def test_an_unknown_block_is_not_run_by_the_fused_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "can_fuse_add_norm", lambda *_: True)
    monkeypatch.setattr(modules, "linear_add_norm", lambda *_, **__: pytest.fail("fuses what it does not know"))
    for norm in ("pre", "post"):
        model = cast(GPT, make_model(norm=norm))
        for block in model.blocks:
            cast(Block, block).mlp.__class__ = ShiftedMLP
        model.eval()(torch.tensor([[[3, 1, 4]]]))


def test_an_lstm_is_decoded_by_its_own_cells() -> None:
    model = cast(LSTM, make_model(2, kind="lstm"))
    before = decoded_and_full(model, 2, 3)
    cast(LSTMCell, model.cells[0]).__class__ = ScaledCell
    after = decoded_and_full(model, 2, 3)
    torch.testing.assert_close(*after, rtol=0, atol=1e-11)
    assert not torch.allclose(before[0], after[0], atol=1e-3)


def test_only_modules_of_known_types_become_fast() -> None:
    model = make_model()
    assert {type(module) for module in model.modules()} >= {modules.FastGPT, modules.FastBlock, modules.FastAttention}
    readable = model.family.build(DATASET_INFO)
    cast(Block, readable.get_submodule("blocks.0")).attention.__class__ = OutputBiasedAttention
    modules.use_fast_modules(readable)
    assert type(readable.get_submodule("blocks.0.attention")) is OutputBiasedAttention
    assert type(readable.get_submodule("blocks.1.attention")) is modules.FastAttention


@pytest.mark.parametrize("settings", [{"positions": "t5", "norm": "pre"}, {"kind": "lstm"}, {"activation": "relu"}])
def test_fast_and_readable_modules_agree(settings: dict[str, Any]) -> None:
    fast, tokens = make_model(2, **settings).eval(), torch.randint(11, (2, 3, 7))
    expected = fast(tokens)
    to_readable = {quick: readable for readable, quick in modules.FAST_MODULES.items()}
    for module in fast.modules():
        module.__class__ = to_readable.get(type(module), type(module))
    torch.testing.assert_close(fast(tokens), expected, rtol=0, atol=1e-12)
