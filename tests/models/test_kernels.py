"""Our Triton kernels equal the functions they replace; `benchmarks/device.py` times them.

Without a GPU they run in Triton's interpreter, in float32.
"""

from __future__ import annotations

import os

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import make_boxed_func
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined
pytest.importorskip("triton", reason="needs Triton, which comes with torch for GPUs")

from seedbed.models.build import build_pack  # noqa: E402
from seedbed.models.fast.kernels.add_layer_norm import add_layer_norm  # noqa: E402
from seedbed.models.fast.kernels.bias_gelu import bias_gelu  # noqa: E402
from seedbed.models.fast.kernels.short_attention import short_attention  # noqa: E402
from seedbed.models.fast.kernels.tiny_attention import tiny_attention  # noqa: E402
from seedbed.models.fast.linear import batched_linear  # noqa: E402
from seedbed.models.layers import (  # noqa: E402
    Linear,
    apply_attention_weights,
    apply_elementwise_weights,
    attention_weights,
    elementwise_attention_weights,
)
from seedbed.models.positions import alibi_bias  # noqa: E402
from seedbed.settings import DatasetInfo, Settings  # noqa: E402
from seedbed.training import fused_adam  # noqa: E402
from seedbed.training.evaluate import compute_metrics  # noqa: E402
from seedbed.training.trainer import Trainer  # noqa: E402

LIMITS = {"fp32": 1e-6} | ({"tf32": 3e-3, "bf16": 1e-2} if DEVICE == "cuda" else {})  # of ‖ours − exact‖ / ‖exact‖
DTYPE_16_BIT = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # the only one that the interpreter supports
STREAMS = {  # dtypes of the residual stream and of what is added to it
    "float32": (torch.float32, torch.float32),
    "16 bits": (DTYPE_16_BIT, DTYPE_16_BIT),
    "16 bits added to float32": (torch.float32, DTYPE_16_BIT),
}
SHAPES = [  # runs, samples, positions, heads, width, causal, with bias, ALiBi
    (3, 2, 128, 3, 32, True, True, False),
    (2, 1, 65, 2, 64, True, False, True),
    (1, 5, 100, 2, 16, False, True, True),
    (2, 3, 33, 4, 64, True, False, True),
    (4, 2, 32, 2, 32, False, True, False),
]


def relative_error(ours: Tensor, exact: Tensor) -> float:
    return float((ours.double() - exact).norm() / exact.norm())


def random_tensor(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, device=DEVICE).to(dtype).requires_grad_()


def strided_bias(n_runs: int, width: int) -> Tensor:
    """A bias as in a model: slices of the flat weights, so not contiguous."""
    return random_tensor(n_runs, width + 16).detach()[:, :width].requires_grad_()


