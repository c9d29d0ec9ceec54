"""What every optimizer must do; `test_optimizers.py` has one subclass for each kind, with an independent reference.

Three runs with different settings, and a model with every role of parameter and a matrix of three joined parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from seedbed.models.layers import Embedding, LayerNorm, Linear, OutputLayer
from seedbed.models.parameters import FlatParameters, Param
from seedbed.settings import OPTIMIZERS, TrainSettings
from seedbed.training.optimizers import Optimizer, make_optimizer
from seedbed.training.trainer import clip_scales

N_RUNS, N_STEPS = 3, 6
LIMITS = 0.0, 1.0, 30.0  # of the gradient norm, which is about 50
Reference = Callable[[], None]


class TinyModel(nn.Module):
    """Never called: only its parameters matter."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = Embedding(5, 7)
        self.qkv = Linear(7, 12, n_parts=3)
        self.up, self.down = Linear(7, 9, bias=False), Linear(9, 7)
        self.norm, self.output = LayerNorm(7), OutputLayer(7, 5, bias=True)


class Pack:
    """Runs of the tiny model with random weights, updated as the Trainer does."""

    def __init__(self, settings: Sequence[TrainSettings], dtype: torch.dtype = torch.float64) -> None:
        self.settings = settings
        self.parameters = FlatParameters(TinyModel(), len(settings), torch.device("cpu"), dtype)
        for i, param in enumerate(self.parameters.params()):
            param.weight.copy_(normal(i, *param.weight.shape[1:]).to(dtype))
        self.optimizer: Optimizer = make_optimizer(settings, self.parameters)
        self.clip = torch.tensor([[train.clip] for train in settings], dtype=dtype)

    def update(self, gradients: Tensor, active: Sequence[bool] | None = None) -> None:
        self.parameters.gradients.copy_(gradients)
        is_active = torch.tensor([True] * len(self.settings) if active is None else active)
        lr = is_active.double()[:, None] * self.optimizer.lr
        scales = clip_scales(torch.linalg.vector_norm(self.parameters.gradients, dim=1), self.clip)
        self.optimizer.clip_and_step(is_active, scales, *self.optimizer.next_hyperparameters(lr))

    def gradients(self, step: int) -> Tensor:
        """The same for every run, so that only their settings make them differ; padding has none."""
        flat = torch.zeros_like(self.parameters.weights)
        for i, view in enumerate(self.parameters.views(flat).values()):
            view.copy_(4 * normal(100 * step + i + 50, *view.shape[1:]))
        return flat


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class OptimizerContract:
    kind: ClassVar[str]
    own_settings: ClassVar[Sequence[dict[str, Any]]] = ({}, {}, {})  # of the kind, one for each run

    def reference(self, train: TrainSettings, weights: dict[str, nn.Parameter], params: Sequence[Param]) -> Reference:
        """Makes an update of one run from the gradients of `weights`, already clipped: torch's own, or by hand."""
        raise NotImplementedError

    def settings(self, **shared: Any) -> list[TrainSettings]:
        lr, decay = (0.1, 0.01, 0.003), (0.0, 0.1, 0.7)
        return [
            TrainSettings(
                optimizer=self.kind, lr=lr[i], weight_decay=decay[i], clip=LIMITS[i], **self.own_settings[i], **shared
            )
            for i in range(N_RUNS)
        ]

    def test_every_run_follows_the_reference_with_its_own_settings(self) -> None:
        pack = Pack(self.settings())
        params = pack.parameters.params()
        alone = [{p.name: nn.Parameter(p.weight[run].clone()) for p in params} for run in range(N_RUNS)]
        references = [
            self.reference(train, weights, params) for train, weights in zip(pack.settings, alone, strict=True)
        ]
        for step in range(N_STEPS):
            gradients = pack.gradients(step)
            for weights, reference, row, train in zip(alone, references, gradients, pack.settings, strict=True):
                for name, gradient in pack.parameters.views(row[None]).items():
                    weights[name].grad = gradient[0].clone()
                if train.clip:
                    nn.utils.clip_grad_norm_(list(weights.values()), train.clip)
                reference()
            pack.update(gradients)
        for p in params:
            expected = torch.stack([weights[p.name].detach() for weights in alone])
            torch.testing.assert_close(p.weight, expected, rtol=1e-10, atol=1e-12, msg=p.name)
        assert not torch.equal(pack.parameters.weights[0], pack.parameters.weights[1])

    def test_stacked_runs_match_runs_alone(self) -> None:
        settings = self.settings(decay_parameters="matrices")
        together, alone = Pack(settings), [Pack([train]) for train in settings]
        for step in range(N_STEPS):
            for pack in (together, *alone):
                pack.update(pack.gradients(step))
        expected = torch.cat([pack.parameters.weights for pack in alone])
        torch.testing.assert_close(together.parameters.weights, expected, rtol=1e-12, atol=1e-13)

    @pytest.mark.parametrize("value", [1.0, torch.nan, torch.inf])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_an_inactive_run_keeps_its_weights_and_leaves_its_neighbours_bit_identical(
        self, value: float, dtype: torch.dtype
    ) -> None:
        """It becomes inactive after it was trained for some steps, so that it has a state."""
        pack, healthy = Pack(self.settings(), dtype), Pack(self.settings(), dtype)
        for step in range(N_STEPS):
            gradients = pack.gradients(step)
            healthy.update(gradients)
            if step == N_STEPS - 2:
                before = pack.parameters.weights[1].clone()
            if step >= N_STEPS - 2:
                gradients[1] = value
                pack.update(gradients, [True, False, True])
            else:
                pack.update(gradients)
        assert torch.equal(pack.parameters.weights[1], before)
        assert torch.equal(pack.parameters.weights[[0, 2]], healthy.parameters.weights[[0, 2]])
        assert not torch.equal(pack.parameters.weights[1], healthy.parameters.weights[1])

    def test_weights_that_are_not_finite_leave_the_neighbours_bit_identical(self) -> None:
        pack, healthy = Pack(self.settings(), torch.float32), Pack(self.settings(), torch.float32)
        pack.parameters.weights[1] = torch.nan
        for step in range(N_STEPS):
            pack.update(pack.gradients(step))
            healthy.update(healthy.gradients(step))
        assert torch.equal(pack.parameters.weights[[0, 2]], healthy.parameters.weights[[0, 2]])

    def test_a_resumed_optimizer_equals_an_uninterrupted_one(self) -> None:
        whole, resumed = Pack(self.settings()), Pack(self.settings())
        for step in range(N_STEPS):
            if step == 3:
                resumed.parameters.weights.copy_(whole.parameters.weights)
                resumed.optimizer.restore({name: x.clone() for name, x in whole.optimizer.state().items()})
            for pack in (whole, resumed)[: 2 if step >= 3 else 1]:
                pack.update(pack.gradients(step))
        assert torch.equal(whole.parameters.weights, resumed.parameters.weights)
        for name, tensor in whole.optimizer.state().items():
            assert torch.equal(tensor, resumed.optimizer.state()[name])

    def test_state_has_the_run_axis_first_and_is_restored_in_place(self) -> None:
        pack = Pack(self.settings())
        before = pack.optimizer.state()
        assert all(tensor.shape[0] == N_RUNS and tensor.ndim > 1 for tensor in before.values())
        pack.update(pack.gradients(0))
        pack.optimizer.restore({name: torch.full_like(x, 0.5) for name, x in before.items()})
        after = pack.optimizer.state()
        assert {name: x.data_ptr() for name, x in before.items()} == {name: x.data_ptr() for name, x in after.items()}
        assert all((tensor == 0.5).all() for tensor in after.values())

    def test_the_table_states_the_size_of_the_state(self) -> None:
        """Padding between parameters may have state too."""
        pack, info = Pack(self.settings()), OPTIMIZERS[self.kind]
        n_padded = pack.parameters.weights.shape[1]
        params = pack.parameters.params()
        n_matrix = sum(p.weight[0].numel() for p in params if p.role == "matrix")
        n_matrix_moments = info.n_moments if info.n_matrix_moments is None else info.n_matrix_moments
        found = sum(x[0].numel() for name, x in pack.optimizer.state().items() if name != "updates")
        n_weights = sum(p.weight[0].numel() for p in params)
        expected = n_matrix_moments * n_matrix + info.n_moments * (n_weights - n_matrix)
        assert expected <= found <= expected + info.n_moments * (n_padded - n_weights)

    def test_biases_and_norms_do_not_decay_if_only_matrices_do(self) -> None:
        decaying, undecayed = (
            Pack([train.model_copy(update={"weight_decay": decay}) for train in self.settings(**only_matrices)])
            for decay, only_matrices in ((0.5, {"decay_parameters": "matrices"}), (0.0, {}))
        )
        for pack in (decaying, undecayed):
            pack.update(pack.gradients(0))
        for mine, theirs in zip(decaying.parameters.params(), undecayed.parameters.params(), strict=True):
            same = torch.allclose(mine.weight, theirs.weight, rtol=1e-12, atol=0)
            assert same == (mine.role in ("bias", "norm")), mine.name

    def test_a_step_reads_no_value_from_the_device(self) -> None:
        """On the meta device there are no values, so that reading one raises."""
        settings = self.settings(decay_parameters="matrices")
        parameters = FlatParameters(TinyModel(), N_RUNS, torch.device("meta"), torch.float32)
        optimizer = make_optimizer(settings, parameters)
        active, scales = torch.ones(N_RUNS, dtype=torch.bool, device="meta"), torch.ones(N_RUNS, 1, device="meta")
        optimizer.clip_and_step(active, scales, *optimizer.next_hyperparameters(optimizer.lr))
        with pytest.raises(RuntimeError, match="meta"):
            bool(scales[0, 0])  # negative control

    def test_compiled_updates_equal_plain_ones(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Really traced, but run with the aot_eager backend, so no compiler is needed."""
        original = torch.compile
        monkeypatch.setattr(torch, "compile", lambda f, **options: original(f, backend="aot_eager", **options))
        plain, compiled = Pack(self.settings()), Pack(self.settings())
        compiled.optimizer.compile()
        with torch.no_grad():
            for step in range(3):
                plain.update(plain.gradients(step))
                compiled.update(compiled.gradients(step))
        torch._dynamo.reset()
        torch.testing.assert_close(compiled.parameters.weights, plain.parameters.weights, rtol=1e-10, atol=1e-12)
