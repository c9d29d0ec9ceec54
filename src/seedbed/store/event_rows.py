"""Events folded into rows, and rows unfolded into curves and samples; pure functions, no database.

A row holds the numbers of one run at one step in the order of its names, as little-endian float64.
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
    """Named numbers of one run at one step."""

    names: MetricNames
    data: bytes

    @classmethod
    def from_array(cls, names: MetricNames, values: NDArray[np.float64]) -> MetricValues:
        return cls(names, np.asarray(values, "<f8").tobytes())

    def to_array(self) -> NDArray[np.float64]:
        return np.frombuffer(self.data, "<f8")

    def merged_with(self, newer: MetricValues) -> MetricValues:
        """Both, where the newer wins."""
        if set(self.names) <= set(newer.names):
            return newer
        both = dict(zip(self.names, self.to_array(), strict=True)) | dict(
            zip(newer.names, newer.to_array(), strict=True)
        )
        return MetricValues.from_array(tuple(both), np.array(list(both.values())))


@dataclass
class SlotProgress:
    """How far a run has come."""

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
    """What is kept of some events."""

    evaluations: EvaluationRows
    samples: list[dict[str, Any]]  # rows of `samples`
    cost: Cost | None = None  # the last that was told


def fold_events(events: Iterable[StoredEvent], slots: Mapping[int, SlotProgress]) -> EventRows:
    """The rows to keep; moves the progress of the slots on. An ended run, and a slot not listed, is left alone."""
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
    """A row of `samples`."""
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
    """The sample in a row of `samples`."""
    prompt, text = (held.decode("utf-8", "surrogatepass") for held in (row.prompt, row.text))
    tokens, logs = np.frombuffer(row.tokens, "<i8"), np.frombuffer(row.log_probabilities, "<f8")
    return StoredSample(row.run, row.step, row.number, prompt, text, tuple(tokens.tolist()), tuple(logs.tolist()))


def build_curves(
    rows: Iterable[tuple[str, int, MetricNames, bytes]], wanted: Collection[str] | None
) -> dict[str, dict[str, Curve]]:
    """The curves of each run by name, from (run, step, names, data) with steps rising within a run."""
    steps: dict[str, dict[MetricNames, list[int]]] = {}
    blocks: dict[str, dict[MetricNames, list[bytes]]] = {}
    for (run, names), several in groupby(rows, itemgetter(0, 2)):  # by stretches: there may be millions of rows
        of_run = list(several)
        steps.setdefault(run, {}).setdefault(names, []).extend(row[1] for row in of_run)
        blocks.setdefault(run, {}).setdefault(names, []).extend(row[3] for row in of_run)
    return {run: _build_run_curves(steps[run], blocks[run], wanted) for run in steps}


def _build_run_curves(
    steps: Mapping[MetricNames, list[int]], blocks: Mapping[MetricNames, list[bytes]], wanted: Collection[str] | None
) -> dict[str, Curve]:
    parts: dict[str, list[Curve]] = {}
    for names, data in blocks.items():
        columns = np.frombuffer(b"".join(data), "<f8").reshape(len(data), len(names)).T
        at = np.array(steps[names], dtype=np.int64)
        for name, column in zip(names, columns, strict=True):
            if wanted is None or name in wanted:
                parts.setdefault(name, []).append(Curve(at, np.ascontiguousarray(column)))
    return {name: _concatenate_curves(curves) for name, curves in parts.items()}


def _concatenate_curves(curves: Sequence[Curve]) -> Curve:
    if len(curves) == 1:
        return curves[0]
    steps = np.concatenate([curve.steps for curve in curves])
    order = np.argsort(steps)
    return Curve(steps[order], np.concatenate([curve.values for curve in curves])[order])