def to_float64(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach().double().requires_grad_()


def set_precision(precision: str) -> torch.dtype:
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
    return torch.bfloat16 if precision == "bf16" else torch.float32


@pytest.mark.parametrize("precision", LIMITS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_short_attention_equals_attention_with_gradients(shape, precision):
    n_runs, n_samples, n, heads, width, causal, with_bias, with_alibi = shape
    qkv = random_tensor(n_runs, n_samples, n, 3 * heads * width, dtype=set_precision(precision))
    bias = strided_bias(n_runs, 3 * heads * width) if with_bias else None
    slopes = 2.0 ** -torch.arange(1.0, heads + 1, device=DEVICE) if with_alibi else None
    grad = random_tensor(n_runs, n_samples, n, heads * width, dtype=qkv.dtype).detach()
    out = short_attention(qkv, bias, slopes, heads, causal)
    out.backward(grad)

    qkv64, bias64 = to_float64(qkv), to_float64(bias)
    parts = (qkv64 if bias64 is None else qkv64 + bias64[:, None, None]).unflatten(-1, (3, heads, width)).unbind(3)
    positions = torch.arange(n, device=DEVICE)
    mask = positions[:, None] >= positions if causal else torch.ones(n, n, dtype=torch.bool, device=DEVICE)
    score_bias = None if slopes is None else alibi_bias(slopes.double(), positions, n)
    expected = apply_attention_weights(attention_weights(parts[0], parts[1], mask, score_bias), parts[2]).flatten(-2)
    expected.backward(grad.double())

    assert relative_error(out, expected) < LIMITS[precision]
    assert relative_error(qkv.grad, qkv64.grad) < LIMITS[precision]
    assert bias is None or relative_error(bias.grad, bias64.grad) < LIMITS[precision]


@pytest.mark.parametrize("precision", LIMITS)
@pytest.mark.parametrize("shape", [(3, 300, 768), (1, 77, 100), (8, 256, 512)], ids=str)
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("programs", [1, 512], ids=["a large batch", "a small one"])
def test_bias_gelu_equals_gelu_with_gradients(shape, programs, with_bias, precision, monkeypatch):
    monkeypatch.setattr("seedbed.models.fast.kernels.bias_gelu.MIN_PROGRAMS", programs)
    n_runs, _, width = shape
    x, bias = random_tensor(*shape, dtype=set_precision(precision)), strided_bias(n_runs, width) if with_bias else None
    grad = random_tensor(*shape, dtype=x.dtype).detach()
    ours = bias_gelu(x, bias)
    ours.backward(grad)
    x64, bias64 = to_float64(x), to_float64(bias)
    expected = F.gelu(x64 if bias64 is None else x64 + bias64[:, None])
    expected.backward(grad.double())
    limit = LIMITS["bf16" if precision == "bf16" else "fp32"]
    assert relative_error(ours, expected) < limit
    assert relative_error(x.grad, x64.grad) < limit
    assert bias is None or relative_error(bias.grad, bias64.grad) < limit


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("sum_is_used", [True, False], ids=["sum and norm used", "only norm used"])
@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("keep_x_dtype", [False, True], ids=["norm in y's dtype", "norm in x's dtype"])
@pytest.mark.parametrize("shape", [(3, 77, 192), (1, 40, 48), (2, 33, 1000)], ids=str)
def test_add_layer_norm_equals_a_sum_and_its_norm_with_gradients(shape, keep_x_dtype, with_bias, sum_is_used, stream):
    n_runs, _, width = shape
    x_dtype, y_dtype = STREAMS[stream]
    x, y = random_tensor(*shape, dtype=x_dtype), random_tensor(*shape, dtype=y_dtype)
    rows = random_tensor(n_runs, 3, width + 5).detach()[..., :width].unbind(1)  # slices of one tensor, as in a model
    weight, shift, bias = (row.requires_grad_() for row in rows)
    grad_total, grad_normed = (
        random_tensor(*shape, dtype=dtype).detach() for dtype in (x_dtype, x_dtype if keep_x_dtype else y_dtype)
    )
    used = 2 if sum_is_used else 1
    total, normed, *_ = add_layer_norm(x, y, bias if with_bias else None, weight, shift, keep_x_dtype)
    torch.autograd.backward([normed, total][:used], [grad_normed, grad_total][:used])

    float64_inputs = [to_float64(one) for one in (x, y, weight, shift, bias)]
    x64, y64, weight64, shift64, bias64 = float64_inputs
    total64 = x64 + y64 + (bias64[:, None] if with_bias else 0)
    normed64 = F.layer_norm(total64, (width,)) * weight64[:, None] + shift64[:, None]
    torch.autograd.backward([normed64, total64][:used], [grad_normed.double(), grad_total.double()][:used])

    limit = 1e-6 if x_dtype == y_dtype == torch.float32 else 1e-2
    assert (total.dtype, normed.dtype) == (x_dtype, grad_normed.dtype)
    assert relative_error(total, total64) < (1e-6 if x_dtype == torch.float32 else 1e-2)
    assert relative_error(normed, normed64) < limit
    for ours, expected in zip(
        (x, y, weight, shift, bias), float64_inputs if with_bias else float64_inputs[:-1], strict=False
    ):
        assert relative_error(ours.grad, expected.grad) < limit


def test_compiled_backward_has_no_gradient_of_an_unused_sum():
    def last_norm(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return add_layer_norm(x, y, None, weight, weight, False)[1]

    graphs = []

    def keep(graph: torch.fx.GraphModule, _: object) -> object:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    x, y, weight = random_tensor(2, 16, 48), random_tensor(2, 16, 48), random_tensor(2, 48)
    backend = aot_autograd(fw_compiler=keep, bw_compiler=keep)
    torch.compile(last_norm, backend=backend, dynamic=False)(x, y, weight).sum().backward()
    (backward,) = graphs[1].graph.find_nodes(op="call_function", target=torch.ops.seedbed.add_norm_backward.default)
    assert backward.args[0] is None


TEXT = {"task.kind": "text", "model.mlp_bias": True, "model.final_norm": True}
LABELS = {"task.kind": "labels", "model.kind": "encoder", "model.attention_bias": False, "model.positions": "learned"}


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("overrides", [TEXT, LABELS], ids=["gpt", "encoder"])
def test_models_are_the_same_with_fused_add_norm(overrides, norm, monkeypatch):
    dataset_info = DatasetInfo(
        vocab_size=19, context_length=7, n_train=50, padding_id=0, n_classes=3 if overrides is LABELS else None
    )
    shape = {"model.dim": 48, "model.heads": 4, "model.layers": 2, "model.norm": norm}
    step = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    model, parameters = build_pack(
        [Settings.from_flat(overrides | shape)] * 3, (3, 5, 8), step, torch.float32, dataset_info
    )
    tokens = torch.randint(19, (3, 4, 7), device=DEVICE)
    set_precision("fp32")
    results = []
    for fused_path in (False, True):
        monkeypatch.setattr("seedbed.models.fast.modules.can_fuse_add_norm", lambda x, fuses=fused_path: fuses)
        logits = model(tokens)
        results.append((logits, parameters.compute_gradients(logits.logsumexp(-1).sum()).clone()))
    (plain, plain_gradients), (fused, gradients) = results
    assert not torch.equal(plain_gradients, gradients)  # negative control: the two paths differ in rounding
    assert relative_error(fused, plain.double()) < 1e-5
    assert relative_error(gradients, plain_gradients.double()) < 1e-5


@pytest.mark.parametrize("precision", LIMITS)
@pytest.mark.parametrize("by_sample", [False, True])
@pytest.mark.parametrize("shape", [(2, 5, 3, 6, 4, 32), (1, 3, 6, 6, 2, 16), (3, 9, 2, 13, 1, 64)], ids=str)
def test_tiny_attention_equals_attention_with_gradients(shape, by_sample, precision):
    """Queries are a slice of a wider projection, as in a model; masks may differ by sample."""
    n_runs, n_samples, n, n_source, heads, width = shape
    dtype = set_precision(precision)
    wide = random_tensor(n_runs, n_samples, n, 3 * heads * width, dtype=dtype)
    keys, values = (random_tensor(n_runs, n_samples, n_source, heads, width, dtype=dtype) for _ in range(2))
    mask = torch.rand(*((n_runs, n_samples) if by_sample else ()), n, n_source, device=DEVICE) < 0.5
    mask[..., 0] = True
    grad = random_tensor(n_runs, n_samples, n, heads, width, dtype=dtype).detach()
    query = wide[..., : heads * width].unflatten(-1, (heads, width))
    out = tiny_attention(query, keys, values, mask)
    out.backward(grad)

    wide64, keys64, values64 = to_float64(wide), to_float64(keys), to_float64(values)
    query64 = wide64[..., : heads * width].unflatten(-1, (heads, width))
    expected = apply_elementwise_weights(elementwise_attention_weights(query64, keys64, mask), values64)
    expected.backward(grad.double())
    limit = LIMITS["bf16" if precision == "bf16" else "fp32"]
    assert relative_error(out, expected) < limit
    for ours, theirs in ((wide, wide64), (keys, keys64), (values, values64)):
        assert relative_error(ours.grad, theirs.grad) < limit


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU: only there do 16-bit matmuls return float32")
@pytest.mark.parametrize("n_runs", [1, 2, 70])
def test_a_16_bit_linear_returns_its_weight_gradient_in_float32(n_runs):
    """With two runs, rows are summed in several splits; with 70 they are not."""
    x, weight = random_tensor(n_runs, 4096, 48, dtype=torch.bfloat16), random_tensor(n_runs, 200, 48)
    grad = random_tensor(n_runs, 4096, 200, dtype=torch.bfloat16).detach()
    bf16_weight = weight.detach().bfloat16()
    out = batched_linear(x, weight, bf16_weight)
    out.backward(grad)
    x64, bf16_weight64 = to_float64(x), to_float64(bf16_weight)
    expected = x64 @ bf16_weight64.mT
    expected.backward(grad.double())
    assert relative_error(out, expected) < LIMITS["bf16"]
    assert relative_error(x.grad, x64.grad) < LIMITS["bf16"]
    assert weight.grad.dtype == torch.float32
    assert relative_error(weight.grad, bf16_weight64.grad) < 1e-5


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU: the bf16 copy is used only there")
def test_the_bf16_copy_stays_in_sync_with_the_weights():
    """A trainer with the bf16 copy and one that casts each weight at its use agree in training and evaluation."""
    settings = Settings.from_flat({"model.kind": "gpt", "train.precision": "bf16", "train.ema": 0.5, "train.steps": 20})
    ours, plain = (Trainer([settings] * 2, (1, 2), "cuda", torch.float32, "graph") for _ in range(2))
    for module in plain.model.modules():
        if isinstance(module, Linear):
            module.bf16_weight = None
    for _ in range(3):
        ours.train_step()
        plain.train_step()
        mine, theirs = compute_metrics(ours), compute_metrics(plain)
        for name in theirs:
            torch.testing.assert_close(mine[name], theirs[name], rtol=2e-3, atol=2e-3)
    assert relative_error(ours.parameters.weights, plain.parameters.weights.double()) < 1e-3


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_fused_adam_equals_the_trainers_update(kind):
    """Six runs: default, clipped, with its own schedule, finished, with a NaN loss, with an infinite gradient."""
    overrides = {"model.kind": "lstm", "train.optimizer": kind, "train.weight_decay": 0.1, "train.steps": 40}
    per_run = [{}, {"train.clip": 0.5, "train.betas": [0.5, 0.999]}, {"train.schedule": "cosine", "train.warmup": 3}]
    settings = [Settings.from_flat(overrides | own) for own in [*per_run, {"train.steps": 2}, {}, {}]]
    fused, plain = (Trainer(settings, range(6), DEVICE, torch.float32) for _ in range(2))
    start = plain.parameters.weights.clone()
    torch.manual_seed(3)
    for step in range(5):
        loss, gradients = torch.rand(6, device=DEVICE), torch.randn_like(plain.parameters.weights)
        loss[4] = torch.nan if step == 1 else 1.0
        gradients[5, 7] = torch.inf if step == 3 else 1.0
        norms = gradients.norm(dim=1)
        active, hyperparameters = plain._active_and_lr(loss, norms)
        plain.parameters.gradients.copy_(gradients)
        plain.optimizer.clip_and_step(active, *hyperparameters)
        ours, our_hyperparameters = fused_adam.active_and_lr(fused, loss, norms)
        fused_adam.fused_adam_step(
            fused.parameters.weights, fused.optimizer.moments, gradients, our_hyperparameters[0], ours[:, None],
            *our_hyperparameters[1:],
            decoupled=kind == "adamw",
        )  # fmt: skip
        assert ours.tolist() == active.tolist()
        for mine, theirs in zip(our_hyperparameters, hyperparameters, strict=True):
            torch.testing.assert_close(mine[active], theirs[active], rtol=1e-6, atol=0)
        for trainer in (fused, plain):
            trainer.step += 1
    for name, theirs in plain.state().items():
        if not name.startswith(("weights", "optimizer.moment")):
            assert torch.equal(fused.state()[name], theirs), name
    for mine, theirs in zip(fused.optimizer.moments, plain.optimizer.moments, strict=True):
        assert relative_error(mine, theirs.double()) < 1e-6
    assert (
        relative_error(fused.parameters.weights - start, (plain.parameters.weights - start).double()) < 1e-4
    )  # updates are small
    assert plain.diverged_at.tolist() == [-1, -1, -1, -1, 1, 3]
    assert plain.divergence_cause.tolist() == [0, 0, 0, 0, 1, 2]
