"""Figures and questions as a study file declares them; drawing and answering are elsewhere.

    [[figures]]                               [[questions]]
    kind = "curves"                           ask = "which is better"
    metrics = ["train/loss", "val/loss"]      metric = "val/accuracy"
    colour = "task.train_fraction"            between = "model.kind"

Neither is part of a run's identity, so changing them retrains nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from seedbed.settings import OneOf, SettingsGroup

# A metric's name: {train,val,test[NAME]}/QUANTITY[GROUP], or a bare quantity such as norm.
METRIC_PATTERN: Final = re.compile(
    r"(?:(?P<split>train|val|test(?:\[.+\])?)/)?(?P<quantity>[^/\[\]]+)(?P<group>\[.+\])?"
)

ACCURACY_QUANTITIES: Final = ("accuracy", "token_accuracy")

# Kinds of figures, with the options that each needs; `charts.chart_kinds` draws them and registers further ones here.
FIGURE_KINDS: Final[dict[str, tuple[str, ...]]] = {
    "curves": (),
    "sweep": (),
    "bars": (),
    "budget": (),
    "parallel": (),
    "attention": ("text",),
    "fourier": (),
}
# The first step with an accuracy of at least so many percent: t_90 is that of 0.9.
THRESHOLD_STATISTIC: Final = re.compile(r"t_(?P<percent>100|[1-9][0-9]?)")


class StatisticNames(dict[str, None]):
    """Names of statistics, in order; besides t_90, which is listed, t_1 to t_100 are names as well."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and bool(THRESHOLD_STATISTIC.fullmatch(name)))


# Statistics of a run; `stats.run_statistics` computes them and registers further ones here.
STATISTIC_NAMES: Final = StatisticNames(
    dict.fromkeys(("best", "t_f", "t_90", "last", "gap", "delta_t", "seconds", "memory"))
)
_REGISTERED_NAME: Final = re.compile(r"[A-Za-z][\w-]*")


def register_figure_kind(name: str, required_options: tuple[str, ...] = ()) -> None:
    """Makes `kind = NAME` valid in `[[figures]]`; ValueError if the name is taken or not a word."""
    _check_new_name("chart kind", name, FIGURE_KINDS)
    FIGURE_KINDS[name] = required_options


def register_statistic_name(name: str) -> None:
    """Makes `value = NAME` valid in `[[figures]]` and `[[questions]]`; ValueError as above."""
    _check_new_name("statistic", name, STATISTIC_NAMES)
    STATISTIC_NAMES[name] = None


def is_threshold(statistic: str) -> bool:
    """Is this the first step at a threshold, which a run may never reach?"""
    return bool(THRESHOLD_STATISTIC.fullmatch(statistic))


def describe_wrong_metric(statistic: str, metrics: Iterable[str]) -> str:
    """Why a statistic does not apply to one of these metrics; empty if it applies to all of them.

    >>> describe_wrong_metric("t_90", ["val/loss"])
    't_90 is the first step with an accuracy of at least 0.9, and val/loss is no accuracy; expected val/accuracy'
    """
    if not (match := THRESHOLD_STATISTIC.fullmatch(statistic)):
        return ""
    for metric in metrics:
        parts = METRIC_PATTERN.fullmatch(metric)
        if parts is None or parts["quantity"] not in ACCURACY_QUANTITIES:
            expected = f"{parts['split'] or 'val'}/accuracy" if parts else "val/accuracy"
            meaning = f"the first step with an accuracy of at least {int(match['percent']) / 100:g}"
            return f"{statistic} is {meaning}, and {metric} is no accuracy; expected {expected}"
    return ""


def _check_new_name(what: str, name: str, table: Mapping[str, object]) -> None:
    if not _REGISTERED_NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot name a {what}: expected letters, digits, _ and -, beginning with a letter")
    if name in table:
        raise ValueError(f"there is a {what} named {name!r} already")


NonEmptyName = Annotated[str, Field(min_length=1, max_length=200)]
OneBasedIndex = Annotated[int, Field(ge=1)]
Scalar: TypeAlias = str | int | float | bool
FilterValues: TypeAlias = Scalar | tuple[Scalar | tuple[Scalar, ...], ...]
RunFilter: TypeAlias = dict[NonEmptyName, FilterValues]  # setting → the accepted value or values


