"""Whole `seedbed run` commands against plain compiled loops that do the same work, one run after another.

    python benchmarks/whole_commands.py "arithmetic/*" "wikitext/optimizers wikitext/depth" --home lab [--processes 6]

Each argument is a command's studies and overrides; its runs are trained to the end, in a home without rates, and stay
there. Ours is the wall clock of the command. Theirs is the sum over its runs of the updates, evaluations, samples and
saves that the settings ask for, at the speed of one run of each shape, which is compiled (not counted) and then
timed alone on the machine (plain_loops.py). The loops are compiled by other processes while the first command trains,
which can only slow ours down, and are timed after it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shlex
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatch
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from loops import find_unsupported_setting
from plain_loops import RESIDENT, PlainLoop, add_seconds, plain_loop_key, work_seconds

from seedbed.engines.cost_estimator import section_counts
from seedbed.records import Plan, Run
from seedbed.store import open_store
from seedbed.study.plan import plan_named
from seedbed.study.study_files import shipped_studies

MAX_COMPILED_SHAPES = 1_000  # in a process, before torch gives up and runs the next one uncompiled


class LoopProcess:
    """A process that compiles the loops of some runs, and times them when asked."""

    def __init__(self, runs: Sequence[Run], device: str) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=_serve_loops, args=(theirs, runs, device), daemon=True)
        self.process.start()

    def time_loops(self) -> list[dict[str, Any]]:
        self.connection.send("time")
        answer: list[dict[str, Any]] = self.connection.recv()
        self.process.join()
        return answer


def _serve_loops(connection: Connection, runs: Sequence[Run], device: str) -> None:
    os.nice(10)
    torch.set_num_threads(1)
    torch._inductor.config.compile_threads = 1
    torch._dynamo.config.recompile_limit = MAX_COMPILED_SHAPES
    torch._dynamo.config.accumulated_recompile_limit = MAX_COMPILED_SHAPES
    loops: list[PlainLoop | str] = []
    for run in runs:
        try:
            loops.append(PlainLoop(run, device))
        except Exception as error:  # one shape that does not compile must not lose the others
            loops.append(f"{type(error).__name__}: {error}".splitlines()[0])
    connection.send("ready")
    connection.recv()
    connection.send([
        {"error": loop} if isinstance(loop, str) else {"seconds": loop.time(), "compile": loop.compile_seconds}
        for loop in loops
    ])  # fmt: skip


def start_loops(runs: Sequence[Run], device: str, n_processes: int) -> dict[LoopProcess, list[Run]]:
    """Processes that compile one run of each shape; large models are dealt out first."""
    by_key = {plain_loop_key(run): run for run in runs if find_unsupported_setting(run.settings) is None}
    distinct = sorted(by_key.values(), key=lambda run: -run.parameters.total)
    parts = [part for first in range(n_processes) if (part := distinct[first::n_processes])]
    return {LoopProcess(part, device): part for part in parts}


def time_loops(processes: dict[LoopProcess, list[Run]]) -> dict[object, dict[str, Any]]:
    """Waits until all have compiled, and times one after another."""
    for process in processes:
        process.connection.recv()
    rows = [
        (run, row) for process, runs in processes.items() for run, row in zip(runs, process.time_loops(), strict=True)
    ]
    return {plain_loop_key(run): row for run, row in rows}


def run_command(words: Sequence[str], home: Path, log: Path, probe: bool) -> dict[str, Any]:
    """Runs the command with an empty rates file; its wall clock, and what `plan` said before."""
    environment = os.environ | {"SEEDBED_RATES": str(log.with_suffix(".rates.json"))}
    seedbed, where = [sys.executable, "-m", "seedbed"], ["--home", str(home)]
    row: dict[str, Any] = {"command": shlex.join(["seedbed", "run", *words])}
    for name in ("plan", "probed plan") if probe else ("plan",):
        options = ["--probe"] if name == "probed plan" else []
        start = time.perf_counter()
        plan = subprocess.run(
            [*seedbed, "plan", *words, *where, *options], env=environment, capture_output=True, text=True
        )
        row[name] = {"seconds": time.perf_counter() - start, "said": plan.stdout[-1_500:] + plan.stderr[-500:]}
    start = time.perf_counter()
    with log.open("w", encoding="utf-8") as output:
        run = subprocess.run([*seedbed, "run", *words, *where], env=environment, stdout=output, stderr=output)
    return row | {"wall": time.perf_counter() - start, "exit_code": run.returncode}


def plans_of(words: Sequence[str]) -> list[Plan]:
    """The plans of a command's studies, with its overrides."""
    overrides = [word for word in words if "=" in word]
    names = [name for word in words if "=" not in word for name in shipped_studies() if fnmatch(name, word)]
    return [plan_named(name, overrides) for name in names]


