"""One update of every run of a pack: draw a batch, forward, loss, backward, clip, update.

Nothing here waits for the device: a run whose numbers stop being finite is noted and frozen by tensors alone, and its
neighbours, which share no operation with it, go on untouched.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seedbed.data.batch import Batch
from seedbed.data.batches import make_batches
from seedbed.data.dataset_info import get_dataset_info
from seedbed.models.build import build_pack
from seedbed.models.encoder import Encoder
from seedbed.models.gpt import GPT
from seedbed.models.layers import HAS_TRITON, gather_rows, one_hot, running_stats
from seedbed.models.lstm import LSTM
from seedbed.models.parameters import FlatParameters
from seedbed.records import Arrays
from seedbed.settings import Settings
from seedbed.training.cuda_graphs import CapturedGraph
from seedbed.training.loss import n_correct, sample_losses
from seedbed.training.optim import Optimizer
from seedbed.training.schedule import Schedule

MAX_COMPILED_SHAPES = (
    10_000  # programs of one function that may be compiled: every pack of a study has a shape of its own
)
DIVERGENCE_CAUSES = ("", "its loss is no longer finite", "its gradient is no longer finite")


class Trainer:
    """The whole state of a pack while it trains.

    What it has of a device is free as soon as nobody holds it, so it refers to no method of its own: such a circle
    stays until somebody looks for it.
    """

    def __init__(
        self, settings: Sequence[Settings], seeds: Sequence[int], device: str, dtype: torch.dtype, mode: str = "plain"
    ) -> None:
        where = torch.device(device)
        trains, facts = [one.train for one in settings], get_dataset_info(settings[0].task)
        first = trains[0]  # for what is the same in all runs of a pack
        self.mode, self.precision, self.label_smoothing = mode, first.precision, first.label_smoothing
        self.accumulate = first.accumulate
        self.step = torch.zeros(1, dtype=torch.int64, device=where)  # updates done
        self.n_batches_drawn = torch.zeros_like(self.step)  # batches drawn: `accumulate` an update
        self.model, self.parameters = build_pack(settings, seeds, self.n_batches_drawn, dtype, facts)
        self.batches = make_batches(settings, seeds, where)
        self.n_steps = [one.n_steps(get_dataset_info(one.task)) for one in settings]
        self.last_step = torch.tensor(self.n_steps, device=where)
        self.optimizer = Optimizer(
            trains,
            self.parameters.weights,
            matrix_mask(self.parameters) if first.decay_parameters == "matrices" else None,
        )
        self.schedule = Schedule(trains, self.last_step)
        self.ema_decay = first.ema
        self.ema_weights = self.parameters.weights.clone() if first.ema else None
        self.diverged_at = torch.full_like(self.last_step, -1)  # the update at which a run diverged
        self.divergence_cause = torch.zeros_like(self.last_step)
        self._cause_codes = torch.arange(len(DIVERGENCE_CAUSES), device=where).unbind()
        self.forward_batch = BatchForward(self.model, self.precision, dtype)
        self._batch_losses_fn, self._score_batch_fn = Trainer._batch_losses, Trainer._score_batch
        self._active_and_lr_fn: Callable[[Trainer, Tensor, Tensor], tuple[Tensor, tuple[Tensor, ...]]] = (
            Trainer._active_and_lr
        )
        if mode == "compiled":
            torch._dynamo.config.recompile_limit = MAX_COMPILED_SHAPES
            torch._dynamo.config.accumulated_recompile_limit = MAX_COMPILED_SHAPES
            warnings.filterwarnings("ignore", r"\s*Online softmax is disabled")  # a note of the compiler to its makers
            self._batch_losses_fn = torch.compile(Trainer._batch_losses, dynamic=False)
            self._score_batch_fn = torch.compile(Trainer._score_batch, dynamic=False)
            self._active_and_lr_fn = torch.compile(
                Trainer._active_and_lr, dynamic=False
            )  # many operations on very few numbers
            self.optimizer.update_rule = torch.compile(self.optimizer.update_rule, dynamic=False)
        elif mode == "graph" and can_fuse_update(self.optimizer):
            from seedbed.training import fused_adam

            self._active_and_lr_fn = fused_adam.active_and_lr
            self.optimizer.update_rule = partial(fused_adam.fused_adam_step, decoupled=self.optimizer.kind == "adamw")
        if self.precision == "bf16" and where.type == "cuda" and not isinstance(self.model, LSTM):
            self.parameters.add_bf16_copy(
                self.model, torch.bfloat16
            )  # a cell's gradients, summed over positions, stay in 16 bits
        self._host_step = 0  # as the host counts them
        self._graph: CapturedGraph[None] | None = None
        self.uses_cuda_graphs = mode != "plain" and where.type == "cuda"
        self.graph_pool = torch.cuda.graph_pool_handle() if self.uses_cuda_graphs else None

    def train_step(self) -> None:
        """One update of every run that is neither done nor diverged; on a GPU a replay of the captured one."""
        self.batches.prepare(self._host_step)
        if self.uses_cuda_graphs and self._graph is None:
            self._capture_graph()
        if self._graph is not None:
            self._graph.replay()
        else:
            self._update()
        self._host_step += 1

    def _update(self) -> None:
        set_matmul_precision(self.precision)
        if not self.model.training:  # telling every part costs as much as a layer of a small model
            self.model.train()
        self.parameters.sync_bf16()
        loss, gradients = self._loss_and_gradients()
        with torch.no_grad():
            active, numbers = self._active_and_lr_fn(self, loss, torch.linalg.vector_norm(gradients, dim=1))
            self.optimizer.step(gradients, active, *numbers)
            self._update_ema(active)
            self.step += 1

    def _active_and_lr(
        self, loss: Float[Tensor, "R"], norms: Float[Tensor, "R"]
    ) -> tuple[Bool[Tensor, "R"], tuple[Float[Tensor, "R 1"], ...]]:
        """Which runs go on, and by which numbers."""
        self._detect_divergence(loss, norms)
        active = (self.diverged_at < 0) & (self.step < self.last_step)
        return active, self.optimizer.next_hyperparameters(norms, self.schedule.lr_factors(self.step), active)

    def _loss_and_gradients(self) -> tuple[Float[Tensor, "R"], Float[Tensor, "R P"]]:
        """Of one update's samples: of one batch, or summed over several, whose weights add up to 1 together."""
        loss, gradients = self._backward()
        if self.accumulate > 1:
            gradients = gradients.clone()
            for _ in range(1, self.accumulate):
                more_loss, more = self._backward()
                loss, gradients = loss + more_loss, gradients.add_(more)
        return loss, gradients

    def _backward(self) -> tuple[Float[Tensor, "R"], Float[Tensor, "R P"]]:
        loss = self._batch_losses_fn(self)
        gradients = self.parameters.compute_gradients(loss.sum())
        self.n_batches_drawn += 1
        return loss.detach(), gradients

    def _batch_losses(self) -> Float[Tensor, "R"]:
        """Every run's loss on its batch."""
        batch = self.batches.draw(self.n_batches_drawn)
        logits = self.forward_batch(batch)
        losses = sample_losses(logits, batch.targets, batch.target_mask, self.label_smoothing)
        return (losses * batch.weights.to(losses.dtype)).sum(1)

    def _update_ema(self, active: Bool[Tensor, "R"]) -> None:
        """Moves the running mean of the weights: θ̄ ← ema·θ̄ + (1 − ema)·θ, from the initial weights on."""
        if self.ema_weights is not None:
            moved = self.ema_weights.lerp(self.parameters.weights, 1 - self.ema_decay)
            self.ema_weights.copy_(torch.where(active[:, None], moved, self.ema_weights))

    @contextmanager
    def use_ema_weights(self) -> Iterator[None]:
        """The model with the weights that are evaluated and kept: their running mean where there is one."""
        if self.ema_weights is None:
            yield
            return
        trained = self.parameters.weights.clone()
        self.parameters.weights.copy_(self.ema_weights)
        try:
            yield
        finally:
            self.parameters.weights.copy_(trained)

    def score_samples(self) -> tuple[Float[Tensor, "R N"], Int[Tensor, "R N"]]:
        """Loss and right tokens of each sample that is evaluated, of every run; weights are left alone."""
        self.parameters.sync_bf16()
        losses, right = zip(*(self._score_batch_fn(self, batch) for batch in self.batches.eval_chunks()), strict=True)
        return torch.cat(losses, 1), torch.cat(right, 1)

    def _score_batch(self, batch: Batch) -> tuple[Float[Tensor, "R B"], Int[Tensor, "R B"]]:
        logits = self.forward_batch(batch)
        losses = sample_losses(logits, batch.targets, batch.target_mask).double()
        return losses, n_correct(logits, batch.targets, batch.target_mask)

    def weights_by_slot(self, slots: Sequence[int], state: Arrays) -> dict[int, Arrays]:
        """What a state holds of these runs: the evaluated weights, and what layers gather beside them."""
        weights = state["weights" if self.ema_weights is None else "mean_weights"]
        gathered = {name: state[f"statistics.{name}"] for name in running_stats(self.model)}
        return {
            slot: {
                **self.parameters.unflatten(weights[slot]),
                **{name: held[slot].copy() for name, held in gathered.items()},
            }
            for slot in slots
        }

    def freeze_run(self, slot: int) -> None:
        """Lets a run's weights stay as they are from here on."""
        self.n_steps[slot] = self._host_step
        self.last_step[slot] = self._host_step

    def _capture_graph(self) -> None:
        """Records one update; those that this needs to warm up are undone."""
        before = {name: held.clone() for name, held in self.state().items()}
        self._graph = CapturedGraph(self._update, self.graph_pool)
        self.restore(before)

    def _detect_divergence(self, loss: Float[Tensor, "R"], norms: Float[Tensor, "R"]) -> None:
        none, of_loss, of_gradient = self._cause_codes
        cause = torch.where(is_finite(loss), torch.where(is_finite(norms), none, of_gradient), of_loss)
        new = (cause > 0) & (self.diverged_at < 0)
        self.divergence_cause.copy_(torch.where(new, cause, self.divergence_cause))
        self.diverged_at.copy_(torch.where(new, self.step, self.diverged_at))

    def state(self) -> dict[str, Tensor]:
        """Everything that decides the updates to come; draws need no state, they are counted by the step."""
        own = {"step": self.step, "ends": self.last_step, "broken_at": self.diverged_at, "cause": self.divergence_cause}
        own |= {"weights": self.parameters.weights}
        if self.ema_weights is not None:
            own["mean_weights"] = self.ema_weights
        parts = {
            "optimizer": self.optimizer.state(), "schedule": self.schedule.state(), "statistics": running_stats(self.model)
        }  # fmt: skip
        return own | {f"{part}.{name}": held for part, state in parts.items() for name, held in state.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Goes back to a state; everything is written in place, since the model and captured updates refer to it."""
        for name, held in self.state().items():
            held.copy_(state[name])
        self._host_step = int(self.step)
        self.n_batches_drawn.copy_(self.step * self.accumulate)
        self.n_steps = self.last_step.tolist()


class BatchForward(nn.Module):
    """A model's logits at the scored positions of a batch; shared beginnings are computed once and grafted."""

    def __init__(self, model: nn.Module, precision: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.precision, self.dtype = model, precision, dtype
        self.is_classifier = isinstance(model, Encoder)

    def forward(self, batch: Batch) -> Float[Tensor, "R B K V"]:
        with autocast_context(self.precision, batch.inputs.device):
            if self.is_classifier:
                return self.model(batch.inputs, counted=batch.weights > 0).to(self.dtype)
            past = None
            if batch.shared_prefixes is not None and batch.prefix_index is not None:
                memories = cast(GPT | LSTM, self.model).prefill(batch.shared_prefixes)
                rows = one_hot(batch.prefix_index, batch.shared_prefixes.shape[1], memories[0][0].dtype)
                past = [(gather_rows(first, rows), gather_rows(second, rows)) for first, second in memories]
            return self.model(batch.inputs, batch.scored_positions, past=past).to(self.dtype)


def can_fuse_update(optimizer: Optimizer) -> bool:
    """Whether kernels of our own decide and update: on a GPU, of Adam or AdamW that decays all weights or none."""
    suits = optimizer.weights.is_cuda and optimizer.weights.dtype == torch.float32
    return HAS_TRITON and suits and optimizer.kind in ("adam", "adamw") and optimizer.decay_mask is None


def is_finite(x: Tensor) -> Tensor:
    """As torch.isfinite, in two operations instead of four: only of finite numbers the difference to itself is 0."""
    return x - x == 0


def set_matmul_precision(precision: str) -> None:
    """How float32 matrix products are done from here on; without a GPU they are always strict."""
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
    torch.backends.cudnn.allow_tf32 = precision != "fp32"


def autocast_context(precision: str, device: torch.device) -> AbstractContextManager[None]:
    """16-bit operations where they are asked for; weights, losses and updates stay as they are."""
    enabled = precision == "bf16" and device.type == "cuda"
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)


def matrix_mask(parameters: FlatParameters) -> Bool[Tensor, "P"]:
    """Which of all weights belong to matrices and tables, not to biases and norms."""
    found = torch.zeros(1, parameters.weights.shape[1], dtype=torch.bool, device=parameters.weights.device)
    for name, view in parameters.views(found).items():
        view.fill_(len(parameters.shapes[name]) > 1)
    return found[0]
