"""seedbed's speed as ratios against what others would write, inside one run: `make bench`.

    python benchmarks/bench.py [--quick] [--device cpu|cuda] [--only characters] [--out FILE]

First every peer is compared with ours in float64 (check.py). Then theirs and ours take turns, each in processes of its
own (sides.py): on a CPU a plain loop with all threads against one run for each core; on a GPU a plain loop against a
pack. A ratio is the median over rounds of ours over theirs in the same round; the whole is done twice. Absolute
figures are those of this machine under the load that is told beside them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

from scenarios import Growth, Scenario, growths, scenarios
from sides import MATMUL_OPERATIONS, Plan, Side

Turn: TypeAlias = dict[str, float]  # updates, seconds, processor
Taken: TypeAlias = dict[str, list[Turn]]  # of each side, round by round
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    words = parse()
    report = about(words)
    if report["load_before"][0] > 0.5:
        print(f"this machine is busy (load {report['load_before'][0]:.1f}): ratios by the clock need an idle one")
    chosen = [one for one in scenarios(words.device, words.quick) if words.only in one.name]
    report["checks"] = [row for one in chosen for row in check(one, words.device)]
    rounds, seconds = words.rounds, 0.02 if words.quick else 0.6
    for one in chosen * words.repeats:
        report["comparisons"].append(compare(one, rounds, seconds))
        write(report, words.out)
    for growth in growths(words.device, words.quick) if not words.only else ():
        report["growth"].append(grow(growth, rounds, seconds / 4))
    write(report, words.out)
    print(f"\nwrote {words.out}; load {report['load_before'][0]:.1f} before, {report['load_after'][0]:.1f} after")


def write(report: dict[str, Any], out: Path) -> None:
    """Keeps what is known so far, so that a run that is broken off has told something."""
    report["load_after"] = os.getloadavg()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def parse() -> argparse.Namespace:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--quick", action="store_true", help="small models, few rounds: shows that it runs, no figures")
    parser.add_argument("--only", default="", help="comparisons whose names hold this word")
    parser.add_argument("--rounds", type=int, help="turns of each side in a comparison")
    parser.add_argument("--repeats", type=int, help="how often the whole is done")
    parser.add_argument("--out", type=Path, help="where the figures go; benchmarks/results/ without it")
    words = parser.parse_args()
    words.rounds = words.rounds or (2 if words.quick else 4)
    words.repeats = words.repeats or (1 if words.quick else 2)
    words.out = words.out or RESULTS / f"bench-{words.device}{'-quick' if words.quick else ''}.json"
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
        "comparisons": [],
        "growth": [],
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
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


def check(scenario: Scenario, device: str) -> list[dict[str, Any]]:
    """Refuses to time what is not the same function."""
    from check import AGREE, difference_to

    from seedbed.settings import Settings

    rows = []
    for plan in {plan.kind: plan for plan in reversed(scenario.sides)}.values():
        if plan.kind in ("ours", "matmul") or not _is_there(plan.kind):
            continue
        difference = difference_to(plan.kind, Settings.of(plan.dials), device)
        print(f"{scenario.name}: {plan.name} and seedbed agree to {difference:.0e} in float64", flush=True)
        if not difference < AGREE:
            raise SystemExit(f"{scenario.name}: {plan.name} is another function than seedbed's ({difference:.1e})")
        rows.append({"scenario": scenario.name, "side": plan.name, "difference": difference})
    return rows


def _is_there(kind: str) -> bool:
    return kind != "hugging_face" or find_spec("transformers") is not None


def compare(scenario: Scenario, n_rounds: int, seconds: float) -> dict[str, Any]:
    """Rounds of turns, every side once a round."""
    plans = [plan for plan in scenario.sides if _is_there(plan.kind)]
    for plan in scenario.sides:
        if plan not in plans:
            print(f"{plan.name} is left out: transformers is not installed")
    sides = [Side(plan) for plan in plans]
    load = os.getloadavg()[0]
    counts = [_turn(side, seconds) for side in sides]
    taken: Taken = {plan.name: [] for plan in plans}
    for number in range(n_rounds):
        for place in range(len(sides)):
            which = (place + number) % len(sides)  # nobody is always first
            took = sides[which].work(counts[which])
            taken[plans[which].name].append({"updates": counts[which], **asdict(took)})
    for side in sides:
        side.__exit__()
    rows = [_row(scenario, side, taken) for side in sides]
    _print(scenario, rows)
    return {"scenario": scenario.name, "unit": scenario.unit, "load": load, "sides": rows}


def _turn(side: Side, seconds: float) -> int:
    """How many updates make a turn of about this long."""
    return max(1, round(seconds / side.work(1).seconds))


def _row(scenario: Scenario, side: Side, taken: Taken) -> dict[str, Any]:
    plan = side.plan
    rates = _rates(scenario, plan, taken[plan.name])
    row: dict[str, Any] = {"plan": asdict(plan), "warm_seconds": side.warm_seconds, "rounds": taken[plan.name]}
    row |= {"rate": statistics.median(rates), "lowest": min(rates), "highest": max(rates)}
    others = [other for other in scenario.sides if other.name in taken and other is not plan]
    for peak in (other for other in others if other.kind == "matmul"):
        done = [rate * scenario.operations / scenario.per_update for rate in rates]
        most = _rates(scenario, peak, taken[peak.name])
        row["share_of_peak"] = statistics.median(one / best for one, best in zip(done, most, strict=True))
    if plan.kind == "ours":
        theirs = [other for other in others if other.kind != "matmul"]
        row["against"] = {other.name: _ratio(scenario, plan, other, taken) for other in theirs}
    return row


def _rates(scenario: Scenario, plan: Plan, turns: Sequence[Turn], clock: str = "seconds") -> list[float]:
    """Units of work (of a matrix product: operations) a second, round by round."""
    each = MATMUL_OPERATIONS if plan.kind == "matmul" else scenario.per_update * plan.n_models
    return [turn["updates"] * each / turn[clock] for turn in turns]


def _ratio(scenario: Scenario, ours: Plan, theirs: Plan, taken: Taken) -> dict[str, float | None]:
    """Ours over theirs round by round, by the clock and by processor time."""
    by_clock, by_processor = (
        [
            mine / other
            for mine, other in zip(
                _rates(scenario, ours, taken[ours.name], clock),
                _rates(scenario, theirs, taken[theirs.name], clock),
                strict=True,
            )
        ]
        for clock in ("seconds", "processor")
    )
    return {
        "ratio": statistics.median(by_clock), "lowest": min(by_clock), "highest": max(by_clock),
        "processor_ratio": statistics.median(by_processor), "asked": scenario.asked.get(theirs.name),
    }  # fmt: skip


def _print(scenario: Scenario, rows: Sequence[dict[str, Any]]) -> None:
    print(f"\n{scenario.about}")
    for row in rows:
        plan = row["plan"]
        matmul = plan["kind"] == "matmul"
        rate = f"{row['rate'] / 1e9:,.0f} GFLOP/s" if matmul else f"{row['rate']:,.1f} {scenario.unit}"
        share = f", {row['share_of_peak']:.0%} of the matmul peak" if "share_of_peak" in row else ""
        print(f"  {plan['name']:22} {plan['n_processes']} × {plan['threads']} threads {rate:>24}{share}", flush=True)
        for theirs, against in row.get("against", {}).items():
            asked = f"; asked ≥ {against['asked']}" if against["asked"] else ""
            spread = f"{against['lowest']:.2f}–{against['highest']:.2f}"
            processor = f"by processor time {against['processor_ratio']:.2f}×"
            print(f"    {against['ratio']:.2f}× {theirs} ({spread}; {processor}{asked})", flush=True)


def grow(growth: Growth, n_rounds: int, seconds: float) -> dict[str, Any]:
    """Seconds of a model's update at each size, and the power by which they grow."""
    sides = [Side(plan) for plan in growth.plans]
    counts = [_turn(side, seconds) for side in sides]
    turns = [
        [side.work(n).seconds / n / side.plan.n_models for side, n in zip(sides, counts, strict=True)]
        for _ in range(n_rounds)
    ]
    for side in sides:
        side.__exit__()
    medians = [statistics.median(times) for times in zip(*turns, strict=True)]
    power = math.log(medians[-1] / medians[0]) / math.log(growth.sizes[-1] / growth.sizes[0])
    said = ", ".join(f"{size}: {1e3 * each:.2f} ms" for size, each in zip(growth.sizes, medians, strict=True))
    print(f"\n{growth.about}: {said}; as {growth.name}^{power:.2f}", flush=True)
    return {"growth": growth.name, "about": growth.about, "sizes": growth.sizes, "seconds": medians, "power": power}


if __name__ == "__main__":
    main()
