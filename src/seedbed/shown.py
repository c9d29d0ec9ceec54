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

from seedbed.settings import Dials

# A metric's name: {train,val,test[NAME]}/QUANTITY[GROUP], or a bare quantity such as norm.
METRIC: Final = re.compile(r"(?:(?P<split>train|val|test(?:\[.+\])?)/)?(?P<quantity>[^/\[\]]+)(?P<group>\[.+\])?")

Name = Annotated[str, Field(min_length=1, max_length=200)]
Place = Annotated[int, Field(ge=1)]
Scalar: TypeAlias = str | int | float | bool
Choices: TypeAlias = Scalar | tuple[Scalar | tuple[Scalar, ...], ...]
Filter: TypeAlias = dict[Name, Choices]  # dial → the value, or one of the values, that counts


class Figure(Dials):
    """One chart; which options matter depends on its kind."""

    kind: Literal["curves", "against", "bars", "level", "parallel", "attention", "circle"] = Field(
        "curves", description="what is drawn"
    )
    title: str = Field("", description="in words; made from the rest when left out")
    report: str = Field("", description="the figure of the report it stands for, such as 'D 3'")
    metrics: tuple[Name, ...] = Field(("train/loss", "val/loss"), min_length=1, description="readings, one panel each")
    value: Literal["best", "t_f", "last", "gap", "delta_t", "seconds", "memory"] = Field(
        "best", description="what a run's curve becomes (against, bars): its extremum, when it is first attained, …"
    )
    x: Name = Field("step", description="step, epoch, tokens, time, parameters, alpha, or a dial")
    colour: Name | None = Field(None, description="dial (or alpha) that colours lines; a number gets a colour bar")
    dash: Name | None = Field(None, description="second dial, told by line dash")
    column: Name | None = Field(None, description="dial with one column of panels a value")
    row: Name | None = Field(None, description="dial with one row of panels a value")
    x_scale: Literal["linear", "log", "log2"] = "linear"
    y_scale: Literal["linear", "log"] = "linear"
    colour_scale: Literal["linear", "log", "log2"] = "linear"
    alphas: tuple[float, ...] = Field((), description="replays as if stopped at these shares of T")
    stopping: Name | None = Field(None, description="reading whose stopping advice is marked on its curves")
    text: str = Field("", description="whose attention is drawn (attention)")
    layers: tuple[Place, ...] = Field((), description="layers to draw, from 1 (attention); all when left out")
    heads: tuple[Place, ...] = Field((), description="heads to draw, from 1 (attention); all when left out")
    by: Literal["token", "word"] = Field("token", description="a row a token, or characters gathered into words")
    only: Filter = Field(default_factory=dict, description="dials that a run must have to be drawn")


class Question(Dials):
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
    metric: Name = Field("val/accuracy", description="the reading it is about")
    value: Literal["best", "t_f", "last", "gap", "delta_t", "seconds", "memory"] = Field(
        "best", description="as in Figure"
    )
    between: Name | None = Field(None, description="dial whose values are compared")
    over: Name | None = Field(None, description="dial X of: how does M change with X, smallest X with …, scales with X")
    expect: Literal["lower", "higher"] = Field(
        "lower", description="the claim: M is lower than and_metric (does it hold)"
    )
    at_least: float | None = Field(None, description="M ≥ this (smallest, largest, does it hold)")
    at_most: float | None = Field(None, description="M ≤ this (smallest, largest, does it hold)")
    and_metric: Name | None = Field(None, description="a second reading that must hold as well")
    and_at_least: float | None = None
    and_at_most: float | None = None
    only: Filter = Field(default_factory=dict, description="dials that a run must have to count")
