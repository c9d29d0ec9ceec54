"""Parts of a model as one kernel of a library's or of our own, where that is faster; each is the function it replaces.

    fused_attention(qkv, x, heads, causal, slopes) if fuses_attention(x, heads) else …

They know the run axis, as `layers.py` does; who asks first whether they apply need not. Kernels of our own are imported
only on a GPU.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from seedbed.models.layers import HAS_TRITON, SHORT_ATTENTION_POSITIONS, LayerNorm, Linear
from seedbed.models.lstm_recurrence import run_lstm_recurrence


def can_fuse_attention(x: Float[Tensor, "R B T D"], heads: int) -> bool:
    """Whether `fused_attention` takes this input: on a GPU, neither very short nor long."""
    if not (HAS_TRITON and x.is_cuda and x.dtype != torch.float64 and x.shape[2] > SHORT_ATTENTION_POSITIONS):
        return False
    from seedbed.models.kernels.short_attention import is_supported_shape

    return is_supported_shape(x.shape[2], x.shape[3] // heads)


def fused_attention(
    qkv: Linear, x: Float[Tensor, "R B T D"], heads: int, causal: bool, slopes: Float[Tensor, "H"] | None
) -> Float[Tensor, "R B T D"]:
    """Self-attention by a kernel of our own, which adds the bias of the map before it and ALiBi's on the way."""
    from seedbed.models.kernels.short_attention import short_attention

    slopes = None if slopes is None else slopes.float()
    return short_attention(qkv.forward_without_bias(x), qkv.bias, slopes, heads, causal)


def linear_gelu(up: Linear, x: Float[Tensor, "R B T D"]) -> Float[Tensor, "R B T E"]:
    """GELU of an affine map; on a GPU the bias is added on the way."""
    if not (HAS_TRITON and x.is_cuda and x.dtype != torch.float64):
        return F.gelu(up(x))
    from seedbed.models.kernels.bias_gelu import bias_gelu

    mapped = up.forward_without_bias(x)
    return bias_gelu(mapped.flatten(1, 2), up.bias).view_as(mapped)


def can_fuse_add_norm(x: Float[Tensor, "R B T D"]) -> bool:
    """Whether `add_norm` takes this stream: on a GPU, not too wide."""
    if not (HAS_TRITON and x.is_cuda and x.dtype != torch.float64):
        return False
    from seedbed.models.kernels.add_layer_norm import is_supported_width

    return is_supported_width(x.shape[-1])


def linear_add_norm(
    x: Float[Tensor, "R B T D"],
    out: Linear,
    z: Float[Tensor, "R B T E"],
    norm: LayerNorm | None,
    keep_stream_dtype: bool = False,
) -> tuple[Float[Tensor, "R B T D"], Float[Tensor, "R B T D"]]:
    """The stream with an affine map of z added to it, and its norm, in one pass; without a norm, the sum twice.

    Where the norm goes on as the stream it keeps the stream's precision.
    """
    if norm is None:
        total = x + out(z)
        return total, total
    from seedbed.models.kernels.add_layer_norm import add_layer_norm as kernel

    y = out.forward_without_bias(z).flatten(1, 2)
    total, normed, *_ = kernel(x.flatten(1, 2), y, out.bias, norm.weight, norm.bias, keep_stream_dtype)
    return total.view_as(x), normed.view_as(x)


def should_use_torch_lstm(x: Float[Tensor, "R B T D"]) -> bool:
    """Whether the library's LSTM is taken: on a CPU run by run, on a GPU for one run on long text.

    Not where 16-bit products are asked for: cuDNN's would then be those of float16, whatever was asked for.
    """
    if torch.compiler.is_compiling():
        return False
    return x.device.type == "cpu" or (
        len(x) == 1 and x.shape[2] > SHORT_ATTENTION_POSITIONS and not torch.is_autocast_enabled("cuda")
    )


def torch_lstm(
    x: Float[Tensor, "R B T D"], past: tuple[Tensor, Tensor], input_linear: Linear, state_linear: Linear
) -> tuple[Float[Tensor, "R B T H"], tuple[Float[Tensor, "R B H"], Float[Tensor, "R B H"]]]:
    """One layer of the library's LSTM (oneDNN, cuDNN) with these two maps: states, and the last state and cell."""
    h, c = past
    weights: list[Tensor] = [input_linear.weight, state_linear.weight]
    if input_linear.bias is not None:  # the library has two biases or none
        weights += [
            input_linear.bias,
            torch.zeros_like(input_linear.bias) if state_linear.bias is None else state_linear.bias,
        ]
    by_run = zip(x.unbind(), h.unbind(), c.unbind(), *(weight.unbind() for weight in weights), strict=True)
    ends = [
        torch.lstm(one, (h1[None], c1[None]), own, len(own) > 2, 1, 0.0, True, False, True)
        for one, h1, c1, *own in by_run
    ]
    states, h_end, c_end = (torch.stack(parts) for parts in zip(*ends, strict=True))
    return states, (h_end.squeeze(1), c_end.squeeze(1))


def should_use_fused_lstm(x: Float[Tensor, "R B T D"]) -> bool:
    """Whether `fused_cells` are taken: on a GPU, unless the compiler fuses them."""
    return x.is_cuda and not torch.compiler.is_compiling()


def fused_lstm(
    input_gates: Float[Tensor, "R B T 4H"], past: tuple[Tensor, Tensor], state_linear: Linear
) -> tuple[Float[Tensor, "R B T H"], tuple[Float[Tensor, "R B H"], Float[Tensor, "R B H"]]]:
    """One layer of LSTM cells, all runs at once: states, and the last state and cell; only products are in 16 bits."""
    input_gates = input_gates.to(state_linear.weight.dtype)
    if state_linear.bias is not None:
        input_gates = input_gates + state_linear.bias[:, None, None]
    lower = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else state_linear.weight.dtype
    return run_lstm_recurrence(input_gates, state_linear.weight.to(lower), *past)
