"""seedbed's speed as ratios against what others would write, inside one run: `make bench`.

    python benchmarks/bench.py [--quick] [--device cpu|cuda] [--only characters,lstm] [--out FILE]
    python benchmarks/bench.py --studies [--only wikitext]

First every peer is compared with ours in float64 (check.py). Then theirs and ours take turns (compare.py), each in
processes of its own (sides.py): on a CPU a plain loop with all threads against one run for each core; on a GPU a plain
loop against a pack. With --studies the comparisons are the shipped studies (studies.py). Absolute figures are those of
this machine under the load that is told beside them.
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

from compare import Scenario, compare, is_there, print_comparison, start
from growth import grow, growths
from scenarios import chosen, scenarios
from sides import Side, SideFailed

from seedbed.errors import MissingData

RESULTS = Path(__file__).parent / "results"
READY_AT_ONCE = {"cpu": 1, "cuda": 4}  # scenarios whose sides make ready together: compiling takes half a minute each
TURN = {"cpu": 0.6, "cuda": 1.0}  # seconds


def main() -> None:
    words = parse()
    report = about(words)
    if report["load_before"][0] > 0.5:
        print(f"this machine is busy (load {report['load_before'][0]:.1f}): ratios by the clock need an idle one")
    if words.studies:
        from studies import time_studies

        time_studies(report, words.only, lambda: write(report, words.out))
    else:
        bench(words, report)
    write(report, words.out)
    print(f"\nwrote {words.out}; load {report['load_before'][0]:.1f} before, {report['load_after'][0]:.1f} after")
    if report["failed"]:
        raise SystemExit(f"failed: {', '.join(report['failed'])}")


def bench(words: argparse.Namespace, report: dict[str, Any]) -> None:
    """All comparisons that are asked for, and how costs grow where nothing is asked for by name."""
    known = {one.name: one for one in scenarios(words.device, words.quick)}
    wanted = [one for name in chosen(list(known), words.only) if is_checked(one := known[name], report)]
    seconds = 0.02 if words.quick else TURN[words.device]
    for one, sides in made_ready(wanted * words.repeats, READY_AT_ONCE[words.device]):
        try:
            comparison = compare(one, sides, words.rounds, seconds)
        except SideFailed as failure:
            print(f"\n{one.name} failed: {failure}", flush=True)
            report["failed"].append(one.name)
            continue
        print_comparison(one, comparison)
        report["comparisons"].append(comparison)
        write(report, words.out)
    for growth in growths(words.device, words.quick) if not words.only else ():
        report["growth"].append(grow(growth, words.rounds, seconds / 4))


def made_ready(some: Sequence[Scenario], at_once: int) -> Iterator[tuple[Scenario, list[Side]]]:
    """Scenarios with their sides, so many of which are started together; none takes a turn while another compiles."""
    for first in range(0, len(some), at_once):
        group = [(one, start(one)) for one in some[first : first + at_once]]
        for _, sides in group:
            for side in sides:
                side.settle()
        yield from group


def write(report: dict[str, Any], out: Path) -> None:
    """Keeps what is known so far, so that a run that is broken off has told something."""
    report["load_after"] = os.getloadavg()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def parse() -> argparse.Namespace:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--quick", action="store_true", help="small models on the CPU: shows that it runs, no figures")
    parser.add_argument("--studies", action="store_true", help="the shipped studies against plain loops, on the CPU")
    parser.add_argument("--only", default="", help="names, or parts of names, with commas between")
    parser.add_argument("--rounds", type=int, help="turns of each side in a comparison")
    parser.add_argument("--repeats", type=int, help="how often the whole is done")
    parser.add_argument("--out", type=Path, help="where the figures go; benchmarks/results/ without it")
    words = parser.parse_args()
    words.device = "cpu" if words.quick or words.studies else words.device
    on_gpu = words.device == "cuda"
    words.rounds = words.rounds or (2 if words.quick else 3 if on_gpu else 4)
    words.repeats = words.repeats or (1 if words.quick or on_gpu else 2)
    name = "studies" if words.studies else f"bench-{words.device}{'-quick' if words.quick else ''}"
    words.out = words.out or RESULTS / f"{name}.json"
    return words


def about(words: argparse.Namespace) -> dict[str, Any]:
    """What the figures may depend on."""
    return {
        "command": ["python", *sys.argv],
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "device": words.device,
        "machine": {"processor": _processor(words.device), "cores": len(os.sched_getaffinity(0))},
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


def _processor(device: str) -> str:
    if device == "cuda":
        import torch

        return torch.cuda.get_device_name()
    from seedbed.engines.machine import processor_name

    return processor_name()


def is_checked(scenario: Scenario, report: dict[str, Any]) -> bool:
    """Whether every peer of a scenario is the same function as ours; what is not is told, and not timed."""
    try:
        rows = list(differences(scenario, report["device"]))
    except MissingData as missing:
        print(f"{scenario.name} is left out: {missing}", flush=True)
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
    print(f"{scenario.name} is left out: another function is not compared", flush=True)
    report["failed"].append(scenario.name)
    return False


def differences(scenario: Scenario, device: str) -> Iterator[dict[str, Any]]:
    """Of each kind of peer that is here."""
    from check import AGREE, difference_to

    for plan in {plan.kind: plan for plan in reversed(scenario.sides)}.values():
        if plan.kind not in ("ours", "matmul") and is_there(plan.kind):
            difference = difference_to(plan.kind, plan.settings()[0], device)
            agrees = difference < AGREE
            yield {"scenario": scenario.name, "side": plan.name, "difference": difference, "agrees": agrees}


if __name__ == "__main__":
    main()
