"""Times sides in interleaved rounds and reports rates and ratios.

    sides = start_sides(scenario)                       # all sides warm up concurrently
    row = compare(scenario, sides, n_rounds=4, seconds=0.6)
    print_comparison(scenario, row)

A ratio is the median over rounds of our rate over theirs in the same round.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import Any, TypeAlias

from sides import Side, SideSpec, matmul_flops, stop_sides

TurnRecord: TypeAlias = dict[str, float]  # updates, seconds, processor
SideTimings: TypeAlias = dict[str, list[TurnRecord]]  # by side, one record per round
STEPS_PER_SECOND = "model-steps/s"  # the unit for which time per step is printed as well


@dataclass(frozen=True)
class Scenario:
    """One comparison; an update of one model is `units_per_update` units of work and `flops` operations.

    `target_ratios` are minimum ratios against other sides by name; `max_seconds` is the target for a model's update.
    """

    name: str
    description: str
    unit: str
    units_per_update: float
    flops: float
    sides: Sequence[SideSpec]
    target_ratios: Mapping[str, float] = field(default_factory=dict)
    max_seconds: float | None = None


def is_installed(kind: str) -> bool:
    return kind != "hugging_face" or find_spec("transformers") is not None


def start_sides(scenario: Scenario) -> list[Side]:
    """Starts the sides whose packages are installed."""
    for plan in scenario.sides:
        if not is_installed(plan.kind):
            print(f"{scenario.name}: {plan.name} skipped: transformers is not installed")
    return [Side(plan) for plan in scenario.sides if is_installed(plan.kind)]


def compare(scenario: Scenario, sides: Sequence[Side], n_rounds: int, seconds: float) -> dict[str, Any]:
    """Waits for all sides, runs rounds in which every side has one turn, and stops them."""
    try:
        for side in sides:
            side.wait_until_ready()
        load = os.getloadavg()[0]
        timings = run_rounds(sides, [updates_per_turn(side, seconds) for side in sides], n_rounds)
    finally:
        stop_sides(sides)
    rows = [_make_row(scenario, side, timings) for side in sides]
    return {"scenario": scenario.name, "unit": scenario.unit, "load": load, "sides": rows}


def updates_per_turn(side: Side, seconds: float) -> int:
    """Number of updates that take about this many seconds."""
    n = 1
    while (seconds_taken := side.run_updates(n).seconds) < seconds / 10:
        n *= 10
    return max(1, round(n * seconds / seconds_taken))


def run_rounds(sides: Sequence[Side], counts: Sequence[int], n_rounds: int) -> SideTimings:
    timings: SideTimings = {side.spec.name: [] for side in sides}
    for number in range(n_rounds):
        for offset in range(len(sides)):
            which = (offset + number) % len(sides)  # rotate which side goes first
            turn_time = sides[which].run_updates(counts[which])
            timings[sides[which].spec.name].append({"updates": counts[which], **asdict(turn_time)})
    return timings


def _make_row(scenario: Scenario, side: Side, timings: SideTimings) -> dict[str, Any]:
    plan = side.spec
    rates = _compute_rates(scenario, plan, timings[plan.name])
    row: dict[str, Any] = {"plan": asdict(plan), "warm_seconds": side.warm_seconds, "rounds": timings[plan.name]}
    row |= {"rate": statistics.median(rates), "lowest": min(rates), "highest": max(rates)}
    others = [other for other in scenario.sides if other.name in timings and other is not plan]
    for peak in (other for other in others if other.kind == "matmul"):
        achieved = [rate * scenario.flops / scenario.units_per_update for rate in rates]
        peak_rates = _compute_rates(scenario, peak, timings[peak.name])
        row["share_of_peak"] = statistics.median(one / best for one, best in zip(achieved, peak_rates, strict=True))
    if plan.kind == "ours":
        row["most"] = scenario.max_seconds
        theirs = [other for other in others if other.kind not in ("matmul", "ours")]
        row["against"] = {other.name: _compute_ratio(scenario, plan, other, timings) for other in theirs}
    return row


def _compute_rates(
    scenario: Scenario, plan: SideSpec, turns: Sequence[TurnRecord], clock: str = "seconds"
) -> list[float]:
    """Units of work (for a matmul: FLOPs) per second in each round."""
    units_per_step = matmul_flops(plan) if plan.kind == "matmul" else scenario.units_per_update * plan.n_models
    return [turn["updates"] * units_per_step / turn[clock] for turn in turns]


def _compute_ratio(
    scenario: Scenario, ours: SideSpec, theirs: SideSpec, timings: SideTimings
) -> dict[str, float | None]:
    """Our rate over theirs in each round, by wall clock and by CPU time."""
    by_clock, by_processor = (
        [
            mine / other
            for mine, other in zip(
                _compute_rates(scenario, ours, timings[ours.name], clock),
                _compute_rates(scenario, theirs, timings[theirs.name], clock),
                strict=True,
            )
        ]
        for clock in ("seconds", "processor")
    )
    return {
        "ratio": statistics.median(by_clock), "lowest": min(by_clock), "highest": max(by_clock),
        "processor_ratio": statistics.median(by_processor), "asked": scenario.target_ratios.get(theirs.name),
    }  # fmt: skip


def print_comparison(scenario: Scenario, comparison: Mapping[str, Any]) -> None:
    print(f"\n{scenario.name}: {scenario.description}")
    for row in comparison["sides"]:
        plan = row["plan"]
        print(f"  {plan['name']:22} {_format_resources(plan):24} {_format_rate(scenario, row)}", flush=True)
        for theirs, against in row.get("against", {}).items():
            target = f"; target ≥ {against['asked']}" if against["asked"] else ""
            spread = f"{against['lowest']:.2f}–{against['highest']:.2f}"
            processor = f"by CPU time {against['processor_ratio']:.2f}×"
            print(f"    {against['ratio']:.2f}× {theirs} ({spread}; {processor}{target})", flush=True)


def _format_resources(plan: Mapping[str, Any]) -> str:
    runs = f" × {plan['n_runs']} runs" if plan["n_runs"] > 1 else ""
    if plan["device"] == "cpu":
        return f"{plan['n_processes']} × {plan['threads']} threads{runs}"
    return f"{plan['mode']}{runs}" if plan["kind"] == "ours" else "one model at a time"


def _format_rate(scenario: Scenario, row: Mapping[str, Any]) -> str:
    if row["plan"]["kind"] == "matmul":
        return f"{row['rate'] / 1e9:>14,.0f} GFLOP/s"
    text = f"{row['rate']:>14,.1f} {scenario.unit}"
    if scenario.unit == STEPS_PER_SECOND:
        text += f", {1e6 / row['rate']:,.1f} µs per model and step"
    if row.get("most"):
        text += f" (target ≤ {1e6 * row['most']:,.0f} µs)"
    share = f", {row['share_of_peak']:.0%} of the matmul peak" if "share_of_peak" in row else ""
    return text + share
