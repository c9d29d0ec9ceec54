"""Whole `seedbed run` commands against plain compiled loops that do the same work, one run after another.

    python benchmarks/whole_commands.py "arithmetic/*" "wikitext/optimizers wikitext/depth" --home lab [--processes 6]

Each argument is a command's studies and overrides; its runs are trained to the end, in a home without rates, and stay
there. Ours is the wall clock of the command. Theirs is the sum over its runs of the updates, evaluations, samples and
saves that the settings ask for, at the speed of one run of each shape, which is compiled (not counted) and then
timed alone on the machine (plain_loops.py). The loops are compiled by other processes while the first command trains,
which can only slow ours down, and are timed after it. A loop that fails is reported and the others are compared; what
was measured is written after every command. The first steps of every study, in one process: whole_runs.py.
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
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from loops import find_unsupported_setting
from plain_loops import RESIDENT, PlainLoop, add_seconds, plain_loop_key, total_seconds, work_seconds

from seedbed.engines.cost_estimator import section_counts
from seedbed.errors import SeedbedError
from seedbed.records import ENDED_STATUSES, Plan, Run
from seedbed.store import open_store, store_exists
from seedbed.study.plan import plan_named
from seedbed.study.study_files import expand_study_pattern

LOOP_LIMIT_SECONDS = 900  # that a process may take to compile its loops after the first command, or to time one
GRACE_SECONDS = 10  # that a process may take to exit

# ---- the loops, in processes of their own ----


class LoopProcess:
    """A process that compiles the loops of some runs, and times them when asked."""

    def __init__(self, runs: Sequence[Run], device: str) -> None:
        self.runs = runs
        self.connection, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=_serve_loops, args=(theirs, runs, device), daemon=True)
        self.process.start()
        theirs.close()  # while it is open here, `recv` does not end with the process

    def wait_until_compiled(self) -> None:
        """Returns as well if the process has died, of which `time_loops` tells."""
        try:
            self._receive()
        except (EOFError, OSError):
            self._end()

    def time_loops(self) -> list[dict[str, Any]]:
        """The seconds of each run's loop, or its error; a process that dies has an error for the loops that it owed."""
        rows: list[dict[str, Any]] = []
        try:
            self.connection.send("time")
            for _ in self.runs:
                rows.append(self._receive())
        except (EOFError, OSError):
            pass
        self._end()
        error = {"error": f"its process ended with exit code {self.process.exitcode}"}
        return rows + [error] * (len(self.runs) - len(rows))

    def _receive(self) -> Any:
        if not self.connection.poll(LOOP_LIMIT_SECONDS):
            raise EOFError
        return self.connection.recv()

    def _end(self) -> None:
        self.process.join(GRACE_SECONDS)  # so that its exit code is its own
        self.process.kill()
        self.process.join()


def _serve_loops(connection: Connection, runs: Sequence[Run], device: str) -> None:
    os.nice(10)
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._inductor.config.compile_threads = 1
    loops = [compile_loop(run, device) for run in runs]
    connection.send("compiled")
    connection.recv()
    if device == "cpu":  # what is compiled would be compiled again for another number of threads
        torch.set_num_threads(n_threads)
    for loop in loops:
        connection.send(time_loop(loop))


def compile_loop(run: Run, device: str) -> PlainLoop | str:
    """The loop, or why it cannot be timed."""
    try:
        loop = PlainLoop(run, device)
        if device == "cuda":
            torch.cuda.empty_cache()  # the command that trains meanwhile needs the memory
        return loop
    except Exception as error:  # whatever it is, it must not lose the other loops
        return _describe_error(error)


def time_loop(loop: PlainLoop | str) -> dict[str, Any]:
    if isinstance(loop, str):
        return {"error": loop}
    try:
        return {"seconds": loop.time(), "compile": loop.compile_seconds}
    except Exception as error:
        return {"error": _describe_error(error)}


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def start_loops(runs: Sequence[Run], device: str, n_processes: int) -> list[LoopProcess]:
    """Processes that compile one run of each shape; large models are dealt out first."""
    by_key = {plain_loop_key(run): run for run in runs if find_unsupported_setting(run.settings) is None}
    distinct = sorted(by_key.values(), key=lambda run: -run.parameters.total)
    parts = [part for first in range(n_processes) if (part := distinct[first::n_processes])]
    return [LoopProcess(part, device) for part in parts]


