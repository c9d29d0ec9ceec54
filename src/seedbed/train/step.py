"""One update of every run of a pack: draw a batch, forward, loss, backward, clip, update.

Nothing here waits for the device: a run whose numbers stop being finite is noted and frozen by tensors alone, and its
neighbours, which share no operation with it, go on untouched.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seedbed.data.batches import ArithmeticBatches, Batch
from seedbed.models.build import build_pack
from seedbed.models.layers import graft, one_hot
from seedbed.settings import Settings
from seedbed.train.loss import sample_losses, samples_right
from seedbed.train.optim import Optimizer
from seedbed.train.schedule import Schedule

CHUNK = 4096  # samples evaluated at once
CAUSES = ("", "its loss is no longer finite", "its gradient is no longer finite")


class Trainer:
    """The whole state of a pack while it trains."""

    def __init__(
        self, settings: Sequence[Settings], seeds: Sequence[int], device: str, dtype: torch.dtype, engine: str = "plain"
    ) -> None:
        where = torch.device(device)
        self.engine, self.precision = engine, settings[0].train.precision
        trains = [one.train for one in settings]
        self.step = torch.zeros(1, dtype=torch.int64, device=where)  # updates done
        self.model, self.bank = build_pack(settings, seeds, self.step, dtype)
        share = not any(one.model.dropout for one in settings)  # shared beginnings would share what is dropped
        self.batches = ArithmeticBatches(
            [one.task for one in settings], seeds, [train.batch_size for train in trains], where, share
        )
        self.totals = [one.n_steps() for one in settings]
        self.ends = torch.tensor(self.totals, device=where)
        self.optimizer = Optimizer(trains, self.bank.weights)
        self.schedule = Schedule(trains, self.ends)
        self.broken_at = torch.full_like(self.ends, -1)  # the update at which a run diverged
        self.cause = torch.zeros_like(self.ends)
        self.scorer = Scorer(self.model, self.precision, dtype)
        self._losses, self.score_table = self._batch_losses, self._score_table
        if engine == "compiled":
            self._losses = torch.compile(self._batch_losses, dynamic=False)
            self.score_table = torch.compile(self._score_table, dynamic=False)
            self.optimizer.rule = torch.compile(self.optimizer.rule, dynamic=False)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._captures = engine != "plain" and where.type == "cuda"

    def advance(self) -> None:
        """One update of every run that is neither done nor diverged; on a GPU a replay of the captured one."""
        if self._captures and self._graph is None:
            self._capture()
        if self._graph is not None:
            self._graph.replay()
        else:
            self._update()

    def _update(self) -> None:
        use_precision(self.precision)
        self.model.train()
        if self.engine == "compiled":  # one gradient for all parameters, put together by the compiler
            flat = self.bank.weights.detach().requires_grad_()  # a new leaf, which belongs to the stream in use
            loss = self._losses(flat)
            (gradients,) = torch.autograd.grad(loss.sum(), flat)
        else:
            loss = self._losses()
            gradients = self.bank.take_gradients(loss.sum())
        with torch.no_grad():
            norms = torch.linalg.vector_norm(gradients, dim=1)
            self._note_divergence(loss.detach(), norms)
            active = (self.broken_at < 0) & (self.step < self.ends)
            self.optimizer.update(gradients, norms, self.schedule.factors(self.step), active)
            self.step += 1

    def _batch_losses(self, flat: Float[Tensor, "R P"] | None = None) -> Float[Tensor, "R"]:
        """Every run's loss on its batch; as a function of all weights in one tensor where that is given."""
        batch = self.batches.draw(self.step)
        if flat is None:
            logits = self.scorer(batch)
        else:
            pieces = {f"model.{name}": piece for name, piece in self.bank.pieces(flat).items()}
            logits = torch.func.functional_call(self.scorer, pieces, (batch,))
        losses = sample_losses(logits, batch.targets)
        return (losses * batch.weights.to(losses.dtype)).sum(1)

    def _score_table(self) -> tuple[Float[Tensor, "R N"], Bool[Tensor, "R N"]]:
        """Each sample's loss and whether it is right, for the whole table of every run; weights are left alone."""
        losses, right = [], []
        for batch in self.batches.chunks(CHUNK):
            logits = self.scorer(batch)
            losses.append(sample_losses(logits, batch.targets).double())
            right.append(samples_right(logits, batch.targets))
        return torch.cat(losses, 1), torch.cat(right, 1)

    def _capture(self) -> None:
        """Records one update as a CUDA graph; the warm-up updates that this needs are undone."""
        before = {name: held.clone() for name, held in self.state().items()}
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._update()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._update()
        self.restore(before)

    def _note_divergence(self, loss: Float[Tensor, "R"], norms: Float[Tensor, "R"]) -> None:
        cause = torch.where(loss.isfinite(), torch.where(norms.isfinite(), 0, 2), 1)
        new = (cause > 0) & (self.broken_at < 0)
        self.cause.copy_(torch.where(new, cause, self.cause))
        self.broken_at.copy_(torch.where(new, self.step, self.broken_at))

    def state(self) -> dict[str, Tensor]:
        """Everything that decides the updates to come; draws need no state, they are counted by the step."""
        own = {"step": self.step, "broken_at": self.broken_at, "cause": self.cause, "weights": self.bank.weights}
        parts = {"optimizer": self.optimizer.state(), "schedule": self.schedule.state()}
        return own | {f"{part}.{name}": held for part, state in parts.items() for name, held in state.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Goes back to a state; the weights are written in place, since the model's parameters are views of them."""
        self.step.copy_(state["step"])
        self.bank.weights.copy_(state["weights"])
        self.broken_at.copy_(state["broken_at"])
        self.cause.copy_(state["cause"])
        self.optimizer.restore(_part(state, "optimizer."))
        self.schedule.restore(_part(state, "schedule."))


class Scorer(nn.Module):
    """A model's logits at the scored positions of a batch; shared beginnings are computed once and grafted."""

    def __init__(self, model: nn.Module, precision: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.precision, self.dtype = model, precision, dtype

    def forward(self, batch: Batch) -> Float[Tensor, "R B K V"]:
        with working_precision(self.precision, batch.inputs.device):
            past = None
            if batch.stems is not None and batch.stem is not None:
                rows = one_hot(batch.stem, batch.stems.shape[1])
                past = [(graft(first, rows), graft(second, rows)) for first, second in self.model.remember(batch.stems)]
            return self.model(batch.inputs, batch.at, past=past).to(self.dtype)


def use_precision(precision: str) -> None:
    """How float32 matrix products are done from here on; without a GPU they are always strict."""
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")


def working_precision(precision: str, device: torch.device) -> AbstractContextManager[None]:
    """16-bit operations where they are asked for; weights, losses and updates stay as they are."""
    enabled = precision == "bf16" and device.type == "cuda"
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)


def _part(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): held for name, held in state.items() if name.startswith(prefix)}
