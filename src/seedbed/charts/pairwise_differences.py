"""Pairwise differences between groups: each mean with its 95 % interval, and the difference of each seed as a dot.

Comparing and testing are left to `stats.answers`; this draws the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import TYPE_CHECKING, Any, Final

from seedbed.charts.axis_labels import isolate_direction
from seedbed.format import capitalise, format_p_value
from seedbed.stats.answers.finding import MetricStatistic
from seedbed.stats.decision import SIGNIFICANCE_LEVEL

if TYPE_CHECKING:
    import altair as alt

DATASET_COLUMNS: Final[dict[str, Any]] = {
    "pair": "string", "effect": "number", "low": "number", "high": "number", "value": "number", "seed": "string",
    "test": "string",
}  # fmt: skip
SIGNIFICANT, NOT_SIGNIFICANT = "significant at 5 %", "not significant"


@dataclass(frozen=True)
class PairDifference:
    """One pair, first minus second; low and high are NaN without an interval, values empty if seeds are not paired."""

    pair: str
    effect: float
    low: float
    high: float
    values: tuple[tuple[int, float], ...]
    significant: bool
    test: str  # `p = 0.06, n = 5`


@dataclass(frozen=True)
class PairwiseDifferences:
    """The data of a chart of pairwise differences."""

    title: str
    x_title: str
    y_title: str  # the setting that the names of all groups begin with, if any
    differences: tuple[PairDifference, ...]
    notes: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.differences


def gather_pairwise_differences(comparison: Mapping[str, Any], subject: MetricStatistic) -> PairwiseDifferences:
    """The data of the chart: the pairs of a comparison whose difference is finite."""
    values = {name: mean["values"] for name, mean in comparison.get("means", {}).items()}
    shared_prefix = _shared_prefix(list(values))
    pairs = [
        _pair_difference(pair, values, shared_prefix)
        for pair in comparison.get("pairs", ())
        if isfinite(pair.get("effect", nan))  # times to a threshold have none
    ]
    better = {"max": "; right of 0 the first is better", "min": "; left of 0 the first is better", None: ""}
    return PairwiseDifferences(
        title=capitalise(f"differences in {subject}"),
        x_title=f"difference (first − second){better[subject.direction]}",
        y_title=shared_prefix.strip(" ="),
        differences=tuple(pairs),
        notes=tuple(_chart_notes(pairs)),
    )


def _shared_prefix(names: Sequence[str]) -> str:
    """What all names have up to their last word or `=`, as groups by one setting do; else empty."""
    prefixes = {name[: max(name.rfind("="), name.rfind(" ")) + 1] for name in names}
    return prefixes.pop() if len(prefixes) == 1 else ""


def _pair_difference(
    pair: Mapping[str, Any], values: Mapping[str, Mapping[int, float]], shared_prefix: str
) -> PairDifference:
    first, second = values[pair["first"]], values[pair["second"]]
    by_seed = tuple((seed, first[seed] - second[seed]) for seed in pair["seeds"])
    low, high = (pair["low"], pair["high"]) if isfinite(pair["low"]) else (nan, nan)
    significant = isfinite(pair["low"]) and pair["corrected"] <= SIGNIFICANCE_LEVEL
    test = (
        f"{format_p_value(pair['corrected'])}, n = {pair['n']}"
        if isfinite(pair["low"])
        else f"no test, n = {pair['n']}"
    )
    name = " − ".join(isolate_direction(pair[side].removeprefix(shared_prefix).strip()) for side in ("first", "second"))
    return PairDifference(name, pair["effect"], low, high, by_seed, significant, test)


def _chart_notes(pairs: list[PairDifference]) -> Iterator[str]:
    if any(isfinite(pair.low) for pair in pairs):
        yield "Lines are 95 % intervals: the differences that the tests do not reject."
    if any(pair.values for pair in pairs):
        yield "Dots are differences by seed."
    if any(not isfinite(pair.low) for pair in pairs):
        yield "Without a line there are too few seeds for an interval."
    if len(pairs) > 1:
        yield "p and intervals are corrected for the number of pairs (Holm)."


def draw_pairwise_differences(differences: PairwiseDifferences) -> alt.ConcatChart:
    """One row per pair, with a line at zero."""
    import altair as alt

    from seedbed.charts.theme import CATEGORY_COLOURS
    from seedbed.charts.vega_lite import CHARACTER_PIXELS, csv_dataset, inline_chart, number_tooltip, panel_grid

    data, block = csv_dataset(DATASET_COLUMNS | {"significance": "string"}, _dataset_rows(differences))
    names = [one.pair for one in differences.differences]
    y = alt.Y("pair:N", sort=names, title=isolate_direction(differences.y_title) or None, axis=alt.Axis(labelLimit=280))
    x = alt.X("effect:Q", title=differences.x_title, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=5))
    colours = alt.Scale(domain=[SIGNIFICANT, NOT_SIGNIFICANT], range=[CATEGORY_COLOURS[0], CATEGORY_COLOURS[6]])
    colour = alt.Color("significance:N", scale=colours, legend=alt.Legend(title=None, orient="top"))
    means = alt.Chart(data).transform_filter("isValid(datum.effect)").encode(y=y, color=colour)
    tooltip = [alt.Tooltip("pair:N"), number_tooltip("effect", "difference"), number_tooltip("low")]
    tooltip += [number_tooltip("high"), alt.Tooltip("test:N")]
    seeds = (
        alt.Chart(data)
        .transform_filter("isValid(datum.value)")
        .mark_point(size=45, opacity=1, fillOpacity=0.7, filled=True, strokeWidth=1.2, yOffset=9)
    )
    marks = [
        inline_chart([{"effect": 0}]).mark_rule(strokeDash=[4, 3]).encode(x=x),
        means.mark_point(filled=True, size=110, opacity=1).encode(x=x, tooltip=tooltip),
        seeds.encode(x="value:Q", y=y, color=colour, tooltip=[alt.Tooltip("seed:N"), number_tooltip("value")]),
    ]
    if any(isfinite(one.low) for one in differences.differences):  # an axis of missing values has no extent
        intervals = means.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=3)
        marks.insert(1, intervals.encode(x="low:Q", x2="high:Q", tooltip=tooltip))
    layered = alt.layer(*marks).properties(width=420, height=max(70, 36 * len(names)))
    axis_pixels = 60 + CHARACTER_PIXELS * min(45, max(map(len, names), default=0))
    return panel_grid([layered], 1, differences.title, block, axis_pixels=axis_pixels, keep_height=True)


def _dataset_rows(differences: PairwiseDifferences) -> Iterator[tuple[Any, ...]]:
    for one in differences.differences:
        significance = SIGNIFICANT if one.significant else NOT_SIGNIFICANT
        yield (one.pair, one.effect, one.low, one.high, nan, "", one.test, significance)
        for seed, value in one.values:
            yield (one.pair, nan, nan, nan, value, str(seed), "", significance)
