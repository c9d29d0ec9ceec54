"""Tokens per second of report A's model relative to Hugging Face's `generate` with its KV cache.

    python benchmarks/generation.py [--rounds 5] [--threads 1] [--batches 1,16,64]

Both sides sample 120 tokens after a prompt of one, from a random model of 12 layers, width 192, 6 heads, 66 characters
and a context of 128. Medians over interleaved rounds; only the ratios carry over between machines. CPU time is reported
beside wall-clock time because other load on the machine hardly affects it; with one thread both measure the same work.

Then upper bounds: by the memory bandwidth for the weights, by the FLOP rate of a matmul of the same shape, and by the
bandwidth for keys and values.
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
DATASET_INFO = DatasetInfo(vocab_size=VOCABULARY, context_length=CONTEXT, n_train=1, padding_id=0)
OVERRIDES = {
    "task.kind": "text", "model.layers": LAYERS, "model.dim": WIDTH, "model.heads": HEADS,
    "model.positions": "learned", "model.norm": "pre", "model.final_norm": True, "model.mlp_bias": True,
}  # fmt: skip
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.process_time}


def make_seedbed_generate() -> Callable[[int], object]:
    step = torch.zeros(1, dtype=torch.int64)
    model, _ = build_pack([Settings.from_flat(OVERRIDES)], [0], step, torch.float32, DATASET_INFO)
    prompt = torch.ones(1, 1, 1, dtype=torch.int64)
    return lambda n_samples: generate_tokens(model, DATASET_INFO.context_length, prompt, N_TOKENS, [0], n_samples)


def make_hugging_face_generate() -> Callable[[int], object]:
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


def measure_rates(
    sides: dict[str, Callable[[int], object]], batch: int, rounds: int
) -> dict[str, dict[str, list[float]]]:
    """Tokens per second by clock, side and round."""
    rates: dict[str, dict[str, list[float]]] = {clock: {name: [] for name in sides} for clock in CLOCKS}
    for _ in range(rounds):
        for name, generate in sides.items():
            starts = {clock: read() for clock, read in CLOCKS.items()}
            generate(batch)
            for clock, read in CLOCKS.items():
                rates[clock][name].append(batch * N_TOKENS / (read() - starts[clock]))
    return rates


def compute_bounds(batch: int) -> dict[str, float]:
    """Upper bounds on tokens per second of one core, if only one kind of work took time."""
    weights = torch.randn(LAYERS, 12 * WIDTH * WIDTH)
    past = torch.randn(1 << 24)
    x, matrix = torch.randn(batch, WIDTH), torch.randn(WIDTH, 4 * WIDTH)
    flops = 2 * batch * weights.numel()
    cache_bytes = batch * LAYERS * 2 * (N_TOKENS / 2) * WIDTH * 4
    seconds_per_flop = best_seconds(lambda: x @ matrix) / (2 * batch * matrix.numel())
    return {
        "loading weights": batch / best_seconds(lambda: weights.sum()),
        "matmuls": batch / (flops * seconds_per_flop),
        "loading keys and values": batch / (cache_bytes * best_seconds(lambda: past.sum()) / (past.numel() * 4)),
    }


def best_seconds(work: Callable[[], object], repeats: int = 10) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batches", default="1,16,64")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sides = {"seedbed": make_seedbed_generate(), "Hugging Face": make_hugging_face_generate()}
    rows = []
    for batch in map(int, options.batches.split(",")):
        rates = measure_rates(sides, batch, options.rounds)
        row = {"batch": batch, "rates": rates, "ratio": {}, "bounds": compute_bounds(batch)}
        for clock, by_side in rates.items():
            medians = {name: statistics.median(values) for name, values in by_side.items()}
            row["ratio"][clock] = medians["seedbed"] / medians["Hugging Face"]
            text = ", ".join(f"{name} {rate:,.0f}" for name, rate in medians.items())
            print(f"batch {batch:2}, {clock:>9}: {text} tokens/s, ratio {row['ratio'][clock]:.2f}", flush=True)
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
