"""Groups against each other: every pair's difference with its 95 % interval, and each seed's own difference as a dot.

What is compared and tested is `measures.answers.better`'s; this draws its numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import TYPE_CHECKING, Any, Final

from seedbed.charts.labels import isolated, sentence
from seedbed.measures.answers.said import Subject
from seedbed.measures.compare import LEVEL
from seedbed.measures.words import chance

if TYPE_CHECKING:
    import altair as alt

COLUMNS: Final[dict[str, Any]] = {
    "pair": "string", "effect": "number", "low": "number", "high": "number", "value": "number", "seed": "string",
    "said": "string",
}  # fmt: skip
CLEAR, UNCLEAR = "told apart at 5 %", "not told apart"


@dataclass(frozen=True)
class Difference:
    """One pair, first minus second; ends are NaN where there is no interval, seeds empty where nothing is paired."""

    pair: str
    effect: float
    low: float
    high: float
    values: tuple[tuple[int, float], ...]
    clear: bool
    test: str  # `p = 0.06, n = 5`


@dataclass(frozen=True)
class Differences:
    """A chart of differences, gathered."""

    title: str
    x_title: str
    y_title: str  # what the names of all groups begin with: a dial
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to see."""
        return not self.differences


def gather_differences(numbers: Mapping[str, Any], subject: Subject) -> Differences:
    """The pairs of a comparison's numbers that have a difference at all."""
    values = {name: found["values"] for name, found in numbers.get("means", {}).items()}
    shared = _shared(list(values))
    pairs = [_difference(pair, values, shared) for pair in numbers.get("pairs", ()) if isfinite(pair["effect"])]
    better = {"max": "; right of 0 the first is better", "min": "; left of 0 the first is better", None: ""}
    return Differences(
        title=sentence(f"differences in {subject}"),
        x_title=f"difference (first − second){better[subject.better]}",
        y_title=shared.strip(" ="),
        differences=tuple(pairs),
        notes=tuple(_notes(pairs)),
    )


def _shared(names: Sequence[str]) -> str:
    """What all names have before their last `=`, as groups of one dial's values do; else nothing."""
    heads = {name[: name.rfind("=") + 1] for name in names}
    return heads.pop() if len(heads) == 1 else ""


def _difference(pair: Mapping[str, Any], values: Mapping[str, Mapping[int, float]], shared: str) -> Difference:
    first, second = values[pair["first"]], values[pair["second"]]
    own = tuple((seed, first[seed] - second[seed]) for seed in pair["seeds"])
    low, high = (pair["low"], pair["high"]) if isfinite(pair["low"]) else (nan, nan)
    clear = isfinite(pair["low"]) and pair["corrected"] <= LEVEL
    test = f"{chance(pair['corrected'])}, n = {pair['n']}" if isfinite(pair["low"]) else f"no test, n = {pair['n']}"
    name = " − ".join(isolated(pair[side].removeprefix(shared).strip()) for side in ("first", "second"))
    return Difference(name, pair["effect"], low, high, own, clear, test)


def _notes(pairs: list[Difference]) -> Iterator[str]:
    if any(isfinite(pair.low) for pair in pairs):
        yield "Lines are 95 % intervals of the mean difference (Student's t; Welch's where seeds do not pair)."
    if any(pair.values for pair in pairs):
        yield "Dots are seeds, each against itself."
    if any(not isfinite(pair.low) for pair in pairs):
        yield "One seed has no interval."
    if len(pairs) > 1:
        yield "p is corrected for the number of pairs (Holm)."


def draw_differences(differences: Differences) -> alt.ConcatChart:
    """The pairs under each other, zero marked."""
    import altair as alt

    from seedbed.charts.specs import table_of, titled
    from seedbed.charts.theme import CATEGORIES

    data, block = table_of(COLUMNS | {"clear": "string"}, _rows(differences))
    names = [one.pair for one in differences.differences]
    y = alt.Y("pair:N", sort=names, title=isolated(differences.y_title) or None, axis=alt.Axis(labelLimit=280))
    x = alt.X("effect:Q", title=differences.x_title, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=5))
    colours = alt.Scale(domain=[CLEAR, UNCLEAR], range=[CATEGORIES[0], CATEGORIES[6]])
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
    return alt.concat(layered, title=titled(differences.title), datasets=block)


def _rows(differences: Differences) -> Iterator[tuple[Any, ...]]:
    for one in differences.differences:
        clear = CLEAR if one.clear else UNCLEAR
        yield (one.pair, one.effect, one.low, one.high, nan, "", one.test, clear)
        for seed, value in one.values:
            yield (one.pair, nan, nan, nan, value, str(seed), "", clear)
