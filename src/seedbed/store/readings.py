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
    Curve,
    Diverged,
    Evaluated,
    Finished,
    Happening,
    Measured,
    Sampled,
    Status,
    StoredSample,
)

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

    def reach(self, step: int) -> None:
        self.status, self.step = "running", max(self.step, step)

    def end(self, status: Status, step: int, cause: str | None = None) -> None:
        self.status, self.step, self.cause = status, step, cause


Rows: TypeAlias = dict[tuple[str, int], Numbers]  # by run and step


@dataclass(frozen=True)
class Folded:
    """What is kept of some events."""

    numbers: Rows
    samples: list[dict[str, Any]]  # rows of `samples`
    cost: Cost | None = None  # the last that was told


def fold(events: Iterable[Happening], slots: Mapping[int, Progress]) -> Folded:
    """The rows to keep; moves the progress of the slots on. An ended run, and a slot not listed, is left alone."""
    rows: Rows = {}
    samples: list[dict[str, Any]] = []
    cost: Cost | None = None
    for event in events:
        match event:
            case Evaluated():
                _fold_evaluated(event, slots, rows)
            case Sampled() if _goes_on(slots, event.slot):
                slots[event.slot].reach(event.step)
                samples.append(sample_row(slots[event.slot].run, event))
            case Diverged() if _goes_on(slots, event.slot):
                slots[event.slot].end("diverged", event.step, event.cause)
            case Finished() if _goes_on(slots, event.slot):
                slots[event.slot].end("finished", event.step)
            case Measured():
                cost = event.cost
    return Folded(rows, samples, cost)


def _goes_on(slots: Mapping[int, Progress], slot: int) -> bool:
    return slot in slots and slots[slot].status not in ENDED


def _fold_evaluated(event: Evaluated, slots: Mapping[int, Progress], rows: Rows) -> None:
    for slot, values in zip(event.slots, event.values, strict=True):
        if _goes_on(slots, slot):
            progress = slots[slot]
            progress.reach(event.step)
            key, numbers = (progress.run, event.step), Numbers.of(event.names, values)
            rows[key] = rows[key].updated(numbers) if key in rows else numbers


def sample_row(run: str, event: Sampled) -> dict[str, Any]:
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


def sample_of(row: Any) -> StoredSample:
    """The sample in a row of `samples`."""
    prompt, text = (held.decode("utf-8", "surrogatepass") for held in (row.prompt, row.text))
    tokens, logs = np.frombuffer(row.tokens, "<i8"), np.frombuffer(row.log_probabilities, "<f8")
    return StoredSample(row.run, row.step, row.number, prompt, text, tuple(tokens.tolist()), tuple(logs.tolist()))


def unfold(
    rows: Iterable[tuple[str, int, Names, bytes]], wanted: Collection[str] | None
) -> dict[str, dict[str, Curve]]:
    """The curves of each run by name, from (run, step, names, data) with steps rising within a run."""
    steps: dict[str, dict[Names, list[int]]] = {}
    blocks: dict[str, dict[Names, list[bytes]]] = {}
    for (run, names), several in groupby(rows, itemgetter(0, 2)):  # by stretches: there may be millions of rows
        of_run = list(several)
        steps.setdefault(run, {}).setdefault(names, []).extend(row[1] for row in of_run)
        blocks.setdefault(run, {}).setdefault(names, []).extend(row[3] for row in of_run)
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
