"""A study in Python: planned, trained and read by the same code as on the command line.

>>> import tempfile
>>> small = {"task.p": 5, "train": {"steps": 20, "batch_size": 8}, "model": {"dim": 8, "heads": 2}}
>>> study = Study(name="depth", base=small, grid={"model.layers": [1, 2]}, seeds=2, home=tempfile.mkdtemp())
>>> len(study.plan()), study.runs()
(4, [])
>>> study.run(progress=False)
depth: 4 runs, 4 finished
>>> study.results("val/loss", only="layers=2 seed=0").columns
('run', 'model.layers', 'seed', 'metric', 'step', 'value')
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from seedbed.api.homes import home as current_home

if TYPE_CHECKING:
    from seedbed.api.answer_views import Answers, Comparison
    from seedbed.api.planning import StudyPlan
    from seedbed.api.study_text import Filters, Overrides
    from seedbed.api.table_views import Tables
    from seedbed.api.tidy_results import Results
    from seedbed.engines.machine import Machine
    from seedbed.records import Plan, StoredRun
    from seedbed.sampling.loaded_run import LoadedRun
    from seedbed.store import Store
    from seedbed.study.definition import Study as StudyDefinition

Settings: TypeAlias = Mapping[str, Any]  # with nested or dotted names: {"train": {"lr": 1e-3}} or {"train.lr": 1e-3}


class Study:
    """A study: a file, a shipped or stored study by name, or one that is written out in Python.

        Study("quickstart")                                  # shipped; "mine.toml" is a file
        Study("quickstart", {"train.weight_decay": [0, 1]})  # with overrides; a list of values is a sweep
        Study(name="depth", base={"task.p": 23}, grid={"model.layers": [1, 2, 4]}, seeds=8)

    The arguments from `name` to `questions` are the keys of a study file and are checked in the same way. A study has
    the runs of its plan: those that other settings left in the store under the same name do not count, and
    `Study.stored(name)` reads all of them. Filters (`only`) are those of `--only`: `"model.kind=gpt seed=0,1"`, a list
    of such texts, or a dict such as `{"model.kind": "gpt"}`.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | None = None,
        overrides: Overrides = (),
        *,
        name: str | None = None,
        question: str | None = None,
        seeds: int | Sequence[int] | None = None,
        base: Settings | None = None,
        grid: Settings | None = None,
        zip: Sequence[Settings] | None = None,
        random: Settings | None = None,
        configs: Sequence[Settings] | None = None,
        exclude: str | Sequence[str] | None = None,
        scales: Mapping[str, Settings] | None = None,
        figures: Sequence[Mapping[str, Any]] | None = None,
        questions: Sequence[Mapping[str, Any]] | None = None,
        home: str | os.PathLike[str] | None = None,
    ) -> None:
        from seedbed.api.study_text import read_written_study, to_overrides

        self.home = current_home() if home is None else Path(home)
        written = {
            "name": name, "question": question, "base": base, "grid": grid, "zip": zip, "random": random,
            "configs": configs, "exclude": exclude, "scales": scales, "figures": figures, "questions": questions,
        }  # fmt: skip
        self._overrides = to_overrides(overrides, None if source is None else seeds)
        self._reads_all = False  # of what is stored under its name
        if source is None:
            self._definition = read_written_study(written | {"seeds": seeds}, self._overrides)
        else:
            _check_nothing_written(written)
            self._definition = self._find_definition(os.fspath(source))

    @classmethod
    def stored(cls, name: str, home: str | os.PathLike[str] | None = None) -> Study:
        """All runs that are stored under a name, whatever their settings; `run` continues what was planned last."""
        study = cls.__new__(cls)
        study.home, study._overrides = current_home() if home is None else Path(home), []
        study._definition, study._reads_all = study._stored_definition(name), True
        return study

    def _find_definition(self, source: str) -> StudyDefinition:
        from seedbed.errors import StudyError
        from seedbed.store import open_store, store_exists
        from seedbed.study.read import read_study
        from seedbed.study.study_files import find_study

        try:
            path = find_study(source)
        except StudyError:
            if store_exists(self.home):
                with open_store(self.home, read_only=True) as store:
                    is_stored = source in {study.name for study in store.studies()}
                if is_stored:
                    self._reads_all = not self._overrides
                    return self._stored_definition(source)
            raise
        return read_study(path, self._overrides)

    def _stored_definition(self, name: str) -> StudyDefinition:
        from seedbed.store import open_store
        from seedbed.study.read import parse_study

        with open_store(self.home, read_only=True) as store:
            return parse_study(store.study(name).text, name, self._overrides, stored=True)

    @property
    def name(self) -> str:
        """The name under which its runs are stored."""
        return self._definition.name

    @property
    def question(self) -> str:
        return self._definition.question

    @property
    def text(self) -> str:
        """The study as a file, with every setting written out."""
        return self._plan.text

    @cached_property
    def _plan(self) -> Plan:
        from seedbed.study.plan import plan_study

        plan = plan_study(self._definition, self._overrides)
        for warning in plan.warnings:
            warnings.warn(warning, stacklevel=3)
        return plan

    # ---- planning and training ----

    def plan(
        self,
        only: Filters = (),
        *,
        device: str | None = None,
        workers: int | None = None,
        mode: str | None = None,
        probe: bool = False,
    ) -> StudyPlan:
        """Runs, packs and an estimate of time and memory; trains nothing, except for a second per pack to `probe`."""
        from seedbed.api.planning import make_plan_view

        return make_plan_view(self._selected_plan(only), self.home, _machine(device, workers, mode), probe)

    def run(
        self,
        only: Filters = (),
        *,
        device: str | None = None,
        workers: int | None = None,
        mode: str | None = None,
        until: int | None = None,
        restart: bool = False,
        progress: bool = True,
    ) -> Study:
        """Trains every run that has not ended, to its end or to step `until`, and returns the study.

        Ctrl-C, or the stop button of a notebook, saves everything before KeyboardInterrupt is raised; the next call
        continues. `restart` trains unfinished runs from step 0.
        """
        from seedbed.api.training_session import restart_unfinished, train_plans
        from seedbed.errors import Busy

        plan = self._selected_plan(only)
        if restart:
            restart_unfinished(self.home, plan)
        outcome = train_plans([plan], self.home, _machine(device, workers, mode), progress, until)
        if outcome.busy_packs:
            raise Busy("; ".join(outcome.busy_packs))
        if n_failed := outcome.counts.get("failed", 0):
            warnings.warn(f"{n_failed} runs of {self.name} failed; their `cause` in runs() says why", stacklevel=2)
        return self

    def _selected_plan(self, only: Filters) -> Plan:
        from seedbed.api.planning import load_run_facts
        from seedbed.api.study_text import to_filters
        from seedbed.study.run_filter import filter_plans

        [plan] = filter_plans([self._plan], to_filters(only), load_run_facts(self.home)) if only else [self._plan]
        return plan

    # ---- reading ----

    def status(self) -> Counter[str]:
        """The number of runs by status: planned, running, finished, stopped, diverged or failed."""
        stored = {run.id: run.status for run in self.runs()}
        if self._reads_all:
            return Counter(stored.values())
        return Counter(stored.get(run.id, "planned") for run in self._plan.runs)

    def runs(self, only: Filters = ()) -> list[StoredRun]:
        """The stored runs, with `id`, `seed`, `settings`, `status`, `step` and `cause`; none before the first `run`."""
        from seedbed.report.study_runs import matching_runs
        from seedbed.store import open_store, store_exists

        if not store_exists(self.home):
            return []
        with open_store(self.home, read_only=True) as store:
            if not self._stored_ids(store):
                return []
            return matching_runs(store, self.name, self._filters(store, only))

    def results(self, metrics: str | Sequence[str] = (), only: Filters = ()) -> Results:
        """Every evaluation as tidy rows (run, varied settings, seed, metric, step, value); `.to_pandas()` and so on."""
        from seedbed.api.tidy_results import load_results

        with self._open(only) as (store, filters):
            return load_results(store, self.name, filters, [metrics] if isinstance(metrics, str) else metrics)

    def table(self, only: Filters = (), t_max: float | None = None) -> Tables:
        """Best values and the steps at which they were attained, mean ± std over seeds, for each config.

        `t_max` leaves out later evaluations: a step such as 5000, or a fraction of all steps such as 0.5.
        """
        from seedbed.api.table_views import make_result_tables

        with self._open(only) as (store, filters):
            return make_result_tables(store, self.name, filters, t_max)

    def compare(
        self, *groups: str, metric: str = "val/accuracy", value: str = "best", only: Filters = ()
    ) -> Comparison:
        """Compares groups over seeds: the values of a setting (`"model.kind"`), or filters that select each group."""
        from seedbed.api.answer_views import compare_runs

        with self._open(only) as (store, filters):
            return compare_runs(store, self.name, groups, metric, value, filters)

    def answer(self, only: Filters = ()) -> Answers:
        """The answers to the study's questions, in sentences; computes the analyses that they need."""
        from seedbed.api.answer_views import Answers
        from seedbed.report.stored_analyses import update_analyses
        from seedbed.report.study_answers import answer_study

        with self._open(only) as (store, filters):
            update_analyses(self.home, self.name, filters)
            return Answers(tuple(answer_study(store, self.name, filters)))

    def plot(
        self,
        metrics: str | Sequence[str] | None = None,
        *,
        kind: str | None = None,
        figure: int | None = None,
        only: Filters = (),
        theme: str = "light",
        **options: Any,
    ) -> Any:
        """An Altair chart: the given metrics, the study's figure of a number (from 1), or a default.

        Options are those of `[[figures]]`, such as `x="train.lr"`, `colour="model.kind"` and `y_scale="log"`.
        """
        from seedbed.api.figure_request import draw_figure, load_figure

        named = (metrics,) if isinstance(metrics, str) else None if metrics is None else tuple(metrics)
        with self._open(only) as (_, filters):
            spec, runs = load_figure(self.home, self.name, filters, {"kind": kind, "metrics": named, **options}, figure)
        return draw_figure(spec, runs, theme)

    def report(self, out: str | os.PathLike[str] | None = None, only: Filters = ()) -> Path:
        """Writes the report, one HTML page with answers, figures and tables, and returns its path."""
        from seedbed.report.html_report import write_report
        from seedbed.report.stored_analyses import update_analyses

        with self._open(only) as (_, filters):
            update_analyses(self.home, self.name, filters)
            return write_report(self.home, [self.name], filters, None if out is None else Path(out))

    def load(self, only: Filters = (), step: int | Literal["last", "best"] = "last") -> list[LoadedRun]:
        """The trained models of its runs that have weights, to sample, to score text and to look inside."""
        from seedbed.api.loading import load
        from seedbed.errors import MissingData

        with self._open(only) as (store, _):
            ids = [run.id for run in self.runs(only) if store.checkpoints(run.id)]
        if not ids:
            raise MissingData(f"no run of {self.name} has weights yet; run() trains them")
        return [load(run_id, self.home, step) for run_id in ids]

    # ---- which runs are its own ----

    @contextmanager
    def _open(self, only: Filters) -> Iterator[tuple[Store, list[str]]]:
        """The store for reading, and the filters that select among the study's own runs."""
        from seedbed.errors import MissingData
        from seedbed.store import open_store, store_exists

        if not store_exists(self.home):
            raise MissingData(f"nothing is stored in {self.home} yet; run() trains {self.name}")
        with open_store(self.home, read_only=True) as store:
            yield store, self._filters(store, only)

    def _stored_ids(self, store: Store) -> list[str]:
        """The ids of its stored runs."""
        stored = [run.run for run in store.progress().get(self.name, ())]
        if self._reads_all:
            return stored
        planned = {run.id for run in self._plan.runs}
        return [run_id for run_id in stored if run_id in planned]

    def _filters(self, store: Store, only: Filters) -> list[str]:
        from seedbed.api.study_text import to_filters
        from seedbed.errors import MissingData

        own, n_stored = self._stored_ids(store), len(store.progress().get(self.name, ()))
        if not own:
            others = f"; Study.stored({self.name!r}) reads the {n_stored} other runs of that name" if n_stored else ""
            raise MissingData(f"no run of {self.name} is stored in {self.home} yet; run() trains them{others}")
        return [*to_filters(only), *([] if len(own) == n_stored else [f"id={','.join(own)}"])]

    def __repr__(self) -> str:
        if not self._reads_all and "_plan" not in self.__dict__:  # planning may read a corpus
            return f"{self.name}: a study in {self.home}"
        counts = self.status()
        states = ", ".join(f"{n} {status}" for status, n in counts.items())
        return f"{self.name}: {counts.total()} run{'s' * (counts.total() != 1)}, {states}"


def _check_nothing_written(written: Mapping[str, Any]) -> None:
    from seedbed.errors import UsageError

    if given := [key for key, value in written.items() if value is not None]:
        raise UsageError(
            f"Study({given[0]}=…) is for a study without a file or name; to change one that has, give overrides: "
            'Study("quickstart", {"train.steps": 500}, seeds=3)'
        )


def _machine(device: str | None, workers: int | None, mode: str | None) -> Machine:
    from seedbed.engines.machine import Machine

    return Machine.detect(device or os.environ.get("SEEDBED_DEVICE") or None, workers, mode)
