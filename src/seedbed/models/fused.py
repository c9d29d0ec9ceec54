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

from seedbed.models.layers import HAS_TRITON, SHORT, LayerNorm, Linear
from seedbed.models.recurrence import recur


def fuses_attention(x: Float[Tensor, "R B T D"], heads: int) -> bool:
    """Whether `fused_attention` takes this input: on a GPU, neither very short nor long."""
    if not (HAS_TRITON and x.is_cuda and x.dtype != torch.float64 and x.shape[2] > SHORT):
        return False
    from seedbed.models.kernels.attention import fits

    return fits(x.shape[2], x.shape[3] // heads)


def fused_attention(
    qkv: Linear, x: Float[Tensor, "R B T D"], heads: int, causal: bool, slopes: Float[Tensor, "H"] | None
) -> Float[Tensor, "R B T D"]:
    """Self-attention by a kernel of our own, which adds the bias of the map before it and ALiBi's on the way."""
    from seedbed.models.kernels.attention import short_attention

    slopes = None if slopes is None else slopes.float()
    return short_attention(qkv.product(x), qkv.bias, slopes, heads, causal)


def gelu_of(up: Linear, x: Float[Tensor, "R B T D"]) -> Float[Tensor, "R B T E"]:
    """GELU of an affine map; on a GPU the bias is added on the way."""
    if not (HAS_TRITON and x.is_cuda and x.dtype != torch.float64):
        return F.gelu(up(x))
    from seedbed.models.kernels.gelu import biased_gelu

    mapped = up.product(x)
    return biased_gelu(mapped.flatten(1, 2), up.bias).view_as(mapped)


def fuses_norm(x: Float[Tensor, "R B T D"]) -> bool:
    """Whether `add_norm` takes this stream: on a GPU, not too wide."""
    if not (HAS_TRITON and x.is_cuda and x.dtype != torch.float64):
        return False
    from seedbed.models.kernels.norm import fits

    return fits(x.shape[-1])


def add_norm(
    x: Float[Tensor, "R B T D"],
    out: Linear,
    z: Float[Tensor, "R B T E"],
    norm: LayerNorm | None,
    norm_goes_on: bool = False,
) -> tuple[Float[Tensor, "R B T D"], Float[Tensor, "R B T D"]]:
    """The stream with an affine map of z added to it, and its norm, in one pass; without a norm, the sum twice.

    Where the norm goes on as the stream it keeps the stream's precision.
    """
    if norm is None:
        total = x + out(z)
        return total, total
    from seedbed.models.kernels.norm import add_norm as kernel

    y = out.product(z).flatten(1, 2)
    total, normed, *_ = kernel(x.flatten(1, 2), y, out.bias, norm.weight, norm.bias, norm_goes_on)
    return total.view_as(x), normed.view_as(x)


def has_library_lstm(x: Float[Tensor, "R B T D"]) -> bool:
    """Whether the library's LSTM is taken: on a CPU run by run, on a GPU for one run on long text.

    Not where 16-bit products are asked for: cuDNN's would then be those of float16, whatever was asked for.
    """
    if torch.compiler.is_compiling():
        return False
    return x.device.type == "cpu" or (len(x) == 1 and x.shape[2] > SHORT and not torch.is_autocast_enabled("cuda"))


def library_lstm(
    x: Float[Tensor, "R B T D"], past: tuple[Tensor, Tensor], of_input: Linear, of_state: Linear
) -> tuple[Float[Tensor, "R B T H"], tuple[Float[Tensor, "R B H"], Float[Tensor, "R B H"]]]:
    """One layer of the library's LSTM (oneDNN, cuDNN) with these two maps: states, and the last state and cell."""
    h, c = past
    weights: list[Tensor] = [of_input.weight, of_state.weight]
    if of_input.bias is not None:  # the library has two biases or none
        weights += [of_input.bias, torch.zeros_like(of_input.bias) if of_state.bias is None else of_state.bias]
    by_run = zip(x.unbind(), h.unbind(), c.unbind(), *(weight.unbind() for weight in weights), strict=True)
    ends = [
        torch.lstm(one, (h1[None], c1[None]), own, len(own) > 2, 1, 0.0, True, False, True)
        for one, h1, c1, *own in by_run
    ]
    states, h_end, c_end = (torch.stack(parts) for parts in zip(*ends, strict=True))
    return states, (h_end.squeeze(1), c_end.squeeze(1))


def has_fused_cells(x: Float[Tensor, "R B T D"]) -> bool:
    """Whether `fused_cells` are taken: on a GPU, unless the compiler fuses them."""
    return x.is_cuda and not torch.compiler.is_compiling()


def fused_cells(
    from_input: Float[Tensor, "R B T 4H"], past: tuple[Tensor, Tensor], of_state: Linear
) -> tuple[Float[Tensor, "R B T H"], tuple[Float[Tensor, "R B H"], Float[Tensor, "R B H"]]]:
    """One layer of LSTM cells, all runs at once: states, and the last state and cell; only products are in 16 bits."""
    from_input = from_input.to(of_state.weight.dtype)
    if of_state.bias is not None:
        from_input = from_input + of_state.bias[:, None, None]
    lower = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else of_state.weight.dtype
    return recur(from_input, of_state.weight.to(lower), *past)
