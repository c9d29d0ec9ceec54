"""The work of whole runs as a plain compiled loop does it: one run after another.

    loop = PlainLoop(run, "cuda")      builds, compiles and warms up
    loop.time(n_updates=100)           seconds of one update, evaluation, sample and save
    total = work_seconds(seconds, section_counts(run))

nn.Module, DataLoader, torch.optim, torch.compile and torch.save; a sample is drawn as nanoGPT draws it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from check import first_run_samples
from loops import compute_loss, iterate_batches, make_optimizer
from peers import plain_model
from torch import Tensor, nn

from seedbed.records import Run
from seedbed.settings import Settings
from seedbed.study.pack import shape_key
from seedbed.tasks.base import BatchLimits

WARM_UP_STEPS = 3  # compiled and not timed, but reported
UPDATE_SECONDS = 0.4  # of updates are timed
RESIDENT = "compute, one batch"  # an update whose batch is on the device already


class PlainLoop:
    """A run of one model, compiled on a GPU."""

    def __init__(self, run: Run, device: str) -> None:
        start = time.perf_counter()
        self.settings, self.device, train = run.settings, device, run.settings.train
        torch.manual_seed(0)
        self.set_precision()
        self.model: nn.Module = plain_model(self.settings).to(device).train()
        # one shape each: without `dynamic=False` the second model of a class would get slower kernels for any shape
        self.compiled = torch.compile(self.model, dynamic=False) if device == "cuda" else self.model
        self.optimizer = make_optimizer(self.model.parameters(), train)
        self.batches = iterate_batches(self.settings, device)
        self.eval_batches = [first_run_samples(chunk) for chunk in _eval_chunks(self.settings, device)]
        for _ in range(WARM_UP_STEPS):
            self.update(*next(self.batches))
        self.evaluate()
        self.synchronize()
        self.compile_seconds = time.perf_counter() - start

    def set_precision(self) -> None:
        torch.set_float32_matmul_precision("highest" if self.settings.train.precision == "fp32" else "high")

    def autocast(self) -> torch.autocast:
        enabled = self.settings.train.precision == "bf16" and self.device == "cuda"
        return torch.autocast(self.device, torch.bfloat16, enabled=enabled)

    def update(self, inputs: Tensor, targets: Tensor) -> None:
        train = self.settings.train
        with self.autocast():
            loss = compute_loss(self.compiled, inputs, targets, train.label_smoothing)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if train.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), train.clip)
        self.optimizer.step()

    def evaluate(self) -> None:
        self.compiled.eval()
        with torch.no_grad(), self.autocast():
            losses = [compute_loss(self.compiled, *batch) for batch in self.eval_batches]
        float(torch.stack(losses).mean()) if losses else 0.0
        self.compiled.train()

    def sample(self) -> None:
        """A sample as nanoGPT draws it: the whole context is computed for each token."""
        tokens = torch.ones(1, 1, dtype=torch.long, device=self.device)
        self.model.eval()
        with torch.no_grad(), self.autocast():
            for _ in range(self.settings.train.sample_tokens):
                logits = self.model(tokens[:, -self.settings.task.length :])[:, -1]
                tokens = torch.cat([tokens, torch.multinomial(logits.float().softmax(-1), 1)], dim=1)
        self.model.train()

    def save(self) -> None:
        with tempfile.TemporaryFile() as file:
            torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, file)

    def time(self, n_updates: int | None = None) -> dict[str, float]:
        """Seconds of one of each; by default as many updates are timed as fit into UPDATE_SECONDS."""
        self.set_precision()
        batch = next(self.batches)
        if n_updates is None:
            n_updates = max(3, min(200, round(UPDATE_SECONDS / self.seconds(lambda: self.update(*batch), 3))))
        seconds = {
            "compute": self.seconds(lambda: self.update(*next(self.batches)), n_updates),
            RESIDENT: self.seconds(lambda: self.update(*batch), n_updates),
            "evaluate": self.seconds(self.evaluate, 2),
            "save": self.seconds(self.save, 2),
        }
        if self.settings.task.generates_text and self.settings.train.sample_every:
            seconds["write"] = self.seconds(self.sample, 1) * self.settings.train.samples
        return seconds

    def seconds(self, action: Callable[[], None], n: int) -> float:
        self.synchronize()
        start = time.perf_counter()
        for _ in range(n):
            action()
        self.synchronize()
        return (time.perf_counter() - start) / n

    def synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def plain_loop_key(run: Run) -> object:
    """Equal for runs whose updates, evaluations and samples cost the same in a plain loop."""
    return repr((shape_key(run.settings), run.settings.train.batch_size, run.settings.train.precision))


def work_seconds(seconds: Mapping[str, float], counts: Mapping[str, int]) -> dict[str, float]:
    """The seconds of all updates, evaluations, samples and saves of a run, by section."""
    named = {name: "compute" if name == RESIDENT else name for name in seconds}
    return {name: value * counts[named[name]] for name, value in seconds.items()}


def add_seconds(totals: dict[str, float], more: Mapping[str, float]) -> None:
    for name, value in more.items():
        totals[name] = totals.get(name, 0.0) + value


def _eval_chunks(settings: Settings, device: str) -> Sequence[Any]:
    if not {"train", "val", "test"}.intersection(settings.train.eval_sets):
        return []
    batches = settings.task.make_batches([settings], [0], device, BatchLimits())
    return list(batches.eval_chunks())
