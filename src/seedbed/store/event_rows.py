"""Events folded into database rows, and rows turned back into curves and samples; pure functions, no database.

A row holds the metrics of one run at one step as little-endian float64, in the order of its metric names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
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


def sample_from_row(row: Mapping[str, Any]) -> StoredSample:
    """A sample from a row of `samples`."""
    prompt, text = (row[name].decode("utf-8", "surrogatepass") for name in ("prompt", "text"))
    tokens, logs = np.frombuffer(row["tokens"], "<i8"), np.frombuffer(row["log_probabilities"], "<f8")
    return StoredSample(
        row["run"], row["step"], row["number"], prompt, text, tuple(tokens.tolist()), tuple(logs.tolist())
    )


def build_curves(
    steps: Sequence[int],
    name_ids: Sequence[int],
    data: Sequence[bytes],
    name_sets: Mapping[int, MetricNames],
    wanted: Collection[str] | None,
) -> dict[str, Curve]:
    """The curves of a run by metric; each row, with steps ascending, has a step, its list of names and numbers."""
    parts: dict[str, list[Curve]] = {}
    all_steps = np.array(steps, dtype=np.int64)
    for name_id in dict.fromkeys(name_ids):
        names, is_whole = name_sets[name_id], name_ids.count(name_id) == len(name_ids)
        rows = slice(None) if is_whole else [i for i, one in enumerate(name_ids) if one == name_id]
        own = data if isinstance(rows, slice) else [data[i] for i in rows]
        columns = np.frombuffer(b"".join(own), "<f8").reshape(len(own), len(names)).T
        for name, column in zip(names, columns, strict=True):
            if wanted is None or name in wanted:
                parts.setdefault(name, []).append(Curve(all_steps[rows], np.ascontiguousarray(column)))
    return {name: _concatenate_curves(curves) for name, curves in parts.items()}


def _concatenate_curves(curves: Sequence[Curve]) -> Curve:
    if len(curves) == 1:
        return curves[0]
    steps = np.concatenate([curve.steps for curve in curves])
    order = np.argsort(steps)
    return Curve(steps[order], np.concatenate([curve.values for curve in curves])[order])
