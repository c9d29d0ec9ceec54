"""Groups against each other: every pair's difference with its 95 % interval, and each seed's own difference as a dot.

What is compared and tested is `measures.answers.better`'s; this draws its numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import TYPE_CHECKING, Any, Final

from seedbed.charts.labels import capitalize_first, isolate_direction
from seedbed.stats.answers.comparison_text import MetricStatistic
from seedbed.stats.comparison import SIGNIFICANCE_LEVEL
from seedbed.stats.format import format_p_value

if TYPE_CHECKING:
    import altair as alt

COLUMNS: Final[dict[str, Any]] = {
    "pair": "string", "effect": "number", "low": "number", "high": "number", "value": "number", "seed": "string",
    "said": "string",
}  # fmt: skip
SIGNIFICANT, NOT_SIGNIFICANT = "told apart at 5 %", "not told apart"


@dataclass(frozen=True)
class PairDifference:
    """One pair, first minus second; ends are NaN where there is no interval, seeds empty where nothing is paired."""

    pair: str
    effect: float
    low: float
    high: float
    values: tuple[tuple[int, float], ...]
    significant: bool
    test: str  # `p = 0.06, n = 5`


@dataclass(frozen=True)
class PairwiseDifferences:
    """A chart of differences, gathered."""

    title: str
    x_title: str
    y_title: str  # what the names of all groups begin with: a dial
    differences: tuple[PairDifference, ...]
    notes: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to see."""
        return not self.differences


def gather_pairwise_differences(comparison: Mapping[str, Any], subject: MetricStatistic) -> PairwiseDifferences:
    """The pairs of a comparison's numbers that have a difference at all."""
    values = {name: found["values"] for name, found in comparison.get("means", {}).items()}
    shared = _shared_prefix(list(values))
    pairs = [_pair_difference(pair, values, shared) for pair in comparison.get("pairs", ()) if isfinite(pair["effect"])]
    better = {"max": "; right of 0 the first is better", "min": "; left of 0 the first is better", None: ""}
    return PairwiseDifferences(
        title=capitalize_first(f"differences in {subject}"),
        x_title=f"difference (first − second){better[subject.direction]}",
        y_title=shared.strip(" ="),
        differences=tuple(pairs),
        notes=tuple(_notes(pairs)),
    )


def _shared_prefix(names: Sequence[str]) -> str:
    """What all names have before their last `=`, as groups of one dial's values do; else nothing."""
    heads = {name[: name.rfind("=") + 1] for name in names}
    return heads.pop() if len(heads) == 1 else ""


def _pair_difference(
    pair: Mapping[str, Any], values: Mapping[str, Mapping[int, float]], shared_prefix: str
) -> PairDifference:
    first, second = values[pair["first"]], values[pair["second"]]
    own = tuple((seed, first[seed] - second[seed]) for seed in pair["seeds"])
    low, high = (pair["low"], pair["high"]) if isfinite(pair["low"]) else (nan, nan)
    clear = isfinite(pair["low"]) and pair["corrected"] <= SIGNIFICANCE_LEVEL
    test = (
        f"{format_p_value(pair['corrected'])}, n = {pair['n']}"
        if isfinite(pair["low"])
        else f"no test, n = {pair['n']}"
    )
    name = " − ".join(isolate_direction(pair[side].removeprefix(shared_prefix).strip()) for side in ("first", "second"))
    return PairDifference(name, pair["effect"], low, high, own, clear, test)


def _notes(pairs: list[PairDifference]) -> Iterator[str]:
    if any(isfinite(pair.low) for pair in pairs):
        yield "Lines are 95 % intervals of the mean difference (Student's t; Welch's where seeds do not pair)."
    if any(pair.values for pair in pairs):
        yield "Dots are seeds, each against itself."
    if any(not isfinite(pair.low) for pair in pairs):
        yield "One seed has no interval."
    if len(pairs) > 1:
        yield "p is corrected for the number of pairs (Holm)."


def draw_pairwise_differences(differences: PairwiseDifferences) -> alt.ConcatChart:
    """The pairs under each other, zero marked."""
    import altair as alt

    from seedbed.charts.theme import CATEGORY_COLOURS
    from seedbed.charts.vega_lite import csv_dataset, wrapped_title

    data, block = csv_dataset(COLUMNS | {"clear": "string"}, _rows(differences))
    names = [one.pair for one in differences.differences]
    y = alt.Y("pair:N", sort=names, title=isolate_direction(differences.y_title) or None, axis=alt.Axis(labelLimit=280))
    x = alt.X("effect:Q", title=differences.x_title, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=5))
    colours = alt.Scale(domain=[SIGNIFICANT, NOT_SIGNIFICANT], range=[CATEGORY_COLOURS[0], CATEGORY_COLOURS[6]])
    colour = alt.Color("clear:N", scale=colours, legend=alt.Legend(title=None, orient="top"))
    means = alt.Chart(data).transform_filter("isValid(datum.effect)").encode(y=y, color=colour)
    tooltip = [alt.Tooltip("pair:N"), alt.Tooltip("effect:Q", title="difference", format=".4~g")]
    tooltip += [
        alt.Tooltip("low:Q", format=".4~g"),
        alt.Tooltip("high:Q", format=".4~g"),
        alt.Tooltip("said:N", title="test"),
    ]
    zero = alt.Chart(alt.Data(values=[{"effect": 0}])).mark_rule(strokeDash=[4, 3]).encode(x=x)
    seeds = alt.Chart(data).transform_filter("isValid(datum.value)").mark_point(filled=True, size=20, opacity=0.55)
    marks = [
        zero,
        seeds.encode(
            x="value:Q", y=y, color=colour, tooltip=[alt.Tooltip("seed:N"), alt.Tooltip("value:Q", format=".4~g")]
        ),
        means.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=3)
        .encode(x="low:Q", x2="high:Q", tooltip=tooltip),
        means.mark_point(filled=True, size=110, opacity=1).encode(x=x, tooltip=tooltip),
    ]
    layered = alt.layer(*marks).properties(width=420, height=max(70, 34 * len(names)))
    return alt.concat(layered, title=wrapped_title(differences.title), datasets=block)


def _rows(differences: PairwiseDifferences) -> Iterator[tuple[Any, ...]]:
    for one in differences.differences:
        clear = SIGNIFICANT if one.significant else NOT_SIGNIFICANT
        yield (one.pair, one.effect, one.low, one.high, nan, "", one.test, clear)
        for seed, value in one.values:
            yield (one.pair, nan, nan, nan, value, str(seed), "", clear)
