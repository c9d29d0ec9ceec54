"""Time per model and step on a GPU for each mode and precision, after a check against the CPU in float64.

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
# fewer samples for the check
CHECK_OVERRIDES = {"gpt": {}, "lstm": {}, "characters": {"train.batch_size": 16, "train.eval_batches": 1}}
EVALUATIONS_PER_STEP = {"gpt": 202 / 10_001, "lstm": 202 / 10_001, "characters": 76 / 7_500}  # as in the reports


def make_trainer(kind: str, way: str, n: int, **overrides: object) -> Trainer:
    mode, precision = way.split(":")
    torch.set_float32_matmul_precision({"fp32": "highest"}.get(precision, "high"))
    settings = Settings.from_flat(KINDS[kind] | {"train.precision": precision} | overrides)
    return Trainer([settings] * n, range(n), "cuda", torch.float32, mode)


def check_against_cpu(kind: str, way: str, n: int) -> str:
    """Largest relative difference of losses after 5 updates from the same runs in float64 on the CPU."""
    ours = make_trainer(kind, way, n, **CHECK_OVERRIDES[kind])
    settings = Settings.from_flat(KINDS[kind] | CHECK_OVERRIDES[kind])
    exact = Trainer([settings] * n, range(n), "cpu", torch.float64)
    for _ in range(5):
        ours.train_step()
        exact.train_step()
    mine, theirs = compute_metrics(ours), compute_metrics(exact)
    worst = max(((mine[name].cpu() - theirs[name]).abs() / theirs[name].abs().clamp(min=1e-3)).max().item()
                for name in theirs if name.endswith("loss"))  # fmt: skip
    return f"{worst:.1e}"


def median_seconds(work, n: int, rounds: int = 5) -> float:
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(n):
            work()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / n)
    return statistics.median(times)


def profile_kernels(trainer: Trainer) -> str:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(5):
            trainer.train_step()
        torch.cuda.synchronize()
    rows = sorted(profile.key_averages(), key=lambda row: -row.device_time_total)[:24]
    total = sum(row.device_time_total for row in profile.key_averages())
    lines = [f"  {row.device_time_total / 5:8.1f} us {row.count // 5:4} x {row.key[:100]}" for row in rows]
    return "\n".join([f"  {total / 5:8.1f} us in total", *lines])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", default="128")
    parser.add_argument("--profile", action="store_true", help="also list the slowest kernels")
    parser.add_argument("--no-check", action="store_true", help="time only")
    parser.add_argument("--kinds", default="gpt,lstm")
    parser.add_argument("--ways", default="graph:tf32,compiled:tf32,compiled:bf16,compiled:fp32")
    options = parser.parse_args()
    for kind in options.kinds.split(","):
        for way in options.ways.split(","):
            for n in map(int, options.runs.split(",")):
                error = "-" if options.no_check else check_against_cpu(kind, way, min(n, 3))
                torch._dynamo.reset()
                start = time.perf_counter()
                trainer = make_trainer(kind, way, n)
                trainer.train_step()
                torch.cuda.synchronize()
                startup = time.perf_counter() - start
                step = median_seconds(trainer.train_step, 30)
                evaluator = Evaluator(trainer)
                evaluator.evaluate()
                evaluation = median_seconds(evaluator.evaluate, 3, 3)
                memory = torch.cuda.max_memory_allocated() / 2**30
                total = (step + EVALUATIONS_PER_STEP[kind] * evaluation) / n
                print(
                    f"{kind:5} {way:14} R={n:4} error {error} startup {startup:.1f}s step {step * 1e3:.2f} ms"
                    f" = {step / n * 1e6:.1f} us/model, evaluation {evaluation * 1e3:.1f} ms,"
                    f" together {total * 1e6:.1f} us,"
                    f" {memory:.1f} GiB",
                    flush=True,
                )
                if options.profile:
                    print(profile_kernels(trainer))
                del trainer, evaluator
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()


if __name__ == "__main__":
    main()
