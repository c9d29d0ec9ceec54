"""The stored runs of a study with their curves and analyses, for `show`, reports and the web page; without torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import floor

import numpy as np

from seedbed.errors import MissingData, UnreadableRun, UsageError
from seedbed.format import pluralise
from seedbed.interp.analysis import Analysis, is_analysis_metric
from seedbed.records import Cost, Curve, StoredRun
from seedbed.report.memorization_curves import copying_curves
from seedbed.settings import Settings, Value
from seedbed.stats.curve_statistics import truncate_curve
from seedbed.stats.summary import RunCurves
from seedbed.store import Store
from seedbed.study.conditions import NO_FACTS, RunFacts, select_runs
from seedbed.study.declarations import Declarations, parse_declarations
from seedbed.study.run_data import distinguish_datasets
from seedbed.tasks.base import stored_dataset_info


def matching_runs(store: Store, study: str, only: Sequence[str] = (), skip_unreadable: bool = False) -> list[StoredRun]:
    """The stored runs of a study that match the filters (`model.kind=lstm seed=0,1`, see `study.conditions`)."""
    runs = store.runs(study, skip_unreadable)
    if not runs and not skip_unreadable:
        raise MissingData(f"study {study} has no runs; `seedbed run` trains them")
    return select_runs(runs, only, run_facts(store) if only else NO_FACTS, owner=study)


def run_facts(store: Store) -> RunFacts:
    """The status and tags of all runs, for filters."""
    statuses = {run.run: run.status for runs in store.progress().values() for run in runs}
    return RunFacts(statuses, {run: annotation.tags for run, annotation in store.annotations().runs.items()})


def unreadable_runs(store: Store, study: str) -> dict[str, str]:
    """Why runs of a study cannot be read, by id: they need a plugin, or have settings that this version lacks."""
    readable = {run.id for run in store.runs(study, skip_unreadable=True)}
    reasons = {}
    for run in store.progress().get(study, ()):
        if run.run not in readable:
            try:
                store.run(run.run)
            except UnreadableRun as error:
                reasons[run.run] = str(error)
    return reasons


def differing_settings(runs: Sequence[StoredRun]) -> list[str]:
    """The settings that differ among these runs, sorted by name."""
    first: dict[str, Value] = {}
    flat_settings = [settings.flat() for settings in {id(run.settings): run.settings for run in runs}.values()]
    return sorted(
        {name for flat in flat_settings for name, value in flat.items() if first.setdefault(name, value) != value}
    )


def pick_settings(settings: Settings, names: Iterable[str]) -> dict[str, Value]:
    """The values of those of these settings that the run has."""
    flat = settings.flat()
    return {name: flat[name] for name in names if name in flat}


def group_stored_runs(runs: Sequence[StoredRun]) -> dict[tuple[Settings, str | None], list[StoredRun]]:
    """The runs that differ only in their seed, by settings and, where runs of these have several, dataset."""
    groups: dict[tuple[Settings, str | None], list[StoredRun]] = {}
    for run, dataset in zip(runs, distinguish_datasets(runs), strict=True):
        groups.setdefault((run.settings, dataset), []).append(run)
    return groups


def run_configs(store: Store, study: str, runs: Sequence[StoredRun]) -> list[dict[str, Value]]:
    """Each run's config: its values of the settings that the study varies, or that differ among these runs.

    `dataset` is among them where runs with equal settings have different datasets: their text was edited in between.
    """
    axes = dict.fromkeys([*store.study(study).axes, *differing_settings(runs)])
    picked: dict[int, dict[str, Value]] = {}  # of each settings object, which the runs of a config share
    for run in runs:
        if id(run.settings) not in picked:
            picked[id(run.settings)] = pick_settings(run.settings, axes)
    configs = [dict(picked[id(run.settings)]) for run in runs]
    datasets = distinguish_datasets(runs)
    return [
        config if name is None else config | {"dataset": name} for config, name in zip(configs, datasets, strict=True)
    ]


def load_run_curves(
    store: Store, study: str, only: Sequence[str] = (), t_max: str | None = None, extra_metrics: Sequence[str] = ()
) -> list[RunCurves]:
    """The matching runs with their configs and curves, truncated at `t_max`.

    Of their analyses, they have the metrics that the study names, and `extra_metrics`.
    """
    runs = matching_runs(store, study, only)
    analyses = {run.id: load_analyses(store, run) for run in runs}
    analysis_metrics = [
        *extra_metrics,
        *(declared_analysis_metrics(parse_declarations(store.study(study).text)) if any(analyses.values()) else ()),
    ]
    curves = store.curves([run.id for run in runs])
    # An equal share of its pack's cost for each run, since the runs of a pack train as one program.
    costs: dict[str | None, Cost] = {pack.id: pack.cost.per_run(len(pack.runs)) for pack in store.study_packs(study)}
    with_weights = store.runs_with_weights()
    loaded = []
    for run, config in zip(runs, run_configs(store, study, runs), strict=True):
        last, cost = t_max_step(run, t_max), costs.get(run.pack, Cost())
        all_curves = (
            curves.get(run.id, {}) | copying_curves(store, run) | analysis_curves(analyses[run.id], analysis_metrics)
        )
        truncated = {name: truncate_curve(curve, last) for name, curve in all_curves.items()}
        weights_error = _weights_error(run, analyses[run.id], run.id in with_weights)
        loaded.append(
            RunCurves(
                run, config, truncated, cost.seconds, analyses[run.id], cost.steady_bytes, last, planned_steps(run),
                weights_error,
            )
        )  # fmt: skip
    return loaded


def _weights_error(run: StoredRun, analyses: Sequence[Analysis], has_weights: bool) -> str:
    """Why a run could not be analysed: its weights cannot be read or, without any analysis, are not there."""
    if errors := [analysis.weights_error for analysis in analyses if analysis.weights_error]:
        return errors[-1]
    is_trained = run.status in ("finished", "diverged", "stopped") and run.step > 0
    return f"the weights of run {run.id} are not in this home" if is_trained and not (analyses or has_weights) else ""


def check_t_max(t_max: str | None, option: str = "--t-max") -> None:
    """Raises UsageError unless `t_max` is a step or a fraction of T."""
    try:
        is_valid = t_max is None or (0 < float(t_max) <= 1 if "." in t_max else int(t_max) >= 0)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise UsageError(
            f"{option} {t_max}: expected a step such as 5000, or a fraction of all steps up to 1.0, such as 0.3"
        )


def describe_late_t_max(runs: Sequence[StoredRun], t_max: str | None) -> str | None:
    """A warning if `t_max` is a step that no run is planned to reach, so that it leaves nothing out."""
    steps = [planned_steps(run) for run in runs]
    if t_max is None or "." in t_max or not steps or None in steps:
        return None
    longest = max(filter(None, steps), default=0)
    return f"--t-max {t_max}: the longest run ends at step {longest:,}" if int(t_max) > longest else None


def planned_steps(run: StoredRun) -> int | None:
    """The number of steps that a run is planned for; None if unknown.

    A time limit has no number of steps, and the data that epochs are counted by may be missing.
    """
    train, info = run.settings.train, stored_dataset_info(run)
    if train.seconds is not None or (train.epochs is not None and info is None):
        return None
    return run.settings.n_steps(info)


def t_max_step(run: StoredRun, t_max: str | None) -> int | None:
    """`t_max` as a step of this run: an integer is a step, a decimal such as `0.3` a share of the run's T."""
    if t_max is None:
        return None
    return floor(float(t_max) * (planned_steps(run) or run.step)) if "." in t_max else int(t_max)


