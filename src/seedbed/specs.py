"""What a study shows of its results: figures and questions, as its file declares them; no drawing, no answering.

    [[figures]]                               [[questions]]
    kind = "curves"                           ask = "which is better"
    metrics = ["train/loss", "val/loss"]      metric = "val/accuracy"
    colour = "task.train_fraction"            between = "model.kind"

Neither is part of a run's identity: changing them trains nothing again.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from seedbed.settings import SettingsGroup

# A metric's name: {train,val,test[NAME]}/QUANTITY[GROUP], or a bare quantity such as norm.
METRIC_PATTERN: Final = re.compile(
    r"(?:(?P<split>train|val|test(?:\[.+\])?)/)?(?P<quantity>[^/\[\]]+)(?P<group>\[.+\])?"
)

NonEmptyName = Annotated[str, Field(min_length=1, max_length=200)]
OneBasedIndex = Annotated[int, Field(ge=1)]
Scalar: TypeAlias = str | int | float | bool
FilterValues: TypeAlias = Scalar | tuple[Scalar | tuple[Scalar, ...], ...]
RunFilter: TypeAlias = dict[NonEmptyName, FilterValues]  # dial → the value, or one of the values, that counts


class FigureSpec(SettingsGroup):
    """One chart; which options matter depends on its kind."""

    kind: Literal["curves", "sweep", "bars", "budget", "parallel", "attention", "fourier"] = Field(
        "curves", description="what is drawn"
    )
    title: str = Field("", description="in words; made from the rest when left out")
    report: str = Field("", description="the figure of the report it stands for, such as 'D 3'")
    metrics: tuple[NonEmptyName, ...] = Field(
        ("train/loss", "val/loss"), min_length=1, description="readings, one panel each"
    )
    value: Literal["best", "t_f", "last", "gap", "delta_t", "seconds", "memory"] = Field(
        "best", description="what a run's curve becomes (against, bars): its extremum, when it is first attained, …"
    )
    x: NonEmptyName = Field("step", description="step, epoch, tokens, time, parameters, alpha, or a dial")
    colour: NonEmptyName | None = Field(
        None, description="dial (or alpha) that colours lines; a number gets a colour bar"
    )
    dash: NonEmptyName | None = Field(None, description="second dial, told by line dash")
    column: NonEmptyName | None = Field(None, description="dial with one column of panels a value")
    row: NonEmptyName | None = Field(None, description="dial with one row of panels a value")
    x_scale: Literal["linear", "log", "log2"] = "linear"
    y_scale: Literal["linear", "log"] = "linear"
    colour_scale: Literal["linear", "log", "log2"] = "linear"
    alphas: tuple[float, ...] = Field((), description="replays as if stopped at these shares of T")
    stopping: NonEmptyName | None = Field(None, description="reading whose stopping advice is marked on its curves")
    text: str = Field("", description="whose attention is drawn (attention)")
    layers: tuple[OneBasedIndex, ...] = Field((), description="layers to draw, from 1 (attention); all when left out")
    heads: tuple[OneBasedIndex, ...] = Field((), description="heads to draw, from 1 (attention); all when left out")
    by: Literal["token", "word"] = Field("token", description="a row a token, or characters gathered into words")
    only: RunFilter = Field(default_factory=dict, description="dials that a run must have to be drawn")


class QuestionSpec(SettingsGroup):
    """One question; the answer is a sentence with its uncertainty."""

    ask: Literal[
        "which is better",
        "how does it change",
        "smallest",
        "largest",
        "which scales better",
        "grokking",
        "stopping",
        "does it hold",
    ] = Field("which is better", description="the kind of question")
    text: str = Field("", description="the question in the study's own words")
    report: str = Field("", description="the question of the report it stands for, such as 'D 3c'")
    metric: NonEmptyName = Field("val/accuracy", description="the reading it is about")
    value: Literal["best", "t_f", "last", "gap", "delta_t", "seconds", "memory"] = Field(
        "best", description="as in Figure"
    )
    between: NonEmptyName | None = Field(None, description="dial whose values are compared")
    over: NonEmptyName | None = Field(
        None, description="dial X of: how does M change with X, smallest X with …, scales with X"
    )
    expect: Literal["lower", "higher"] = Field(
        "lower", description="the claim: M is lower than and_metric (does it hold)"
    )
    at_least: float | None = Field(None, description="M ≥ this (smallest, largest, does it hold)")
    at_most: float | None = Field(None, description="M ≤ this (smallest, largest, does it hold)")
    and_metric: NonEmptyName | None = Field(None, description="a second reading that must hold as well")
    and_at_least: float | None = None
    and_at_most: float | None = None
    only: RunFilter = Field(default_factory=dict, description="dials that a run must have to count")
