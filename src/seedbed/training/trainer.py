"""One update of every run of a pack: draw a batch, forward, loss, backward, clip, update.

Nothing here synchronizes with the device: a run whose loss or gradient is no longer finite is detected and frozen by
tensor operations alone; the other runs of the pack share no values with it and continue unaffected.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seedbed.data.batch import Batch, SampleScores
from seedbed.models.bitwise import set_reproducible
from seedbed.models.build import build_pack
from seedbed.models.layers import OutputLayer, gather_rows, one_hot, running_stats
from seedbed.models.sequence_model import SequenceModel
from seedbed.records import Arrays
from seedbed.settings import Settings
from seedbed.tasks.base import make_batches
from seedbed.training.cuda_graphs import CapturedGraph
from seedbed.training.large_output import LargeOutput, has_large_output
from seedbed.training.loss import RunningLoss, sample_losses, score_samples, score_tokens
from seedbed.training.optimizers import make_optimizer
from seedbed.training.optimizers.base import ActiveAndHyperparameters
from seedbed.training.schedule import Schedule

MAX_COMPILED_SHAPES = 10_000  # per function: every pack of a study may have another shape
DIVERGENCE_CAUSES = ("", "its loss is no longer finite", "its gradient is no longer finite")


class Trainer:
    """The whole state of a pack while it trains.

    Holds no reference to its own bound methods: a cycle would keep GPU memory alive until the next gc pass.
    """

    def __init__(
        self, settings: Sequence[Settings], seeds: Sequence[int], device: str, dtype: torch.dtype, mode: str = "plain"
    ) -> None:
        torch_device = torch.device(device)
        train_settings, dataset_info = [run.train for run in settings], settings[0].task.dataset_info()
        shared = train_settings[0]  # for settings that are equal in all runs of a pack
        self.mode, self.precision, self.label_smoothing = mode, shared.precision, shared.label_smoothing
        self.reproducible = shared.reproducible
        self.accumulate = shared.accumulate
        self.step = torch.zeros(1, dtype=torch.int64, device=torch_device)  # updates done
        self.n_batches_drawn = torch.zeros_like(self.step)  # `accumulate` per update
        self.model, self.parameters = build_pack(settings, seeds, self.n_batches_drawn, dtype, dataset_info)
        self.batches = make_batches(settings, seeds, device)
        self.n_steps = [run.n_steps(run.task.dataset_info()) for run in settings]
        self.last_step = torch.tensor(self.n_steps, device=torch_device)
        self.optimizer = make_optimizer(train_settings, self.parameters)
        # Each run's largest gradient norm; 0: no limit.
        self.clip = torch.tensor([[train.clip] for train in train_settings], device=torch_device, dtype=dtype)
        self.schedule = Schedule(train_settings, self.last_step)
        self.ema_decay = shared.ema
        self.ema_weights = self.parameters.weights.clone() if shared.ema else None
        self.diverged_at = torch.full_like(self.last_step, -1)  # step at which a run diverged; -1: it has not
        self.divergence_cause = torch.zeros_like(self.last_step)  # index into DIVERGENCE_CAUSES
        self.running_loss: RunningLoss | None = None
        if "running" in shared.eval_sets:
            is_text = settings[0].task.generates_text
            self.running_loss = RunningLoss(len(settings), torch_device, has_perplexity=is_text)
        # A tensor that never changes is made once: making it would be a kernel launch per update on a GPU.
        self._zero = torch.zeros((), dtype=torch.float64, device=torch_device)
        self._cause_codes = torch.arange(len(DIVERGENCE_CAUSES), device=torch_device).unbind()
        self.forward_batch = BatchForward(self.model, self.precision, dtype)
        # Functions of the class, not bound methods (see above); compiled or fused versions replace them.
        self._batch_losses_fn, self._score_batch_fn = Trainer._batch_losses, Trainer._score_batch
        self._active_and_lr_fn: Callable[[Trainer, Tensor, Tensor], ActiveAndHyperparameters] = Trainer._active_and_lr
        if mode == "compiled":
            torch._dynamo.config.recompile_limit = MAX_COMPILED_SHAPES
            torch._dynamo.config.accumulated_recompile_limit = MAX_COMPILED_SHAPES
            warnings.filterwarnings(
                "ignore", r"\s*Online softmax is disabled"
            )  # of interest to torch's developers only
            self._batch_losses_fn = torch.compile(Trainer._batch_losses, dynamic=False)
            self._score_batch_fn = torch.compile(Trainer._score_batch, dynamic=False)
            self._active_and_lr_fn = torch.compile(Trainer._active_and_lr, dynamic=False)  # many tiny operations
            self.optimizer.compile()
        elif mode == "graph" and (fused := self.optimizer.fuse()) is not None:
            self._active_and_lr_fn = fused
        self._large_output: LargeOutput | None = None
        if mode == "graph" and torch_device.type == "cuda" and has_large_output(self.model, dataset_info.vocab_size):
            self._large_output = LargeOutput(self.forward_batch)
        if self.precision == "bf16" and torch_device.type == "cuda" and self.model.family.uses_bf16_weights:
            self.parameters.add_bf16_copy(self.model, torch.bfloat16)
        self._host_step = 0  # `step`, known without asking the device
        self._graph: CapturedGraph[None] | None = None
        self.uses_cuda_graphs = mode != "plain" and torch_device.type == "cuda"
        self.graph_pool = torch.cuda.graph_pool_handle() if self.uses_cuda_graphs else None

    def train_step(self) -> None:
        """Updates every run that has neither ended nor diverged; replays a captured graph where those are used."""
        self.batches.prepare(self._host_step)
        if self.uses_cuda_graphs and self._graph is None:
            self._capture_graph()
        if self._graph is not None:
            self._graph.replay()
        else:
            self._update()
        self._host_step += 1

    def _update(self) -> None:
        self.set_arithmetic()
        if not self.model.training:  # train() visits every submodule, which takes as long as a layer of a small model
            self.model.train()
        self.parameters.sync_bf16()
        loss, gradients = self._loss_and_gradients()
        with torch.no_grad():
            norms = torch.linalg.vector_norm(gradients, dim=1)
            active, hyperparameters = self._active_and_lr_fn(self, loss, norms)
            if self.running_loss is not None:
                self.running_loss.add(loss, active)
            self.optimizer.clip_and_step(active, *hyperparameters)
            self._update_ema(active)
            self.step += 1

    def set_arithmetic(self) -> None:
        """Sets what is process-wide in how this pack computes; other packs may have computed since."""
        set_matmul_precision(self.precision)
        set_reproducible(self.reproducible)

    def _active_and_lr(self, loss: Float[Tensor, "R"], norms: Float[Tensor, "R"]) -> ActiveAndHyperparameters:
        """Which runs are updated, and with which clip scales and hyperparameters; the others get learning rate 0."""
        self._detect_divergence(loss, norms)
        active = (self.diverged_at < 0) & (self.step < self.last_step)
        lr = torch.where(active, self.schedule.lr_factors(self.step), self._zero)[:, None] * self.optimizer.lr
        return active, (clip_scales(norms, self.clip), *self.optimizer.next_hyperparameters(lr))

    def _loss_and_gradients(self) -> tuple[Float[Tensor, "R"], Float[Tensor, "R P"]]:
        """Loss and gradient of one update, accumulated over its batches, whose sample weights sum to 1 in all."""
        loss, gradients = self._backward()
        for _ in range(1, self.accumulate):
            previous = gradients.clone()  # the next gradients are written to the same tensor
            batch_loss, gradients = self._backward()
            loss, gradients = loss + batch_loss, gradients.add_(previous)
        return loss, gradients

    def _backward(self) -> tuple[Float[Tensor, "R"], Float[Tensor, "R P"]]:
        loss = self._batch_losses_fn(self)
        gradients = self.parameters.compute_gradients(loss.sum())
        self.n_batches_drawn += 1
        return loss.detach(), gradients

    def _batch_losses(self) -> Float[Tensor, "R"]:
        """Every run's loss on its batch."""
        batch = self.batches.draw(self.n_batches_drawn)
        if self._large_output is not None:
            return self._large_output.weighted_losses(batch, self.label_smoothing)
        logits = self.forward_batch(batch)
        losses = sample_losses(logits, batch.targets, batch.target_mask, self.label_smoothing)
        return (losses * batch.weights.to(losses.dtype)).sum(1)

    def _update_ema(self, active: Bool[Tensor, "R"]) -> None:
        """Updates the exponential moving average of the weights: θ̄ ← ema·θ̄ + (1 − ema)·θ, from the initial weights."""
        if self.ema_weights is not None:
            updated = self.ema_weights.lerp(self.parameters.weights, 1 - self.ema_decay)
            self.ema_weights.copy_(torch.where(active[:, None], updated, self.ema_weights))

    @contextmanager
    def use_ema_weights(self) -> Iterator[None]:
        """Puts in the weights that are evaluated and saved: their moving average if `train.ema` is set."""
        if self.ema_weights is None:
            yield
            return
        trained = self.parameters.weights.clone()
        self.parameters.weights.copy_(self.ema_weights)
        try:
            yield
        finally:
            self.parameters.weights.copy_(trained)

    def sampled_tensors(self) -> dict[str, Tensor]:
        """The weights that samples are drawn with, as `weights`, and running statistics by name."""
        weights = self.parameters.weights if self.ema_weights is None else self.ema_weights
        return {"weights": weights, **running_stats(self.model)}

    def score_samples(self) -> SampleScores:
        """The scores of every evaluated sample, for every run."""
        self.parameters.sync_bf16()
        return SampleScores.join([self._score_batch_fn(self, batch) for batch in self.batches.eval_chunks()])

    def _score_batch(self, batch: Batch) -> SampleScores:
        if self._large_output is not None:
            return self._large_output.score_samples(batch)
        return score_samples(score_tokens(self.forward_batch(batch), batch.targets), batch.target_mask)

    def weights_by_slot(self, slots: Sequence[int], state: Arrays) -> dict[int, Arrays]:
        """The evaluated weights and running statistics of these runs, by name, taken from a state."""
        weights = state["weights" if self.ema_weights is None else "mean_weights"]
        statistics = {name: state[f"statistics.{name}"] for name in running_stats(self.model)}
        return {
            slot: {
                **self.parameters.unflatten(weights[slot]),
                **{name: array[slot].copy() for name, array in statistics.items()},
            }
            for slot in slots
        }

    def freeze_run(self, slot: int) -> None:
        """Makes the current step a run's last: its weights no longer change."""
        self.n_steps[slot] = self._host_step
        self.last_step[slot] = self._host_step

    def _capture_graph(self) -> None:
        """Captures one update as a CUDA graph, and undoes the warm-up updates that this needs."""
        state = {name: tensor.clone() for name, tensor in self.state().items()}
        self._graph = CapturedGraph(self._update, self.graph_pool)
        self.restore(state)

    def _detect_divergence(self, loss: Float[Tensor, "R"], norms: Float[Tensor, "R"]) -> None:
        no_cause, loss_cause, gradient_cause = self._cause_codes
        cause = torch.where(is_finite(loss), torch.where(is_finite(norms), no_cause, gradient_cause), loss_cause)
        is_new = (cause > 0) & (self.diverged_at < 0)
        self.divergence_cause.copy_(torch.where(is_new, cause, self.divergence_cause))
        self.diverged_at.copy_(torch.where(is_new, self.step, self.diverged_at))

    def state(self) -> dict[str, Tensor]:
        """Everything that future updates depend on; random numbers need no state, they are functions of the step."""
        # The keys are the names in checkpoint files.
        own = {"step": self.step, "ends": self.last_step, "broken_at": self.diverged_at, "cause": self.divergence_cause}
        own |= {"weights": self.parameters.weights}
        if self.ema_weights is not None:
            own["mean_weights"] = self.ema_weights
        components = {
            "optimizer": self.optimizer.state(),
            "schedule": self.schedule.state(),
            "statistics": running_stats(self.model),
            "running_loss": self.running_loss.state() if self.running_loss is not None else {},
        }
        return own | {f"{prefix}.{name}": x for prefix, state in components.items() for name, x in state.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restores a state, in place: the model and captured graphs refer to these tensors."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])
        self._host_step = int(self.step)
        self.n_batches_drawn.copy_(self.step * self.accumulate)
        self.n_steps = self.last_step.tolist()


class BatchForward(nn.Module):
    """A model's logits at the scored positions of a batch; shared prefixes are prefilled once per run."""

    def __init__(self, model: SequenceModel, precision: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.precision, self.dtype = model, precision, dtype
        self.is_classifier = model.family.predicts == "label"

    def forward(self, batch: Batch) -> Float[Tensor, "R B K V"]:
        return self.forward_model(batch).to(self.dtype)

    def forward_model(self, batch: Batch) -> Tensor:
        """The model's output as it is: logits, or what its output layer would get where that is bypassed."""
        with autocast_context(self.precision, batch.inputs.device):
            if self.is_classifier:
                return self.model(batch.inputs, sample_mask=batch.weights > 0)
            past = None
            if batch.shared_prefixes is not None and batch.prefix_index is not None:
                caches = self.model.prefill(batch.shared_prefixes)
                rows = one_hot(batch.prefix_index, batch.shared_prefixes.shape[1], caches[0][0].dtype)
                past = [tuple(gather_rows(tensor, rows) for tensor in layer) for layer in caches]
            return self.model(batch.inputs, batch.scored_positions, past=past)

    def output_logits(self, hidden: Tensor) -> Tensor:
        """Logits from what the output layer gets."""
        with autocast_context(self.precision, hidden.device):
            logits: Tensor = cast(OutputLayer, self.model.output)(hidden)
        return logits.to(self.dtype)


def clip_scales(norms: Float[Tensor, "R"], limits: Float[Tensor, "R 1"]) -> Float[Tensor, "R 1"]:
    """Factor of each run's gradient that keeps its norm within the limit (0: no limit)."""
    return torch.where(limits > 0, (limits / (norms[:, None] + 1e-6)).clamp(max=1.0), 1.0)


def is_finite(x: Tensor) -> Tensor:
    """torch.isfinite in two operations instead of four: x - x is 0 only for finite x."""
    return x - x == 0


def set_matmul_precision(precision: str) -> None:
    """Sets the process-wide precision of float32 matrix products: TF32 on a GPU unless fp32; no effect on a CPU."""
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
    torch.backends.cudnn.allow_tf32 = precision != "fp32"


def autocast_context(precision: str, device: torch.device) -> AbstractContextManager[None]:
    """bf16 autocast on a GPU with that precision; weights, losses and updates stay in their own dtype."""
    enabled = precision == "bf16" and device.type == "cuda"
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)
