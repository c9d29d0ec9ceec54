"""What the store holds of a study, ready to be measured: used by `show`, reports and the page alike."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

from seedbed.errors import MissingData
from seedbed.measures.curves import up_to
from seedbed.measures.summary import RunCurves
from seedbed.records import StoredRun
from seedbed.report.copied import copying_curves
from seedbed.settings import Value
from seedbed.store.store import Store
from seedbed.study.words import matches, parse_words


def covered_runs(store: Store, study: str, words: Sequence[str] = ()) -> list[StoredRun]:
    """Every stored run of a study, or those that the words (`model.kind=lstm seeds=0,1`) ask for."""
    wanted = parse_words(words)
    runs = [run for run in store.runs(study) if matches(run.settings, run.seed, wanted)]
    if not runs:
        raise MissingData(f"study {study} has no stored run with {' '.join(words)}; `seedbed ls {study}` lists them")
    return runs


def points_of(store: Store, study: str, runs: Sequence[StoredRun]) -> list[dict[str, Value]]:
    """Each run's point: its values of the dials that the study varies, or that differ among these runs."""
    dials = [run.settings.dials() for run in runs]
    first: dict[str, Value] = {}
    differing = {name for one in dials for name, value in one.items() if first.setdefault(name, value) != value}
    axes = list(dict.fromkeys([*store.study(study).axes, *sorted(differing)]))
    return [{name: one[name] for name in axes if name in one} for one in dials]


def gather_curves(store: Store, study: str, words: Sequence[str] = (), t_max: str | None = None) -> list[RunCurves]:
    """The covered runs with their points and curves, as if each had stopped at `t_max`."""
    runs = covered_runs(store, study, words)
    curves = store.curves([run.id for run in runs])
    seconds = _seconds_by_run(store, study)
    gathered = []
    for run, point in zip(runs, points_of(store, study, runs), strict=True):
        last = last_step(run, t_max)
        every = curves.get(run.id, {}) | copying_curves(store, run)
        kept = {name: up_to(curve, last) for name, curve in every.items()}
        gathered.append(RunCurves(run, point, kept, seconds.get(run.id, {})))
    return gathered


def _seconds_by_run(store: Store, study: str) -> dict[str, dict[str, float]]:
    """What each run cost: its pack's time in equal shares, since runs of a pack train as one program."""
    return {
        run: {name: spent / len(pack.runs) for name, spent in pack.seconds.items()}
        for pack in store.packs_of(study)
        for run in pack.runs
    }


def last_step(run: StoredRun, t_max: str | None) -> int | None:
    """`t_max` as a step of this run: a whole number is a step, a share such as `0.3` is that share of its T."""
    if t_max is None:
        return None
    return floor(float(t_max) * run.settings.train.steps) if "." in t_max else int(t_max)
