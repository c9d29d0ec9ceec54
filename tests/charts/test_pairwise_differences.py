"""Pairwise differences by value and as a picture; parallel coordinates that can be brushed."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Any

import numpy as np
import pytest

from seedbed.charts.pairwise_differences import SIGNIFICANT, draw_pairwise_differences, gather_pairwise_differences
from seedbed.charts.parallel_coordinates import draw_parallel_coordinates, gather_parallel_coordinates
from seedbed.charts.render import render, to_svg
from seedbed.charts.theme import DARK_THEME, LIGHT_THEME, Theme
from seedbed.charts.vega_lite import to_vega_lite, without_interaction
from seedbed.specs import FigureSpec
from seedbed.stats.answers.best_group import compare_groups
from seedbed.stats.answers.finding import MetricStatistic
from seedbed.stats.groups import group_by_setting
from seedbed.stats.summary import RunCurves

from .factories import make_grid, make_run, pixels

LOSS = MetricStatistic("val/loss", "best")


def runs_with_heads(heads: int, values: list[float]) -> list[RunCurves]:
    return [make_run({"model.heads": heads}, seed, {"val/loss": [9.0, one]}) for seed, one in enumerate(values)]


def compare(first: list[float], second: list[float]) -> Mapping[str, Any]:
    """The comparison of two groups, by seed."""
    groups = {f"heads = {heads}": runs_with_heads(heads, values) for heads, values in ((2, first), (4, second))}
    return compare_groups(groups, LOSS).numbers


def test_a_pair_has_its_mean_difference_interval_and_seeds() -> None:
    first, second = [1.0, 2.0, 3.0, 2.0, 2.0, 2.0], [1.5, 2.7, 3.3, 2.4, 2.6, 2.5]
    found = gather_pairwise_differences(compare(first, second), LOSS)
    (pair,) = found.differences
    assert (pair.pair, found.y_title) == ("2 − 4", "heads")
    assert dict(pair.values) == pytest.approx({0: -0.5, 1: -0.7, 2: -0.3, 3: -0.4, 4: -0.6, 5: -0.5})
    assert (pair.effect, pair.low, pair.high) == pytest.approx((-0.5, -0.7, -0.3))  # six seeds: the extreme differences
    assert pair.significant
    assert "left of 0 the first is better" in found.x_title


@pytest.mark.parametrize("n", [1, 5])
def test_fewer_than_six_seeds_have_no_interval_and_are_not_significant(n: int) -> None:
    found = gather_pairwise_differences(compare([1.0] * n, [1.5] * n), LOSS)
    (pair,) = found.differences
    assert isnan(pair.low)
    assert not pair.significant
    assert pair.test == f"no test, n = {n}"
    assert "Without a line there are too few seeds for an interval." in found.notes


def test_eight_seeds_that_agree_are_significant() -> None:
    (pair,) = gather_pairwise_differences(
        compare([1.0 + i / 9 for i in range(8)], [2.0 + i / 10 for i in range(8)]), LOSS
    ).differences
    assert pair.significant
    assert pair.test == "p = 0.0078, n = 8"  # 2 of 2⁸ signs


def test_no_comparison_is_empty() -> None:
    assert gather_pairwise_differences({}, LOSS).is_empty


def test_groups_of_several_settings_keep_their_names() -> None:
    groups = {"GPT": make_grid()[:2], "layers = 3": make_grid()[2:4]}
    (pair,) = gather_pairwise_differences(compare_groups(groups, LOSS).numbers, LOSS).differences
    assert pair.pair == "GPT − layers = 3"


@pytest.mark.parametrize("theme", [LIGHT_THEME, DARK_THEME])
def test_differences_are_a_picture_with_something_on_it(theme: Theme) -> None:
    groups = {str(value): runs for value, runs in group_by_setting(make_grid(range(6)), "train.batch_size").items()}
    spec = to_vega_lite(
        draw_pairwise_differences(gather_pairwise_differences(compare_groups(groups, LOSS).numbers, LOSS)), theme
    )
    picture = pixels(render(without_interaction(spec), "png"))[..., :3].astype(int)
    assert (np.abs(picture - picture[2, 2]).sum(axis=-1) > 60).mean() > 0.01
    assert SIGNIFICANT in to_svg(without_interaction(spec))


# ---- brushing ----


def test_parallel_coordinates_can_be_brushed_only_if_asked() -> None:
    chart = gather_parallel_coordinates(FigureSpec(kind="parallel", metrics=("val/loss",)), make_grid())
    static, brushed = (
        to_vega_lite(draw_parallel_coordinates(chart, brushable=brushable)) for brushable in (False, True)
    )
    assert "params" not in static
    assert [param["name"] for param in brushed["params"]] == ["brush0", "brush1", "brush2"]
    first = brushed["datasets"]["rows"].splitlines()
    assert first[0].endswith("h0,h1,h2")
    assert "<svg" in to_svg(brushed)


def test_labels_of_an_axis_never_overlap() -> None:
    runs = [
        make_run({"train.lr": lr}, 0, {"val/loss": [loss]})
        for lr, loss in ((0.1, 1.0), (0.2, 1.001), (0.3, 1.9), (0.4, 2.0))
    ]
    axis = gather_parallel_coordinates(FigureSpec(kind="parallel", metrics=("val/loss",)), runs).axes[-1]
    assert [text for _, text in axis.labels] == ["1", "1.9", "2"]
