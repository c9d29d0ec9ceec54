"""The result of a search as a table with a column for each rung, and as JSON."""

from __future__ import annotations

from typing import Any

from seedbed.format import format_config
from seedbed.report.tables import Table, spread_format
from seedbed.stats.successive_halving import HalvingResult, RankedConfig, describe_search


def search_table(result: HalvingResult) -> Table:
    """Every config with its value at each rung that it was trained to, those that went furthest first."""
    format_value = spread_format(result.metric)
    cells: dict[Any, list[str]] = {}
    for index, rung in enumerate(result.rungs):
        for one in rung.ranking:
            row = cells.setdefault(one.candidate.settings, ["–"] * len(result.rungs))
            row[index] = format_value(one.value) + (f" ({one.n_lost} lost)" if one.n_lost else "")
    rows = tuple((format_config(one.candidate.config), *cells[one.candidate.settings]) for one in final_ranking(result))
    columns = ("config", *(f"step {rung.step:,}" for rung in result.rungs))
    notes = [
        f"best {result.metric} up to each step, mean ± std over seeds; 1 config in {result.factor} went on from each"
    ]
    if any(one.n_lost for one in final_ranking(result)):
        notes.append("lost: runs that diverged or failed; their configs rank last")
    best = frozenset({(0, len(columns) - 1)}) if result.is_complete else frozenset()
    return Table(f"{result.study}: successive halving", columns, rows, (*notes, *describe_search(result)), best)


def final_ranking(result: HalvingResult) -> list[RankedConfig]:
    """All configs, by the last rung that they were trained to, then by their rank there."""
    ranked: dict[Any, RankedConfig] = {}
    for rung in reversed(result.rungs):
        for one in rung.ranking:
            ranked.setdefault(one.candidate.settings, one)
    return list(ranked.values())


def search_as_json(result: HalvingResult) -> dict[str, Any]:
    """The rungs with the ranking of each, and what the search took."""
    document: dict[str, Any] = {
        "study": result.study, "metric": result.metric, "factor": result.factor, "steps": result.steps,
        "complete": result.is_complete,
        "rungs": [
            {
                "step": rung.step, "kept": rung.n_kept,
                "ranking": [
                    {
                        "config": dict(one.candidate.config), "mean": one.value.mean, "std": one.value.std,
                        "by_seed": dict(one.value.values), "lost": one.n_lost, "runs": one.candidate.run_ids,
                    }
                    for one in rung.ranking
                ],
            }
            for rung in result.rungs
        ],
    }  # fmt: skip
    if result.rungs:
        document |= {"model_steps": result.n_trained_steps(), "model_steps_of_all": result.n_all_steps()}
    return document
