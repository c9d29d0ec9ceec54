"""Every shipped study on a GPU, `run` itself against a plain compiled loop with the same work: `make bench-studies`.

    time_whole_runs(report, "arithmetic", "cuda", n_steps=300, save=lambda: …)

Ours is `run --until STEPS` of the whole study: processes and packs as `run` places them, evaluations, samples and
checkpoints at the study's own steps. Theirs is a plain loop (nn.Module, DataLoader, torch.optim, torch.compile) that
trains one run after another for as many steps, and evaluates the same samples, generates as many tokens and saves as
often; one run of each shape is timed and stands for all. Compiling is reported apart on both sides.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from check import first_run_samples
from loops import compute_loss, find_unsupported_setting, iterate_batches, make_optimizer
from peers import plain_model
from scenarios import select_names
from torch import Tensor, nn

from seedbed.engines.cost_estimator import section_counts
from seedbed.engines.machine import Machine
from seedbed.pipeline import SilentObserver, run_studies
from seedbed.records import Run
from seedbed.settings import Settings
from seedbed.store import open_store
from seedbed.study.pack import shape_key
from seedbed.study.plan import plan_named
from seedbed.study.study_files import shipped_studies
from seedbed.tasks.base import BatchLimits

N_STEPS = 300
WARM_UP_STEPS = 3  # compiled and not timed, but reported


def time_whole_runs(
    report: dict[str, Any], only: str, device: str, save: Callable[[], None], n_steps: int = N_STEPS,
    overrides: Sequence[str] = (),
) -> None:  # fmt: skip
    """Times every study on both sides and prints a line for each; calls `save` after each."""
    report["whole_runs"], report["left_out"] = [], []
    for name in select_names(list(shipped_studies()), only):
        plan = plan_named(name, overrides)
        reasons = {reason for run in plan.runs if (reason := find_unsupported_setting(run.settings))}
        if reasons:
            report["left_out"].append({"study": name, "reason": "; ".join(sorted(reasons))})
            print(f"{name:26} skipped: {'; '.join(sorted(reasons))}", flush=True)
            continue
        ours, theirs = time_ours(name, overrides, device, n_steps), time_plain(plan.runs, device, n_steps)
        row = {
            "study": name, "n_runs": len(plan.runs), "n_steps": n_steps, "ours": ours, "theirs": theirs,
            "ratio": sum(theirs["seconds"].values()) / ours["wall"],
            "ratio_without_compiling": sum(theirs["seconds"].values()) / max(1e-9, ours["wall"] - ours["compile"]),
        }  # fmt: skip
        report["whole_runs"].append(row)
        print(_format_row(row), flush=True)
        save()


def time_ours(name: str, overrides: Sequence[str], device: str, n_steps: int) -> dict[str, Any]:
    """Wall seconds of `run`, and the seconds that its packs spent in each section, in all."""
    plan = plan_named(name, overrides)
    with tempfile.TemporaryDirectory() as folder:
        previous = os.environ.get("SEEDBED_RATES")
        os.environ["SEEDBED_RATES"] = str(Path(folder) / "rates.json")  # what is timed here decides no later study
        try:
            start = time.perf_counter()
            run_studies([plan], Path(folder), Machine.detect(device), SilentObserver(), lambda: False, until=n_steps)
            wall = time.perf_counter() - start
        finally:
            os.environ.pop("SEEDBED_RATES")
            if previous is not None:
                os.environ["SEEDBED_RATES"] = previous
        with open_store(Path(folder)) as store:
            costs = [pack.cost for pack in store.study_packs(name)]
    sections: dict[str, float] = {}
    for cost in costs:
        for section, seconds in cost.seconds.items():
            sections[section] = sections.get(section, 0.0) + seconds
    return {"wall": wall, "compile": sections.get("compile", 0.0), "seconds": sections}


def time_plain(runs: Sequence[Run], device: str, n_steps: int) -> dict[str, Any]:
    """Seconds by section of a plain loop over all runs, from one run of each shape; compiling is apart."""
    by_shape: dict[object, list[Run]] = {}
    for run in runs:
        by_shape.setdefault((shape_key(run.settings), run.settings.train.batch_size), []).append(run)
    totals: dict[str, float] = {}
    compile_seconds = 0.0
    for group in by_shape.values():
        seconds, warm_up = _time_one(group[0], device, n_steps)
        compile_seconds += warm_up
        for section, value in seconds.items():
            totals[section] = totals.get(section, 0.0) + value * len(group)
    return {"compile": compile_seconds, "seconds": totals}


def _time_one(run: Run, device: str, n_steps: int) -> tuple[dict[str, float], float]:
    settings, train = run.settings, run.settings.train
    limited = settings.model_copy(update={"train": train.model_copy(update={"steps": n_steps, "epochs": None})})
    n_steps = min(n_steps, settings.n_steps(run.dataset_info))
    counts = section_counts(replace(run, settings=limited))
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest" if train.precision == "fp32" else "high")
    model: nn.Module = plain_model(settings).to(device).train()
    compiled = torch.compile(model) if device == "cuda" else model
    optimizer, batches = make_optimizer(model.parameters(), train), iterate_batches(settings, device)
    eval_batches = [first_run_samples(chunk) for chunk in _eval_chunks(settings, device)]

    def autocast() -> torch.autocast:
        return torch.autocast(device, torch.bfloat16, enabled=train.precision == "bf16" and device == "cuda")

    def update() -> None:
        with autocast():
            loss = compute_loss(compiled, *next(batches), train.label_smoothing)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if train.clip:
            nn.utils.clip_grad_norm_(model.parameters(), train.clip)
        optimizer.step()

    def evaluate() -> None:
        compiled.eval()
        with torch.no_grad(), autocast():
            losses = [compute_loss(compiled, *batch) for batch in eval_batches]
        float(torch.stack(losses).mean()) if losses else 0.0
        compiled.train()

    def sample() -> None:
        with torch.no_grad(), autocast():
            generate(model.eval(), settings, device)
        model.train()

    def save() -> None:
        with tempfile.TemporaryFile() as file:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)

    warm_up = _seconds(device, [update] * WARM_UP_STEPS + [evaluate])
    work = {"compute": (update, n_steps), "evaluate": (evaluate, counts["evaluate"]), "save": (save, counts["save"])}
    if settings.task.generates_text and counts["write"]:
        work["write"] = (sample, counts["write"] * train.samples)
    return {section: _seconds(device, [action] * n) for section, (action, n) in work.items()}, warm_up


def generate(model: nn.Module, settings: Settings, device: str) -> Tensor:
    """A sample, as nanoGPT draws it: the whole context is computed for each token."""
    tokens = torch.ones(1, 1, dtype=torch.long, device=device)
    for _ in range(settings.train.sample_tokens):
        logits = model(tokens[:, -settings.task.length :])[:, -1]
        tokens = torch.cat([tokens, torch.multinomial(logits.float().softmax(-1), 1)], dim=1)
    return tokens


def _eval_chunks(settings: Settings, device: str) -> list[Any]:
    if not {"train", "val", "test"}.intersection(settings.train.eval_sets):
        return []
    batches = settings.task.make_batches([settings], [0], device, BatchLimits())
    return list(batches.eval_chunks())


def _seconds(device: str, actions: Sequence[Callable[[], None]]) -> float:
    start = time.perf_counter()
    for action in actions:
        action()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _format_row(row: dict[str, Any]) -> str:
    ours, theirs = row["ours"], row["theirs"]
    plain = ", ".join(f"{section} {seconds:.1f}" for section, seconds in theirs["seconds"].items())
    return (
        f"{row['study']:26} {row['n_runs']:4} runs × {row['n_steps']} steps: ours {ours['wall']:.1f} s "
        f"({ours['compile']:.1f} compiling), theirs {sum(theirs['seconds'].values()):.1f} s ({plain}; "
        f"{theirs['compile']:.1f} compiling), ratio {row['ratio']:.2f}, {row['ratio_without_compiling']:.2f} without"
    )
