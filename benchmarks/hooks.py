"""Overhead of hooks: a forward pass that records all against a plain one, and the inactive hook calls alone.

    python benchmarks/hooks.py [--rounds 15] [--threads 1]

Medians over interleaved rounds; only the ratios carry over between machines. Targets: recording all ≤ 2, and no
measurable overhead without hooks, where a pass still formats each name and makes one call per hook, timed separately.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch

from seedbed.models.build import build_pack
from seedbed.models.hooks import NO_HOOKS, Hooks, list_hook_names
from seedbed.settings import DatasetInfo, Settings

TEXT = {"task.kind": "text", "model.norm": "pre", "model.final_norm": True, "model.positions": "learned"}
SHAPES = {
    "report D": ({}, (512, 6), 36),
    "report A": (TEXT | {"model.layers": 12, "model.heads": 6, "model.dim": 192}, (4, 128), 70),
    "lstm": ({"model.kind": "lstm"}, (512, 6), 36),
}


def inactive_call_seconds(model: torch.nn.Module, repeats: int = 200) -> float:
    """Seconds to format every name and call an inactive hook, as in one plain pass."""
    names = [name.rpartition(".") for name in list_hook_names(model)]
    start = time.perf_counter()
    for _ in range(repeats):
        for owner, _, leaf in names:
            NO_HOOKS(f"{owner}.{leaf}", None)
    return (time.perf_counter() - start) / repeats


def forward_seconds(model: torch.nn.Module, tokens: torch.Tensor, hooks: Hooks) -> float:
    start = time.perf_counter()
    with torch.inference_mode():
        model(tokens, hooks=hooks)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for name, (overrides, (batch, time_), vocabulary) in SHAPES.items():
        dataset_info = DatasetInfo(vocab_size=vocabulary, context_length=time_, n_train=1, padding_id=0)
        step = torch.zeros(1, dtype=torch.int64)
        model, _ = build_pack([Settings.from_flat(overrides)], [0], step, torch.float32, dataset_info)
        tokens = torch.randint(vocabulary, (1, batch, time_))
        seconds: dict[str, list[float]] = {"none": [], "all": []}
        for _ in range(args.rounds + 1):
            seconds["none"].append(forward_seconds(model.eval(), tokens, NO_HOOKS))
            seconds["all"].append(forward_seconds(model.eval(), tokens, Hooks("*")))
        plain, recorded = (statistics.median(times[1:]) for times in seconds.values())
        ratios = {"all": round(recorded / plain, 3), "calls_share": round(inactive_call_seconds(model) / plain, 5)}
        print(json.dumps({"shape": name, "plain_ms": round(1e3 * plain, 2), **ratios}))


if __name__ == "__main__":
    main()
