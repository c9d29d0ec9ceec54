"""What others would write: the models that seedbed is compared with, each for one run; loops.py trains them.

    model = plain_model(settings)

A GPT and an encoder the nanoGPT way (SDPA, nn.LayerNorm, nn.Dropout), an LSTM from nn.LSTM, and Hugging Face's GPT-2 of
the same shape. All give logits (B, T, V); of labels there is one position.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seedbed.data.dataset_info import get_dataset_info
from seedbed.models.positions import alibi_slopes, rotary_frequencies, sinusoidal_embedding
from seedbed.settings import EncoderSettings, GPTSettings, LSTMSettings, Settings, TransformerSettings

ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu}


class Block(nn.Module):
    def __init__(self, dials: TransformerSettings, causal: bool) -> None:
        super().__init__()
        d = dials.dim
        self.heads, self.causal = dials.heads, causal
        self.pre, self.rate = dials.norm == "pre", dials.attention_dropout
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d, dials.has_qkv_bias)
        self.out = nn.Linear(d, d, dials.attention_bias)
        self.up, self.down = (
            nn.Linear(d, dials.mlp_width, dials.mlp_bias),
            nn.Linear(dials.mlp_width, d, dials.mlp_bias),
        )
        self.activation = ACTIVATIONS[dials.activation]
        self.drop1, self.drop2 = nn.Dropout(dials.residual_dropout), nn.Dropout(dials.residual_dropout)
        self.drop_hidden, self.drop_mlp = nn.Dropout(dials.mlp_dropout), nn.Dropout(dials.dropout)

    def forward(self, x: Tensor, bias: Tensor | None, turns: Tensor | None) -> Tensor:
        if self.pre:
            x = x + self.drop1(self.attend(self.ln1(x), bias, turns))
            return x + self.mlp(self.ln2(x))
        x = self.ln1(x + self.drop1(self.attend(x, bias, turns)))
        return self.ln2(x + self.mlp(x))

    def mlp(self, x: Tensor) -> Tensor:
        return self.drop2(self.drop_mlp(self.down(self.drop_hidden(self.activation(self.up(x))))))

    def attend(self, x: Tensor, bias: Tensor | None, turns: Tensor | None) -> Tensor:
        n, t, d = x.shape
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(d, dim=2))
        if turns is not None:
            q, k = turned(q, turns), turned(k, turns)
        rate = self.rate if self.training else 0.0
        causal = self.causal and bias is None
        mask = None if bias is None else bias[:, :t, :t].to(q.dtype)
        mixed = F.scaled_dot_product_attention(q, k, v, mask, rate, causal)
        return self.out(mixed.transpose(1, 2).contiguous().view(n, t, d))


def turned(x: Tensor, turns: Tensor) -> Tensor:
    """Rotary positions as in LLaMA: x·cos + rotate_half(x)·sin."""
    cos, sin = turns[:, : x.shape[2]].to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class PlainTransformer(nn.Module):
    """Tokens with their positions through blocks."""

    def __init__(self, dials: TransformerSettings, vocabulary: int, context: int, causal: bool) -> None:
        super().__init__()
        kind, d = dials.positions, dials.dim
        self.tokens = nn.Embedding(vocabulary, d)
        self.positions = nn.Embedding(context, d) if kind == "learned" else None
        self.register_buffer(
            "waves", sinusoidal_embedding(context, d, dials.position_exponent) if kind == "sinusoidal" else None
        )
        self.register_buffer("bias", alibi_bias(dials.heads, context, causal) if kind == "alibi" else None)
        self.register_buffer("turns", rotary_turns(d // dials.heads, context) if kind == "rotary" else None)
        self.drop = nn.Dropout(dials.embedding_dropout)
        self.blocks = nn.ModuleList(Block(dials, causal) for _ in range(dials.layers))
        self.final = nn.LayerNorm(d) if dials.final_norm else nn.Identity()

    def stream(self, tokens: Tensor) -> Tensor:
        n = tokens.shape[1]
        x = self.tokens(tokens)
        if self.waves is not None:
            x = x + self.waves[:n].to(x.dtype)
        if self.positions is not None:
            x = x + self.positions(torch.arange(n, device=tokens.device))
        x = self.drop(x)
        for block in self.blocks:
            x = block(x, self.bias, self.turns)
        return self.final(x)


def alibi_bias(heads: int, context: int, causal: bool) -> Tensor:
    """(H, T, T): −slope · |i − j|, and nothing of what comes later where that is hidden."""
    place = torch.arange(context)
    apart = (place[:, None] - place).abs()
    bias = -alibi_slopes(heads)[:, None, None] * apart
    return bias.masked_fill(place[:, None] < place, float("-inf")) if causal else bias


def rotary_turns(width: int, context: int) -> Tensor:
    """(2, T, K): cosine and sine of each position's angles, twice side by side."""
    angles = torch.arange(context)[:, None] * rotary_frequencies(width)
    angles = torch.cat([angles, angles], dim=1)
    return torch.stack([angles.cos(), angles.sin()])