def time_loops(processes: Sequence[LoopProcess]) -> dict[str, dict[str, Any]]:
    """Waits until all have compiled, and times one after another; by `plain_loop_key`."""
    for process in processes:
        process.wait_until_compiled()
    return {
        plain_loop_key(run): row | {"settings": run.settings.non_default()}
        for process in processes
        for run, row in zip(process.runs, process.time_loops(), strict=True)
    }


# ---- the commands ----


def plans_of(words: Sequence[str]) -> list[Plan]:
    """The plans of a command's studies, with its overrides."""
    overrides = [word for word in words if "=" in word]
    names = [name for word in words if "=" not in word for name in expand_study_pattern(word)]
    return [plan_named(name, overrides) for name in names]


def run_command(words: Sequence[str], home: Path, log: Path, probe: bool) -> dict[str, Any]:
    """Runs the command without rates; its wall clock, and what `plan` said before."""
    row: dict[str, Any] = {"command": shlex.join(["seedbed", "run", *words]), "missing": [], "studies": {}}
    seedbed, where = [sys.executable, "-m", "seedbed"], ["--home", str(home)]
    for options in ([], ["--probe"]) if probe else ([],):
        with tempfile.TemporaryDirectory() as folder:  # or the command would profit from what was probed and compiled
            environment = {"SEEDBED_RATES": f"{folder}/rates.json", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
            start, command = time.perf_counter(), [*seedbed, "plan", *words, *where, *options]
            plan = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
        said = plan.stdout[-1_500:] + plan.stderr[-500:]
        row[" ".join(["plan", *options])] = {"seconds": time.perf_counter() - start, "said": said}
    with tempfile.TemporaryDirectory() as folder, log.open("w", encoding="utf-8") as output:
        environment = os.environ | {"SEEDBED_RATES": f"{folder}/rates.json"}
        start = time.perf_counter()
        run = subprocess.run([*seedbed, "run", *words, *where], env=environment, stdout=output, stderr=output)
        return row | {"wall": time.perf_counter() - start, "exit_code": run.returncode}


def find_ended_runs(home: Path) -> set[str]:
    """The ids of runs that a command would not train."""
    if not store_exists(home):
        return set()
    with open_store(home, read_only=True) as store:
        return {run.id for run in store.runs() if run.status in ENDED_STATUSES}


def read_shares(home: Path, plans: Sequence[Plan]) -> dict[str, float]:
    """For each run of these plans that has ended, its share of the seconds of its pack."""
    if not store_exists(home):
        return {}
    with open_store(home, read_only=True) as store:
        packs = {pack.id: pack for plan in plans for pack in store.study_packs(plan.study)}
        pack_of = {run.id: run.pack for run in store.runs() if run.pack in packs and run.status in ENDED_STATUSES}
    n_in_pack = Counter(pack_of.values())
    return {run: sum(packs[pack].cost.seconds.values()) / n_in_pack[pack] for run, pack in pack_of.items()}


# ---- the comparison ----


@dataclass(frozen=True)
class PlainWork:
    """What the runs whose loop was timed would take in plain loops, by section, and why the others are missing."""

    runs: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    missing: Counter[str] = field(default_factory=Counter)


def sum_plain_work(runs: Sequence[Run], loops: Mapping[str, Mapping[str, Any]]) -> PlainWork:
    work = PlainWork()
    for run in runs:
        reason = find_unsupported_setting(run.settings)
        loop = loops.get(plain_loop_key(run), {"error": reason or "its loop was not asked for"})
        if "error" in loop:
            work.missing[loop["error"]] += 1
        else:
            work.runs.append(run.id)
            add_seconds(work.seconds, work_seconds(loop["seconds"], section_counts(run)))
    return work


def compare_command(
    row: dict[str, Any], plans: Sequence[Plan], shares: Mapping[str, float], trained_before: set[str],
    loops: Mapping[str, Mapping[str, Any]],
) -> None:  # fmt: skip
    """Adds to the row, for each study: theirs, and ours as its packs' share of the command's wall clock."""
    study_of = {run.id: plan.study for plan in reversed(plans) for run in plan.runs}  # a shared run counts once
    all_shares = sum(shares.get(run, 0.0) for run in study_of if run not in trained_before)
    for plan in plans:
        own = [run for run in plan.runs if study_of[run.id] == plan.study and run.id not in trained_before]
        ended = [run for run in own if run.id in shares]
        work = sum_plain_work(ended, loops)
        if len(ended) < len(own):
            work.missing["not trained to the end"] = len(own) - len(ended)
        row["missing"] += [f"{plan.study}: {n} runs: {reason}" for reason, n in work.missing.items()]
        if work.runs:
            ours = row["wall"] * sum(shares[run] for run in work.runs) / all_shares
            ratios = {name: total_seconds(work.seconds, name) / ours for name in ("compute", RESIDENT)}
            row["studies"][plan.study] = {
                "runs": len(work.runs), "ours": ours, "theirs": work.seconds, "ratios": ratios,
            }  # fmt: skip
    if n_before := len(trained_before.intersection(study_of)):
        row["missing"].append(f"{n_before} runs were in the home before")


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    ratios: list[dict[str, float]] = []
    for row in rows:
        print(f"{row['command']}: {row['wall']:.1f} s, exit code {row['exit_code']}")
        for name, study in row["studies"].items():
            seconds = ", ".join(f"{section} {value:.1f}" for section, value in study["theirs"].items())
            total, (ratio, one_batch) = total_seconds(study["theirs"]), study["ratios"].values()
            print(f"  {name:26} {study['runs']:4} runs: ours {study['ours']:.1f} s, theirs {total:.1f} s ({seconds}): "
                  f"ratio {ratio:.2f}, with one batch {one_batch:.2f}")  # fmt: skip
            ratios.append(study["ratios"])
        for line in row["missing"]:
            print(f"  not compared: {line}")
    for name in ratios[0] if ratios else ():
        print(f"{name}: median of {len(ratios)} studies {statistics.median(one[name] for one in ratios):.2f}")


def print_plain_work(study: str, work: PlainWork) -> None:
    print(f"{study:26} {len(work.runs):4} runs: theirs {total_seconds(work.seconds):.1f} s, "
          f"with one batch {total_seconds(work.seconds, RESIDENT):.1f} s")  # fmt: skip
    for reason, n in work.missing.items():
        print(f"  not timed: {n} runs: {reason}")


# ---- the script ----


def main() -> None:
    args = parse_options()
    commands = [shlex.split(command) for command in args.commands]
    try:
        plans = [plans_of(words) for words in commands]
        others = [plan for command in args.also for plan in plans_of(shlex.split(command))]
    except SeedbedError as error:
        raise SystemExit(str(error)) from None
    wanted = [plan for some in plans for plan in some if any(fnmatch(plan.study, one) for one in args.loops)] + others
    device = "cuda" if torch.cuda.is_available() else "cpu"
    processes = start_loops([run for plan in wanted for run in plan.runs], device, args.processes)
    report: dict[str, Any] = {"commands": [], "loops": None, "also": {}}
    for number, words in enumerate(commands):
        before = find_ended_runs(args.home)
        row = run_command(words, args.home, args.out.with_name(f"command-{number}.log"), number in args.probe)
        report["commands"].append(row)
        write_report(report, args.out)  # whatever becomes of the loops
        if report["loops"] is None:
            report["loops"] = time_loops(processes)
        compare_command(row, plans[number], read_shares(args.home, plans[number]), before, report["loops"])
        write_report(report, args.out)
    for plan in others:
        work = sum_plain_work(plan.runs, report["loops"])
        report["also"][plan.study] = {"runs": len(work.runs), "theirs": work.seconds, "missing": work.missing}
        print_plain_work(plan.study, work)
    write_report(report, args.out)
    print_table(report["commands"])


def write_report(report: Mapping[str, Any], out: Path) -> None:
    out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="+", metavar="COMMAND", help="the words after `seedbed run`")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument(
        "--loops", nargs="*", default=["*"], metavar="PATTERN", help="the commands' studies whose loops are timed"
    )
    parser.add_argument("--also", nargs="*", default=[], metavar="COMMAND", help="time the loops of these as well")
    parser.add_argument("--probe", nargs="*", default=[], type=int, metavar="N", help="`plan --probe` for Nth command")
    parser.add_argument("--processes", type=int, default=6, help="that compile loops")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "whole-commands.json")
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    return args


if __name__ == "__main__":
    main()
