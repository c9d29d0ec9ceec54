"""Fused versions of parts of a model, by torch's own kernels or ours; each computes the function it replaces.

    fused_attention(qkv, x, heads, causal, slopes) if can_fuse_attention(x, heads) else …

They handle the run axis, as `layers.py` does, so that models need not. Our Triton kernels are imported only on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from seedbed.models.bitwise import copy_aligned, is_aligned
from seedbed.models.fast.lstm_recurrence import run_lstm_recurrence
from seedbed.models.layers import HAS_TRITON, SHORT_ATTENTION_POSITIONS, LayerNorm, Linear


def can_fuse_attention(x: Float[Tensor, "R B T D"], heads: int) -> bool:
    """Whether `fused_attention` supports this input: on a GPU, of medium length."""
    if not (HAS_TRITON and x.is_cuda and x.dtype != torch.float64 and x.shape[2] > SHORT_ATTENTION_POSITIONS):
        return False
    from seedbed.models.fast.kernels.short_attention import is_supported_shape

    return is_supported_shape(x.shape[2], x.shape[3] // heads)


def fused_attention(
    qkv: Linear, x: Float[Tensor, "R B T D"], heads: int, causal: bool, slopes: Float[Tensor, "H"] | None
) -> Float[Tensor, "R B T D"]:
    """Self-attention by our Triton kernel, which also adds the QKV bias and the ALiBi bias."""
    from seedbed.models.fast.kernels.short_attention import short_attention

    slopes = None if slopes is None else slopes.float()
    return short_attention(qkv.forward_without_bias(x), qkv.bias, slopes, heads, causal)


def linear_gelu(up: Linear, x: Float[Tensor, "R B T D"]) -> Float[Tensor, "R B T E"]:
    """GELU of a linear layer; on a GPU adding the bias is fused with the GELU."""
    if not (HAS_TRITON and x.is_cuda and x.dtype != torch.float64):
        return F.gelu(up(x))
    from seedbed.models.fast.kernels.bias_gelu import bias_gelu

    pre_bias = up.forward_without_bias(x)
    return bias_gelu(pre_bias.flatten(1, 2), up.bias).view_as(pre_bias)


def can_fuse_add_norm(x: Float[Tensor, "R B T D"]) -> bool:
    """Whether `linear_add_norm` supports this residual stream: on a GPU, not too wide."""
    if not (HAS_TRITON and x.is_cuda and x.dtype != torch.float64):
        return False
    from seedbed.models.fast.kernels.add_layer_norm import is_supported_width

    return is_supported_width(x.shape[-1])


def linear_add_norm(
    x: Float[Tensor, "R B T D"],
    out: Linear,
    z: Float[Tensor, "R B T E"],
    norm: LayerNorm | None,
    keep_stream_dtype: bool = False,
) -> tuple[Float[Tensor, "R B T D"], Float[Tensor, "R B T D"]]:
    """(x + out(z), norm(x + out(z))) with bias, add and norm in one kernel; without a norm, the sum twice.

    `keep_stream_dtype`: return the norm in x's dtype, for post-norm blocks, where it is the next residual stream.
    """
    if norm is None:
        total = x + out(z)
        return total, total
    from seedbed.models.fast.kernels.add_layer_norm import add_layer_norm

    y = out.forward_without_bias(z).flatten(1, 2)
    total, normed, *_ = add_layer_norm(x.flatten(1, 2), y, out.bias, norm.weight, norm.bias, keep_stream_dtype)
    return total.view_as(x), normed.view_as(x)


def should_use_torch_lstm(x: Float[Tensor, "R B T D"]) -> bool:
    """Use torch's LSTM (oneDNN, cuDNN)? On a CPU always, on a GPU for a single run with long sequences."""
    if torch.compiler.is_compiling():
        return False
    return x.device.type == "cpu" or (len(x) == 1 and x.shape[2] > SHORT_ATTENTION_POSITIONS)


def torch_lstm(
    x: Float[Tensor, "R B T D"], past: tuple[Tensor, Tensor], input_linear: Linear, state_linear: Linear
) -> tuple[Float[Tensor, "R B T H"], tuple[Float[Tensor, "R B H"], Float[Tensor, "R B H"]]]:
    """One layer of torch.lstm with these weights, run by run: all hidden states, and the final (h, c).

    Under autocast everything is in its dtype; autocast itself is switched off, since it would make cuDNN use float16.
    """
    h, c = past
    weights: list[Tensor] = [input_linear.weight, state_linear.weight]
    if input_linear.bias is not None:  # torch.lstm takes two biases or none
        state_bias = torch.zeros_like(input_linear.bias) if state_linear.bias is None else state_linear.bias
        weights += [input_linear.bias, state_bias]
    device = x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weights[0].dtype
    with torch.autocast(device, enabled=False):
        if x.is_cuda:
            weights = _concatenate(weights, dtype)
        by_run = zip(*(tensor.to(dtype).unbind() for tensor in (x, h, c, *weights)), strict=True)
        n_runs, n_states = len(x), h.numel() * x.shape[2] // len(x)
        is_shared = n_runs == 1 or x.is_cuda or is_aligned(x.numel() // n_runs, h.numel() // n_runs, n_states)
        own = (lambda tensor: tensor) if is_shared else copy_aligned
        outputs = []
        for x_run, h_run, c_run, *run_weights in by_run:
            state, has_bias = (own(h_run)[None], own(c_run)[None]), len(run_weights) > 2
            out = torch.lstm(own(x_run), state, run_weights, has_bias, 1, 0.0, True, False, True)
            outputs.append([own(part) for part in out])
    states, final_h, final_c = (torch.stack(parts) for parts in zip(*outputs, strict=True))
    return states, (final_h.squeeze(1), final_c.squeeze(1))


def _concatenate(weights: Sequence[Float[Tensor, "R ..."]], dtype: torch.dtype) -> list[Tensor]:
    """The weights as views of one block of memory per run, which cuDNN would otherwise make itself at every call."""
    block = torch.cat([weight.flatten(1).to(dtype) for weight in weights], dim=1)
    parts = block.split([weight[0].numel() for weight in weights], dim=1)
    return [part.unflatten(1, weight.shape[1:]) for part, weight in zip(parts, weights, strict=True)]


def should_use_fused_lstm(x: Float[Tensor, "R B T D"]) -> bool:
    """Use `fused_lstm`? On a GPU, unless compiling, where Inductor fuses the cells."""
    return x.is_cuda and not torch.compiler.is_compiling()


def fused_lstm(
    input_gates: Float[Tensor, "R B T 4H"], past: tuple[Tensor, Tensor], state_linear: Linear
) -> tuple[Float[Tensor, "R B T H"], tuple[Float[Tensor, "R B H"], Float[Tensor, "R B H"]]]:
    """One LSTM layer of all runs at once: all hidden states, and the final (h, c); only matmuls are in 16 bits."""
    input_gates = input_gates.to(state_linear.weight.dtype)
    if state_linear.bias is not None:
        input_gates = input_gates + state_linear.bias[:, None, None]
    matmul_dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else state_linear.weight.dtype
    with torch.autocast(input_gates.device.type, enabled=False):  # it would make the fused cell 16-bit too
        return run_lstm_recurrence(input_gates, state_linear.weight.to(matmul_dtype), *past)
