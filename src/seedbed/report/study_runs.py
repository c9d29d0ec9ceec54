"""What the store holds of a study, ready to be measured: used by `show`, reports and the page alike."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

from seedbed.errors import MissingData, UsageError
from seedbed.records import Cost, StoredRun
from seedbed.report.analysis_curves import analysis_curves, declared_analysis_metrics, load_analyses
from seedbed.report.memorization_curves import copying_curves
from seedbed.settings import Value
from seedbed.stats.curve_statistics import truncate_curve
from seedbed.stats.summary import RunCurves
from seedbed.store.store import Store
from seedbed.study.declarations import parse_declarations
from seedbed.study.overrides import matches_overrides, parse_overrides


def matching_runs(store: Store, study: str, overrides: Sequence[str] = ()) -> list[StoredRun]:
    """Every stored run of a study, or those that the words (`model.kind=lstm seeds=0,1`) ask for."""
    wanted = parse_overrides(overrides)
    runs = [run for run in store.runs(study) if matches_overrides(run.settings, run.seed, wanted)]
    if not runs:
        raise MissingData(
            f"study {study} has no stored run with {' '.join(overrides)}; `seedbed ls {study}` lists them"
        )
    return runs


def differing_settings(runs: Sequence[StoredRun]) -> list[str]:
    """The dials that do not have one value among these runs, by name."""
    first: dict[str, Value] = {}
    dials = [run.settings.flat() for run in runs]
    return sorted({name for one in dials for name, value in one.items() if first.setdefault(name, value) != value})


def run_configs(store: Store, study: str, runs: Sequence[StoredRun]) -> list[dict[str, Value]]:
    """Each run's point: its values of the dials that the study varies, or that differ among these runs."""
    axes = dict.fromkeys([*store.study(study).axes, *differing_settings(runs)])
    dials = [run.settings.flat() for run in runs]
    return [{name: one[name] for name in axes if name in one} for one in dials]


def load_run_curves(
    store: Store, study: str, overrides: Sequence[str] = (), t_max: str | None = None, extra_metrics: Sequence[str] = ()
) -> list[RunCurves]:
    """The covered runs with their points and curves, as if each had stopped at `t_max`.

    Of what was seen inside them, they have the readings that the study names, and those of `inside`.
    """
    runs = matching_runs(store, study, overrides)
    looks = {run.id: load_analyses(store, run) for run in runs}
    named = [
        *extra_metrics,
        *(declared_analysis_metrics(parse_declarations(store.study(study).text)) if any(looks.values()) else ()),
    ]
    curves = store.curves([run.id for run in runs])
    costs = _costs_by_pack(store, study)
    gathered = []
    for run, point in zip(runs, run_configs(store, study, runs), strict=True):
        last, cost = t_max_step(run, t_max), costs.get(run.pack, Cost())
        every = curves.get(run.id, {}) | copying_curves(store, run) | analysis_curves(looks[run.id], named)
        kept = {name: truncate_curve(curve, last) for name, curve in every.items()}
        gathered.append(RunCurves(run, point, kept, cost.seconds, looks[run.id], cost.steady_bytes))
    return gathered


def _costs_by_pack(store: Store, study: str) -> dict[str | None, Cost]:
    """What a run of each pack cost: an equal share, since runs of a pack train as one program."""
    return {pack.id: pack.cost.per_run(len(pack.runs)) for pack in store.study_packs(study)}


def check_t_max(t_max: str | None, option: str = "--t-max") -> None:
    """Refuses what is neither a step nor a share of T."""
    try:
        good = t_max is None or (0 < float(t_max) <= 1 if "." in t_max else int(t_max) >= 0)
    except ValueError:
        good = False
    if not good:
        raise UsageError(
            f"{option} {t_max}: expected a step such as 5000, or a share of T above 0 and up to 1.0 such as 0.3"
        )


def t_max_step(run: StoredRun, t_max: str | None) -> int | None:
    """`t_max` as a step of this run: a whole number is a step, a share such as `0.3` is that share of its T."""
    if t_max is None:
        return None
    return floor(float(t_max) * run.settings.train.steps) if "." in t_max else int(t_max)
