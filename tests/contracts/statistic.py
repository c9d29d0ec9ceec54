"""What every statistic of a run must do; `test_statistics.py` has one subclass for each.

The run has curves of loss and accuracy with one best value each, after which they get worse.
"""

from __future__ import annotations

from dataclasses import replace
from math import isnan
from typing import ClassVar

import pytest

from seedbed.stats.answers.finding import MetricStatistic
from seedbed.stats.metric_registry import metric_label
from seedbed.stats.run_statistics import Statistic, compute_statistic, find_statistic
from seedbed.stats.summary import RunCurves
from tests.charts.factories import make_run

LOSS, ACCURACY, NORM = "val/loss", "val/accuracy", "norm"
CURVES = {
    "train/loss": [3.0, 2.0, 1.5, 1.0, 0.5],
    LOSS: [3.0, 2.5, 1.75, 2.25, 2.75],
    "train/accuracy": [0.0, 0.25, 0.5, 1.0, 0.875],
    ACCURACY: [0.0, 0.125, 0.5, 0.375, 0.25],
    NORM: [10.0, 11.0, 12.0, 13.0, 14.0],
}
STEPS = [0, 10, 20, 30, 40]
T_MAX = 15  # between evaluations, before the best values


class StatisticContract:
    """Tests of one statistic; `value` is its value for `metric`, worked out by hand, and `early` up to T_MAX."""

    name: ClassVar[str]
    metric: ClassVar[str] = LOSS
    value: ClassVar[float]
    early: ClassVar[float]

    @pytest.fixture
    def run(self) -> RunCurves:
        run = make_run({}, 0, CURVES, STEPS)
        return replace(run, steady_bytes=3 * 2**20)

    @property
    def statistic(self) -> Statistic:
        return find_statistic(self.name)

    def test_its_value_is_known(self, run: RunCurves) -> None:
        assert compute_statistic(run, self.metric, self.name) == pytest.approx(self.value)

    def test_later_values_do_not_count_before_t_max(self, run: RunCurves) -> None:
        assert compute_statistic(run, self.metric, self.name, T_MAX) == pytest.approx(self.early)
        kept = [step <= T_MAX for step in STEPS].count(True)
        stopped = make_run({}, 0, {name: values[:kept] for name, values in CURVES.items()}, STEPS[:kept])
        stopped = replace(stopped, steady_bytes=run.steady_bytes)
        early = compute_statistic(run, self.metric, self.name, T_MAX)
        assert compute_statistic(stopped, self.metric, self.name) == early
        whole = compute_statistic(run, self.metric, self.name)
        assert compute_statistic(run, self.metric, self.name, STEPS[-1]) == whole

    @pytest.mark.parametrize("metric", ["val/flavour", "val/perplexity"])
    def test_it_is_nan_without_the_metric(self, run: RunCurves, metric: str) -> None:
        assert isnan(compute_statistic(run, metric, self.name)) == self.statistic.uses_metric

    def test_it_is_nan_where_nothing_is_recorded_up_to_t_max(self, run: RunCurves) -> None:
        assert isnan(compute_statistic(run, self.metric, self.name, -1)) == self.statistic.uses_metric

    def test_a_metric_matters_only_if_it_says_so(self, run: RunCurves) -> None:
        values = [compute_statistic(run, metric, self.name) for metric in (LOSS, ACCURACY)]
        assert self.statistic.uses_metric or values[0] == values[1]

    def test_its_direction_is_the_metrics_or_its_own(self) -> None:
        directions = [self.statistic.direction(metric) for metric in (LOSS, ACCURACY, NORM)]
        expected = ["min", "max", None] if self.statistic.better == "metric" else [self.statistic.better] * 3
        assert directions == expected
        assert self.statistic.better != "metric" or self.statistic.uses_metric

    def test_steps_are_counted_in_steps_and_early_is_better_only_at_a_fixed_threshold(self) -> None:
        if self.statistic.is_step:
            better = None if self.statistic.threshold is None else "min"
            assert (self.statistic.unit, self.statistic.better) == ("steps", better)

    def test_sentences_and_charts_name_it_and_its_metric(self) -> None:
        texts = [
            str(MetricStatistic(LOSS, self.name)).replace(metric_label(LOSS), LOSS),
            self.statistic.axis_title_template(LOSS).format(LOSS),
            self.statistic.title.format(LOSS),
        ]
        for text in texts:
            assert text
            assert (LOSS in text) == self.statistic.uses_metric
            assert "{" not in text
