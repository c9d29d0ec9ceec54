"""Our kernels for a GPU are the functions they replace; `benchmarks/device.py` times them.

Where Triton is installed but no GPU is there, they are interpreted, in float32.
"""

from __future__ import annotations

import os

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined
pytest.importorskip("triton", reason="needs Triton, which comes with torch for GPUs")

from seedbed.models.kernels.attention import short_attention  # noqa: E402
from seedbed.models.kernels.gelu import biased_gelu  # noqa: E402
from seedbed.models.layers import attention_weights, mix_by_weights  # noqa: E402
from seedbed.models.positions import alibi  # noqa: E402

LIMITS = {"fp32": 1e-6} | ({"tf32": 3e-3, "bf16": 1e-2} if DEVICE == "cuda" else {})  # of ‖ours − exact‖ / ‖exact‖
SHAPES = [  # runs, samples, positions, heads, width, causal, with bias, ALiBi
    (3, 4, 128, 6, 32, True, True, False),
    (1, 5, 100, 2, 16, False, True, True),
    (2, 3, 33, 4, 64, True, False, True),
    (4, 2, 32, 2, 32, False, True, False),
]


def off(ours: Tensor, exact: Tensor) -> float:
    return float((ours.double() - exact).norm() / exact.norm())


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, device=DEVICE).to(dtype).requires_grad_()


def exact(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach().double().requires_grad_()


def dtype_of(precision: str) -> torch.dtype:
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
    return torch.bfloat16 if precision == "bf16" else torch.float32


@pytest.mark.parametrize("precision", LIMITS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_short_attention_is_attention_with_its_gradients(shape, precision):
    n_runs, n_samples, n, heads, width, causal, with_bias, with_alibi = shape
    qkv = drawn(n_runs, n_samples, n, 3 * heads * width, dtype=dtype_of(precision))
    bias = drawn(n_runs, 3 * heads * width) if with_bias else None
    slopes = 2.0 ** -torch.arange(1.0, heads + 1, device=DEVICE) if with_alibi else None
    grad = drawn(n_runs, n_samples, n, heads * width, dtype=qkv.dtype).detach()
    mixed = short_attention(qkv, bias, slopes, heads, causal)
    mixed.backward(grad)

    qkv64, bias64 = exact(qkv), exact(bias)
    parts = (qkv64 if bias64 is None else qkv64 + bias64[:, None, None]).unflatten(-1, (3, heads, width)).unbind(3)
    where = torch.arange(n, device=DEVICE)
    seen = where[:, None] >= where if causal else torch.ones(n, n, dtype=torch.bool, device=DEVICE)
    added = None if slopes is None else alibi(slopes.double(), where, n)
    expected = mix_by_weights(attention_weights(parts[0], parts[1], seen, added), parts[2]).flatten(-2)
    expected.backward(grad.double())

    assert off(mixed, expected) < LIMITS[precision]
    assert off(qkv.grad, qkv64.grad) < LIMITS[precision]
    assert bias is None or off(bias.grad, bias64.grad) < LIMITS[precision]


@pytest.mark.parametrize("precision", LIMITS)
@pytest.mark.parametrize("shape", [(3, 300, 768), (1, 77, 100), (8, 256, 512)], ids=str)
def test_biased_gelu_is_gelu_with_its_gradients(shape, precision):
    n_runs, _, width = shape
    x, bias = drawn(*shape, dtype=dtype_of(precision)), drawn(n_runs, width)
    grad = drawn(*shape, dtype=x.dtype).detach()
    ours = biased_gelu(x, bias)
    ours.backward(grad)
    x64, bias64 = exact(x), exact(bias)
    expected = F.gelu(x64 + bias64[:, None])
    expected.backward(grad.double())
    limit = LIMITS["bf16" if precision == "bf16" else "fp32"]
    assert off(ours, expected) < limit
    assert off(x.grad, x64.grad) < limit
    assert off(bias.grad, bias64.grad) < limit
