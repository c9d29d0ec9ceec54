"""A run's numbers do not depend on its company: neighbours, packs, workers and, if reproducible, threads.

`benchmarks/placements.py` trains the runs and compares them bit for bit; all of it is `make placements`.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from seedbed.data.batch import EpochSampler, MicroBatchLayout
from seedbed.engines.cost_estimator import CostEstimator
from seedbed.engines.machine import Machine
from seedbed.engines.placement import choose_placement
from seedbed.models import bitwise
from seedbed.models.fast.fused_ops import torch_lstm
from seedbed.models.layers import LayerNorm, Linear, attention, linear
from seedbed.records import CheckpointEvent, EvaluationEvent, Placement
from seedbed.settings import Settings
from seedbed.study import pack as packing
from seedbed.study.pack import Capacity, pack_runs
from seedbed.training import loop
from seedbed.training.optimizers import adam

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
FEW_CASES = ("gpt/arithmetic", "gpt/text", "encoder/labels", "lstm/text", "gru/addition")


@pytest.fixture
def placements(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("placements")


def check(placements: Any, folder: Path, case: str, specs: Any, n_runs: int = 5, **extra: Any) -> Any:
    placements.write_corpora(folder)
    return placements.check_case(placements.case_settings(case, folder, **extra), n_runs, specs)


@pytest.mark.parametrize("case", FEW_CASES)
def test_a_run_gives_the_same_bytes_alone_and_in_any_pack(placements: Any, tmp_path: Path, case: str) -> None:
    company = tuple(placements.NEIGHBOURS)
    specs = [
        placements.PlacementSpec(), placements.PlacementSpec(max_runs=8, neighbours=company, order=3),
        placements.PlacementSpec(max_runs=3, order=1),
    ]  # fmt: skip
    result = check(placements, tmp_path, case, specs)
    assert result.n_runs_with_one_set == 5, result.differences


def test_a_reproducible_run_gives_the_same_bytes_whatever_the_threads_and_workers(
    placements: Any, tmp_path: Path
) -> None:
    specs = [
        placements.PlacementSpec(), placements.PlacementSpec(n_threads=2),
        placements.PlacementSpec(4, n_workers=2, n_threads=2, neighbours=("diverging", "with dropout"), order=2),
    ]  # fmt: skip
    result = check(placements, tmp_path, "gpt/text", specs, 3, train__reproducible=True)
    assert result.n_runs_with_one_set == 3, result.differences


@pytest.mark.slow
@pytest.mark.parametrize("reproducible", [False, True])
def test_every_case_in_fifty_placements(placements: Any, tmp_path: Path, reproducible: bool) -> None:
    for case in placements.CASES:
        specs = placements.draw_specs(50, None if reproducible else 1)
        result = check(placements, tmp_path, case, specs, 10, train__reproducible=reproducible)
        assert result.n_runs_with_one_set == 10, (case, result.differences)


# ---- negative controls ----


def test_with_torchs_own_sigmoid_a_neighbour_is_noticed_and_named(
    placements: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seedbed.models.gru.sigmoid", torch.sigmoid)
    specs = [placements.PlacementSpec(), placements.PlacementSpec(max_runs=8, neighbours=("other seeds",), order=1)]
    result = check(placements, tmp_path, "gru/addition", specs)
    assert result.n_runs_with_one_set < 5
    assert "update 1: output of " in result.differences[0]


def test_in_packs_of_several_batch_sizes_a_neighbour_is_noticed(
    placements: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "_program_key", lambda run, device: packing.shape_key(run.settings))
    monkeypatch.setattr(packing, "MIN_BATCH_USE", 0.0)
    specs = [placements.PlacementSpec(), placements.PlacementSpec(max_runs=8, neighbours=("larger batches",), order=1)]
    result = check(placements, tmp_path, "gpt/arithmetic", specs, 4)
    assert result.n_runs_with_one_set < 4


# ---- the parts ----


def align(x: Tensor) -> Tensor:
    """A copy; that of a weight has runs that begin at multiples of 64 bytes, as in `FlatParameters`."""
    if x.ndim > 3 or x.shape[1] == 5:
        return x.clone()
    n = x[0].numel()
    rows = torch.zeros(len(x), -(-n // 16) * 16)
    rows[:, :n] = x.flatten(1)
    return rows[:, :n].view_as(x)


def compute_alone(function: Any, tensors: list[Tensor], run: int) -> list[Tensor]:
    return with_gradients(function, [tensor[run : run + 1] for tensor in tensors])


def with_gradients(function: Any, tensors: list[Tensor]) -> list[Tensor]:
    inputs = [align(tensor).requires_grad_() for tensor in tensors]
    out = function(*inputs)
    grad = torch.linspace(-1, 1, out[0].numel()).view(out.shape[1:]).repeat(len(out), *[1] * (out.ndim - 1))
    return [out.detach(), *torch.autograd.grad(out, inputs, grad)]


def normalise(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    norm = LayerNorm(x.shape[-1])
    del norm.weight, norm.bias
    norm.weight, norm.bias = weight, bias  # type: ignore[assignment]
    return norm(x)


MASK = torch.ones(21, 21, dtype=torch.bool).tril()


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return attention(query, key, value, MASK, causal=True)


def attend_with_bias(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return attention(query, key, value, MASK, torch.arange(21.0)[:, None].expand(21, 21, 1))


def run_lstm(x: Tensor, input_weight: Tensor, state_weight: Tensor) -> Tensor:
    linears = []
    for weight in (input_weight, state_weight):
        linears.append(Linear(weight.shape[2], weight.shape[1], bias=False))
        del linears[-1].weight
        linears[-1].weight = weight  # type: ignore[assignment]
    zeros = x.new_zeros(len(x), 5, 5)
    return torch_lstm(x, (zeros, zeros), *linears)[0]


LARGE = [(3, 1, 600, 130), (3, 260, 130), (3, 260)]  # of one run at a time, by oneDNN
OPERATIONS: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
    "sigmoid": (bitwise.sigmoid, [(3, 5, 7, 11)]),
    "linear": (linear, [(3, 2, 5, 7), (3, 11, 7), (3, 11)]),
    "linear to one output": (linear, [(3, 2, 13, 33), (3, 1, 33), (3, 1)]),
    "linear from one input": (linear, [(3, 2, 8, 1), (3, 33, 1), (3, 33)]),
    "large linear": (linear, LARGE),
    "norm of few": (normalise, [(3, 2, 5, 7), (3, 7), (3, 7)]),
    "scores": (bitwise.matmul, [(3, 1, 1, 5, 7), (3, 1, 1, 7, 3)]),
    "attention": (attend, [(3, 1, 21, 1, 5)] * 3),
    "biased attention": (attend_with_bias, [(3, 1, 21, 1, 5)] * 3),
    "LSTM": (run_lstm, [(3, 5, 3, 7), (3, 20, 7), (3, 20, 5)]),
    "norm of many": (normalise, [(3, 20, 5, 37), (3, 37), (3, 37)]),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_value_and_gradients_of_a_run_are_the_same_bits_alone(name: str) -> None:
    function, shapes = OPERATIONS[name]
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        generator = torch.Generator().manual_seed(0)
        tensors = [torch.randn(shape, generator=generator) for shape in shapes]
        together = with_gradients(function, tensors)
        for run in range(3):
            for whole, alone in zip(together, compute_alone(function, tensors, run), strict=True):
                assert torch.equal(whole[run], alone[0])
    finally:
        torch.set_num_threads(n_threads)


def test_powers_of_a_run_are_the_same_bits_in_packs_of_any_size() -> None:
    base = torch.full((64, 1), 0.999, dtype=torch.float64)
    differs = False
    for first in range(1, 3000, 64):
        exponent = torch.arange(first, first + 64, dtype=torch.float64)[:, None]
        alone = torch.cat([bitwise.power(base[i : i + 1], exponent[i : i + 1]) for i in range(64)])
        assert torch.equal(bitwise.power(base, exponent), alone)
        torch.testing.assert_close(alone, base**exponent, rtol=1e-14, atol=0)
        differs |= not torch.equal(base**exponent, torch.cat([base[:1] ** one for one in exponent[:, None]]))
    assert adam.power is bitwise.power
    if not differs:
        pytest.skip("this processor's vector and scalar powers agree, so the test could not fail")


def test_a_run_with_one_update_per_epoch_keeps_its_order_beside_one_with_two() -> None:
    run, cpu = Settings.from_flat({"train.batch_size": 6}), torch.device("cpu")
    both = EpochSampler(MicroBatchLayout([6, 9], [run, run], cpu), [1, 2])
    alone = EpochSampler(MicroBatchLayout([6], [run], cpu), [1])
    for step in range(5):
        both.prepare(step)
        alone.prepare(step)
        (rows, weights), (own_rows, own_weights) = (one.draw(torch.tensor([step])) for one in (both, alone))
        assert torch.equal(rows[0], own_rows[0])
        assert torch.equal(weights[0], own_weights[0])


def test_runs_whose_batches_or_dropout_differ_share_a_pack_only_on_a_gpu_and_not_if_reproducible(
    placements: Any,
) -> None:
    values = [{"task.p": 13}, {"train.batch_size": 70}, {"train.batch_size": 64, "model.dropout": 0.1}]

    def n_packs(device: str, **extra: Any) -> int:
        runs = [
            placements.make_run(str(i), i, {"task.p": 13, "train.batch_size": 64} | one | extra)
            for i, one in enumerate(values)
        ]
        return len(pack_runs(runs, Capacity(2**40, 64, 1, device=device)))

    assert n_packs("cpu") == 3
    assert n_packs("cuda") == 1
    assert n_packs("cuda", **{"train.reproducible": True}) == 3


def test_a_reproducible_pack_has_one_thread_and_is_compiled_only_if_asked_for(placements: Any) -> None:
    for reproducible in (False, True):
        run = placements.make_run("0", 0, {"train.steps": 10**8, "train.reproducible": reproducible})
        [pack] = pack_runs([run], Capacity(2**40, 64, 1))
        estimator = CostEstimator([], "")
        placed = choose_placement(pack, 1, Machine("cpu", 1), estimator)
        assert placed.threads == (1 if reproducible else max(1, placements.machine_module.n_cores()))
        assert choose_placement(pack, 1, Machine("cuda", 1), estimator).mode == (
            "graph" if reproducible else "compiled"
        )
        assert choose_placement(pack, 1, Machine("cuda", 1, "compiled"), estimator).mode == "compiled"


def test_a_lone_reproducible_run_has_a_twin_on_a_gpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.from_flat({"task.p": 7, "train.steps": 3, "model.dim": 8, "train.reproducible": True})
    assert packing.has_twin(settings, 1, "cuda")
    assert not packing.has_twin(settings, 1, "cpu")
    assert not packing.has_twin(settings, 2, "cuda")
    exclusive = settings.model_copy(update={"train": settings.train.model_copy(update={"exclusive": True})})
    assert not packing.has_twin(exclusive, 1, "cuda")
    # On a CPU, where a run gives the same bits alone, a twin changes nothing and gives no events of its own.
    alone = list(loop.train_pack([settings], [4], Placement()))
    monkeypatch.setattr(loop, "has_twin", lambda *_: True)
    paired = list(loop.train_pack([settings], [4], Placement()))
    assert [type(event) for event in alone] == [type(event) for event in paired]
    for one, other in zip(alone, paired, strict=True):
        if isinstance(one, EvaluationEvent):
            assert isinstance(other, EvaluationEvent)
            assert (one.slots, one.metrics) == (other.slots, other.metrics)
            np.testing.assert_array_equal(one.values, other.values)
        elif isinstance(one, CheckpointEvent):
            assert isinstance(other, CheckpointEvent)
            assert one.weights.keys() == other.weights.keys() == {0}
            for name, array in one.weights[0].items():
                np.testing.assert_array_equal(array, other.weights[0][name])
            np.testing.assert_array_equal(other.state["weights"][0], other.state["weights"][1])
