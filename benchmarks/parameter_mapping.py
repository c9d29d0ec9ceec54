"""Where a peer's parameters lie among ours, so that both can hold the same weights and be compared.

load(plain_model(settings), ours)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def same_place(name: str) -> tuple[str, bool]:
    """Our name of a peer's parameter, and whether it lies there transposed.

    >>> same_place("blocks.3.qkv.weight"), same_place("gpt2.transformer.h.3.attn.c_attn.weight")
    (('blocks.3.attention.qkv.weight', False), ('blocks.3.attention.qkv.weight', True))
    """
    name = name.removeprefix("gpt2.").removeprefix("transformer.")
    transposed = ".c_" in name and name.endswith("weight")  # Hugging Face keeps these maps as (in, out)
    kind, _, leaf = name.rpartition(".")
    if kind == "lstm":
        side, layer = leaf.removeprefix("weight_").removeprefix("bias_").split("_l")
        part = "input" if side == "ih" else "state"
        return f"cells.{layer}.{part}.{leaf.partition('_')[0]}", False
    whole = {"tokens": "embed", "wte": "embed", "positions": "position_table", "wpe": "position_table",
             "final": "final_norm", "ln_f": "final_norm", "head": "output", "lm_head": "output",
             "projection": "projection", "hidden": "classifier.hidden", "norm": "classifier.norm",
             "labels": "classifier.output"}  # fmt: skip
    if kind in whole:
        return f"{whole[kind]}.{leaf}", False
    _, number, part = kind.split(".", 2)
    inner = {"qkv": "attention.qkv", "out": "attention.out", "up": "mlp.up", "down": "mlp.down", "ln1": "norm1",
             "ln2": "norm2", "ln_1": "norm1", "ln_2": "norm2", "attn.c_attn": "attention.qkv",
             "attn.c_proj": "attention.out", "mlp.c_fc": "mlp.up", "mlp.c_proj": "mlp.down"}  # fmt: skip
    return f"blocks.{number}.{inner[part]}.{leaf}", transposed


def counterpart(name: str, ours: Mapping[str, Tensor]) -> Tensor | None:
    """Ours of a peer's parameter, lying as it does; None: nn.LSTM's second bias where we have one, which must be 0."""
    place, transposed = same_place(name)
    if place not in ours and place.endswith(".state.bias"):
        return None
    return ours[place].T if transposed else ours[place]


@torch.no_grad()
def load(model: nn.Module, ours: Mapping[str, Tensor]) -> None:
    """Gives a peer the weights of one of our runs."""
    for name, parameter in model.named_parameters():
        mine = counterpart(name, ours)
        if mine is None:
            parameter.zero_()
        else:
            parameter.copy_(mine)
