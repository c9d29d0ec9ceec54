"""What others would write: the plain loops that seedbed is compared with, each for one model.

    step = plain_loop(settings, "cpu")     # a function that makes one update
    model = plain_model(settings); load(model, ours)

A GPT the nanoGPT way and an LSTM from nn.LSTM, trained by a DataLoader (equations) or by random windows of one row of
ids (text), torch.optim.AdamW and clip_grad_norm_; and Hugging Face's GPT-2 of the same shape in the same loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from seedbed.data.arithmetic import N_SCORED, split, table
from seedbed.data.facts import facts_of
from seedbed.data.prepared import prepare_text
from seedbed.models.positions import sinusoidal
from seedbed.settings import LSTM, Arithmetic, Settings, Transformer


class Block(nn.Module):
    def __init__(self, dials: Transformer) -> None:
        super().__init__()
        d = dials.dim
        self.heads, self.pre, self.rate = dials.heads, dials.norm == "pre", dials.attention_dropout
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d, dials.has_qkv_bias)
        self.out = nn.Linear(d, d, dials.attention_bias)
        self.up, self.down = nn.Linear(d, 4 * d, dials.mlp_bias), nn.Linear(4 * d, d, dials.mlp_bias)
        self.drop1, self.drop2 = nn.Dropout(dials.residual_dropout), nn.Dropout(dials.residual_dropout)

    def forward(self, x: Tensor) -> Tensor:
        if self.pre:
            x = x + self.drop1(self.attend(self.ln1(x)))
            return x + self.drop2(self.down(F.gelu(self.up(self.ln2(x)))))
        x = self.ln1(x + self.drop1(self.attend(x)))
        return self.ln2(x + self.drop2(self.down(F.gelu(self.up(x)))))

    def attend(self, x: Tensor) -> Tensor:
        n, t, d = x.shape
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(d, dim=2))
        rate = self.rate if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=True)
        return self.out(mixed.transpose(1, 2).contiguous().view(n, t, d))


class PlainGPT(nn.Module):
    def __init__(self, dials: Transformer, vocabulary: int, context: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, dials.dim)
        learned = dials.positions == "learned"
        self.positions = nn.Embedding(context, dials.dim) if learned else None
        waves = None if learned else sinusoidal(context, dials.dim, dials.position_exponent)
        self.register_buffer("waves", waves)
        self.drop = nn.Dropout(dials.embedding_dropout)
        self.blocks = nn.ModuleList(Block(dials) for _ in range(dials.layers))
        self.final = nn.LayerNorm(dials.dim) if dials.final_norm else nn.Identity()
        self.head = nn.Linear(dials.dim, vocabulary, dials.output_bias)

    def forward(self, tokens: Tensor) -> Tensor:
        n = tokens.shape[1]
        x = self.tokens(tokens)
        if self.positions is None:
            x = x + self.waves[:n].to(x.dtype)
        else:
            x = x + self.positions(torch.arange(n, device=tokens.device))
        x = self.drop(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.final(x))


class PlainLSTM(nn.Module):
    def __init__(self, dials: LSTM, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, dials.dim)
        self.lstm = nn.LSTM(dials.dim, dials.width, dials.layers, batch_first=True)
        self.head = nn.Linear(dials.width, vocabulary, dials.output_bias)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.lstm(self.tokens(tokens))[0])


def plain_model(settings: Settings) -> nn.Module:
    dials, facts = settings.model, facts_of(settings.task)
    if isinstance(dials, LSTM):
        return PlainLSTM(dials, facts.vocabulary)
    return PlainGPT(dials, facts.vocabulary, facts.context)


def hugging_face_model(settings: Settings) -> nn.Module:
    """GPT2LMHeadModel of the same shape, its logits only; raises ImportError where transformers is not installed."""
    from transformers import GPT2Config, GPT2LMHeadModel

    dials, facts = settings.model, facts_of(settings.task)
    config = GPT2Config(
        vocab_size=facts.vocabulary, n_positions=facts.context, n_embd=dials.dim, n_layer=dials.layers,
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


def same_place(name: str) -> tuple[str, bool] | None:
    """Our name of a peer's parameter, and whether it lies there transposed; None: we have none, and it must be zero.

    >>> same_place("blocks.3.qkv.weight"), same_place("gpt2.transformer.h.3.attn.c_attn.weight")
    (('blocks.3.attention.qkv.weight', False), ('blocks.3.attention.qkv.weight', True))
    """
    name = name.removeprefix("gpt2.").removeprefix("transformer.")
    transposed = ".c_" in name and name.endswith("weight")  # Hugging Face keeps these maps as (in, out)
    kind, _, leaf = name.rpartition(".")
    if kind == "lstm":
        side, layer = leaf.removeprefix("weight_").removeprefix("bias_").split("_l")
        if leaf.startswith("bias_hh"):
            return None
        part = "input" if side == "ih" else "state"
        return f"cells.{layer}.{part}.{leaf.partition('_')[0]}", False
    whole = {"tokens": "embed", "wte": "embed", "positions": "position_table", "wpe": "position_table",
             "final": "final_norm", "ln_f": "final_norm", "head": "output", "lm_head": "output"}  # fmt: skip
    if kind in whole:
        return f"{whole[kind]}.{leaf}", False
    _, number, part = kind.split(".", 2)
    inner = {"qkv": "attention.qkv", "out": "attention.out", "up": "mlp.up", "down": "mlp.down", "ln1": "norm1",
             "ln2": "norm2", "ln_1": "norm1", "ln_2": "norm2", "attn.c_attn": "attention.qkv",
             "attn.c_proj": "attention.out", "mlp.c_fc": "mlp.up", "mlp.c_proj": "mlp.down"}  # fmt: skip
    return f"blocks.{number}.{inner[part]}.{leaf}", transposed


@torch.no_grad()
def load(model: nn.Module, ours: Mapping[str, Tensor]) -> None:
    """Gives a peer the weights of one of our runs."""
    for name, parameter in model.named_parameters():
        place = same_place(name)
        if place is None:
            parameter.zero_()
        else:
            parameter.copy_(ours[place[0]].T if place[1] else ours[place[0]])


def plain_loop(settings: Settings, device: str, kind: str = "plain") -> Callable[[], None]:
    """One update of one model, as a plain training loop makes it."""
    torch.manual_seed(0)
    model, dials = MODELS[kind](settings).to(device).train(), settings.train
    optimizer = torch.optim.AdamW(model.parameters(), dials.lr, dials.betas, dials.eps, dials.weight_decay)
    batches = equations(settings, device) if isinstance(settings.task, Arithmetic) else windows(settings, device)

    def step() -> None:
        inputs, targets = next(batches)
        logits = model(inputs)[:, -targets.shape[1] :]
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if dials.clip:
            nn.utils.clip_grad_norm_(model.parameters(), dials.clip)
        optimizer.step()

    return step


def equations(settings: Settings, device: str) -> Iterator[tuple[Tensor, Tensor]]:
    tokens = torch.from_numpy(table(settings.task).tokens)[split(settings.task, 0)[0]]
    samples = TensorDataset(tokens[:, :-1], tokens[:, -N_SCORED:])
    loader = DataLoader(samples, settings.train.batch_size, shuffle=True)
    while True:
        yield from ((inputs.to(device), targets.to(device)) for inputs, targets in loader)


def windows(settings: Settings, device: str) -> Iterator[tuple[Tensor, Tensor]]:
    ids = torch.from_numpy(prepare_text(settings.task).parts["train"].ids.astype("int64"))
    n, length = settings.train.batch_size, settings.task.length
    while True:
        starts = torch.randint(len(ids) - length, (n,)).tolist()
        inputs = torch.stack([ids[i : i + length] for i in starts])
        targets = torch.stack([ids[i + 1 : i + 1 + length] for i in starts])
        yield inputs.to(device), targets.to(device)
