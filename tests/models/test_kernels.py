"""Our kernels for a GPU are the functions they replace; `benchmarks/device.py` times them.

Where Triton is installed but no GPU is there, they are interpreted, in float32.
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

from seedbed.models.batched_linear import batched_linear  # noqa: E402
from seedbed.models.build import build_pack  # noqa: E402
from seedbed.models.kernels.add_layer_norm import add_layer_norm  # noqa: E402
from seedbed.models.kernels.bias_gelu import bias_gelu  # noqa: E402
from seedbed.models.kernels.short_attention import short_attention  # noqa: E402
from seedbed.models.kernels.tiny_attention import tiny_attention  # noqa: E402
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
from seedbed.training.optim import UPDATE_RULES, clip_and_mask  # noqa: E402
from seedbed.training.trainer import Trainer  # noqa: E402

LIMITS = {"fp32": 1e-6} | ({"tf32": 3e-3, "bf16": 1e-2} if DEVICE == "cuda" else {})  # of ‖ours − exact‖ / ‖exact‖
LOW = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # what 16 bits are; the interpreter knows these alone
STREAMS = {  # what comes along the stream, and what is added to it
    "float32": (torch.float32, torch.float32),
    "16 bits": (LOW, LOW),
    "16 bits added to float32": (torch.float32, LOW),
}
SHAPES = [  # runs, samples, positions, heads, width, causal, with bias, ALiBi
    (3, 2, 128, 3, 32, True, True, False),
    (2, 1, 65, 2, 64, True, False, True),
    (1, 5, 100, 2, 16, False, True, True),
    (2, 3, 33, 4, 64, True, False, True),
    (4, 2, 32, 2, 32, False, True, False),
]


def off(ours: Tensor, exact: Tensor) -> float:
    return float((ours.double() - exact).norm() / exact.norm())


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, device=DEVICE).to(dtype).requires_grad_()


def row_of_weights(n_runs: int, width: int) -> Tensor:
    """A bias as models have them: pieces of one tensor of weights, so not side by side."""
    return drawn(n_runs, width + 16).detach()[:, :width].requires_grad_()


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
    bias = row_of_weights(n_runs, 3 * heads * width) if with_bias else None
    slopes = 2.0 ** -torch.arange(1.0, heads + 1, device=DEVICE) if with_alibi else None
    grad = drawn(n_runs, n_samples, n, heads * width, dtype=qkv.dtype).detach()
    mixed = short_attention(qkv, bias, slopes, heads, causal)
    mixed.backward(grad)

    qkv64, bias64 = exact(qkv), exact(bias)
    parts = (qkv64 if bias64 is None else qkv64 + bias64[:, None, None]).unflatten(-1, (3, heads, width)).unbind(3)
    where = torch.arange(n, device=DEVICE)
    seen = where[:, None] >= where if causal else torch.ones(n, n, dtype=torch.bool, device=DEVICE)
    added = None if slopes is None else alibi_bias(slopes.double(), where, n)
    expected = apply_attention_weights(attention_weights(parts[0], parts[1], seen, added), parts[2]).flatten(-2)
    expected.backward(grad.double())

    assert off(mixed, expected) < LIMITS[precision]
    assert off(qkv.grad, qkv64.grad) < LIMITS[precision]
    assert bias is None or off(bias.grad, bias64.grad) < LIMITS[precision]


@pytest.mark.parametrize("precision", LIMITS)
@pytest.mark.parametrize("shape", [(3, 300, 768), (1, 77, 100), (8, 256, 512)], ids=str)
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("programs", [1, 512], ids=["a large batch", "a small one"])
def test_biased_gelu_is_gelu_with_its_gradients(shape, programs, with_bias, precision, monkeypatch):
    monkeypatch.setattr("seedbed.models.kernels.bias_gelu.MIN_PROGRAMS", programs)
    n_runs, _, width = shape
    x, bias = drawn(*shape, dtype=dtype_of(precision)), row_of_weights(n_runs, width) if with_bias else None
    grad = drawn(*shape, dtype=x.dtype).detach()
    ours = bias_gelu(x, bias)
    ours.backward(grad)
    x64, bias64 = exact(x), exact(bias)
    expected = F.gelu(x64 if bias64 is None else x64 + bias64[:, None])
    expected.backward(grad.double())
    limit = LIMITS["bf16" if precision == "bf16" else "fp32"]
    assert off(ours, expected) < limit
    assert off(x.grad, x64.grad) < limit
    assert bias is None or off(bias.grad, bias64.grad) < limit


@pytest.mark.parametrize("kinds", STREAMS)
@pytest.mark.parametrize("goes_on", [True, False], ids=["the sum is read", "only its norm is read"])
@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("keeps", [False, True], ids=["norm in y's precision", "norm in x's"])
@pytest.mark.parametrize("shape", [(3, 77, 192), (1, 40, 48), (2, 33, 1000)], ids=str)
def test_add_norm_is_a_sum_and_its_norm_with_their_gradients(shape, keeps, with_bias, goes_on, kinds):
    n_runs, _, width = shape
    of_x, of_y = STREAMS[kinds]
    x, y = drawn(*shape, dtype=of_x), drawn(*shape, dtype=of_y)
    rows = drawn(n_runs, 3, width + 5).detach()[..., :width].unbind(1)  # as pieces of one tensor of weights
    weight, shift, bias = (row.requires_grad_() for row in rows)
    grad_total, grad_normed = (drawn(*shape, dtype=kind).detach() for kind in (of_x, of_x if keeps else of_y))
    used = 2 if goes_on else 1
    total, normed, *_ = add_layer_norm(x, y, bias if with_bias else None, weight, shift, keeps)
    torch.autograd.backward([normed, total][:used], [grad_normed, grad_total][:used])

    exacts = [exact(one) for one in (x, y, weight, shift, bias)]
    x64, y64, weight64, shift64, bias64 = exacts
    total64 = x64 + y64 + (bias64[:, None] if with_bias else 0)
    normed64 = F.layer_norm(total64, (width,)) * weight64[:, None] + shift64[:, None]
    torch.autograd.backward([normed64, total64][:used], [grad_normed.double(), grad_total.double()][:used])

    limit = 1e-6 if of_x == of_y == torch.float32 else 1e-2
    assert (total.dtype, normed.dtype) == (of_x, grad_normed.dtype)
    assert off(total, total64) < (1e-6 if of_x == torch.float32 else 1e-2)
    assert off(normed, normed64) < limit
    for ours, expected in zip((x, y, weight, shift, bias), exacts if with_bias else exacts[:-1], strict=False):
        assert off(ours.grad, expected.grad) < limit


def test_where_nobody_goes_on_with_the_sum_no_gradient_of_it_is_made_when_compiled():
    def last_norm(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return add_layer_norm(x, y, None, weight, weight, False)[1]

    graphs = []

    def keep(graph: torch.fx.GraphModule, _: object) -> object:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    x, y, weight = drawn(2, 16, 48), drawn(2, 16, 48), drawn(2, 48)
    backend = aot_autograd(fw_compiler=keep, bw_compiler=keep)
    torch.compile(last_norm, backend=backend, dynamic=False)(x, y, weight).sum().backward()
    (backward,) = graphs[1].graph.find_nodes(op="call_function", target=torch.ops.seedbed.add_norm_backward.default)
    assert backward.args[0] is None


TEXT = {"task.kind": "text", "model.mlp_bias": True, "model.final_norm": True}
LABELS = {"task.kind": "labels", "model.kind": "encoder", "model.attention_bias": False, "model.positions": "learned"}


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("overrides", [TEXT, LABELS], ids=["gpt", "encoder"])
def test_models_are_the_same_where_sums_and_norms_are_one_pass(overrides, norm, monkeypatch):
    dataset_info = DatasetInfo(
        vocab_size=19, context_length=7, n_train=50, padding_id=0, n_classes=3 if overrides is LABELS else None
    )
    shape = {"model.dim": 48, "model.heads": 4, "model.layers": 2, "model.norm": norm}
    step = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    model, parameters = build_pack(
        [Settings.from_flat(overrides | shape)] * 3, (3, 5, 8), step, torch.float32, dataset_info
    )
    tokens = torch.randint(19, (3, 4, 7), device=DEVICE)
    dtype_of("fp32")
    found = []
    for fuses in (False, True):
        monkeypatch.setattr("seedbed.models.gpt.can_fuse_add_norm", lambda x, fuses=fuses: fuses)
        logits = model(tokens)
        found.append((logits, parameters.compute_gradients(logits.logsumexp(-1).sum()).clone()))
    (plain, plain_gradients), (fused, gradients) = found
    assert not torch.equal(plain_gradients, gradients)  # so these were two ways
    assert off(fused, plain.double()) < 1e-5
    assert off(gradients, plain_gradients.double()) < 1e-5


@pytest.mark.parametrize("precision", LIMITS)
@pytest.mark.parametrize("by_sample", [False, True])
@pytest.mark.parametrize("shape", [(2, 5, 3, 6, 4, 32), (1, 3, 6, 6, 2, 16), (3, 9, 2, 13, 1, 64)], ids=str)
def test_tiny_attention_is_attention_with_its_gradients(shape, by_sample, precision):
    """Queries are a part of a wider map's output, as in a model; what is seen may differ by sample."""
    n_runs, n_samples, n, n_source, heads, width = shape
    kind = dtype_of(precision)
    wide = drawn(n_runs, n_samples, n, 3 * heads * width, dtype=kind)
    keys, values = (drawn(n_runs, n_samples, n_source, heads, width, dtype=kind) for _ in range(2))
    seen = torch.rand(*((n_runs, n_samples) if by_sample else ()), n, n_source, device=DEVICE) < 0.5
    seen[..., 0] = True
    grad = drawn(n_runs, n_samples, n, heads, width, dtype=kind).detach()
    query = wide[..., : heads * width].unflatten(-1, (heads, width))
    mixed = tiny_attention(query, keys, values, seen)
    mixed.backward(grad)

    wide64, keys64, values64 = exact(wide), exact(keys), exact(values)
    query64 = wide64[..., : heads * width].unflatten(-1, (heads, width))
    expected = apply_elementwise_weights(elementwise_attention_weights(query64, keys64, seen), values64)
    expected.backward(grad.double())
    limit = LIMITS["bf16" if precision == "bf16" else "fp32"]
    assert off(mixed, expected) < limit
    for ours, theirs in ((wide, wide64), (keys, keys64), (values, values64)):
        assert off(ours.grad, theirs.grad) < limit


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU: only there do 16-bit products leave sums in float32")
@pytest.mark.parametrize("n_runs", [1, 2, 70])
def test_a_map_in_16_bits_gives_its_weight_a_gradient_in_32(n_runs):
    """Of two runs, rows are summed in parts; of 70 they are not."""
    x, weight = drawn(n_runs, 4096, 48, dtype=torch.bfloat16), drawn(n_runs, 200, 48)
    grad = drawn(n_runs, 4096, 200, dtype=torch.bfloat16).detach()
    low = weight.detach().bfloat16()
    mapped = batched_linear(x, weight, low)
    mapped.backward(grad)
    x64, low64 = exact(x), exact(low)
    expected = x64 @ low64.mT
    expected.backward(grad.double())
    assert off(mapped, expected) < LIMITS["bf16"]
    assert off(x.grad, x64.grad) < LIMITS["bf16"]
    assert weight.grad.dtype == torch.float32
    assert off(weight.grad, low64.grad) < 1e-5


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU: elsewhere nothing is done in 16 bits")
def test_weights_kept_in_16_bits_follow_those_they_are_of():
    """Two trainers in bf16, one of which casts each weight where it is used, stay together: in training and reading."""
    settings = Settings.from_flat({"model.kind": "gpt", "train.precision": "bf16", "train.ema": 0.5, "train.steps": 20})
    ours, plain = (Trainer([settings] * 2, (1, 2), "cuda", torch.float32, "graph") for _ in range(2))
    for part in plain.model.modules():
        if isinstance(part, Linear):
            part.bf16_weight = None
    for _ in range(3):
        ours.train_step()
        plain.train_step()
        mine, theirs = compute_metrics(ours), compute_metrics(plain)
        for name in theirs:
            torch.testing.assert_close(mine[name], theirs[name], rtol=2e-3, atol=2e-3)
    assert off(ours.parameters.weights, plain.parameters.weights.double()) < 1e-3


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_kernels_decide_and_update_as_the_trainer_does(kind):
    """Six runs: as usual, clipped, with a schedule of its own, ended, with a broken loss, with a broken gradient."""
    overrides = {"model.kind": "lstm", "train.optimizer": kind, "train.weight_decay": 0.1, "train.steps": 40}
    own = [{}, {"train.clip": 0.5, "train.betas": [0.5, 0.999]}, {"train.schedule": "cosine", "train.warmup": 3}]
    settings = [Settings.from_flat(overrides | more) for more in [*own, {"train.steps": 2}, {}, {}]]
    fused, plain = (Trainer(settings, range(6), DEVICE, torch.float32) for _ in range(2))
    start = plain.parameters.weights.clone()
    torch.manual_seed(3)
    for step in range(5):
        loss, gradients = torch.rand(6, device=DEVICE), torch.randn_like(plain.parameters.weights)
        loss[4] = torch.nan if step == 1 else 1.0
        gradients[5, 7] = torch.inf if step == 3 else 1.0
        norms = gradients.norm(dim=1)
        active, numbers = plain._active_and_lr(loss, norms)
        clip_and_mask(UPDATE_RULES[kind])(
            plain.parameters.weights, plain.optimizer.moments, gradients, numbers[0], active[:, None], *numbers[1:]
        )
        ours, our_numbers = fused_adam.active_and_lr(fused, loss, norms)
        fused_adam.fused_adam_step(
            fused.parameters.weights, fused.optimizer.moments, gradients, our_numbers[0], ours[:, None],
            *our_numbers[1:],
            decoupled=kind == "adamw",
        )  # fmt: skip
        assert ours.tolist() == active.tolist()
        for mine, theirs in zip(our_numbers, numbers, strict=True):
            torch.testing.assert_close(mine[active], theirs[active], rtol=1e-6, atol=0)
        for trainer in (fused, plain):
            trainer.step += 1
    for name, theirs in plain.state().items():
        if not name.startswith(("weights", "optimizer.moment")):
            assert torch.equal(fused.state()[name], theirs), name
    for mine, theirs in zip(fused.optimizer.moments, plain.optimizer.moments, strict=True):
        assert off(mine, theirs.double()) < 1e-6
    assert (
        off(fused.parameters.weights - start, (plain.parameters.weights - start).double()) < 1e-4
    )  # what an update adds is small
    assert plain.diverged_at.tolist() == [-1, -1, -1, -1, 1, 3]
    assert plain.divergence_cause.tolist() == [0, 0, 0, 0, 1, 2]
