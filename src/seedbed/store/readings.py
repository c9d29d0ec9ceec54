"""Events folded into rows, and rows unfolded into curves; pure functions, no database.

A row holds the numbers of one run at one step in the order of its names, as little-endian float64.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from seedbed.records import Curve, Diverged, Evaluated, Finished, Status

Names: TypeAlias = tuple[str, ...]
ENDED: tuple[Status, ...] = ("finished", "diverged")


@dataclass(frozen=True)
class Numbers:
    """Named numbers of one run at one step."""

    names: Names
    data: bytes

    @classmethod
    def of(cls, names: Names, values: NDArray[np.float64]) -> Numbers:
        return cls(names, np.asarray(values, "<f8").tobytes())

    def values(self) -> NDArray[np.float64]:
        return np.frombuffer(self.data, "<f8")

    def updated(self, newer: Numbers) -> Numbers:
        """Both, where the newer wins."""
        if set(self.names) <= set(newer.names):
            return newer
        both = dict(zip(self.names, self.values(), strict=True)) | dict(zip(newer.names, newer.values(), strict=True))
        return Numbers.of(tuple(both), np.array(list(both.values())))


@dataclass
class Progress:
    """How far a run has come."""

    run: str
    status: Status
    step: int
    cause: str | None = None

    def end(self, status: Status, step: int, cause: str | None = None) -> None:
        self.status, self.step, self.cause = status, step, cause


Rows: TypeAlias = dict[tuple[str, int], Numbers]  # by run and step


def fold(events: Iterable[Evaluated | Diverged | Finished], slots: Mapping[int, Progress]) -> Rows:
    """The rows to keep; moves the progress of the slots on. An ended run, and a slot not listed, is left alone."""
    rows: Rows = {}
    for event in events:
        match event:
            case Evaluated():
                _fold_evaluated(event, slots, rows)
            case Diverged() if _goes_on(slots, event.slot):
                slots[event.slot].end("diverged", event.step, event.cause)
            case Finished() if _goes_on(slots, event.slot):
                slots[event.slot].end("finished", event.step)
    return rows


def _goes_on(slots: Mapping[int, Progress], slot: int) -> bool:
    return slot in slots and slots[slot].status not in ENDED


def _fold_evaluated(event: Evaluated, slots: Mapping[int, Progress], rows: Rows) -> None:
    for slot, values in zip(event.slots, event.values, strict=True):
        if _goes_on(slots, slot):
            progress = slots[slot]
            progress.status, progress.step = "running", max(progress.step, event.step)
            key, numbers = (progress.run, event.step), Numbers.of(event.names, values)
            rows[key] = rows[key].updated(numbers) if key in rows else numbers


def unfold(
    rows: Iterable[tuple[str, int, Names, bytes]], wanted: Collection[str] | None
) -> dict[str, dict[str, Curve]]:
    """The curves of each run by name, from (run, step, names, data) with steps rising within a run."""
    steps: dict[str, dict[Names, list[int]]] = {}
    blocks: dict[str, dict[Names, list[bytes]]] = {}
    for run, step, names, data in rows:
        steps.setdefault(run, {}).setdefault(names, []).append(step)
        blocks.setdefault(run, {}).setdefault(names, []).append(data)
    return {run: _curves(steps[run], blocks[run], wanted) for run in steps}


def _curves(
    steps: Mapping[Names, list[int]], blocks: Mapping[Names, list[bytes]], wanted: Collection[str] | None
) -> dict[str, Curve]:
    parts: dict[str, list[Curve]] = {}
    for names, data in blocks.items():
        columns = np.frombuffer(b"".join(data), "<f8").reshape(len(data), len(names)).T
        at = np.array(steps[names], dtype=np.int64)
        for name, column in zip(names, columns, strict=True):
            if wanted is None or name in wanted:
                parts.setdefault(name, []).append(Curve(at, np.ascontiguousarray(column)))
    return {name: _joined(curves) for name, curves in parts.items()}


def _joined(curves: Sequence[Curve]) -> Curve:
    if len(curves) == 1:
        return curves[0]
    steps = np.concatenate([curve.steps for curve in curves])
    order = np.argsort(steps)
    return Curve(steps[order], np.concatenate([curve.values for curve in curves])[order])
