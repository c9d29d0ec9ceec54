"""The plain training loop of one model, as a student would write it; its models are those of peers.py.

    step = plain_loop(settings, "cpu")     # a function that makes one update

Batches come from a DataLoader (equations, labelled texts, windows of an epoch) or are random windows of one row of ids;
updates are those of torch.optim with clip_grad_norm_. The learning rate stays as it is: a schedule costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import torch
import torch.nn.functional as F
from peers import MODELS
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from seedbed.data.arithmetic import N_SCORED_TOKENS, build_equation_table, split_equations
from seedbed.data.datasets import load_labelled_dataset, load_text_dataset
from seedbed.settings import ArithmeticSettings, LabelsSettings, Settings, TextSettings, TrainSettings

Samples: TypeAlias = tuple[Tensor, Tensor]  # inputs (B, T), and targets (B, K) of the last K positions
UNSCORED = -100  # among targets; what F.cross_entropy passes over


def not_covered(settings: Settings) -> str | None:
    """What the plain loop leaves out of these settings although it costs time; None: nothing."""
    train = settings.train
    given = {
        "train.accumulate": train.accumulate > 1, "train.ema": train.ema > 0,
        "train.decay_parameters": train.decay_parameters == "matrices", "model.embeddings": settings.model.embeddings is not None,
    }  # fmt: skip
    return next((f"the plain loop has no {name}" for name, is_given in given.items() if is_given), None)


def plain_loop(settings: Settings, device: str, kind: str = "plain") -> Callable[[], None]:
    """One update of one model, as a plain training loop makes it."""
    torch.manual_seed(0)
    model, dials = MODELS[kind](settings).to(device).train(), settings.train
    optimizer = make_optimizer(model.parameters(), dials)
    batches = samples(settings, device)
    half = dials.precision == "bf16" and device == "cuda"

    def step() -> None:
        inputs, targets = next(batches)
        with torch.autocast(device, torch.bfloat16, enabled=half):
            loss = loss_of(model, inputs, targets, dials.label_smoothing)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if dials.clip:
            nn.utils.clip_grad_norm_(model.parameters(), dials.clip)
        optimizer.step()

    return step


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    logits = model(inputs)[:, -targets.shape[1] :]
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=UNSCORED, label_smoothing=smoothing)


def make_optimizer(parameters: Iterable[nn.Parameter], dials: TrainSettings) -> torch.optim.Optimizer:
    if dials.optimizer in ("sgd", "momentum"):
        momentum = dials.momentum if dials.optimizer == "momentum" else 0.0
        return torch.optim.SGD(parameters, dials.lr, momentum, weight_decay=dials.weight_decay)
    kind = torch.optim.Adam if dials.optimizer == "adam" else torch.optim.AdamW
    return kind(parameters, dials.lr, dials.betas, dials.eps, dials.weight_decay)


def samples(settings: Settings, device: str) -> Iterator[Samples]:
    """Batches without end."""
    task, size = settings.task, settings.train.batch_size
    if isinstance(task, TextSettings) and task.sampler in ("documents", "length"):
        batches = random_windows(task, size)
    else:
        batches = endless(DataLoader(dataset(task), size, shuffle=True))
    return (on_device(batch, device) for batch in batches)


def on_device(batch: Samples, device: str) -> Samples:
    if device == "cpu":
        return batch
    inputs, targets = (part.pin_memory().to(device, non_blocking=True) for part in batch)
    return inputs, targets


def endless(loader: DataLoader[Samples]) -> Iterator[Samples]:
    while True:
        yield from loader


def dataset(task: ArithmeticSettings | TextSettings | LabelsSettings) -> Dataset[Samples]:
    if isinstance(task, ArithmeticSettings):
        return equations(task)
    if isinstance(task, LabelsSettings):
        texts = load_labelled_dataset(task).splits["train"]
        return TensorDataset(torch.from_numpy(texts.rows), torch.from_numpy(texts.labels)[:, None])
    return Slices(row_of(task), task.length, 1 if task.sampler == "windows" else task.length)


def equations(task: ArithmeticSettings) -> Dataset[Samples]:
    """The training equations of seed 0; where they differ in length, what is not scored is left out by its target."""
    whole, rows = build_equation_table(task), split_equations(task, 0)[0]
    tokens = torch.from_numpy(whole.tokens)[rows]
    if len(task.orders) == 1:
        return TensorDataset(tokens[:, :-1], tokens[:, -N_SCORED_TOKENS:])
    return TensorDataset(tokens[:, :-1], scored_only(tokens[:, 1:], torch.from_numpy(whole.scored_positions)[rows]))


def scored_only(following: Tensor, at: Tensor) -> Tensor:
    """The tokens that follow, where they are scored."""
    return torch.full_like(following, UNSCORED).scatter(1, at, following.gather(1, at))


class Slices(Dataset[Samples]):
    """Windows of a row of ids, each with the ids that follow its own."""

    def __init__(self, ids: Tensor, length: int, stride: int) -> None:
        self.ids, self.length, self.stride = ids, length, stride

    def __len__(self) -> int:
        return (len(self.ids) - self.length - 1) // self.stride + 1

    def __getitem__(self, number: int) -> Samples:
        start = number * self.stride
        window = self.ids[start : start + self.length + 1]
        return window[:-1], window[1:]


def random_windows(task: TextSettings, size: int) -> Iterator[Samples]:
    """As nanoGPT draws them."""
    ids, length = row_of(task), task.length
    while True:
        starts = torch.randint(len(ids) - length, (size,)).tolist()
        inputs = torch.stack([ids[i : i + length] for i in starts])
        targets = torch.stack([ids[i + 1 : i + 1 + length] for i in starts])
        yield inputs, targets


def row_of(task: TextSettings) -> Tensor:
    return torch.from_numpy(load_text_dataset(task).splits["train"].ids.astype("int64"))
