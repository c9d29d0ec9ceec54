"""Time per model and step on a GPU, for each way of doing a step; compares with the CPU in float64 first.

python benchmarks/device.py [--runs 128] [--kinds gpt,lstm] [--ways compiled:bf16,graph:tf32]
python benchmarks/device.py --kinds characters --runs 1,8 --ways compiled:bf16    (report A's model)
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from scenarios import CHARACTERS

from seedbed.settings import Settings
from seedbed.training.evaluate import Evaluator, compute_metrics
from seedbed.training.trainer import Trainer

REPORT_A = CHARACTERS | {"task.corpus": "shakespeare", "task.val_fraction": 0.1, "train.batch_size": 128,
                         "train.eval_batches": 20, "train.schedule": "plateau"}  # fmt: skip
KINDS = {"gpt": {"model.kind": "gpt"}, "lstm": {"model.kind": "lstm"}, "characters": REPORT_A}
FEWER = {"gpt": {}, "lstm": {}, "characters": {"train.batch_size": 16, "train.eval_batches": 1}}  # samples for a check
RECORDS = {"gpt": 202 / 10_001, "lstm": 202 / 10_001, "characters": 76 / 7_500}  # a step, as the reports have them


def make(kind: str, way: str, n: int, **dials: object) -> Trainer:
    engine, precision = way.split(":")
    torch.set_float32_matmul_precision({"fp32": "highest"}.get(precision, "high"))
    settings = Settings.from_flat(KINDS[kind] | {"train.precision": precision} | dials)
    return Trainer([settings] * n, range(n), "cuda", torch.float32, engine)


def check(kind: str, way: str, n: int) -> str:
    """Largest relative difference of readings of up to 3 runs after 5 updates to the same in float64 on the CPU."""
    ours = make(kind, way, n, **FEWER[kind])
    settings = Settings.from_flat(KINDS[kind] | FEWER[kind])
    exact = Trainer([settings] * n, range(n), "cpu", torch.float64)
    for _ in range(5):
        ours.train_step()
        exact.train_step()
    mine, theirs = compute_metrics(ours), compute_metrics(exact)
    worst = max(((mine[name].cpu() - theirs[name]).abs() / theirs[name].abs().clamp(min=1e-3)).max().item()
                for name in theirs if name.endswith("loss"))  # fmt: skip
    return f"{worst:.1e}"


def timed(work, n: int, rounds: int = 5) -> float:
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(n):
            work()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / n)
    return statistics.median(times)


def kernels(trainer: Trainer) -> str:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(5):
            trainer.train_step()
        torch.cuda.synchronize()
    rows = sorted(profile.key_averages(), key=lambda row: -row.device_time_total)[:24]
    total = sum(row.device_time_total for row in profile.key_averages())
    lines = [f"  {row.device_time_total / 5:8.1f} us {row.count // 5:4} x {row.key[:100]}" for row in rows]
    return "\n".join([f"  {total / 5:8.1f} us in all", *lines])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", default="128")
    parser.add_argument("--profile", action="store_true", help="also list the kernels that take longest")
    parser.add_argument("--no-check", action="store_true", help="time only")
    parser.add_argument("--kinds", default="gpt,lstm")
    parser.add_argument("--ways", default="graph:tf32,compiled:tf32,compiled:bf16,compiled:fp32")
    options = parser.parse_args()
    for kind in options.kinds.split(","):
        for way in options.ways.split(","):
            for n in map(int, options.runs.split(",")):
                off = "-" if options.no_check else check(kind, way, min(n, 3))
                torch._dynamo.reset()
                start = time.perf_counter()
                trainer = make(kind, way, n)
                trainer.train_step()
                torch.cuda.synchronize()
                ready = time.perf_counter() - start
                step = timed(trainer.train_step, 30)
                reader = Evaluator(trainer)
                reader.evaluate()
                read = timed(reader.evaluate, 3, 3)
                memory = torch.cuda.max_memory_allocated() / 2**30
                grid = (step + RECORDS[kind] * read) / n
                print(
                    f"{kind:5} {way:14} R={n:4} off {off} ready {ready:.1f}s step {step * 1e3:.2f} ms"
                    f" = {step / n * 1e6:.1f} us/model, readings {read * 1e3:.1f} ms, together {grid * 1e6:.1f} us,"
                    f" {memory:.1f} GiB",
                    flush=True,
                )
                if options.profile:
                    print(kernels(trainer))
                del trainer, reader
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()


if __name__ == "__main__":
    main()
