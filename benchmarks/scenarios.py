"""What is compared: the tasks of the reports, the sides, and the ratios asked for.

On a CPU every core is ours with one run each, and theirs by threads; a GPU is ours with a pack, in the engine that a
long study would get there, and theirs with one model after the other in the same precision.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from compare import STEPS, Scenario
from sides import Plan

CORES = len(os.sched_getaffinity(0))
CORPUS = {"cpu": "python-docs", "cuda": "shakespeare"}
PRECISION = {"cpu": "fp32", "cuda": "tf32"}
TEXT = {"task.kind": "text", "task.tokenizer": "characters", "task.sampler": "length", "task.length": 128,
        "task.val_fraction": 0.0, "train.eval_batches": 1, "train.batch_size": 32}  # fmt: skip
CHARACTERS = TEXT | {
    "model.layers": 12, "model.heads": 6, "model.dim": 192, "model.norm": "pre", "model.final_norm": True,
    "model.positions": "learned", "model.mlp_bias": True, "model.init": "xavier-normal", "train.lr": 5e-4,
    "train.weight_decay": 0.01,
}  # fmt: skip
DROPOUT = {f"model.{place}_dropout": 0.2 for place in ("embedding", "attention", "residual")}
LSTM = {"model.kind": "lstm"}
LONG_LSTM = TEXT | LSTM | {"model.layers": 2, "model.dim": 128}
CLASSIFIER = {
    "task.kind": "labels", "task.corpus": "speeches", "task.tokenizer": "words", "task.length": 32,
    "task.val_fraction": 0.0, "model.kind": "encoder", "model.layers": 4, "model.dim": 64, "model.heads": 2,
    "model.norm": "pre", "model.positions": "learned", "model.activation": "relu", "model.qkv_bias": False,
    "model.mlp_bias": True, "model.init": "normal-0.02", "model.classifier_hidden": 100, "model.batch_norm": True,
    "train.batch_size": 16, "train.epochs": 15, "train.optimizer": "adam", "train.lr": 1e-3,
    "train.weight_decay": 0.0, "train.clip": 0.0, "train.eval_every": 131,
}  # fmt: skip
SMALL = {"model.layers": 2, "model.dim": 48, "task.length": 24, "train.batch_size": 4}  # of text, for a quick run
SMALLER = {"model.layers": 1, "model.dim": 32}
EQUATIONS = "report D's model on a + b mod 31, all training equations a batch"
ENCODERS = "report B's classifier of speeches, batches of 16 × 32"
QUICK = ("arithmetic-gpt", "characters", "classifiers")


def chosen(names: Sequence[str], only: str) -> list[str]:
    """The names that are asked for: a word that is a name stands for it, any other for all names that hold it.

    >>> chosen(["lstm", "lstm-pack-64", "characters"], "lstm,char"), chosen(["lstm", "characters"], "")
    (['lstm', 'characters'], ['lstm', 'characters'])
    """
    words = [word.strip() for word in only.split(",")]
    for word in words:
        if not any(word in name for name in names):
            raise SystemExit(f"--only {word}: there is no such name; there are {', '.join(names)}")
    return [name for name in names if any(word == name or (word not in names and word in name) for word in words)]


def scenarios(device: str, quick: bool) -> list[Scenario]:
    """All comparisons for this device."""
    if quick:
        return [one for one in _on_cpu(quick=True) if one.name in QUICK]
    return _on_cpu() if device == "cpu" else _on_gpu()


def _on_cpu(quick: bool = False) -> list[Scenario]:
    small, text = (SMALLER, SMALL) if quick else ({}, {})
    characters, lstm = (on_device(dials, "cpu") | text for dials in (CHARACTERS, LONG_LSTM))

    def asked(**ratios: float) -> dict[str, float]:
        return {} if quick else {name.replace("_", " "): ratio for name, ratio in ratios.items()}

    return [
        Scenario("arithmetic-gpt", EQUATIONS, STEPS, 1, 0, _cpu_sides(small), asked(plain=1.8)),
        Scenario("arithmetic-lstm", f"{EQUATIONS}, an LSTM", STEPS, 1, 0, _cpu_sides(small | LSTM), asked(plain=1.3)),
        Scenario(
            "characters", _said("report A's character model", characters), "tokens/s", *text_work(characters),
            _cpu_sides(characters, hugging_face=True, peak=True), asked(plain=1.1, Hugging_Face=1.4),
        ),
        Scenario(
            "characters-dropout", _said("the same with dropout 0.2", characters), "tokens/s", *text_work(characters),
            _cpu_sides(characters | DROPOUT, peak=True), asked(plain=1.6),
        ),
        Scenario("classifiers", ENCODERS, STEPS, 1, 0, _cpu_sides(CLASSIFIER | small)),
        Scenario(
            "lstm", _said("an LSTM on long text; theirs is nn.LSTM", lstm), "tokens/s", *text_work(lstm),
            _cpu_sides(lstm), asked(plain=1.0),
        ),
    ]  # fmt: skip


def _on_gpu() -> list[Scenario]:
    strict = {"train.precision": PRECISION["cuda"]}
    half = {"train.precision": "bf16"}
    characters = on_device(CHARACTERS, "cuda") | {"train.batch_size": 128}
    lstms = {width: on_device(LONG_LSTM, "cuda") | {"model.dim": width} for width in (128, 64)}
    found = [
        Scenario("arithmetic-gpt", EQUATIONS, STEPS, 1, 0, _gpu_sides(strict, [128]), most=45e-6),
        Scenario("arithmetic-lstm", f"{EQUATIONS}, an LSTM", STEPS, 1, 0, _gpu_sides(strict | LSTM, [128]), most=45e-6),
        Scenario("classifiers", ENCODERS, STEPS, 1, 0, _gpu_sides(CLASSIFIER | strict, [256]), {"plain": 50.0}),
        Scenario(
            "characters", _said("report A's character model, TF32", characters), "tokens/s", *text_work(characters),
            _gpu_sides(characters, [1, 8], hugging_face=True, peak=True),
        ),
        Scenario(
            "characters-bf16", _said("the same, bf16 on both sides", characters), "tokens/s", *text_work(characters),
            _gpu_sides(characters | half, [1, 8], peak=True),
        ),
        Scenario(
            "characters-dropout", _said("the same, TF32, dropout 0.2", characters), "tokens/s", *text_work(characters),
            _gpu_sides(characters | DROPOUT, [1]),
        ),
        Scenario(
            "lstm", _said("an LSTM on long text; theirs is nn.LSTM", lstms[128]), "tokens/s", *text_work(lstms[128]),
            _gpu_sides(lstms[128], [1], "graph"), {"plain": 1.0},
        ),
    ]  # fmt: skip
    return found + [
        Scenario(
            f"lstm-pack-{width}", _said("LSTMs on long text; theirs is nn.LSTM", dials), "tokens/s",
            *text_work(dials), _gpu_sides(dials, [64], "graph"), {"plain": 8.0},
        )
        for width, dials in lstms.items()
    ]  # fmt: skip


def on_device(dials: Mapping[str, Any], device: str) -> dict[str, Any]:
    return {**dials, "task.corpus": CORPUS[device], "train.precision": PRECISION[device]}


def _cpu_sides(dials: Mapping[str, Any], hugging_face: bool = False, peak: bool = False) -> list[Plan]:
    """Theirs with all threads, theirs with a run for each core, ours with a run for each core."""
    sides = [Plan("plain", "plain", dials, threads=CORES)]
    if hugging_face:
        sides.append(Plan("Hugging Face", "hugging_face", dials, threads=CORES))
    sides.append(Plan("plain, run by core", "plain", dials, n_processes=CORES))
    sides.append(Plan("seedbed", "ours", dials, n_processes=CORES))
    if peak:
        sides.append(Plan("matmul peak", "matmul", threads=CORES))
    return sides


def _gpu_sides(
    dials: Mapping[str, Any],
    packs: Sequence[int],
    engine: str = "compiled",
    hugging_face: bool = False,
    peak: bool = False,
) -> list[Plan]:
    """Theirs one model after the other, ours in packs of these sizes."""
    sides = [Plan("plain", "plain", dials, device="cuda")]
    if hugging_face:
        sides.append(Plan("Hugging Face", "hugging_face", dials, device="cuda"))
    sides += [
        Plan("seedbed" if n == packs[0] else f"seedbed × {n}", "ours", dials, device="cuda", engine=engine, n_runs=n)
        for n in packs
    ]
    if peak:
        precision = {"train.precision": dials["train.precision"]}
        sides.append(Plan("matmul peak", "matmul", precision, device="cuda"))
    return sides


def _said(what: str, dials: Mapping[str, Any]) -> str:
    model = f"{dials['model.layers']} layers, width {dials['model.dim']}"
    return f"{what}: {model}, batches of {dials['train.batch_size']} × {dials['task.length']}"


def text_work(dials: Mapping[str, Any]) -> tuple[float, float]:
    """Tokens of an update, and the operations of a transformer's matrix products: 6 N + 12 L T D a token."""
    from seedbed.models.model_size import count_parameters
    from seedbed.settings import Settings

    settings = Settings.from_flat(dials)
    layers, width, length = settings.model.layers, settings.model.dim, settings.task.length
    each = 6 * count_parameters(settings).non_embedding + 12 * layers * width * length
    n_tokens = settings.train.batch_size * length
    return n_tokens, n_tokens * each