class PlainGPT(PlainTransformer):
    def __init__(self, dials: GPTSettings, vocabulary: int, context: int) -> None:
        super().__init__(dials, vocabulary, context, causal=True)
        self.head = nn.Linear(dials.dim, vocabulary, dials.output_bias)
        if dials.tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.stream(tokens))


class PlainEncoder(PlainTransformer):
    def __init__(self, dials: EncoderSettings, vocabulary: int, context: int, classes: int) -> None:
        super().__init__(dials, vocabulary, context, causal=False)
        self.hidden = nn.Linear(dials.dim, dials.classifier_hidden)
        self.norm = nn.BatchNorm1d(dials.classifier_hidden) if dials.batch_norm else nn.Identity()
        self.activation = ACTIVATIONS[dials.activation]
        self.drop_hidden = nn.Dropout(dials.classifier_dropout)
        self.labels = nn.Linear(dials.classifier_hidden, classes, dials.output_bias)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.activation(self.norm(self.hidden(self.stream(tokens).mean(1))))
        return self.labels(self.drop_hidden(hidden))[:, None]


class PlainLSTM(nn.Module):
    def __init__(self, dials: LSTMSettings, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, dials.dim)
        self.drop = nn.Dropout(dials.embedding_dropout)
        between = dials.dropout if dials.layers > 1 else 0.0
        has_bias = dials.gate_biases > 0
        self.lstm = nn.LSTM(dials.dim, dials.hidden_width, dials.layers, has_bias, batch_first=True, dropout=between)
        self.projection = None if dials.projection is None else nn.Linear(dials.hidden_width, dials.projection)
        self.activation = ACTIVATIONS[dials.activation]
        self.head = nn.Linear(dials.output_width, vocabulary, dials.output_bias)
        if dials.tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.drop(self.tokens(tokens)))
        return self.head(states if self.projection is None else self.activation(self.projection(states)))


def plain_model(settings: Settings) -> nn.Module:
    dials, facts = settings.model, get_dataset_info(settings.task)
    if isinstance(dials, LSTMSettings):
        return PlainLSTM(dials, facts.vocab_size)
    if isinstance(dials, EncoderSettings):
        return PlainEncoder(dials, facts.vocab_size, facts.context_length, facts.n_classes)
    return PlainGPT(dials, facts.vocab_size, facts.context_length)


def hugging_face_model(settings: Settings) -> nn.Module:
    """GPT2LMHeadModel of the same shape, its logits only; raises ImportError where transformers is not installed."""
    from transformers import GPT2Config, GPT2LMHeadModel

    dials, facts = settings.model, get_dataset_info(settings.task)
    config = GPT2Config(
        vocab_size=facts.vocab_size, n_positions=facts.context_length, n_embd=dials.dim, n_layer=dials.layers,
        n_head=dials.heads, activation_function="gelu", tie_word_embeddings=False, use_cache=False,
        embd_pdrop=dials.embedding_dropout, attn_pdrop=dials.attention_dropout, resid_pdrop=dials.residual_dropout,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip

    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gpt2 = GPT2LMHeadModel(config)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.gpt2(tokens).logits

    return Logits()


MODELS: dict[str, Callable[[Settings], nn.Module]] = {"plain": plain_model, "hugging_face": hugging_face_model}
