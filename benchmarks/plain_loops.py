"""The work of whole runs as a plain compiled loop does it: one run after another.

    loop = PlainLoop(run, "cuda")      builds, compiles and warms up
    seconds = loop.time()              of one update, evaluation, save, and of the samples drawn at one step
    total = work_seconds(seconds, section_counts(run))

nn.Module, DataLoader, torch.optim, torch.compile and torch.save; a sample is drawn as nanoGPT draws it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping

import torch
from check import first_run_samples
from loops import Samples, autocast, compute_loss, iterate_batches, make_optimizer, update_model
from peers import plain_model
from torch import nn

from seedbed.engines.cost_estimator import shape_digest
from seedbed.records import Run
from seedbed.tasks.base import make_batches

WARM_UP_STEPS = 3  # compiled and not timed, but reported
UPDATE_SECONDS = 0.2  # of updates are timed
N_TIMED_UPDATES = (3, 200)  # at least and at most
SAMPLE_STRIDE = 4  # tokens of a sample for which one is drawn and timed
MAX_COMPILED_SHAPES = 1_000  # in a process, before torch gives up and runs the next one uncompiled
RESIDENT = "compute, one batch"  # an update whose batch is on the device already


class PlainLoop:
    """A run of one model, compiled on a GPU."""

    def __init__(self, run: Run, device: str) -> None:
        start = time.perf_counter()
        self.train, self.context, self.device = run.settings.train, run.dataset_info.context_length, device
        self.draws_samples = run.settings.task.generates_text and self.train.sample_every > 0
        torch.manual_seed(0)
        self.set_precision()
        self.model: nn.Module = plain_model(run.settings).to(device).train()
        self.compiled = compile_shapes(self.model) if device == "cuda" else self.model
        self.optimizer = make_optimizer(self.model.parameters(), self.train)
        self.batches = iterate_batches(run.settings, device)
        self.eval_batches = [
            first_run_samples(chunk) for chunk in make_batches([run.settings], [0], device).eval_chunks()
        ]
        self.warm_up()
        self.compile_seconds = time.perf_counter() - start

    def warm_up(self) -> None:
        for _ in range(WARM_UP_STEPS):
            self.update(next(self.batches))
        self.evaluate()
        self.save()
        if self.draws_samples:
            self.sample(1)
        self.synchronize()

    def set_precision(self) -> None:
        torch.set_float32_matmul_precision("highest" if self.train.precision == "fp32" else "high")

    def update(self, batch: Samples) -> None:
        update_model(self.compiled, self.optimizer, batch, self.train)

    def evaluate(self) -> None:
        self.compiled.eval()
        with torch.no_grad(), autocast(self.train, self.device):
            losses = [compute_loss(self.compiled, *batch) for batch in self.eval_batches]
        float(torch.stack(losses).mean()) if losses else 0.0
        self.compiled.train()

    def sample(self, n_drawn: int) -> None:
        """Tokens of a sample as nanoGPT draws them, computing the whole context for each.

        Each is appended SAMPLE_STRIDE times, so that a part of the tokens meets the contexts of all of them.
        """
        tokens = torch.ones(1, 1, dtype=torch.long, device=self.device)
        self.model.eval()
        with torch.no_grad(), autocast(self.train, self.device):
            for _ in range(n_drawn):
                logits = self.model(tokens[:, -self.context :])[:, -1]
                drawn = torch.multinomial(logits.float().softmax(-1), 1)
                tokens = torch.cat([tokens, drawn.expand(1, SAMPLE_STRIDE)], dim=1)
        self.model.train()

    def save(self) -> None:
        with tempfile.TemporaryFile() as file:
            torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, file)

    def time(self) -> dict[str, float]:
        """Seconds of one of each; as many updates are timed as fit into UPDATE_SECONDS."""
        self.set_precision()
        batch, (at_least, at_most) = next(self.batches), N_TIMED_UPDATES
        n_fit = round(UPDATE_SECONDS / self.seconds(lambda: self.update(batch), at_least))
        n_updates = max(at_least, min(at_most, n_fit))
        seconds = {
            "compute": self.seconds(lambda: self.update(next(self.batches)), n_updates),
            RESIDENT: self.seconds(lambda: self.update(batch), n_updates),
            "evaluate": self.seconds(self.evaluate),
            "save": self.seconds(self.save),
        }
        if self.draws_samples:
            n_tokens = self.train.sample_tokens
            n_drawn = -(-n_tokens // SAMPLE_STRIDE)
            seconds["write"] = self.seconds(lambda: self.sample(n_drawn)) * n_tokens / n_drawn * self.train.samples
        return seconds

    def seconds(self, action: Callable[[], None], n: int = 1) -> float:
        self.synchronize()
        start = time.perf_counter()
        for _ in range(n):
            action()
        self.synchronize()
        return (time.perf_counter() - start) / n

    def synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def compile_shapes(model: nn.Module) -> nn.Module:
    """The model compiled anew for each shape, as a model that is alone in its process.

    Without `dynamic=False` the second model of a class would get slower kernels for any shape.
    """
    torch._dynamo.config.recompile_limit = MAX_COMPILED_SHAPES
    torch._dynamo.config.accumulated_recompile_limit = MAX_COMPILED_SHAPES
    compiled: nn.Module = torch.compile(model, dynamic=False)
    return compiled


def plain_loop_key(run: Run) -> str:
    """Equal for runs whose updates, evaluations, saves and samples cost the same in a plain loop."""
    train = run.settings.train
    return f"{shape_digest([run])} {train.samples if train.sample_every else 0}"


def work_seconds(seconds: Mapping[str, float], counts: Mapping[str, int]) -> dict[str, float]:
    """The seconds of all updates, evaluations, samples and saves of a run, by section."""
    named = {name: "compute" if name == RESIDENT else name for name in seconds}
    return {name: value * counts[named[name]] for name, value in seconds.items() if counts[named[name]]}


def add_seconds(totals: dict[str, float], more: Mapping[str, float]) -> None:
    for name, value in more.items():
        totals[name] = totals.get(name, 0.0) + value


def total_seconds(seconds: Mapping[str, float], updates: str = "compute") -> float:
    """With the updates as they are, or with those whose batch is on the device already."""
    return sum(value for name, value in seconds.items() if name not in {"compute", RESIDENT} - {updates})