class FigureSpec(SettingsGroup):
    """One chart; which options matter depends on its kind, one of FIGURE_KINDS."""

    kind: Annotated[str, OneOf(FIGURE_KINDS)] = Field("curves", description="what is drawn")
    title: str = Field("", description="title of the chart; generated when left out")
    report: str = Field("", description="the figure of the report it stands for, such as 'D 3'")
    metrics: tuple[NonEmptyName, ...] = Field(
        ("train/loss", "val/loss"), min_length=1, description="metrics, one panel each"
    )
    value: Annotated[str, OneOf(STATISTIC_NAMES)] = Field(
        "best", description="statistic of a run's curve (sweep, bars): its extremum, when it is first attained, …"
    )
    x: NonEmptyName = Field("step", description="step, epoch, tokens, time, parameters, alpha, or a setting")
    colour: NonEmptyName | None = Field(
        None,
        description="setting (or alpha, seed, or several joined by +) that colours the lines; when left out, what "
        "varies; none: by split",
    )
    dash: NonEmptyName | None = Field(None, description="second setting, shown by line dash")
    column: NonEmptyName | None = Field(None, description="setting with one column of panels per value")
    row: NonEmptyName | None = Field(None, description="setting with one row of panels per value")
    x_scale: Literal["auto", "linear", "log", "log2"] = Field(
        "auto", description="scale of the x axis; auto: log over steps where most happens early, or as the numbers suit"
    )
    y_scale: Literal["linear", "log"] = Field("linear", description="scale of the y axis")
    colour_scale: Literal["auto", "linear", "log", "log2"] = Field("auto", description="scale of the colour bar")
    alphas: tuple[float, ...] = Field((), description="replays runs as if stopped at these fractions of T")
    stopping: NonEmptyName | None = Field(
        None, description="metric whose advised stopping step is marked on its curves"
    )
    text: str = Field("", description="text whose attention is drawn (attention)")
    layers: tuple[OneBasedIndex, ...] = Field((), description="layers to draw, from 1 (attention); all when left out")
    heads: tuple[OneBasedIndex, ...] = Field((), description="heads to draw, from 1 (attention); all when left out")
    by: Literal["token", "word"] = Field("token", description="one row per token, or characters grouped into words")
    only: RunFilter = Field(default_factory=dict, description="settings that a run must have to be drawn")


class QuestionSpec(SettingsGroup):
    """One question; the answer is a sentence with its uncertainty."""

    ask: Literal[
        "which is better",
        "how does it change",
        "smallest",
        "largest",
        "which scales better",
        "what law",
        "grokking",
        "stopping",
        "does it hold",
    ] = Field("which is better", description="the kind of question")
    text: str = Field("", description="the question in the study's own words")
    report: str = Field("", description="the question of the report it stands for, such as 'D 3c'")
    metric: NonEmptyName = Field("val/accuracy", description="the metric M it is about")
    value: Annotated[str, OneOf(STATISTIC_NAMES)] = Field("best", description="as in [[figures]]")
    between: NonEmptyName | None = Field(None, description="setting whose values are compared")
    over: NonEmptyName | None = Field(
        None, description="setting X in: how does M change with X, smallest X with …, scales with X"
    )
    expect: Literal["lower", "higher", "same"] = Field(
        "lower", description="the claim: M is lower than and_metric, or the same (does it hold)"
    )
    margin: float | None = Field(
        None, gt=0, description="the largest difference that counts as the same (expect = same)"
    )
    allow_confounds: bool = Field(
        False, description="gives a verdict although the groups differ in other settings as well"
    )
    at_least: float | None = Field(None, description="M ≥ this (smallest, largest, does it hold)")
    at_most: float | None = Field(None, description="M ≤ this (smallest, largest, does it hold)")
    and_metric: NonEmptyName | None = Field(None, description="a second metric, compared with M or bounded as well")
    and_at_least: float | None = Field(None, description="and_metric ≥ this")
    and_at_most: float | None = Field(None, description="and_metric ≤ this")
    t_max: OneBasedIndex | None = Field(None, description="answers as if all runs had stopped at this step")
    only: RunFilter = Field(default_factory=dict, description="settings that a run must have to count")
