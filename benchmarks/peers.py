"""The models that seedbed is compared with, each for one run; loops.py trains them.

    model = plain_model(settings)

A GPT and an encoder the nanoGPT way (SDPA, nn.LayerNorm, nn.Dropout), an LSTM from nn.LSTM, and Hugging Face's GPT-2 of
the same shape. All return logits (B, T, V), with T = 1 for labels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seedbed.models.families import EncoderSettings, GPTSettings, LSTMSettings
from seedbed.models.families.transformer_settings import TransformerSettings
from seedbed.models.positions import alibi_slopes, rotary_frequencies, sinusoidal_embedding
from seedbed.settings import Settings
from seedbed.tasks import TextSettings

ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu}


class Block(nn.Module):
    def __init__(self, settings: TransformerSettings, causal: bool) -> None:
        super().__init__()
        d = settings.dim
        self.heads, self.causal = settings.heads, causal
        self.norm_first, self.dropout_rate = settings.norm == "pre", settings.attention_dropout
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d, settings.has_qkv_bias)
        self.out = nn.Linear(d, d, settings.attention_bias)
        self.up, self.down = (
            nn.Linear(d, settings.mlp_width, settings.mlp_bias),
            nn.Linear(settings.mlp_width, d, settings.mlp_bias),
        )
        self.activation = ACTIVATIONS[settings.activation]
        self.drop1, self.drop2 = nn.Dropout(settings.residual_dropout), nn.Dropout(settings.residual_dropout)
        self.drop_hidden, self.drop_mlp = nn.Dropout(settings.mlp_dropout), nn.Dropout(settings.dropout)

    def forward(self, x: Tensor, bias: Tensor | None, cos_sin: Tensor | None) -> Tensor:
        if self.norm_first:
            x = x + self.drop1(self.attend(self.ln1(x), bias, cos_sin))
            return x + self.mlp(self.ln2(x))
        x = self.ln1(x + self.drop1(self.attend(x, bias, cos_sin)))
        return self.ln2(x + self.mlp(x))

    def mlp(self, x: Tensor) -> Tensor:
        return self.drop2(self.drop_mlp(self.down(self.drop_hidden(self.activation(self.up(x))))))

    def attend(self, x: Tensor, bias: Tensor | None, cos_sin: Tensor | None) -> Tensor:
        n, t, d = x.shape
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(d, dim=2))
        if cos_sin is not None:
            q, k = apply_rotary(q, cos_sin), apply_rotary(k, cos_sin)
        rate = self.dropout_rate if self.training else 0.0
        causal = self.causal and bias is None
        mask = None if bias is None else bias[:, :t, :t].to(q.dtype)
        heads_out = F.scaled_dot_product_attention(q, k, v, mask, rate, causal)
        return self.out(heads_out.transpose(1, 2).contiguous().view(n, t, d))


def apply_rotary(x: Tensor, cos_sin: Tensor) -> Tensor:
    """Rotary position embedding as in LLaMA: x·cos + rotate_half(x)·sin."""
    cos, sin = cos_sin[:, : x.shape[2]].to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class PlainTransformer(nn.Module):
    """Embeddings and blocks, shared by GPT and encoder."""

    def __init__(self, settings: TransformerSettings, vocabulary: int, context: int, causal: bool) -> None:
        super().__init__()
        kind, d = settings.positions, settings.dim
        self.tokens = nn.Embedding(vocabulary, d)
        self.positions = nn.Embedding(context, d) if kind == "learned" else None
        self.register_buffer(
            "sinusoids", sinusoidal_embedding(context, d, settings.position_exponent) if kind == "sinusoidal" else None
        )
        self.register_buffer("bias", alibi_bias(settings.heads, context, causal) if kind == "alibi" else None)
        self.register_buffer("cos_sin", rotary_cos_sin(d // settings.heads, context) if kind == "rotary" else None)
        self.drop = nn.Dropout(settings.embedding_dropout)
        self.blocks = nn.ModuleList(Block(settings, causal) for _ in range(settings.layers))
        self.final = nn.LayerNorm(d) if settings.final_norm else nn.Identity()

    def forward_blocks(self, tokens: Tensor) -> Tensor:
        n = tokens.shape[1]
        x = self.tokens(tokens)
        if self.sinusoids is not None:
            x = x + self.sinusoids[:n].to(x.dtype)
        if self.positions is not None:
            x = x + self.positions(torch.arange(n, device=tokens.device))
        x = self.drop(x)
        for block in self.blocks:
            x = block(x, self.bias, self.cos_sin)
        return self.final(x)


def alibi_bias(heads: int, context: int, causal: bool) -> Tensor:
    """ALiBi bias −slope · |i − j| (H, T, T), with −∞ for future positions if causal."""
    positions = torch.arange(context)
    distance = (positions[:, None] - positions).abs()
    bias = -alibi_slopes(heads)[:, None, None] * distance
    return bias.masked_fill(positions[:, None] < positions, float("-inf")) if causal else bias


def rotary_cos_sin(width: int, context: int) -> Tensor:
    """Cosine and sine of the rotary angles (2, T, K), repeated for both halves of the head."""
    angles = torch.arange(context)[:, None] * rotary_frequencies(width)
    angles = torch.cat([angles, angles], dim=1)
    return torch.stack([angles.cos(), angles.sin()])


class PlainGPT(PlainTransformer):
    def __init__(self, settings: GPTSettings, vocabulary: int, context: int) -> None:
        super().__init__(settings, vocabulary, context, causal=True)
        self.head = nn.Linear(settings.dim, vocabulary, settings.output_bias)
        if settings.tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.forward_blocks(tokens))


class PlainEncoder(PlainTransformer):
    def __init__(self, settings: EncoderSettings, vocabulary: int, context: int, classes: int) -> None:
        super().__init__(settings, vocabulary, context, causal=False)
        self.hidden = nn.Linear(settings.dim, settings.classifier_hidden)
        self.norm = nn.BatchNorm1d(settings.classifier_hidden) if settings.batch_norm else nn.Identity()
        self.activation = ACTIVATIONS[settings.activation]
        self.drop_hidden = nn.Dropout(settings.classifier_dropout)
        self.labels = nn.Linear(settings.classifier_hidden, classes, settings.output_bias)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.activation(self.norm(self.hidden(self.forward_blocks(tokens).mean(1))))
        return self.labels(self.drop_hidden(hidden))[:, None]


class PlainLSTM(nn.Module):
    def __init__(self, settings: LSTMSettings, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, settings.dim)
        self.drop = nn.Dropout(settings.embedding_dropout)
        between = settings.dropout if settings.layers > 1 else 0.0
        has_bias = settings.gate_biases > 0
        self.lstm = nn.LSTM(
            settings.dim, settings.hidden_width, settings.layers, has_bias, batch_first=True, dropout=between
        )
        self.projection = None if settings.projection is None else nn.Linear(settings.hidden_width, settings.projection)
        self.activation = ACTIVATIONS[settings.activation]
        self.head = nn.Linear(settings.output_width, vocabulary, settings.output_bias)
        if settings.tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.drop(self.tokens(tokens)))
        return self.head(states if self.projection is None else self.activation(self.projection(states)))


def plain_model(settings: Settings) -> nn.Module:
    model_settings, dataset_info = settings.model, settings.task.dataset_info()
    context, vocab_size = longest_context(settings), dataset_info.vocab_size
    if isinstance(model_settings, LSTMSettings):
        return PlainLSTM(model_settings, vocab_size)
    if isinstance(model_settings, EncoderSettings):
        return PlainEncoder(model_settings, vocab_size, context, dataset_info.n_classes)
    return PlainGPT(model_settings, vocab_size, context)


def longest_context(settings: Settings) -> int:
    """Tokens of the longest window that is trained on, or evaluated if the model can process longer ones."""
    context: int = settings.task.dataset_info().context_length
    if isinstance(settings.task, TextSettings) and settings.model.max_context(context) is None:
        return max([context, *settings.task.lengths])
    return context


def hugging_face_model(settings: Settings) -> nn.Module:
    """GPT2LMHeadModel of the same shape, returning logits; raises ImportError if transformers is not installed."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model_settings, dataset_info = settings.model, settings.task.dataset_info()
    config = GPT2Config(
        vocab_size=dataset_info.vocab_size, n_positions=dataset_info.context_length, n_embd=model_settings.dim,
        n_layer=model_settings.layers, n_head=model_settings.heads, activation_function="gelu",
        tie_word_embeddings=False, use_cache=False,
        embd_pdrop=model_settings.embedding_dropout, attn_pdrop=model_settings.attention_dropout,
        resid_pdrop=model_settings.residual_dropout,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip

    class LogitsOnly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gpt2 = GPT2LMHeadModel(config)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.gpt2(tokens).logits

    return LogitsOnly()


MODELS: dict[str, Callable[[Settings], nn.Module]] = {"plain": plain_model, "hugging_face": hugging_face_model}
