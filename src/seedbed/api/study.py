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

import functools
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from seedbed.api.homes import find_home
from seedbed.api.study_reader import StudyReader

if TYPE_CHECKING:
    from seedbed.api.planning import StudyPlan
    from seedbed.api.study_text import Filters, Overrides
    from seedbed.api.table_views import Search
    from seedbed.records import Plan
    from seedbed.study.definition import Study as StudyDefinition

Settings: TypeAlias = Mapping[str, Any]  # with nested or dotted names: {"train": {"lr": 1e-3}} or {"train.lr": 1e-3}


class Study(StudyReader):
    """A study: a file, a shipped or stored study by name, or one that is written out in Python.

        Study("quickstart")                                  # shipped; "mine.toml" is a file
        Study("quickstart", {"train.weight_decay": [0, 1]})  # with overrides; a list of values is a sweep
        Study(base={"task.p": 23}, grid={"model.layers": [1, 2, 4]}, seeds=8)   # name="depth" gives it a name

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
        store: str | None = None,
    ) -> None:
        from seedbed.api.study_text import read_written_study, to_overrides

        self.home = find_home(home, store)
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
    def stored(cls, name: str, home: str | os.PathLike[str] | None = None, store: str | None = None) -> Study:
        """All runs that are stored under a name, whatever their settings; `run` continues what was planned last."""
        from seedbed.api.planning import read_stored_study

        study = cls.__new__(cls)
        study.home, study._overrides = find_home(home, store), []
        study._definition, study._reads_all = read_stored_study(name, (), study.home), True
        return study

    def _find_definition(self, source: str) -> StudyDefinition:
        from seedbed.api.planning import find_study_definition

        definition, is_stored = find_study_definition(source, self._overrides, self.home)
        self._reads_all = is_stored and not self._overrides
        return definition

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

    @functools.cached_property
    def _plan(self) -> Plan:
        from seedbed.study.plan import plan_study

        plan = plan_study(self._definition, self._overrides)
        for warning in plan.warnings:
            warnings.warn(warning, stacklevel=_caller_level())
        if not any(run.settings.task.has_corpus for run in plan.runs):
            return plan
        from seedbed.pipeline import match_stored_runs

        [plan], _ = match_stored_runs([plan], self.home)
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
        from seedbed.api.planning import estimate_plans, find_machine, probe_plans

        plans, machine = [self._selected_plan(only)], find_machine(device, workers, mode)
        if probe:
            probe_plans(plans, machine, time.perf_counter())
        return estimate_plans(plans, self.home, machine)

    def run(
        self,
        only: Filters = (),
        *,
        device: str | None = None,
        workers: int | None = None,
        mode: str | None = None,
        engine: str | None = None,
        address: str | None = None,
        until: int | None = None,
        restart: bool = False,
        progress: bool = True,
    ) -> Study:
        """Trains every run that has not ended, to its end or to step `until`, and returns the study.

        Ctrl-C, or the stop button of a notebook, saves everything before KeyboardInterrupt is raised; the next call
        continues. `restart` trains unfinished runs from step 0.
        """
        from seedbed.api.planning import find_machine
        from seedbed.api.training_session import restart_unfinished, train_plans

        plan = self._selected_plan(only)
        if restart:
            restart_unfinished(self.home, plan)
        outcome = train_plans([plan], self.home, find_machine(device, workers, mode, engine, address), progress, until)
        if n_failed := outcome.counts.get("failed", 0):
            text = f"{n_failed} runs of {self.name} failed; their `cause` in runs() says why"
            warnings.warn(text, stacklevel=_caller_level())
        return self

    def search(
        self,
        metric: str = "val/loss",
        *,
        rungs: int = 3,
        factor: int = 3,
        only: Filters = (),
        device: str | None = None,
        workers: int | None = None,
        mode: str | None = None,
        engine: str | None = None,
        address: str | None = None,
        progress: bool = True,
    ) -> Search:
        """Successive halving: trains all configs a little, and 1 in `factor` of them, by this metric, further.

        Dropped configs stay stored as they are, and `run` can resume them. The same call continues after Ctrl-C.
        """
        from seedbed.api.planning import find_machine
        from seedbed.api.table_views import Search
        from seedbed.api.training_session import train_plans
        from seedbed.search import search_study

        machine = find_machine(device, workers, mode, engine, address)
        return Search(
            search_study(
                self._selected_plan(only),
                self.home,
                lambda plan, until: train_plans([plan], self.home, machine, progress, until),
                metric,
                rungs,
                factor,
            )
        )

    def _selected_plan(self, only: Filters) -> Plan:
        from seedbed.api.planning import load_run_facts
        from seedbed.api.study_text import to_filters
        from seedbed.study.conditions import filter_plans

        [plan] = filter_plans([self._plan], to_filters(only), load_run_facts(self.home)) if only else [self._plan]
        return plan

    def status(self) -> Counter[str]:
        """The number of runs by status: planned, running, finished, stopped, diverged or failed."""
        stored = {run.id: run.status for run in self.runs()}
        if self._reads_all:
            return Counter(stored.values())
        return Counter(stored.get(run.id, "planned") for run in self._plan.runs)

    def _planned_ids(self) -> set[str] | None:
        return None if self._reads_all else {run.id for run in self._plan.runs}

    def __repr__(self) -> str:
        if not self._reads_all and "_plan" not in self.__dict__:  # planning may read a corpus
            return f"{self.name}: a study in {self.home}"
        counts = self.status()
        states = ", ".join(f"{n} {status}" for status, n in counts.items())
        return f"{self.name}: {counts.total()} run{'s' * (counts.total() != 1)}, {states}"


def _caller_level() -> int:
    """The `stacklevel` of `warnings.warn` with which a warning names the user's line, not one of this package."""
    package, level = os.path.dirname(os.path.dirname(__file__)) + os.sep, 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((package, functools.__file__)):
        frame, level = frame.f_back, level + 1
    return level


def _check_nothing_written(written: Mapping[str, Any]) -> None:
    from seedbed.errors import UsageError

    if given := [key for key, value in written.items() if value is not None]:
        raise UsageError(
            f"Study({given[0]}=…) is for a study without a file or name; to change one that has, give overrides: "
            'Study("quickstart", {"train.steps": 500}, seeds=3)'
        )
