"""What taps cost: a forward pass that reads none, and one that reads all, against one whose taps are cut out.

    python benchmarks/taps.py [--rounds 15] [--threads 1]

Interleaved rounds, medians; only the ratios carry over between machines. Asked for: none ≤ 1.02, all ≤ 2.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch

from seedbed.models.build import build_pack
from seedbed.models.taps import Taps
from seedbed.settings import DataFacts, Settings

TEXT = {"task.kind": "text", "model.norm": "pre", "model.final_norm": True, "model.positions": "learned"}
SHAPES = {
    "report D": ({}, (512, 6), 36),
    "report A": (TEXT | {"model.layers": 12, "model.heads": 6, "model.dim": 192}, (4, 128), 70),
    "lstm": ({"model.kind": "lstm"}, (512, 6), 36),
}


class Cut(Taps):
    """Taps that do not even look at names: the bare cost of calling."""

    def __call__(self, name: str, value: object) -> object:
        return value

    def wants(self, name: str) -> bool:
        return False


def seconds(model: torch.nn.Module, tokens: torch.Tensor, taps: Taps) -> float:
    start = time.perf_counter()
    with torch.inference_mode():
        model(tokens, taps=taps)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    words = parser.parse_args()
    torch.set_num_threads(words.threads)
    for name, (dials, (batch, time_), vocabulary) in SHAPES.items():
        facts = DataFacts(vocabulary=vocabulary, context=time_, n_train=1, padding=0)
        step = torch.zeros(1, dtype=torch.int64)
        model, _ = build_pack([Settings.of(dials)], [0], step, torch.float32, facts)
        tokens = torch.randint(vocabulary, (1, batch, time_))
        ways = {"cut": lambda: Cut(), "none": lambda: Taps(), "all": lambda: Taps("*")}
        spent: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(words.rounds + 1):
            for way, taps in ways.items():
                spent[way].append(seconds(model.eval(), tokens, taps()))
        median = {way: statistics.median(times[1:]) for way, times in spent.items()}
        ratios = {way: round(median[way] / median["cut"], 3) for way in ("none", "all")}
        print(json.dumps({"shape": name, "plain_ms": round(1e3 * median["cut"], 2), **ratios}))


if __name__ == "__main__":
    main()
