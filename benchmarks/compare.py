"""Sides in turns, round by round, and what comes of it: rates, ratios, and a table of them.

    sides = start(scenario)                       # all sides make ready at the same time
    row = compare(scenario, sides, n_rounds=4, seconds=0.6)
    print_comparison(scenario, row)

A ratio is the median over rounds of ours over theirs in the same round.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import Any, TypeAlias

from sides import Plan, Side, end, matmul_operations

Turn: TypeAlias = dict[str, float]  # updates, seconds, processor
Taken: TypeAlias = dict[str, list[Turn]]  # of each side, round by round
STEPS = "model-steps/s"  # the unit whose inverse is told too


@dataclass(frozen=True)
class Scenario:
    """One comparison; `per_update` units of work are in one update of one model, and so many operations.

    `asked` are the least ratios against other sides, by their names; `most` the most seconds of a model's update.
    """

    name: str
    about: str
    unit: str
    per_update: float
    operations: float
    sides: Sequence[Plan]
    asked: Mapping[str, float] = field(default_factory=dict)
    most: float | None = None


def is_there(kind: str) -> bool:
    return kind != "hugging_face" or find_spec("transformers") is not None


def start(scenario: Scenario) -> list[Side]:
    """The sides that can be here, making ready."""
    for plan in scenario.sides:
        if not is_there(plan.kind):
            print(f"{scenario.name}: {plan.name} is left out: transformers is not installed")
    return [Side(plan) for plan in scenario.sides if is_there(plan.kind)]


def compare(scenario: Scenario, sides: Sequence[Side], n_rounds: int, seconds: float) -> dict[str, Any]:
    """Rounds of turns, every side once a round, as soon as all are ready; ends them."""
    try:
        for side in sides:
            side.wait()
        load = os.getloadavg()[0]
        taken = take_turns(sides, [turn_length(side, seconds) for side in sides], n_rounds)
    finally:
        end(sides)
    rows = [_row(scenario, side, taken) for side in sides]
    return {"scenario": scenario.name, "unit": scenario.unit, "load": load, "sides": rows}


def turn_length(side: Side, seconds: float) -> int:
    """How many updates make a turn of about this long."""
    n = 1
    while (took := side.work(n).seconds) < seconds / 10:
        n *= 10
    return max(1, round(n * seconds / took))


def take_turns(sides: Sequence[Side], counts: Sequence[int], n_rounds: int) -> Taken:
    taken: Taken = {side.plan.name: [] for side in sides}
    for number in range(n_rounds):
        for place in range(len(sides)):
            which = (place + number) % len(sides)  # nobody is always first
            took = sides[which].work(counts[which])
            taken[sides[which].plan.name].append({"updates": counts[which], **asdict(took)})
    return taken


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
        row["most"] = scenario.most
        theirs = [other for other in others if other.kind not in ("matmul", "ours")]
        row["against"] = {other.name: _ratio(scenario, plan, other, taken) for other in theirs}
    return row


def _rates(scenario: Scenario, plan: Plan, turns: Sequence[Turn], clock: str = "seconds") -> list[float]:
    """Units of work (of a matrix product: operations) a second, round by round."""
    each = matmul_operations(plan) if plan.kind == "matmul" else scenario.per_update * plan.n_models
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


def print_comparison(scenario: Scenario, comparison: Mapping[str, Any]) -> None:
    print(f"\n{scenario.name}: {scenario.about}")
    for row in comparison["sides"]:
        plan = row["plan"]
        print(f"  {plan['name']:22} {_where(plan):24} {_rate(scenario, row)}", flush=True)
        for theirs, against in row.get("against", {}).items():
            asked = f"; asked ≥ {against['asked']}" if against["asked"] else ""
            spread = f"{against['lowest']:.2f}–{against['highest']:.2f}"
            processor = f"by processor time {against['processor_ratio']:.2f}×"
            print(f"    {against['ratio']:.2f}× {theirs} ({spread}; {processor}{asked})", flush=True)


def _where(plan: Mapping[str, Any]) -> str:
    runs = f" × {plan['n_runs']} runs" if plan["n_runs"] > 1 else ""
    if plan["device"] == "cpu":
        return f"{plan['n_processes']} × {plan['threads']} threads{runs}"
    return f"{plan['engine']}{runs}" if plan["kind"] == "ours" else "one after the other"


def _rate(scenario: Scenario, row: Mapping[str, Any]) -> str:
    if row["plan"]["kind"] == "matmul":
        return f"{row['rate'] / 1e9:>14,.0f} GFLOP/s"
    said = f"{row['rate']:>14,.1f} {scenario.unit}"
    if scenario.unit == STEPS:
        said += f", {1e6 / row['rate']:,.1f} µs a model and step"
    if row.get("most"):
        said += f" (asked ≤ {1e6 * row['most']:,.0f} µs)"
    share = f", {row['share_of_peak']:.0%} of the matmul peak" if "share_of_peak" in row else ""
    return said + share
