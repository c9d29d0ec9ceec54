"""seedbed's speed relative to plain PyTorch and Hugging Face, measured in one run: `make bench`.

    python benchmarks/bench.py [--quick] [--device cpu|cuda] [--only characters,lstm] [--out FILE]
    python benchmarks/bench.py --studies [--only wikitext]

First every peer is checked against ours in float64 (check.py). Then theirs and ours are timed in interleaved rounds
(compare.py), each in its own processes (sides.py): on a CPU a plain loop with all threads against one run per core; on
a GPU a plain loop against a pack. With --studies the shipped studies are compared (studies.py, on a GPU whole_runs.py);
whole_commands.py compares `seedbed run` commands from their start to their end. Absolute figures hold for this machine
under the load reported with them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from compare import Scenario, compare, is_installed, print_comparison, start_sides
from growth import make_growths, measure_growth
from scenarios import scenarios, select_names
from sides import Side, SideError

from seedbed.errors import MissingData

RESULTS = Path(__file__).parent / "results"
SCENARIOS_STARTED_TOGETHER = {"cpu": 1, "cuda": 4}  # compiling takes half a minute each
TURN_SECONDS = {"cpu": 0.6, "cuda": 1.0}


def main() -> None:
    args = parse_options()
    report = describe_environment(args)
    if report["load_before"][0] > 0.5:
        print(f"this machine is busy (load {report['load_before'][0]:.1f}): wall-clock ratios need an idle one")
    if args.studies and args.device == "cuda":
        from whole_runs import time_whole_runs

        time_whole_runs(report, args.only, args.device, lambda: write_report(report, args.out), args.steps)
    elif args.studies:
        from studies import time_studies

        time_studies(report, args.only, lambda: write_report(report, args.out))
    else:
        run_scenarios(args, report)
    write_report(report, args.out)
    print(f"\nwrote {args.out}; load {report['load_before'][0]:.1f} before, {report['load_after'][0]:.1f} after")
    if report["failed"]:
        raise SystemExit(f"failed: {', '.join(report['failed'])}")


def run_scenarios(args: argparse.Namespace, report: dict[str, Any]) -> None:
    """Runs the selected scenarios, and the growth benchmarks if no names were given."""
    known = {one.name: one for one in scenarios(args.device, args.quick)}
    selected = [one for name in select_names(list(known), args.only) if passes_check(one := known[name], report)]
    seconds = 0.02 if args.quick else TURN_SECONDS[args.device]
    for one, sides in start_in_groups(selected * args.repeats, SCENARIOS_STARTED_TOGETHER[args.device]):
        try:
            comparison = compare(one, sides, args.rounds, seconds)
        except SideError as failure:
            print(f"\n{one.name} failed: {failure}", flush=True)
            report["failed"].append(one.name)
            continue
        print_comparison(one, comparison)
        report["comparisons"].append(comparison)
        write_report(report, args.out)
    for growth in make_growths(args.device, args.quick) if not args.only else ():
        report["growth"].append(measure_growth(growth, args.rounds, seconds / 4))


def start_in_groups(selected: Sequence[Scenario], group_size: int) -> Iterator[tuple[Scenario, list[Side]]]:
    """Yields scenarios with their sides, started in groups; no side is timed while another compiles."""
    for first in range(0, len(selected), group_size):
        group = [(one, start_sides(one)) for one in selected[first : first + group_size]]
        for _, sides in group:
            for side in sides:
                side.wait_until_settled()
        yield from group


def write_report(report: dict[str, Any], out: Path) -> None:
    """Writes the results so far, so that an interrupted run leaves them."""
    report["load_after"] = os.getloadavg()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def parse_options() -> argparse.Namespace:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--quick", action="store_true", help="small models on the CPU: a smoke test, not a measurement")
    parser.add_argument(
        "--studies", action="store_true", help="the shipped studies against plain loops: on a GPU whole runs"
    )
    parser.add_argument("--steps", type=int, default=300, help="updates of each run with --studies on a GPU")
    parser.add_argument("--only", default="", help="comma-separated names or parts of names")
    parser.add_argument("--rounds", type=int, help="rounds of each comparison")
    parser.add_argument("--repeats", type=int, help="repetitions of every comparison")
    parser.add_argument("--out", type=Path, help="output file (default: in benchmarks/results/)")
    args = parser.parse_args()
    args.device = "cpu" if args.quick else args.device
    on_gpu = args.device == "cuda"
    args.rounds = args.rounds or (2 if args.quick else 3 if on_gpu else 4)
    args.repeats = args.repeats or (1 if args.quick or on_gpu else 2)
    name = f"studies-{args.device}" if args.studies else f"bench-{args.device}{'-quick' if args.quick else ''}"
    args.out = args.out or RESULTS / f"{name}.json"
    return args


def describe_environment(args: argparse.Namespace) -> dict[str, Any]:
    """Everything the results may depend on."""
    return {
        "command": ["python", *sys.argv],
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "device": args.device,
        "machine": {"processor": _processor_name(args.device), "cores": len(os.sched_getaffinity(0))},
        "versions": {name: _version(name) for name in ("seedbed", "torch", "numpy", "transformers")}
        | {"python": platform.python_version()},
        "load_before": os.getloadavg(),
        "checks": [],
        "comparisons": [],
        "growth": [],
        "failed": [],
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor_name(device: str) -> str:
    if device == "cuda":
        import torch

        return torch.cuda.get_device_name()
    from seedbed.engines.machine import processor_name

    return processor_name()


def passes_check(scenario: Scenario, report: dict[str, Any]) -> bool:
    """Whether every peer of a scenario computes the same function as ours; reports those that do not."""
    try:
        rows = list(compute_differences(scenario, report["device"]))
    except MissingData as missing:
        print(f"{scenario.name} skipped: {missing}", flush=True)
        return False
    except Exception:
        print(f"{scenario.name} cannot be checked: {traceback.format_exc()}", flush=True)
        report["failed"].append(scenario.name)
        return False
    report["checks"] += rows
    for row in rows:
        print(f"{scenario.name}: {row['side']} and seedbed agree to {row['difference']:.0e} in float64", flush=True)
    if all(row["agrees"] for row in rows):
        return True
    print(f"{scenario.name} skipped: it is not the same function", flush=True)
    report["failed"].append(scenario.name)
    return False


def compute_differences(scenario: Scenario, device: str) -> Iterator[dict[str, Any]]:
    """Relative difference between ours and each kind of peer that is installed."""
    from check import MAX_RELATIVE_DIFFERENCE, relative_difference

    for plan in {plan.kind: plan for plan in reversed(scenario.sides)}.values():
        if plan.kind not in ("ours", "matmul") and is_installed(plan.kind):
            difference = relative_difference(plan.kind, plan.settings()[0], device)
            agrees = difference < MAX_RELATIVE_DIFFERENCE
            yield {"scenario": scenario.name, "side": plan.name, "difference": difference, "agrees": agrees}


if __name__ == "__main__":
    main()
