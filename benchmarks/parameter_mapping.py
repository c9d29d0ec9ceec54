"""Maps a peer's parameter names to ours, so that both can hold the same weights and be compared.

load_weights(plain_model(settings), ours)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def our_parameter_name(name: str) -> tuple[str, bool]:
    """Our name of a peer's parameter, and whether the peer stores it transposed.

    >>> our_parameter_name("blocks.3.qkv.weight"), our_parameter_name("gpt2.transformer.h.3.attn.c_attn.weight")
    (('blocks.3.attention.qkv.weight', False), ('blocks.3.attention.qkv.weight', True))
    """
    name = name.removeprefix("gpt2.").removeprefix("transformer.")
    transposed = ".c_" in name and name.endswith("weight")  # Hugging Face's Conv1D weights are (in, out)
    kind, _, leaf = name.rpartition(".")
    if kind == "lstm":
        side, layer = leaf.removeprefix("weight_").removeprefix("bias_").split("_l")
        part = "input" if side == "ih" else "state"
        return f"cells.{layer}.{part}.{leaf.partition('_')[0]}", False
    top_level = {"tokens": "embed", "wte": "embed", "positions": "position_table", "wpe": "position_table",
             "final": "final_norm", "ln_f": "final_norm", "head": "output", "lm_head": "output",
             "projection": "projection", "hidden": "classifier.hidden", "norm": "classifier.norm",
             "labels": "classifier.output"}  # fmt: skip
    if kind in top_level:
        return f"{top_level[kind]}.{leaf}", False
    _, number, part = kind.split(".", 2)
    in_block = {"qkv": "attention.qkv", "out": "attention.out", "up": "mlp.up", "down": "mlp.down", "ln1": "norm1",
             "ln2": "norm2", "ln_1": "norm1", "ln_2": "norm2", "attn.c_attn": "attention.qkv",
             "attn.c_proj": "attention.out", "mlp.c_fc": "mlp.up", "mlp.c_proj": "mlp.down"}  # fmt: skip
    return f"blocks.{number}.{in_block[part]}.{leaf}", transposed


def find_counterpart(name: str, ours: Mapping[str, Tensor]) -> Tensor | None:
    """Our tensor for a peer's parameter; None for nn.LSTM's second bias if we have only one, where it must be 0."""
    our_name, transposed = our_parameter_name(name)
    if our_name not in ours and our_name.endswith(".state.bias"):
        return None
    return ours[our_name].T if transposed else ours[our_name]


@torch.no_grad()
def load_weights(model: nn.Module, ours: Mapping[str, Tensor]) -> None:
    """Copies the weights of one of our runs into a peer."""
    for name, parameter in model.named_parameters():
        mine = find_counterpart(name, ours)
        if mine is None:
            parameter.zero_()
        else:
            parameter.copy_(mine)
