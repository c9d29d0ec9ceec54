"""Tokens per second of report A's model against Hugging Face's `generate` with its cache, as ratios inside one run.

    python benchmarks/generation.py [--rounds 5] [--threads 1]

Both sides draw 120 tokens after 1 from a random model of 12 layers, width 192, 6 heads, 66 characters and a context of
128. Interleaved rounds, medians; only the ratios carry over between machines.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from seedbed.generate.sample import write
from seedbed.models.build import build_pack
from seedbed.settings import DataFacts, Settings

N_TOKENS, BATCHES = 120, (1, 16, 64)
FACTS = DataFacts(vocabulary=66, context=128, n_train=1, padding=0)
DIALS = {
    "task.kind": "text", "model.layers": 12, "model.dim": 192, "model.heads": 6, "model.positions": "learned",
    "model.norm": "pre", "model.final_norm": True, "model.mlp_bias": True,
}  # fmt: skip


def ours() -> Callable[[int], object]:
    step = torch.zeros(1, dtype=torch.int64)
    model, _ = build_pack([Settings.of(DIALS)], [0], step, torch.float32, FACTS)
    prompt = torch.ones(1, 1, 1, dtype=torch.int64)
    return lambda n_samples: write(model, FACTS.context, prompt, N_TOKENS, [0], n_samples)


def hugging_face() -> Callable[[int], object]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=66, n_positions=128, n_embd=192, n_layer=12, n_head=6, bos_token_id=0, eos_token_id=None
    )
    model = GPT2LMHeadModel(config).eval()

    def generate(n_samples: int) -> object:
        prompt = torch.ones(n_samples, 1, dtype=torch.int64)
        return model.generate(prompt, max_new_tokens=N_TOKENS, do_sample=True, top_k=0, pad_token_id=0)

    return generate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sides = {"seedbed": ours(), "Hugging Face": hugging_face()}
    rows = []
    for batch in BATCHES:
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(options.rounds):
            for name, generate in sides.items():
                start = time.perf_counter()
                generate(batch)
                rates[name].append(batch * N_TOKENS / (time.perf_counter() - start))
        medians = {name: statistics.median(taken) for name, taken in rates.items()}
        ratio = medians["seedbed"] / medians["Hugging Face"]
        said = ", ".join(f"{name} {rate:,.0f}" for name, rate in medians.items())
        print(f"batch {batch:2}: {said} tokens/s, ratio {ratio:.2f}", flush=True)
        rows.append({"batch": batch, "rates": rates, "ratio": ratio})
    out = Path(__file__).parent / "results" / "generation.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"threads": options.threads, "torch": torch.__version__, "rows": rows}, indent=1))
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
