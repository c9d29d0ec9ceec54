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

from seedbed.data.batches import make_batches
from seedbed.data.facts import facts_of
from seedbed.data.samples import Batch
from seedbed.models.bank import Bank
from seedbed.models.build import build_pack
from seedbed.models.encoder import Encoder
from seedbed.models.gpt import GPT
from seedbed.models.layers import HAS_TRITON, graft, one_hot, statistics
from seedbed.models.lstm import LSTM
from seedbed.records import Arrays
from seedbed.settings import Settings
from seedbed.train.graphs import Recorded
from seedbed.train.loss import n_right, sample_losses
from seedbed.train.optim import Optimizer
from seedbed.train.schedule import Schedule

MANY_SHAPES = 10_000  # programs of one function that may be compiled: every pack of a study has a shape of its own
CAUSES = ("", "its loss is no longer finite", "its gradient is no longer finite")


class Trainer:
    """The whole state of a pack while it trains.

    What it has of a device is free as soon as nobody holds it, so it refers to no method of its own: such a circle
    stays until somebody looks for it.
    """

    def __init__(
        self, settings: Sequence[Settings], seeds: Sequence[int], device: str, dtype: torch.dtype, engine: str = "plain"
    ) -> None:
        where = torch.device(device)
        trains, facts = [one.train for one in settings], facts_of(settings[0].task)
        first = trains[0]  # for what is the same in all runs of a pack
        self.engine, self.precision, self.smoothing = engine, first.precision, first.label_smoothing
        self.accumulate = first.accumulate
        self.step = torch.zeros(1, dtype=torch.int64, device=where)  # updates done
        self.drawn = torch.zeros_like(self.step)  # batches drawn: `accumulate` an update
        self.model, self.bank = build_pack(settings, seeds, self.drawn, dtype, facts)
        self.batches = make_batches(settings, seeds, where)
        self.totals = [one.n_steps(facts_of(one.task)) for one in settings]
        self.ends = torch.tensor(self.totals, device=where)
        self.optimizer = Optimizer(
            trains, self.bank.weights, matrices(self.bank) if first.decay == "matrices" else None
        )
        self.schedule = Schedule(trains, self.ends)
        self.mean_decay = first.ema
        self.mean_weights = self.bank.weights.clone() if first.ema else None
        self.broken_at = torch.full_like(self.ends, -1)  # the update at which a run diverged
        self.cause = torch.zeros_like(self.ends)
        self._causes = torch.arange(len(CAUSES), device=where).unbind()
        self.scorer = Scorer(self.model, self.precision, dtype)
        self._losses, self._score = Trainer._batch_losses, Trainer._sample_scores
        self._decided: Callable[[Trainer, Tensor, Tensor], tuple[Tensor, tuple[Tensor, ...]]] = Trainer._decide
        if engine == "compiled":
            torch._dynamo.config.recompile_limit = MANY_SHAPES
            torch._dynamo.config.accumulated_recompile_limit = MANY_SHAPES
            warnings.filterwarnings("ignore", r"\s*Online softmax is disabled")  # a note of the compiler to its makers
            self._losses = torch.compile(Trainer._batch_losses, dynamic=False)
            self._score = torch.compile(Trainer._sample_scores, dynamic=False)
            self._decided = torch.compile(Trainer._decide, dynamic=False)  # many operations on very few numbers
            self.optimizer.rule = torch.compile(self.optimizer.rule, dynamic=False)
        elif engine == "graph" and fuses_updates(self.optimizer):
            from seedbed.train import kernels

            self._decided = kernels.decide
            self.optimizer.rule = partial(kernels.adam, decoupled=self.optimizer.kind == "adamw")
        if self.precision == "bf16" and where.type == "cuda" and not isinstance(self.model, LSTM):
            self.bank.lower(self.model, torch.bfloat16)  # a cell's gradients, summed over positions, stay in 16 bits
        self._updates = 0  # as the host counts them
        self._recorded: Recorded[None] | None = None
        self.records_work = engine != "plain" and where.type == "cuda"
        self.pool = torch.cuda.graph_pool_handle() if self.records_work else None

    def advance(self) -> None:
        """One update of every run that is neither done nor diverged; on a GPU a replay of the captured one."""
        self.batches.prepare(self._updates)
        if self.records_work and self._recorded is None:
            self._record()
        if self._recorded is not None:
            self._recorded.replay()
        else:
            self._update()
        self._updates += 1

    def _update(self) -> None:
        use_precision(self.precision)
        if not self.model.training:  # telling every part costs as much as a layer of a small model
            self.model.train()
        self.bank.follow()
        loss, gradients = self._loss_and_gradients()
        with torch.no_grad():
            active, numbers = self._decided(self, loss, torch.linalg.vector_norm(gradients, dim=1))
            self.optimizer.move(gradients, active, *numbers)
            self._follow(active)
            self.step += 1

    def _decide(
        self, loss: Float[Tensor, "R"], norms: Float[Tensor, "R"]
    ) -> tuple[Bool[Tensor, "R"], tuple[Float[Tensor, "R 1"], ...]]:
        """Which runs go on, and by which numbers."""
        self._note_divergence(loss, norms)
        active = (self.broken_at < 0) & (self.step < self.ends)
        return active, self.optimizer.numbers(norms, self.schedule.factors(self.step), active)

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
        loss = self._losses(self)
        gradients = self.bank.take_gradients(loss.sum())
        self.drawn += 1
        return loss.detach(), gradients

    def _batch_losses(self) -> Float[Tensor, "R"]:
        """Every run's loss on its batch."""
        batch = self.batches.draw(self.drawn)
        logits = self.scorer(batch)
        losses = sample_losses(logits, batch.targets, batch.scored, self.smoothing)
        return (losses * batch.weights.to(losses.dtype)).sum(1)

    def _follow(self, active: Bool[Tensor, "R"]) -> None:
        """Moves the running mean of the weights: θ̄ ← ema·θ̄ + (1 − ema)·θ, from the initial weights on."""
        if self.mean_weights is not None:
            moved = self.mean_weights.lerp(self.bank.weights, 1 - self.mean_decay)
            self.mean_weights.copy_(torch.where(active[:, None], moved, self.mean_weights))

    @contextmanager
    def evaluated_weights(self) -> Iterator[None]:
        """The model with the weights that are evaluated and kept: their running mean where there is one."""
        if self.mean_weights is None:
            yield
            return
        trained = self.bank.weights.clone()
        self.bank.weights.copy_(self.mean_weights)
        try:
            yield
        finally:
            self.bank.weights.copy_(trained)

    def score_table(self) -> tuple[Float[Tensor, "R N"], Int[Tensor, "R N"]]:
        """Loss and right tokens of each sample that is evaluated, of every run; weights are left alone."""
        self.bank.follow()
        losses, right = zip(*(self._score(self, batch) for batch in self.batches.chunks()), strict=True)
        return torch.cat(losses, 1), torch.cat(right, 1)

    def _sample_scores(self, batch: Batch) -> tuple[Float[Tensor, "R B"], Int[Tensor, "R B"]]:
        logits = self.scorer(batch)
        losses = sample_losses(logits, batch.targets, batch.scored).double()
        return losses, n_right(logits, batch.targets, batch.scored)

    def kept(self, slots: Sequence[int], state: Arrays) -> dict[int, Arrays]:
        """What a state holds of these runs: the evaluated weights, and what layers gather beside them."""
        weights = state["weights" if self.mean_weights is None else "mean_weights"]
        gathered = {name: state[f"statistics.{name}"] for name in statistics(self.model)}
        return {
            slot: {**self.bank.named(weights[slot]), **{name: held[slot].copy() for name, held in gathered.items()}}
            for slot in slots
        }

    def end(self, slot: int) -> None:
        """Lets a run's weights stay as they are from here on."""
        self.totals[slot] = self._updates
        self.ends[slot] = self._updates

    def _record(self) -> None:
        """Records one update; those that this needs to warm up are undone."""
        before = {name: held.clone() for name, held in self.state().items()}
        self._recorded = Recorded(self._update, self.pool)
        self.restore(before)

    def _note_divergence(self, loss: Float[Tensor, "R"], norms: Float[Tensor, "R"]) -> None:
        none, of_loss, of_gradient = self._causes
        cause = torch.where(is_finite(loss), torch.where(is_finite(norms), none, of_gradient), of_loss)
        new = (cause > 0) & (self.broken_at < 0)
        self.cause.copy_(torch.where(new, cause, self.cause))
        self.broken_at.copy_(torch.where(new, self.step, self.broken_at))

    def state(self) -> dict[str, Tensor]:
        """Everything that decides the updates to come; draws need no state, they are counted by the step."""
        own = {"step": self.step, "ends": self.ends, "broken_at": self.broken_at, "cause": self.cause}
        own |= {"weights": self.bank.weights}
        if self.mean_weights is not None:
            own["mean_weights"] = self.mean_weights
        parts = {
            "optimizer": self.optimizer.state(), "schedule": self.schedule.state(), "statistics": statistics(self.model)
        }  # fmt: skip
        return own | {f"{part}.{name}": held for part, state in parts.items() for name, held in state.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Goes back to a state; everything is written in place, since the model and captured updates refer to it."""
        for name, held in self.state().items():
            held.copy_(state[name])
        self._updates = int(self.step)
        self.drawn.copy_(self.step * self.accumulate)
        self.totals = self.ends.tolist()


class Scorer(nn.Module):
    """A model's logits at the scored positions of a batch; shared beginnings are computed once and grafted."""

    def __init__(self, model: nn.Module, precision: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.precision, self.dtype = model, precision, dtype
        self.tells_labels = isinstance(model, Encoder)

    def forward(self, batch: Batch) -> Float[Tensor, "R B K V"]:
        with working_precision(self.precision, batch.inputs.device):
            if self.tells_labels:
                return self.model(batch.inputs, counted=batch.weights > 0).to(self.dtype)
            past = None
            if batch.stems is not None and batch.stem is not None:
                memories = cast(GPT | LSTM, self.model).remember(batch.stems)
                rows = one_hot(batch.stem, batch.stems.shape[1], memories[0][0].dtype)
                past = [(graft(first, rows), graft(second, rows)) for first, second in memories]
            return self.model(batch.inputs, batch.at, past=past).to(self.dtype)


def fuses_updates(optimizer: Optimizer) -> bool:
    """Whether kernels of our own decide and update: on a GPU, of Adam or AdamW that decays all weights or none."""
    suits = optimizer.weights.is_cuda and optimizer.weights.dtype == torch.float32
    return HAS_TRITON and suits and optimizer.kind in ("adam", "adamw") and optimizer.decayed is None


def is_finite(x: Tensor) -> Tensor:
    """As torch.isfinite, in two operations instead of four: only of finite numbers the difference to itself is 0."""
    return x - x == 0


def use_precision(precision: str) -> None:
    """How float32 matrix products are done from here on; without a GPU they are always strict."""
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
    torch.backends.cudnn.allow_tf32 = precision != "fp32"


def working_precision(precision: str, device: torch.device) -> AbstractContextManager[None]:
    """16-bit operations where they are asked for; weights, losses and updates stay as they are."""
    enabled = precision == "bf16" and device.type == "cuda"
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)


def matrices(bank: Bank) -> Bool[Tensor, "P"]:
    """Which of all weights belong to matrices and tables, not to biases and norms."""
    found = torch.zeros(1, bank.weights.shape[1], dtype=torch.bool, device=bank.weights.device)
    for name, view in bank.views(found).items():
        view.fill_(len(bank.shapes[name]) > 1)
    return found[0]
