"""What is compared: the tasks of the reports, the sides, and the ratios asked for; and which sizes costs grow with."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sides import Plan

CORES = len(os.sched_getaffinity(0))
TEXT = {"task.kind": "text", "task.corpus": "python-docs", "task.tokens": "characters", "task.sampler": "length",
        "task.val_fraction": 0.0, "train.eval_batches": 1}  # fmt: skip
CHARACTERS = TEXT | {
    "task.length": 128, "model.layers": 12, "model.heads": 6, "model.dim": 192, "model.norm": "pre",
    "model.final_norm": True, "model.positions": "learned", "model.mlp_bias": True, "model.init": "xavier-normal",
    "train.lr": 5e-4, "train.weight_decay": 0.01, "train.batch_size": 32,
}  # fmt: skip
DROPOUT = {f"model.{place}_dropout": 0.2 for place in ("embedding", "attention", "residual")}
LONG_LSTM = TEXT | {
    "task.length": 128,
    "model.kind": "lstm",
    "model.layers": 2,
    "model.dim": 128,
    "train.batch_size": 32,
}
SMALL = {"model.layers": 2, "model.dim": 48, "task.length": 24, "train.batch_size": 4}  # of text, for a quick run


@dataclass(frozen=True)
class Scenario:
    """One comparison; `per_update` units of work are in one update of one model, and so many operations."""

    name: str
    about: str
    unit: str
    per_update: float
    operations: float
    sides: Sequence[Plan]
    asked: Mapping[str, float]


@dataclass(frozen=True)
class Growth:
    """How our cost grows with one size."""

    name: str
    about: str
    sizes: Sequence[int]
    plans: Sequence[Plan]


def scenarios(device: str, quick: bool) -> list[Scenario]:
    """All comparisons for this device."""
    precision = {"train.precision": "fp32" if device == "cpu" else "tf32"}
    cpu = device == "cpu"
    small = {"model.dim": 32, "model.layers": 1} if quick else {}
    arithmetic = precision | small
    characters = CHARACTERS | precision | (SMALL if quick else {} if cpu else {"train.batch_size": 128})
    lstm = LONG_LSTM | precision | (SMALL if quick else {})
    asked = (lambda **ratios: ratios) if cpu and not quick else (lambda **_: {})
    found = [
        Scenario(
            "arithmetic-gpt", "report D's GPT on a + b mod 31, all training equations a batch", "model-steps/s", 1, 0,
            _sides(arithmetic, device, 128), asked(plain=1.8),
        ),
        Scenario(
            "arithmetic-lstm", "report D's LSTM on the same; theirs is nn.LSTM", "model-steps/s", 1, 0,
            _sides(arithmetic | {"model.kind": "lstm"}, device, 128), asked(plain=1.3),
        ),
        Scenario(
            "characters", _said("report A's character model", characters), "tokens/s", *_text_work(characters),
            _sides(characters, device, 1, hugging_face=True, peak=True), asked(plain=1.1, **{"Hugging Face": 1.4}),
        ),
        Scenario(
            "characters-dropout", _said("the same with dropout 0.2", characters), "tokens/s", *_text_work(characters),
            _sides(characters | DROPOUT, device, 1, peak=True), asked(plain=1.6),
        ),
        Scenario(
            "lstm", _said("an LSTM on long text; theirs is nn.LSTM", lstm), "tokens/s", *_text_work(lstm),
            _sides(lstm, device, 1), asked(plain=1.0),
        ),
    ]  # fmt: skip
    return [one for one in found if not quick or one.name in ("arithmetic-gpt", "characters")]


def _sides(
    dials: Mapping[str, Any], device: str, n_runs: int, hugging_face: bool = False, peak: bool = False
) -> list[Plan]:
    """On a CPU every core is ours with one run each, and theirs by threads; a GPU is ours with a pack of runs."""
    threads = CORES if device == "cpu" else 1
    sides = [Plan("plain", "plain", dials, threads=threads, device=device)]
    if hugging_face:
        sides.append(Plan("Hugging Face", "hugging_face", dials, threads=threads, device=device))
    if device == "cpu":
        sides.append(Plan("plain, run by core", "plain", dials, n_processes=CORES))
        sides.append(Plan("seedbed", "ours", dials, n_processes=CORES))
    else:
        sides.append(Plan("seedbed", "ours", dials, device=device, engine="graph", n_runs=n_runs))
    if peak:
        sides.append(Plan("matmul peak", "matmul", threads=threads, device=device))
    return sides


def _said(what: str, dials: Mapping[str, Any]) -> str:
    model = f"{dials['model.layers']} layers, width {dials['model.dim']}"
    return f"{what}: {model}, batches of {dials['train.batch_size']} × {dials['task.length']}"


def _text_work(dials: Mapping[str, Any]) -> tuple[float, float]:
    """Tokens of an update, and the operations of a transformer's matrix products: 6 N + 12 L T D a token."""
    from seedbed.models.count import count_parameters
    from seedbed.settings import Settings

    settings = Settings.of(dials)
    n_tokens, layers, width = (
        dials["train.batch_size"] * dials["task.length"],
        settings.model.layers,
        settings.model.dim,
    )
    each = 6 * count_parameters(settings).non_embedding + 12 * layers * width * dials["task.length"]
    return n_tokens, n_tokens * each


def growths(device: str, quick: bool) -> Iterator[Growth]:
    """Cost of a model's update against runs in a pack, width, and length; everything else as in the reports."""
    runs = (1, 2) if quick else (1, 2, 4, 8) if device == "cpu" else (1, 8, 32, 128)
    widths = lengths = (32, 64, 128, 256)
    small = {"model.dim": 32, "model.layers": 1}
    where = {"device": device, "engine": "plain" if device == "cpu" else "graph"}

    def plan(dials: Mapping[str, Any], n_runs: int = 1) -> Plan:
        return Plan("seedbed", "ours", dials, n_runs=n_runs, **where)

    yield Growth("R", "per model, by runs in a pack (one layer, width 32)", runs, [plan(small, n) for n in runs])
    if quick:
        return
    yield Growth("width", "by width (report D's GPT)", widths, [plan({"model.dim": n}) for n in widths])
    text = CHARACTERS | {"model.layers": 2, "train.batch_size": 8}
    yield Growth(
        "length",
        "by length (two layers, width 192, batch 8)",
        lengths,
        [plan(text | {"task.length": n}) for n in lengths],
    )
