"""Every shipped study on a GPU, `run` itself against a plain compiled loop with the same work: `make bench-studies`.

    time_whole_runs(report, "arithmetic", "cuda", n_steps=300, save=lambda: …)

Ours is `run --until STEPS` of the whole study: processes and packs as `run` places them, evaluations, samples and
checkpoints at the study's own steps. Theirs is a plain loop (plain_loops.py) that trains one run after another for as
many steps, and evaluates the same samples, generates as many tokens and saves as often, at the speed of one run of each
shape. Compiling is reported apart on both sides, and with it the first update. Whole studies to their end, by the
command line: whole_commands.py.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from loops import find_unsupported_setting
from plain_loops import RESIDENT, PlainLoop, add_seconds, plain_loop_key, work_seconds
from scenarios import select_names

from seedbed.engines.cost_estimator import section_counts
from seedbed.engines.machine import Machine
from seedbed.pipeline import SilentObserver, run_studies
from seedbed.records import Run
from seedbed.store import open_store
from seedbed.study.plan import plan_named
from seedbed.study.study_files import shipped_studies

N_STEPS = 300


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
    seconds: dict[str, dict[str, float]] = {}
    totals: dict[str, float] = {}
    compile_seconds = 0.0
    for run in runs:
        if (key := plain_loop_key(run)) not in seconds:
            loop = PlainLoop(run, device)
            compile_seconds += loop.compile_seconds
            seconds[key] = {name: value for name, value in loop.time().items() if name != RESIDENT}
        add_seconds(totals, work_seconds(seconds[key], count_sections_until(run, n_steps)))
    return {"compile": compile_seconds, "seconds": totals}


def count_sections_until(run: Run, n_steps: int) -> dict[str, int]:
    """How many times each section is executed in the first steps of a run."""
    n_steps = min(n_steps, run.settings.n_steps(run.dataset_info))
    limits = {"steps": n_steps, "epochs": None, "max_tokens": None, "seconds": None}
    train = run.settings.train.model_copy(update=limits)
    limited = replace(run, settings=run.settings.model_copy(update={"train": train}))
    return section_counts(limited) | {"compute": n_steps - 1}  # a task of whole epochs rounds its steps up


def _format_row(row: dict[str, Any]) -> str:
    ours, theirs = row["ours"], row["theirs"]
    plain = ", ".join(f"{section} {seconds:.1f}" for section, seconds in theirs["seconds"].items())
    return (
        f"{row['study']:26} {row['n_runs']:4} runs × {row['n_steps']} steps: ours {ours['wall']:.1f} s "
        f"({ours['compile']:.1f} compiling), theirs {sum(theirs['seconds'].values()):.1f} s ({plain}; "
        f"{theirs['compile']:.1f} compiling), ratio {row['ratio']:.2f}, {row['ratio_without_compiling']:.2f} without"
    )
