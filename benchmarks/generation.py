"""Tokens per second of report A's model against Hugging Face's `generate` with its cache, as ratios inside one run.

    python benchmarks/generation.py [--rounds 5] [--threads 1] [--batches 1,16,64]

Both sides draw 120 tokens after 1 from a random model of 12 layers, width 192, 6 heads, 66 characters and a context of
128. Interleaved rounds, medians; only the ratios carry over between machines. Beside the clock on the wall stands the
processor's own, which neighbours on the machine hardly change; with one thread both count the same work.

Then what bounds it: weights that a token reads over the measured rate of reading them, operations of a step over the
measured rate of a product of the same shape, and keys and values over the rate of reading memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from seedbed.models.build import build_pack
from seedbed.sampling.sampler import generate_tokens
from seedbed.settings import DatasetInfo, Settings

N_TOKENS = 120
LAYERS, WIDTH, HEADS, VOCABULARY, CONTEXT = 12, 192, 6, 66, 128
FACTS = DatasetInfo(vocab_size=VOCABULARY, context_length=CONTEXT, n_train=1, padding_id=0)
DIALS = {
    "task.kind": "text", "model.layers": LAYERS, "model.dim": WIDTH, "model.heads": HEADS,
    "model.positions": "learned", "model.norm": "pre", "model.final_norm": True, "model.mlp_bias": True,
}  # fmt: skip
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.process_time}


def ours() -> Callable[[int], object]:
    step = torch.zeros(1, dtype=torch.int64)
    model, _ = build_pack([Settings.from_flat(DIALS)], [0], step, torch.float32, FACTS)
    prompt = torch.ones(1, 1, 1, dtype=torch.int64)
    return lambda n_samples: generate_tokens(model, FACTS.context_length, prompt, N_TOKENS, [0], n_samples)


def hugging_face() -> Callable[[int], object]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=CONTEXT, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, bos_token_id=0,
        eos_token_id=None,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).eval()

    def generate(n_samples: int) -> object:
        prompt = torch.ones(n_samples, 1, dtype=torch.int64)
        return model.generate(prompt, max_new_tokens=N_TOKENS, do_sample=True, top_k=0, pad_token_id=0)

    return generate


def compare(sides: dict[str, Callable[[int], object]], batch: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Tokens per second by clock, side and round."""
    rates: dict[str, dict[str, list[float]]] = {clock: {name: [] for name in sides} for clock in CLOCKS}
    for _ in range(rounds):
        for name, generate in sides.items():
            starts = {clock: read() for clock, read in CLOCKS.items()}
            generate(batch)
            for clock, read in CLOCKS.items():
                rates[clock][name].append(batch * N_TOKENS / (read() - starts[clock]))
    return rates


def bounds(batch: int) -> dict[str, float]:
    """Tokens per second of one core if nothing but one thing took time."""
    weights = torch.randn(LAYERS, 12 * WIDTH * WIDTH)
    past = torch.randn(1 << 24)
    x, matrix = torch.randn(batch, WIDTH), torch.randn(WIDTH, 4 * WIDTH)
    operations = 2 * batch * weights.numel()
    kept_bytes = batch * LAYERS * 2 * (N_TOKENS / 2) * WIDTH * 4
    product = best_seconds(lambda: x @ matrix) / (2 * batch * matrix.numel())
    return {
        "weights read": batch / best_seconds(lambda: weights.sum()),
        "products": batch / (operations * product),
        "keys and values read": batch / (kept_bytes * best_seconds(lambda: past.sum()) / (past.numel() * 4)),
    }


def best_seconds(work: Callable[[], object], repeats: int = 10) -> float:
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return min(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batches", default="1,16,64")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sides = {"seedbed": ours(), "Hugging Face": hugging_face()}
    rows = []
    for batch in map(int, options.batches.split(",")):
        rates = compare(sides, batch, options.rounds)
        row = {"batch": batch, "rates": rates, "ratio": {}, "bounds": bounds(batch)}
        for clock, by_side in rates.items():
            medians = {name: statistics.median(taken) for name, taken in by_side.items()}
            row["ratio"][clock] = medians["seedbed"] / medians["Hugging Face"]
            said = ", ".join(f"{name} {rate:,.0f}" for name, rate in medians.items())
            print(f"batch {batch:2}, {clock:>9}: {said} tokens/s, ratio {row['ratio'][clock]:.2f}", flush=True)
        print(
            f"batch {batch:2},    bounds: " + ", ".join(f"{name} {rate:,.0f}" for name, rate in row["bounds"].items())
        )
        rows.append(row)
    out = Path(__file__).parent / "results" / "generation.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"threads": options.threads, "torch": torch.__version__, "rows": rows}, indent=1))
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
