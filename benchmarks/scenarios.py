"""The benchmark scenarios: the reports' tasks, the sides of each comparison, and target ratios.

On a CPU, ours trains one run per core and theirs one model with all threads; on a GPU, ours trains a pack in the mode
that a long study would get there, and theirs one model at a time in the same precision.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from compare import STEPS_PER_SECOND, Scenario
from sides import SideSpec

N_CORES = len(os.sched_getaffinity(0))
CORPUS = {"cpu": "python-docs", "cuda": "shakespeare"}
PRECISION = {"cpu": "fp32", "cuda": "tf32"}
TEXT = {"task.kind": "text", "task.tokenizer": "characters", "task.sampler": "length", "task.length": 128,
        "task.val_fraction": 0.0, "train.eval_batches": 1, "train.batch_size": 32}  # fmt: skip
CHARACTERS = TEXT | {
    "model.layers": 12, "model.heads": 6, "model.dim": 192, "model.norm": "pre", "model.final_norm": True,
    "model.positions": "learned", "model.mlp_bias": True, "model.init": "xavier-normal", "train.lr": 5e-4,
    "train.weight_decay": 0.01,
}  # fmt: skip
DROPOUT = {f"model.{site}_dropout": 0.2 for site in ("embedding", "attention", "residual")}
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
SMALL_TEXT = {"model.layers": 2, "model.dim": 48, "task.length": 24, "train.batch_size": 4}  # for a quick run
TINY_MODEL = {"model.layers": 1, "model.dim": 32}
EQUATIONS_DESCRIPTION = "report D's model on a + b mod 31, one batch of all training equations"
CLASSIFIER_DESCRIPTION = "report B's classifier of speeches, batches of 16 × 32"
QUICK_SCENARIOS = ("arithmetic-gpt", "characters", "classifiers")


def select_names(names: Sequence[str], only: str) -> list[str]:
    """Names selected by comma-separated patterns: exact names first, otherwise all names that contain the pattern.

    >>> select_names(["lstm", "lstm-pack-64", "characters"], "lstm,char"), select_names(["lstm", "characters"], "")
    (['lstm', 'characters'], ['lstm', 'characters'])
    """
    patterns = [pattern.strip() for pattern in only.split(",")]
    for pattern in patterns:
        if not any(pattern in name for name in names):
            raise SystemExit(f"--only {pattern}: no such name; there are {', '.join(names)}")
    return [
        name
        for name in names
        if any(pattern == name or (pattern not in names and pattern in name) for pattern in patterns)
    ]


def scenarios(device: str, quick: bool) -> list[Scenario]:
    """All comparisons for this device."""
    if quick:
        return [one for one in _cpu_scenarios(quick=True) if one.name in QUICK_SCENARIOS]
    return _cpu_scenarios() if device == "cpu" else _gpu_scenarios()


def _cpu_scenarios(quick: bool = False) -> list[Scenario]:
    small, text = (TINY_MODEL, SMALL_TEXT) if quick else ({}, {})
    characters, lstm = (for_device(overrides, "cpu") | text for overrides in (CHARACTERS, LONG_LSTM))

    def targets(**ratios: float) -> dict[str, float]:
        return {} if quick else {name.replace("_", " "): ratio for name, ratio in ratios.items()}

    return [
        Scenario(
            "arithmetic-gpt", EQUATIONS_DESCRIPTION, STEPS_PER_SECOND, 1, 0, _cpu_sides(small), targets(plain=1.8)
        ),
        Scenario(
            "arithmetic-lstm",
            f"{EQUATIONS_DESCRIPTION}, an LSTM",
            STEPS_PER_SECOND,
            1,
            0,
            _cpu_sides(small | LSTM),
            targets(plain=1.3),
        ),
        Scenario(
            "characters",
            _describe("report A's character model", characters),
            "tokens/s",
            *text_update_size(characters),
            _cpu_sides(characters, hugging_face=True, peak=True),
            targets(plain=1.1, Hugging_Face=1.4),
        ),
        Scenario(
            "characters-dropout",
            _describe("the same with dropout 0.2", characters),
            "tokens/s",
            *text_update_size(characters),
            _cpu_sides(characters | DROPOUT, peak=True),
            targets(plain=1.6),
        ),
        Scenario("classifiers", CLASSIFIER_DESCRIPTION, STEPS_PER_SECOND, 1, 0, _cpu_sides(CLASSIFIER | small)),
        Scenario(
            "lstm",
            _describe("an LSTM on long text; theirs is nn.LSTM", lstm),
            "tokens/s",
            *text_update_size(lstm),
            _cpu_sides(lstm),
            targets(plain=1.0),
        ),
    ]


def _gpu_scenarios() -> list[Scenario]:
    tf32 = {"train.precision": PRECISION["cuda"]}
    bf16 = {"train.precision": "bf16"}
    characters = for_device(CHARACTERS, "cuda") | {"train.batch_size": 128}
    lstms = {width: for_device(LONG_LSTM, "cuda") | {"model.dim": width} for width in (128, 64)}
    fixed = [
        Scenario(
            "arithmetic-gpt", EQUATIONS_DESCRIPTION, STEPS_PER_SECOND, 1, 0, _gpu_sides(tf32, [128]), max_seconds=45e-6
        ),
        Scenario(
            "arithmetic-lstm",
            f"{EQUATIONS_DESCRIPTION}, an LSTM",
            STEPS_PER_SECOND,
            1,
            0,
            _gpu_sides(tf32 | LSTM, [128]),
            max_seconds=45e-6,
        ),
        Scenario(
            "classifiers",
            CLASSIFIER_DESCRIPTION,
            STEPS_PER_SECOND,
            1,
            0,
            _gpu_sides(CLASSIFIER | tf32, [256]),
            {"plain": 50.0},
        ),
        Scenario(
            "characters",
            _describe("report A's character model, TF32", characters),
            "tokens/s",
            *text_update_size(characters),
            _gpu_sides(characters, [1, 8], hugging_face=True, peak=True),
        ),
        Scenario(
            "characters-bf16",
            _describe("the same, bf16 on both sides", characters),
            "tokens/s",
            *text_update_size(characters),
            _gpu_sides(characters | bf16, [1, 8], peak=True),
        ),
        Scenario(
            "characters-dropout",
            _describe("the same, TF32, dropout 0.2", characters),
            "tokens/s",
            *text_update_size(characters),
            _gpu_sides(characters | DROPOUT, [1]),
        ),
        Scenario(
            "lstm",
            _describe("an LSTM on long text; theirs is nn.LSTM", lstms[128]),
            "tokens/s",
            *text_update_size(lstms[128]),
            _gpu_sides(lstms[128], [1], "graph"),
            {"plain": 1.0},
        ),
    ]
    return fixed + [
        Scenario(
            f"lstm-pack-{width}", _describe("LSTMs on long text; theirs is nn.LSTM", overrides), "tokens/s",
            *text_update_size(overrides), _gpu_sides(overrides, [64], "graph"), {"plain": 8.0},
        )
        for width, overrides in lstms.items()
    ]  # fmt: skip


def for_device(overrides: Mapping[str, Any], device: str) -> dict[str, Any]:
    return {**overrides, "task.corpus": CORPUS[device], "train.precision": PRECISION[device]}


def _cpu_sides(overrides: Mapping[str, Any], hugging_face: bool = False, peak: bool = False) -> list[SideSpec]:
    """Theirs with all threads, theirs with one run per core, ours with one run per core."""
    sides = [SideSpec("plain", "plain", overrides, threads=N_CORES)]
    if hugging_face:
        sides.append(SideSpec("Hugging Face", "hugging_face", overrides, threads=N_CORES))
    sides.append(SideSpec("plain, run by core", "plain", overrides, n_processes=N_CORES))
    sides.append(SideSpec("seedbed", "ours", overrides, n_processes=N_CORES))
    if peak:
        sides.append(SideSpec("matmul peak", "matmul", threads=N_CORES))
    return sides


def _gpu_sides(
    overrides: Mapping[str, Any],
    packs: Sequence[int],
    mode: str = "compiled",
    hugging_face: bool = False,
    peak: bool = False,
) -> list[SideSpec]:
    """Theirs with one model at a time, ours in packs of these sizes."""
    sides = [SideSpec("plain", "plain", overrides, device="cuda")]
    if hugging_face:
        sides.append(SideSpec("Hugging Face", "hugging_face", overrides, device="cuda"))
    sides += [
        SideSpec(
            "seedbed" if n == packs[0] else f"seedbed × {n}", "ours", overrides, device="cuda", mode=mode, n_runs=n
        )
        for n in packs
    ]
    if peak:
        precision = {"train.precision": overrides["train.precision"]}
        sides.append(SideSpec("matmul peak", "matmul", precision, device="cuda"))
    return sides


def _describe(title: str, overrides: Mapping[str, Any]) -> str:
    model = f"{overrides['model.layers']} layers, width {overrides['model.dim']}"
    return f"{title}: {model}, batches of {overrides['train.batch_size']} × {overrides['task.length']}"


def text_update_size(overrides: Mapping[str, Any]) -> tuple[float, float]:
    """Tokens per update, and FLOPs of a transformer's matrix products: 6 N + 12 L T D per token."""
    from seedbed.models.model_size import count_parameters
    from seedbed.settings import Settings

    settings = Settings.from_flat(overrides)
    layers, width, length = settings.model.layers, settings.model.dim, settings.task.length
    flops_per_token = 6 * count_parameters(settings).non_embedding + 12 * layers * width * length
    n_tokens = settings.train.batch_size * length
    return n_tokens, n_tokens * flops_per_token
