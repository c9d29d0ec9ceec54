"""What taps cost: a forward pass that reads all against a plain one, and the calls of a plain one by themselves.

    python benchmarks/taps.py [--rounds 15] [--threads 1]

Interleaved rounds, medians; only the ratios carry over between machines. Asked for: all ≤ 2, and
none not to be measured; a plain pass makes each name and calls once a place, which is timed alone.
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


def seconds_of_calls(model: torch.nn.Module, repeats: int = 200) -> float:
    """Making every name and calling taps that want nothing, as one plain pass does."""
    names = [name.rpartition(".") for name in list_hook_names(model)]
    start = time.perf_counter()
    for _ in range(repeats):
        for owner, _, leaf in names:
            NO_HOOKS(f"{owner}.{leaf}", None)
    return (time.perf_counter() - start) / repeats


def seconds(model: torch.nn.Module, tokens: torch.Tensor, taps: Hooks) -> float:
    start = time.perf_counter()
    with torch.inference_mode():
        model(tokens, hooks=taps)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    words = parser.parse_args()
    torch.set_num_threads(words.threads)
    for name, (dials, (batch, time_), vocabulary) in SHAPES.items():
        facts = DatasetInfo(vocab_size=vocabulary, context_length=time_, n_train=1, padding_id=0)
        step = torch.zeros(1, dtype=torch.int64)
        model, _ = build_pack([Settings.from_flat(dials)], [0], step, torch.float32, facts)
        tokens = torch.randint(vocabulary, (1, batch, time_))
        spent: dict[str, list[float]] = {"none": [], "all": []}
        for _ in range(words.rounds + 1):
            spent["none"].append(seconds(model.eval(), tokens, NO_HOOKS))
            spent["all"].append(seconds(model.eval(), tokens, Hooks("*")))
        plain, every = (statistics.median(times[1:]) for times in spent.values())
        ratios = {"all": round(every / plain, 3), "calls_share": round(seconds_of_calls(model) / plain, 5)}
        print(json.dumps({"shape": name, "plain_ms": round(1e3 * plain, 2), **ratios}))


if __name__ == "__main__":
    main()
