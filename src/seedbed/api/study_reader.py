"""What is read of a study: its stored runs as rows, tables, answers, charts and models."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from seedbed.api.answer_views import Answers, BestConfig, Comparison
    from seedbed.api.archives import ArchiveReport
    from seedbed.api.study_text import Filters
    from seedbed.api.table_views import Tables
    from seedbed.api.tidy_results import Results
    from seedbed.records import StoredRun
    from seedbed.report.ensemble_analysis import EnsembleResult
    from seedbed.sampling.loaded_run import LoadedRun
    from seedbed.store import Store
    from seedbed.store.dump import WeightsChoice


class StudyReader(ABC):
    """The stored runs of a study in a home; nothing here writes, except `analyze` and `report`."""

    home: Path

    @property
    @abstractmethod
    def name(self) -> str:
        """The name under which its runs are stored."""

    @abstractmethod
    def _planned_ids(self) -> Collection[str] | None:
        """The ids of its runs; None: all that are stored under its name."""

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
        self,
        *groups: str,
        metric: str | None = None,
        value: str = "best",
        only: Filters = (),
        allow_confounds: bool = False,
    ) -> Comparison:
        """Compares groups over seeds: the values of a setting (`"model.kind"`), or filters that select each group.

        The metric is by default the main one that all groups have. Groups that also differ in other settings get no
        verdict, unless `allow_confounds` is given.
        """
        from seedbed.api.answer_views import compare_runs

        with self._open(only) as (store, filters):
            return compare_runs(store, [self.name, *groups], metric, value, filters, allow_confounds)

    def best(self, metric: str = "val/accuracy", value: str = "best", only: Filters = ()) -> BestConfig:
        """The config with the best mean over seeds (`config`, `values` by seed), and whether others may be as good."""
        from seedbed.api.answer_views import find_best_config
        from seedbed.report.study_runs import load_run_curves

        with self._open(only) as (store, filters):
            return find_best_config(load_run_curves(store, self.name, filters), metric, value)

    def answer(self, only: Filters = ()) -> Answers:
        """The answers to the study's questions, in sentences; those of analyses are computed by `analyze`."""
        from seedbed.api.answer_views import Answers
        from seedbed.interp.analysis import is_analysis_metric
        from seedbed.report.study_answers import answer_study

        with self._open(only) as (store, filters):
            answers = Answers(tuple(answer_study(store, self.name, filters)))
            if any(is_analysis_metric(one.question.metric) for one in answers):
                self._warn_of_missing_analyses(store, filters)
        return answers

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
        from seedbed.charts.chart_kinds import CHART_KINDS
        from seedbed.report.figures import draw_figure, load_figure

        named = (metrics,) if isinstance(metrics, str) else None if metrics is None else tuple(metrics)
        with self._open(only) as (store, filters):
            spec, runs = load_figure(self.home, self.name, filters, {"kind": kind, "metrics": named, **options}, figure)
            if CHART_KINDS[spec.kind].shows_analyses(spec):
                self._warn_of_missing_analyses(store, filters)
        return draw_figure(spec, runs, theme)

    def analyze(self, only: Filters = ()) -> int:
        """Computes and stores the analyses that figures and questions need and the home lacks; returns how many."""
        from seedbed.report.stored_analyses import describe_failed_analyses, update_analyses

        with self._open(only) as (store, filters):
            n_analyzed = update_analyses(self.home, self.name, filters)
            for sentence in describe_failed_analyses(store, self.name, filters):
                warnings.warn(sentence, stacklevel=2)
        return n_analyzed

    def report(self, out: str | os.PathLike[str] | None = None, only: Filters = ()) -> Path:
        """Writes the report, one HTML page with answers, figures and tables, and returns its path."""
        from seedbed.report.html_report import write_report

        self.analyze(only)
        with self._open(only) as (_, filters):
            return write_report(self.home, [self.name], filters, None if out is None else Path(out))

    def export(
        self,
        path: str | os.PathLike[str],
        only: Filters = (),
        *,
        weights: WeightsChoice = "none",
        unfinished: bool = False,
    ) -> ArchiveReport:
        """Writes its runs to an archive, which `sb.import_archive` merges into another home (docs/export.md).

        `weights` adds the "last" weights of each run or "all", `unfinished` what it takes to go on with runs.
        """
        from seedbed.api.archives import export_archive

        with self._open(only) as (_, filters):
            return export_archive(
                [self.name], path, home=self.home, only=filters, weights=weights, unfinished=unfinished
            )

    def load(self, only: Filters = (), step: int | Literal["last", "best"] = "last") -> list[LoadedRun]:
        """The trained models of its runs that have weights, to sample, to score text and to look inside."""
        from seedbed.api.homes import load_all

        with self._open(only) as (_, filters):
            return load_all(self.name, self.home, step, filters)

    def ensemble(
        self, only: Filters = (), step: Literal["last", "best"] = "last", device: str | None = None
    ) -> list[EnsembleResult]:
        """What the mean of the predictions of each config's seeds achieves on held-out data, where they share it."""
        from seedbed.api.planning import find_machine
        from seedbed.report.ensemble_analysis import ensemble_study

        with self._open(only) as (_, filters):
            return ensemble_study(self.home, self.name, filters, step, find_machine(device).device)

    def _warn_of_missing_analyses(self, store: Store, filters: Sequence[str]) -> None:
        from seedbed.report.stored_analyses import describe_missing_analyses

        for sentence in describe_missing_analyses(store, self.name, "study.analyze()", filters):
            warnings.warn(sentence, stacklevel=3)

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
        stored, planned = [run.run for run in store.progress().get(self.name, ())], self._planned_ids()
        return stored if planned is None else [run_id for run_id in stored if run_id in planned]

    def _filters(self, store: Store, only: Filters) -> list[str]:
        from seedbed.api.study_text import to_filters
        from seedbed.errors import MissingData

        own, n_stored = self._stored_ids(store), len(store.progress().get(self.name, ()))
        if not own:
            others = f"; Study.stored({self.name!r}) reads the {n_stored} other runs of that name" if n_stored else ""
            raise MissingData(f"no run of {self.name} is stored in {self.home} yet; run() trains them{others}")
        return [*to_filters(only), *([] if len(own) == n_stored else [f"id={','.join(own)}"])]
