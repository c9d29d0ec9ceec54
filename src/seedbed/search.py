"""Search by successive halving: train all configs a little, and only the best of them further.

    result = search_study(plan, home, train, metric="val/loss", n_rungs=3, factor=3)

`train(plan, until)` trains the runs of a plan to a step, or to their end (`pipeline.run_studies` with a machine and an
observer). The decisions follow from what is stored (stats/successive_halving.py): the same call after an interruption
continues, and after the end it trains nothing and returns the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import lcm
from pathlib import Path
from typing import TypeAlias

from seedbed.errors import MissingData, UsageError
from seedbed.format import join_words
from seedbed.pipeline import StudyOutcome
from seedbed.records import ENDED_STATUSES, LOST_STATUSES, Plan, Run
from seedbed.report.study_runs import load_run_curves
from seedbed.settings import Settings
from seedbed.specs import METRIC_PATTERN
from seedbed.stats.chance import check_one_unit
from seedbed.stats.metric_registry import metric_direction
from seedbed.stats.successive_halving import (
    Candidate,
    HalvingResult,
    Rung,
    count_kept,
    rank_candidates,
    rung_steps,
)
from seedbed.stats.summary import RunCurves
from seedbed.store import open_store, store_exists

TrainFunction: TypeAlias = Callable[[Plan, int | None], StudyOutcome]


def search_study(
    plan: Plan, home: Path, train: TrainFunction, metric: str = "val/loss", n_rungs: int = 3, factor: int = 3
) -> HalvingResult:
    """Trains the configs of a plan rung by rung; stops early, with the rungs so far, where training was stopped.

    UsageError if the configs cannot be ranked by this metric, or the rungs do not fit into their steps.
    """
    _check_metric(metric)
    candidates = _make_candidates(plan)
    steps = tuple(plan_rungs(plan, n_rungs, factor))
    result = HalvingResult(plan.study, metric, factor, steps, ())
    for step in steps:
        is_last = step == steps[-1]
        rung_plan = _select_runs(plan, candidates)
        until = None if is_last else step
        if _needs_training(rung_plan, home, until):
            outcome = train(rung_plan, until)
            if outcome.stopped or outcome.busy_packs:
                return result
        runs = _load_curves(rung_plan, home)
        _check_comparable(runs, metric)
        ranking = rank_candidates(candidates, runs, metric, until)
        rung = Rung(step, ranking, len(ranking) if is_last else count_kept(len(ranking), factor))
        result = replace(result, rungs=(*result.rungs, rung))
        candidates = rung.kept
    return result


def plan_rungs(plan: Plan, n_rungs: int = 3, factor: int = 3) -> dict[int, int]:
    """How many configs are trained to which step: the step of each rung, and its number of configs."""
    candidates = _make_candidates(plan)
    steps = rung_steps(max(one.n_steps for one in candidates), n_rungs, factor, *_evaluation_grid(plan.runs))
    n_configs = [len(candidates)]
    for _ in steps[1:]:
        n_configs.append(count_kept(n_configs[-1], factor))
    return dict(zip(steps, n_configs, strict=True))


def _make_candidates(plan: Plan) -> tuple[Candidate, ...]:
    by_settings: dict[Settings, list[Run]] = {}
    for run in plan.runs:
        by_settings.setdefault(run.settings, []).append(run)
    if len(by_settings) < 2:
        raise UsageError(f"{plan.study} has one config; a search needs several, as from [grid] or [random]")
    if any(settings.train.seconds is not None for settings in by_settings):
        raise UsageError("train.seconds is a budget of time, which has no steps to divide into rungs; use train.steps")
    return tuple(
        Candidate(settings, runs[0].config, settings.n_steps(runs[0].dataset_info), tuple(run.id for run in runs))
        for settings, runs in by_settings.items()
    )


def _evaluation_grid(runs: Sequence[Run]) -> tuple[int, int]:
    """`eval_first` and `eval_every` such that all runs are evaluated at their steps."""
    train = [run.settings.train for run in runs]
    return min(one.eval_first for one in train), lcm(*{one.eval_every for one in train})


def _select_runs(plan: Plan, candidates: Sequence[Candidate]) -> Plan:
    run_ids = {run_id for one in candidates for run_id in one.run_ids}
    return replace(plan, runs=tuple(run for run in plan.runs if run.id in run_ids))


def _needs_training(plan: Plan, home: Path, until: int | None) -> bool:
    """Whether a run has neither ended nor, if a step is given, been trained to it."""
    if not store_exists(home):
        return True
    with open_store(home, read_only=True) as store:
        stored = {run.run: run for runs in store.progress().values() for run in runs}
    for run in plan.runs:
        progress = stored.get(run.id)
        if progress is None:
            return True
        if progress.status not in ENDED_STATUSES and (until is None or progress.step < until):
            return True
    return False


def _load_curves(plan: Plan, home: Path) -> list[RunCurves]:
    run_ids = {run.id for run in plan.runs}
    with open_store(home, read_only=True) as store:
        return [run for run in load_run_curves(store, plan.study) if run.run.id in run_ids]


def _check_metric(metric: str) -> None:
    if not METRIC_PATTERN.fullmatch(metric) or metric_direction(metric) is None:
        raise UsageError(f"metric {metric}: expected one whose best value is known, such as val/loss or val/accuracy")


def _check_comparable(runs: Sequence[RunCurves], metric: str) -> None:
    """Raises if no run has the metric, or if it has another unit in some configs."""
    trained = [run for run in runs if run.run.status not in LOST_STATUSES]
    names = sorted({name for run in trained for name in run.curves if metric_direction(name)})
    if trained and metric not in names:
        raise MissingData(f"no run has {metric}; they have {join_words(names)}")
    check_one_unit((run.run for run in runs), metric)
