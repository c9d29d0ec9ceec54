"""Steps per second of stacked runs against the plain loop a student writes, as ratios inside one run.

    python benchmarks/stacking.py [--rounds 5] [--threads 1]

Both sides train report D's task (p = 31, full batch) with AdamW and clipping; first their gradients are compared in
float64 on fresh random weights. Interleaved rounds, medians; only the ratios carry over between machines.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.equivalence.plain import PlainGPT

from seedbed.data.arithmetic import split, table
from seedbed.settings import Settings
from seedbed.train.step import Trainer

SIZES = {"default": {}, "small": {"model.dim": 32, "model.layers": 1}}
RUNS = (1, 8, 32)


def plain_loop(settings: Settings) -> Callable[[], None]:
    """One model with nn.Module, torch.optim and clip_grad_norm_, all positions computed."""
    torch.manual_seed(0)
    model = PlainGPT(settings.model, settings.task.p + 5, 6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1.0)
    tokens = torch.from_numpy(table(settings.task).tokens)[split(settings.task, 0)[0]]

    def step() -> None:
        loss = F.cross_entropy(model(tokens[:, :-1])[:, -2:].flatten(0, 1), tokens[:, -2:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def check_equal(settings: Settings) -> float:
    """The largest relative difference of a loss and its gradient norm, ours against the plain one, in float64."""
    trainer = Trainer([settings], [0], "cpu", torch.float64)
    trainer.bank.weights.normal_(std=0.1)
    plain = PlainGPT(settings.model, settings.task.p + 5, 6).double()
    plain.load({name: torch.from_numpy(array) for name, array in trainer.bank.arrays(0).items()})
    tokens = torch.from_numpy(table(settings.task).tokens)[split(settings.task, 0)[0]]
    theirs = F.cross_entropy(plain(tokens[:, :-1])[:, -2:].flatten(0, 1), tokens[:, -2:].flatten())
    theirs.backward()
    their_norm = torch.stack([p.grad.norm() for p in plain.parameters() if p.grad is not None]).norm()
    ours = trainer._losses().sum()
    trainer.bank.take_gradients(ours)
    pairs = ((ours.item(), theirs.item()), (trainer.bank.gradients.norm().item(), their_norm.item()))
    return max(abs(a - b) / abs(b) for a, b in pairs)


def seconds(step: Callable[[], None], n: int) -> float:
    start = time.perf_counter()
    for _ in range(n):
        step()
    return (time.perf_counter() - start) / n


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results = []
    for size, dials in SIZES.items():
        settings = Settings.of(dials)
        difference = check_equal(settings)
        assert difference < 1e-10, difference
        print(f"{size}: loss and gradient norm agree to {difference:.1e} in float64")
        sides = {"plain": plain_loop(settings)}
        for n in RUNS:
            sides[f"R={n}"] = Trainer([settings] * n, range(n), "cpu", torch.float32).advance
        times: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(options.rounds):
            for name, step in sides.items():
                n_runs = int(name.partition("=")[2] or 1)
                times[name].append(seconds(step, max(1, 8 // n_runs)) / n_runs)
        base = statistics.median(times["plain"])
        for name, taken in times.items():
            median = statistics.median(taken)
            print(f"  {name:6} {1 / median:8.1f} run-steps/s, {base / median:5.2f}× the plain loop", flush=True)
            results.append({"size": size, "side": name, "seconds": taken, "ratio": base / median})
    out = Path(__file__).parent / "results" / "stacking.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"threads": options.threads, "torch": torch.__version__, "rows": results}, indent=1))
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