def compare_command(
    row: dict[str, Any], plans: Sequence[Plan], home: Path, loops: dict[object, dict[str, Any]]
) -> None:
    """Adds to the row, for each study: theirs, and ours as its packs' share of the command's wall clock."""
    own = {run.id: (plan.study, run) for plan in reversed(plans) for run in plan.runs}  # a shared run counts once
    with open_store(home, read_only=True) as store:
        packs = {pack.id: pack for plan in plans for pack in store.study_packs(plan.study)}
        pack_of = {run.id: run.pack for run in store.runs()}
    n_in_pack = Counter(pack_of.values())
    shares = {run: sum(packs[pack_of[run]].cost.seconds.values()) / n_in_pack[pack_of[run]] for run in own}
    row["missing"], row["studies"] = [], {}
    for plan in plans:
        theirs: dict[str, float] = {}
        timed, share = 0, 0.0
        for run in (run for name, run in own.values() if name == plan.study):
            loop = loops.get(plain_loop_key(run), {"error": find_unsupported_setting(run.settings)})
            if "error" in loop:
                row["missing"] = sorted({*row["missing"], f"{plan.study}: {loop['error']}"})
                continue
            add_seconds(theirs, work_seconds(loop["seconds"], section_counts(run)))
            timed, share = timed + 1, share + shares[run.id]
        if timed:
            ours = row["wall"] * share / sum(shares.values())
            ratios = {name: total_seconds(theirs, name) / ours for name in ("compute", RESIDENT)}
            row["studies"][plan.study] = {"runs": timed, "ours": ours, "theirs": theirs, "ratios": ratios}


def total_seconds(seconds: dict[str, float], updates: str = "compute") -> float:
    """With the updates as they are, or with those whose batch is on the device already."""
    return sum(value for name, value in seconds.items() if name not in {"compute", RESIDENT} - {updates})


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    ratios: list[dict[str, float]] = []
    for row in rows:
        print(f"{row['command']}: {row['wall']:.1f} s, exit code {row['exit_code']}")
        for name, study in row.get("studies", {}).items():
            seconds = ", ".join(f"{section} {value:.1f}" for section, value in study["theirs"].items())
            total, (ratio, one_batch) = total_seconds(study["theirs"]), study["ratios"].values()
            print(f"  {name:26} {study['runs']:4} runs: ours {study['ours']:.1f} s, theirs {total:.1f} s ({seconds}): "
                  f"ratio {ratio:.2f}, with one batch {one_batch:.2f}")  # fmt: skip
            ratios.append(study["ratios"])
        for line in row.get("missing", []):
            print(f"  not compared: {line}")
    for name in ratios[0] if ratios else ():
        print(f"{name}: median of {len(ratios)} studies {statistics.median(one[name] for one in ratios):.2f}")


def main() -> None:
    args = parse_options()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    commands = [shlex.split(command) for command in args.commands]
    plans = [plans_of(words) for words in commands]
    others = [plan for command in args.also for plan in plans_of(shlex.split(command))]
    runs = [run for some in (*plans, others) for plan in some for run in plan.runs]
    processes = start_loops(runs, device, args.processes)
    rows: list[dict[str, Any]] = []
    loops: dict[object, dict[str, Any]] = {}
    for number, words in enumerate(commands):
        row = run_command(words, args.home, args.out.with_name(f"command-{number}.log"), number in args.probe)
        rows.append(row)
        loops = loops or time_loops(processes)
        compare_command(row, plans[number], args.home, loops)
        report = {"commands": rows, "loops": {str(key): loop for key, loop in loops.items()}}
        args.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for plan in others:
        theirs: dict[str, float] = {}
        for run in plan.runs:
            add_seconds(theirs, work_seconds(loops[plain_loop_key(run)].get("seconds", {}), section_counts(run)))
        print(f"{plan.study:26} {len(plan.runs):4} runs: theirs {total_seconds(theirs):.1f} s, "
              f"with one batch {total_seconds(theirs, RESIDENT):.1f}")  # fmt: skip
    print_table(rows)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="+", metavar="COMMAND", help="the words after `seedbed run`")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--also", nargs="*", default=[], metavar="COMMAND", help="time the loops of these as well")
    parser.add_argument("--probe", nargs="*", default=[], type=int, metavar="N", help="`plan --probe` for Nth command")
    parser.add_argument("--processes", type=int, default=6, help="that compile loops")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "whole-commands.json")
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    return args


if __name__ == "__main__":
    main()
