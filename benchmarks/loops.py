"""A plain PyTorch training loop for one model of peers.py.

    step = make_plain_step(settings, "cpu")     # a function that performs one update

Batches come from a DataLoader (equations, labelled texts, windows of an epoch) or are random windows of the token ids;
updates use torch.optim and clip_grad_norm_. The learning rate is constant, since a schedule costs no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import torch
import torch.nn.functional as F
from peers import MODELS
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from seedbed.settings import Settings, TrainSettings
from seedbed.tasks import LabelsSettings, TextSettings
from seedbed.tasks.equations import EquationTask
from seedbed.tasks.labels import load_labelled_dataset
from seedbed.tasks.text import load_text_dataset

Samples: TypeAlias = tuple[Tensor, Tensor]  # inputs (B, T), and targets (B, K) of the last K positions
IGNORE_INDEX = -100  # targets that F.cross_entropy ignores


def find_unsupported_setting(settings: Settings) -> str | None:
    """Why the plain loop cannot be compared: the first setting that costs time and is not implemented here, or None."""
    train = settings.train
    unsupported = {
        "train.accumulate": train.accumulate > 1, "train.ema": train.ema > 0,
        "train.decay_parameters": train.decay_parameters == "matrices",
        "model.embeddings": settings.model.embeddings is not None,
    }  # fmt: skip
    return next((f"the plain loop has no {name}" for name, is_used in unsupported.items() if is_used), None)


def make_plain_step(settings: Settings, device: str, kind: str = "plain") -> Callable[[], None]:
    """A function that performs one update of one model."""
    torch.manual_seed(0)
    model = MODELS[kind](settings).to(device).train()
    optimizer = make_optimizer(model.parameters(), settings.train)
    batches = iterate_batches(settings, device)
    return lambda: update_model(model, optimizer, next(batches), settings.train)


def update_model(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Samples, train: TrainSettings) -> None:
    inputs, targets = batch
    with autocast(train, inputs.device.type):
        loss = compute_loss(model, inputs, targets, train.label_smoothing)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if train.clip:
        nn.utils.clip_grad_norm_(model.parameters(), train.clip)
    optimizer.step()


def autocast(train: TrainSettings, device: str) -> torch.autocast:
    return torch.autocast(device, torch.bfloat16, enabled=train.precision == "bf16" and device == "cuda")


def compute_loss(model: nn.Module, inputs: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    logits = model(inputs)[:, -targets.shape[1] :]
    return F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE_INDEX, label_smoothing=smoothing
    )


def make_optimizer(parameters: Iterable[nn.Parameter], train: TrainSettings) -> torch.optim.Optimizer:
    if train.optimizer in ("sgd", "momentum"):
        momentum = train.momentum if train.optimizer == "momentum" else 0.0
        return torch.optim.SGD(parameters, train.lr, momentum, weight_decay=train.weight_decay)
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    return kinds[train.optimizer](parameters, train.lr, train.betas, train.eps, train.weight_decay)


def iterate_batches(settings: Settings, device: str) -> Iterator[Samples]:
    """An endless iterator over batches."""
    task, size = settings.task, settings.train.batch_size
    if isinstance(task, TextSettings) and task.sampler in ("documents", "length"):
        batches = random_windows(task, size)
    else:
        dataset = make_dataset(task)  # without a shorter last batch, which would be compiled apart
        batches = repeat_forever(DataLoader(dataset, size, shuffle=True, drop_last=size <= len(dataset)))
    return (to_device(batch, device) for batch in batches)


def to_device(batch: Samples, device: str) -> Samples:
    if device == "cpu":
        return batch
    inputs, targets = (part.pin_memory().to(device, non_blocking=True) for part in batch)
    return inputs, targets


def repeat_forever(loader: DataLoader[Samples]) -> Iterator[Samples]:
    while True:
        yield from loader


def make_dataset(task: EquationTask | TextSettings | LabelsSettings) -> Dataset[Samples]:
    if isinstance(task, EquationTask):
        return make_equation_dataset(task)
    if isinstance(task, LabelsSettings):
        texts = load_labelled_dataset(task).splits["train"]
        return TensorDataset(torch.from_numpy(texts.rows), torch.from_numpy(texts.labels)[:, None])
    return WindowDataset(load_training_ids(task), task.length, 1 if task.sampler == "windows" else task.length)


def make_equation_dataset(task: EquationTask) -> Dataset[Samples]:
    """The training equations of seed 0; unless all end in what is scored, unscored targets are IGNORE_INDEX."""
    table, rows = task.build_table(), task.split_rows(0)[0]
    tokens, positions = torch.from_numpy(table.tokens)[rows], torch.from_numpy(table.scored_positions)[rows]
    n_read, n_scored = tokens.shape[1] - 1, positions.shape[1]
    if bool((positions == torch.arange(n_read - n_scored, n_read)).all()):
        return TensorDataset(tokens[:, :-1], tokens[:, -n_scored:])
    return TensorDataset(tokens[:, :-1], mask_unscored(tokens[:, 1:], positions))


def mask_unscored(next_tokens: Tensor, positions: Tensor) -> Tensor:
    """The next tokens at scored positions, of which some may be there twice, and IGNORE_INDEX elsewhere."""
    return torch.full_like(next_tokens, IGNORE_INDEX).scatter(1, positions, next_tokens.gather(1, positions))


class WindowDataset(Dataset[Samples]):
    """Windows of the token ids with their next-token targets."""

    def __init__(self, ids: Tensor, length: int, stride: int) -> None:
        self.ids, self.length, self.stride = ids, length, stride

    def __len__(self) -> int:
        return (len(self.ids) - self.length - 1) // self.stride + 1

    def __getitem__(self, number: int) -> Samples:
        start = number * self.stride
        window = self.ids[start : start + self.length + 1]
        return window[:-1], window[1:]


def random_windows(task: TextSettings, size: int) -> Iterator[Samples]:
    """Random windows, as nanoGPT's `get_batch`."""
    ids, length = load_training_ids(task), task.length
    while True:
        starts = torch.randint(len(ids) - length, (size,)).tolist()
        inputs = torch.stack([ids[i : i + length] for i in starts])
        targets = torch.stack([ids[i + 1 : i + 1 + length] for i in starts])
        yield inputs, targets


def load_training_ids(task: TextSettings) -> Tensor:
    return torch.from_numpy(load_text_dataset(task).splits["train"].ids.astype("int64"))