# ---- analyses ----


def load_analyses(store: Store, run: StoredRun) -> tuple[Analysis, ...]:
    """The stored analyses of a run, by step; empty if there are none."""
    return tuple(Analysis.from_json(document) for document in store.load_analyses(run.id))


def describe_missing_inputs(analyses: Iterable[Sequence[Analysis]]) -> list[str]:
    """Why analyses of held-out inputs are missing, from the analyses of each run; empty if none are."""
    errors = [of_run[-1].inputs_error for of_run in analyses if of_run and of_run[-1].inputs_error]
    if not errors:
        return []
    return [f"Analyses of held-out text are missing for {pluralise(len(errors), 'run')}: {errors[0]}."]


def declared_analysis_metrics(declared: Declarations) -> list[str]:
    """The analysis metrics that figures and questions name."""
    names = [name for figure in declared.figures for name in figure.metrics]
    names += [name for question in declared.questions for name in (question.metric, question.and_metric or "")]
    return list(dict.fromkeys(filter(is_analysis_metric, names)))


def analysis_curves(analyses: Sequence[Analysis], names: Iterable[str]) -> dict[str, Curve]:
    """These analysis metrics as curves over the analysed steps."""
    curves = {}
    for name in names:
        points = [(analysis.step, analysis.metrics[name].mean) for analysis in analyses if name in analysis.metrics]
        if points:
            steps, values = zip(*points, strict=True)
            curves[name] = Curve(np.array(steps, dtype=np.int64), np.array(values))
    return curves
