"""Events folded into database rows, and rows turned back into curves and samples; pure functions, no database.

A row holds the metrics of one run at one step as little-endian float64, in the order of its metric names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seedbed.records import (
    Cost,
    CostEvent,
    Curve,
    DivergenceEvent,
    EvaluationEvent,
    FinishEvent,
    RunStatus,
    SampleEvent,
    StoredEvent,
    StoredSample,
)

MetricNames: TypeAlias = tuple[str, ...]
ENDED_STATUSES: tuple[RunStatus, ...] = ("finished", "diverged")


@dataclass(frozen=True)
class MetricValues:
    """The metrics of one run at one step."""

    names: MetricNames
    data: bytes

    @classmethod
    def from_array(cls, names: MetricNames, values: NDArray[np.float64]) -> MetricValues:
        return cls(names, np.asarray(values, "<f8").tobytes())

    def to_array(self) -> NDArray[np.float64]:
        return np.frombuffer(self.data, "<f8")

    def merged_with(self, newer: MetricValues) -> MetricValues:
        """The union of both; newer values win."""
        if set(self.names) <= set(newer.names):
            return newer
        both = dict(zip(self.names, self.to_array(), strict=True)) | dict(
            zip(newer.names, newer.to_array(), strict=True)
        )
        return MetricValues.from_array(tuple(both), np.array(list(both.values())))


@dataclass
class SlotProgress:
    """Status and step of the run in a slot, updated by events."""

    run: str
    status: RunStatus
    step: int
    cause: str | None = None

    def advance_to(self, step: int) -> None:
        self.status, self.step = "running", max(self.step, step)

    def mark_ended(self, status: RunStatus, step: int, cause: str | None = None) -> None:
        self.status, self.step, self.cause = status, step, cause


EvaluationRows: TypeAlias = dict[tuple[str, int], MetricValues]  # by run and step


@dataclass(frozen=True)
class EventRows:
    """The rows that some events become."""

    evaluations: EvaluationRows
    samples: list[dict[str, Any]]  # rows of `samples`
    cost: Cost | None = None  # of the last CostEvent


def fold_events(events: Iterable[StoredEvent], slots: Mapping[int, SlotProgress]) -> EventRows:
    """The rows to store; updates `slots` in place. Events of ended runs and of unlisted slots are ignored."""
    rows: EvaluationRows = {}
    samples: list[dict[str, Any]] = []
    cost: Cost | None = None
    for event in events:
        match event:
            case EvaluationEvent():
                _fold_evaluation(event, slots, rows)
            case SampleEvent() if _is_training(slots, event.slot):
                slots[event.slot].advance_to(event.step)
                samples.append(sample_to_row(slots[event.slot].run, event))
            case DivergenceEvent() if _is_training(slots, event.slot):
                slots[event.slot].mark_ended("diverged", event.step, event.cause)
            case FinishEvent() if _is_training(slots, event.slot):
                slots[event.slot].mark_ended("finished", event.step)
            case CostEvent():
                cost = event.cost
    return EventRows(rows, samples, cost)


def _is_training(slots: Mapping[int, SlotProgress], slot: int) -> bool:
    return slot in slots and slots[slot].status not in ENDED_STATUSES


def _fold_evaluation(event: EvaluationEvent, slots: Mapping[int, SlotProgress], rows: EvaluationRows) -> None:
    for slot, values in zip(event.slots, event.values, strict=True):
        if _is_training(slots, slot):
            progress = slots[slot]
            progress.advance_to(event.step)
            key, numbers = (progress.run, event.step), MetricValues.from_array(event.metrics, values)
            rows[key] = rows[key].merged_with(numbers) if key in rows else numbers


def sample_to_row(run: str, event: SampleEvent) -> dict[str, Any]:
    """A sample event as a row of `samples`."""
    return {
        "run": run,
        "step": event.step,
        "number": event.number,
        "prompt": event.prompt.encode("utf-8", "surrogatepass"),
        "text": event.text.encode("utf-8", "surrogatepass"),
        "tokens": np.array(event.tokens, "<i8").tobytes(),
        "log_probabilities": np.array(event.log_probabilities, "<f8").tobytes(),
    }


def sample_from_row(row: Any) -> StoredSample:
    """A sample from a row of `samples`."""
    prompt, text = (data.decode("utf-8", "surrogatepass") for data in (row.prompt, row.text))
    tokens, logs = np.frombuffer(row.tokens, "<i8"), np.frombuffer(row.log_probabilities, "<f8")
    return StoredSample(row.run, row.step, row.number, prompt, text, tuple(tokens.tolist()), tuple(logs.tolist()))


def build_curves(
    rows: Iterable[tuple[str, int, MetricNames, bytes]], wanted: Collection[str] | None
) -> dict[str, dict[str, Curve]]:
    """Curves by run and metric from (run, step, names, data) rows, with steps ascending within a run."""
    steps: dict[str, dict[MetricNames, list[int]]] = {}
    blocks: dict[str, dict[MetricNames, list[bytes]]] = {}
    for (run, names), group in groupby(rows, itemgetter(0, 2)):  # one pass per stretch: there may be millions of rows
        stretch = list(group)
        steps.setdefault(run, {}).setdefault(names, []).extend(row[1] for row in stretch)
        blocks.setdefault(run, {}).setdefault(names, []).extend(row[3] for row in stretch)
    return {run: _build_run_curves(steps[run], blocks[run], wanted) for run in steps}


def _build_run_curves(
    steps: Mapping[MetricNames, list[int]], blocks: Mapping[MetricNames, list[bytes]], wanted: Collection[str] | None
) -> dict[str, Curve]:
    parts: dict[str, list[Curve]] = {}
    for names, data in blocks.items():
        columns = np.frombuffer(b"".join(data), "<f8").reshape(len(data), len(names)).T
        row_steps = np.array(steps[names], dtype=np.int64)
        for name, column in zip(names, columns, strict=True):
            if wanted is None or name in wanted:
                parts.setdefault(name, []).append(Curve(row_steps, np.ascontiguousarray(column)))
    return {name: _concatenate_curves(curves) for name, curves in parts.items()}


def _concatenate_curves(curves: Sequence[Curve]) -> Curve:
    if len(curves) == 1:
        return curves[0]
    steps = np.concatenate([curve.steps for curve in curves])
    order = np.argsort(steps)
    return Curve(steps[order], np.concatenate([curve.values for curve in curves])[order])
