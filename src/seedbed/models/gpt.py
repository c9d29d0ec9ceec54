"""Decoder-only transformer: parts, block, model; the encoder is made of the same parts.

The last block and the output run only at the positions that are wanted (`at`), since nobody reads the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

import torch
from torch import Tensor, nn

from seedbed.models.fused import add_norm, fused_attention, fuses_attention, fuses_norm, gelu_of
from seedbed.models.layers import (
    ACTIVATIONS,
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    Output,
    Positions,
    PositionTable,
    attend,
    attend_through,
    attention_weights,
    join,
    mix_by_weights,
    places,
    take,
    visible,
)
from seedbed.models.maps import lowered
from seedbed.models.positions import alibi, alibi_slopes, rotary_frequencies, rotate, sinusoidal
from seedbed.models.taps import NO_TAPS, Taps
from seedbed.settings import GPT as GPTSettings
from seedbed.settings import Transformer

Memory: TypeAlias = tuple[Tensor, Tensor]  # keys and values of one block


class Attention(nn.Module):
    """Multi-head attention, causal or not; one matrix holds queries, keys and values."""

    def __init__(self, dials: Transformer, causal: bool) -> None:
        super().__init__()
        self.heads, self.dim, self.causal = dials.heads, dials.dim, causal
        self.qkv = Linear(dials.dim, 3 * dials.dim, dials.has_qkv_bias, parts=3)
        self.out = Linear(dials.dim, dials.dim, dials.attention_bias)
        self.dropout = Dropout("attention_dropout")
        self.slopes: Tensor | None
        self.frequencies: Tensor | None
        slopes = alibi_slopes(dials.heads) if dials.positions == "alibi" else None
        frequencies = rotary_frequencies(dials.dim // dials.heads) if dials.positions == "rotary" else None
        self.register_buffer("slopes", slopes, persistent=False)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(
        self, x: Tensor, at: Positions, past: Memory | None, taps: Taps, name: str, kept: list[Memory] | None = None
    ) -> Tensor:
        return self.out(self.mix(x, at, past, taps, name, kept))

    def mix(
        self, x: Tensor, at: Positions, past: Memory | None, taps: Taps, name: str, kept: list[Memory] | None = None
    ) -> Tensor:
        """What all heads have mixed, side by side, before the last map; its keys and values are added to `kept`."""
        if at is None and past is None and kept is None and self._fuses(x, taps):
            return fused_attention(self.qkv, x, self.heads, self.causal, self.slopes)
        parts = (part.unflatten(-1, (self.heads, -1)) for part in self._project(x, at))
        query, key, value = (taps(f"{name}.{of}", part) for of, part in zip("qkv", parts, strict=True))
        n, n_past = x.shape[-2], 0 if past is None else past[0].shape[-3]
        query, key = self._turn(query, at, n, n_past), self._turn(key, None, n, n_past)
        if kept is not None:
            kept.append((key, value))
        if past is not None:
            key, value = join(past[0], key), join(past[1], value)
        seen = visible(at, n, x.device, n_past) if self.causal else x.new_ones(n, n, dtype=torch.bool)
        bias = None
        if self.slopes is not None:
            bias = alibi(self.slopes, places(at, n, x.device, n_past), n_past + n).to(x.dtype)
        causal = None if self.causal and (at is not None or past is not None) else self.causal
        mixed = self._mixed(query, key, value, seen, bias, causal, taps, f"{name}.pattern")
        return taps(f"{name}.z", mixed).flatten(-2)

    def _fuses(self, x: Tensor, taps: Taps) -> bool:
        """Whether nobody looks at or changes anything between the map of the input and the mixed values."""
        watched = taps.active or self.dropout.drops or self.frequencies is not None
        return not watched and fuses_attention(x, self.heads)

    def _mixed(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        seen: Tensor,
        bias: Tensor | None,
        causal: bool | None,
        taps: Taps,
        name: str,
    ) -> Tensor:
        """Values averaged by the attention weights; weights that are only read leave every bit as it was."""
        if self.dropout.drops:
            if taps.wants(name):
                taps(name, attention_weights(query, key, seen, bias))
            return attend_through(query, key, value, seen, bias, causal, self.dropout)
        if taps.wants(name):
            pattern = attention_weights(query, key, seen, bias)
            changed = taps(name, pattern)
            if changed is not pattern and not torch.equal(changed, pattern):
                return mix_by_weights(changed, value)
        return attend(query, key, value, seen, bias, causal)

    def remember(self, x: Tensor) -> Memory:
        """Keys and values, for those who come after."""
        key, value = self.qkv(x, slice(self.dim, None)).unflatten(-1, (2 * self.heads, -1)).chunk(2, dim=-2)
        return self._turn(key, None, x.shape[-2], 0), value

    def _turn(self, x: Tensor, at: Positions, n: int, n_past: int) -> Tensor:
        """Queries or keys turned by where they stand, if positions are told so."""
        return x if self.frequencies is None else rotate(x, places(at, n, x.device, n_past), self.frequencies)

    def _project(self, x: Tensor, at: Positions) -> tuple[Tensor, ...]:
        if at is None:
            return self.qkv(x).split(self.dim, dim=-1)
        query, others = self.qkv.each([take(x, at), x], [self.dim, 2 * self.dim])
        return query, *others.split(self.dim, dim=-1)


class MLP(nn.Module):
    def __init__(self, dials: Transformer) -> None:
        super().__init__()
        self.up = Linear(dials.dim, dials.mlp_width, dials.mlp_bias)
        self.down = Linear(dials.mlp_width, dials.dim, dials.mlp_bias)
        self.activation = ACTIVATIONS[dials.activation]
        self.is_gelu = dials.activation == "gelu"
        self.dropout = Dropout("mlp_dropout")

    def forward(self, x: Tensor, taps: Taps, name: str) -> Tensor:
        return self.down(self.hidden(x, taps, name))

    def hidden(self, x: Tensor, taps: Taps, name: str) -> Tensor:
        """What the last map reads."""
        if self.is_gelu and not taps.active:
            return self.dropout(gelu_of(self.up, x))
        hidden = self.activation(taps(f"{name}.pre", self.up(x)))
        return self.dropout(taps(f"{name}.post", hidden))


class Block(nn.Module):
    def __init__(self, dials: Transformer, causal: bool = True) -> None:
        super().__init__()
        self.norm_first = dials.norm == "pre"
        self.attention, self.mlp = Attention(dials, causal), MLP(dials)
        self.norm1, self.norm2 = LayerNorm(dials.dim), LayerNorm(dials.dim)
        self.dropout = Dropout()
        self.residual1, self.residual2 = Dropout("residual_dropout"), Dropout("residual_dropout")

    def remember(self, x: Tensor) -> Memory:
        return self.attention.remember(self.norm1(x) if self.norm_first else x)

    def forward(
        self, x: Tensor, at: Positions, past: Memory | None, taps: Taps, name: str, kept: list[Memory] | None = None
    ) -> Tensor:
        """The stream at the wanted positions after this block, whose keys and values are added to `kept`."""
        inner, x = f"{name}.attention", taps(f"{name}.in", x)
        if self.norm_first:
            attended = taps(f"{inner}.out", self.attention(self.norm1(x), at, past, taps, inner, kept))
            x = taps(f"{name}.mid", take(x, at) + self.residual1(attended))
            return taps(f"{name}.out", x + self._mlp(self.norm2(x), taps, f"{name}.mlp"))
        if not (taps.active or self.drops or torch.compiler.is_compiling()) and fuses_norm(x):
            return self._sums(x, at, past, kept)  # compiled, it was no faster (docs/log.md)
        attended = taps(f"{inner}.out", self.attention(x, at, past, taps, inner, kept))
        x = taps(f"{name}.mid", self.norm1(take(x, at) + self.residual1(attended)))
        return taps(f"{name}.out", self.norm2(x + self._mlp(x, taps, f"{name}.mlp")))

    @property
    def drops(self) -> bool:
        """Whether not all of what the parts give is added to the stream."""
        return self.dropout.drops or self.residual1.drops or self.residual2.drops

    def _sums(self, x: Tensor, at: Positions, past: Memory | None, kept: list[Memory] | None) -> Tensor:
        """As `forward` with norms after the sums, where nobody looks: a sum and the norm of it are one pass."""
        mixed = self.attention.mix(x, at, past, NO_TAPS, "", kept)
        _, x = add_norm(take(x, at), self.attention.out, mixed, self.norm1, norm_goes_on=True)
        return add_norm(x, self.mlp.down, self.mlp.hidden(x, NO_TAPS, ""), self.norm2, norm_goes_on=True)[1]

    @property
    def carries(self) -> bool:
        """Whether parts read norms and what they add to the stream is added as it is."""
        return self.norm_first and not self.drops

    def carry(self, x: Tensor, normed: Tensor, following: LayerNorm | None) -> tuple[Tensor, Tensor]:
        """The stream and its norm after this block, from those before it; a sum and the norm of it are one pass."""
        mixed = self.attention.mix(normed, None, None, NO_TAPS, "")
        x, normed = add_norm(x, self.attention.out, mixed, self.norm2)
        return add_norm(x, self.mlp.down, self.mlp.hidden(normed, NO_TAPS, ""), following)

    def _mlp(self, x: Tensor, taps: Taps, name: str) -> Tensor:
        return taps(f"{name}.out", self.residual2(self.dropout(self.mlp(x, taps, name))))


class Stream(nn.Module):
    """Tokens with their positions, on their way through blocks: what decoder and encoder have in common."""

    def __init__(self, dials: Transformer, vocabulary: int, context: int, causal: bool) -> None:
        super().__init__()
        frozen = dials.embeddings is not None
        self.embed = Embedding(vocabulary, dials.dim, frozen=frozen)
        self.position_table = PositionTable(context, dials.dim, frozen) if dials.positions == "learned" else None
        self.waves: Tensor | None
        waves = sinusoidal(context, dials.dim, dials.position_exponent) if dials.positions == "sinusoidal" else None
        self.register_buffer("waves", waves, persistent=False)
        self.exponent = dials.position_exponent
        self.embed_dropout = Dropout("embedding_dropout")
        self.blocks = nn.ModuleList(Block(dials, causal) for _ in range(dials.layers))
        self.final_norm = LayerNorm(dials.dim) if dials.final_norm else None

    def placed(self, tokens: Tensor, n_past: int = 0, taps: Taps = NO_TAPS) -> Tensor:
        """The vectors of these tokens where they stand, after n_past others."""
        x = taps("embed.tokens", self.embed(tokens))
        if self.position_table is not None:
            x = self.position_table(x, n_past)
        elif self.waves is not None:
            x = x + self._waves_up_to(n_past + x.shape[-2])[n_past:].to(x)
        return lowered(self.embed_dropout(x))

    def through(self, x: Tensor, at: Positions, past: Sequence[Memory] | None, taps: Taps) -> Tensor:
        """The stream after all blocks, and normed once more if the model does that."""
        if at is None and past is None and not taps.active and self._carries(x):
            return self._carried(x)
        for i, block in enumerate(self.blocks):
            wanted = at if block is self.blocks[-1] else None
            x = block(x, wanted, None if past is None else past[i], taps, f"blocks.{i}")
        return x if self.final_norm is None else taps("final_norm", self.final_norm(x))

    def _carries(self, x: Tensor) -> bool:
        """Whether sums and norms can be done together all the way."""
        return fuses_norm(x) and all(cast(Block, block).carries for block in self.blocks)

    def _carried(self, x: Tensor) -> Tensor:
        """As `through` where nobody looks: the stream and its norm go from block to block."""
        blocks = cast("list[Block]", list(self.blocks))
        normed = blocks[0].norm1(x)
        for block, following in zip(blocks, [*(later.norm1 for later in blocks[1:]), self.final_norm], strict=True):
            x, normed = block.carry(x, normed, following)
        return normed

    def _waves_up_to(self, n: int) -> Tensor:
        """The waves of the first n positions; past those of training they are made on the spot."""
        assert self.waves is not None
        return self.waves[:n] if n <= len(self.waves) else sinusoidal(n, self.waves.shape[1], self.exponent)


class GPT(Stream):
    def __init__(self, dials: GPTSettings, vocabulary: int, context: int) -> None:
        super().__init__(dials, vocabulary, context, causal=True)
        self.output = Output(dials.dim, vocabulary, dials.output_bias, self.embed if dials.tied else None)

    def forward(
        self, tokens: Tensor, at: Positions = None, taps: Taps = NO_TAPS, past: Sequence[Memory] | None = None
    ) -> Tensor:
        """Logits of the next token at the wanted positions; `past` is what was remembered of the tokens before."""
        n_past = 0 if past is None else past[0][0].shape[-3]
        x = taps("embed", self.placed(tokens, n_past, taps))
        return taps("logits", self.output(self.through(x, at, past, taps)))

    def remember(self, tokens: Tensor) -> list[Memory]:
        """What later tokens need of these: each block's keys and values."""
        *blocks, last = cast("list[Block]", list(self.blocks))
        memories: list[Memory] = []
        x = self.placed(tokens)
        for block in blocks:
            x = block(x, None, None, NO_TAPS, "", memories)
        return [*memories, last.remember(x)]
