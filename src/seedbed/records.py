"""The plain values that cross borders: what is planned, what happens while training, what is kept; no torch.

Training yields events; the pipeline turns them into what the store keeps. Arrays are NumPy's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite, isnan
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seedbed.settings import DatasetInfo, Settings, Value

RunStatus: TypeAlias = Literal["planned", "running", "finished", "stopped", "diverged", "failed"]
Arrays: TypeAlias = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True)
class ParameterCounts:
    """Learnable numbers of a model; `non_embedding` leaves out token and position tables."""

    total: int
    non_embedding: int
    frozen: int = 0  # besides those of `total`: numbers of tables that are given and stay as they are


@dataclass(frozen=True)
class Run:
    """One point with one seed: one model."""

    id: str
    seed: int
    config: Mapping[str, Value]  # the dials that the study varies
    settings: Settings
    parameters: ParameterCounts
    dataset_info: DatasetInfo | None = None  # of the task's data; None: those that the dials tell (arithmetic)


@dataclass(frozen=True)
class Plan:
    """A study written out as runs, before any computing."""

    study: str
    text: str  # the resolved study as TOML; planning it again gives the same runs
    axes: tuple[str, ...]  # the dials that vary, in the study's order
    runs: tuple[Run, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pack:
    """Runs of equal shape trained together as one program, in this order."""

    id: str
    runs: tuple[Run, ...]
    bytes: int  # predicted memory while training


@dataclass(frozen=True)
class Placement:
    """Where and how a pack runs; kept when it starts and reused on resume, since it decides the last bits."""

    device: str = "cpu"
    threads: int = 1
    mode: str = "plain"
    dtype: str = "float32"
    workers: int = 0  # packs side by side when it started, which decides its speed alone; 0: not known
    exclusive: bool = False  # nothing else trains on the device meanwhile


@dataclass(frozen=True)
class Cost:
    """What a pack has cost so far.

    Seconds by what they went to: prepare (build models, read data), compile (the first update of a session, with
    compiling and capturing), compute (all other updates), evaluate, write (samples) and save. Bytes are those of the
    pack alone: steady between updates, and at most.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)  # how often each of these was done
    steady_bytes: int | None = None  # None: not measured
    peak_bytes: int | None = None

    def per_run(self, n_runs: int) -> Cost:
        """One run's part of it."""
        seconds = {name: spent / n_runs for name, spent in self.seconds.items()}
        steady, peak = (None if held is None else round(held / n_runs) for held in (self.steady_bytes, self.peak_bytes))
        return Cost(seconds, self.counts, steady, peak)

    def mean_seconds(self, name: str) -> float | None:
        """Seconds that this took a time, on average; None where it was never done."""
        return self.seconds[name] / self.counts[name] if self.counts.get(name) else None


EstimateBasis: TypeAlias = Literal[
    "measured", "similar", "model", "guess"
]  # what a price is taken from, the surest first


@dataclass(frozen=True)
class PackEstimate:
    """What a pack is expected to cost.

    Measured: such a pack was timed here. Similar: one of the same shape with another number of runs or workers. Model:
    other shapes were, and operations and bytes carry their times over. Guess: nothing was.
    """

    seconds: float
    bytes: int
    basis: EstimateBasis


@dataclass(frozen=True)
class StudyEstimate:
    """What a study is expected to take from the command to its end, and its packs by id."""

    seconds: float
    packs: Mapping[str, PackEstimate]

    @property
    def basis(self) -> EstimateBasis:
        """That of most of the time."""
        spent: dict[EstimateBasis, float] = {}
        for price in self.packs.values():
            spent[price.basis] = spent.get(price.basis, 0.0) + price.seconds
        return max(spent, key=lambda basis: spent[basis], default="guess")


# ---- events: what training yields; a slot is a run's place in its pack ----


@dataclass(frozen=True)
class StepEvent:
    """The pack has done this many updates; nothing to keep, only progress to show."""

    step: int


@dataclass(frozen=True)
class EvaluationEvent:
    """Readings of some slots at one step: values[i, j] is reading names[j] of slot slots[i]."""

    step: int
    slots: tuple[int, ...]
    metrics: tuple[str, ...]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class CheckpointEvent:
    """Everything needed to go on from this step, and the weights to keep of the slots that are due."""

    step: int
    state: Arrays
    weights: Mapping[int, Arrays]


@dataclass(frozen=True)
class CostEvent:
    """What the pack has cost up to this step; comes before each Saved, and last of all."""

    step: int
    cost: Cost


@dataclass(frozen=True)
class DivergenceEvent:
    """A slot's numbers stopped being finite; it is frozen and its neighbours go on."""

    slot: int
    step: int
    cause: str


@dataclass(frozen=True)
class FinishEvent:
    """A slot has done all its steps."""

    slot: int
    step: int


@dataclass(frozen=True)
class SampleEvent:
    """A text that a slot wrote at this step; `number` counts those of one step."""

    slot: int
    step: int
    prompt: str
    text: str  # what came after the prompt
    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...]  # natural, of the model itself
    number: int = 0


@dataclass(frozen=True)
class StopEvent:
    """Training was asked to stop; a Saved of the same step came just before."""

    step: int


StoredEvent: TypeAlias = (
    EvaluationEvent | SampleEvent | CostEvent | DivergenceEvent | FinishEvent
)  # what is kept as it is told
Event: TypeAlias = StepEvent | StoredEvent | CheckpointEvent | StopEvent


# ---- what the store gives back ----


@dataclass(frozen=True)
class Curve:
    """One reading of one run over its recorded steps, in order."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class StoredStudy:
    """A study as the store knows it: everything ever registered under its name."""

    name: str
    text: str  # the resolved study that was registered last
    axes: tuple[str, ...]  # the dials that vary over all its runs
    created: str  # UTC, ISO 8601
    n_runs: int
    statuses: Mapping[RunStatus, int]  # runs by status; a status without runs is absent


@dataclass(frozen=True)
class StoredRun:
    """A run as the store knows it."""

    id: str
    seed: int
    settings: Settings
    parameters: ParameterCounts
    status: RunStatus
    step: int
    pack: str | None = None
    cause: str | None = None  # why it diverged or failed
    best_step: int | None = None  # the saved step with the lowest validation loss
    dataset_info: DatasetInfo | None = None  # None: stored by a version that did not keep it


@dataclass(frozen=True)
class RunProgress:
    """How far a run has come, without what it is."""

    run: str
    status: RunStatus
    step: int


@dataclass(frozen=True)
class StoredPack:
    """A pack as the store knows it: its members by slot, where it runs, and the step it can go on from."""

    id: str
    runs: tuple[str, ...]
    placement: Placement
    step: int | None  # None: nothing saved yet
    cost: Cost = Cost()
    environment: tuple[Mapping[str, str | int], ...] = ()  # what it ran under, each from its "step" on
    predicted_bytes: int | None = None  # predicted memory while training


@dataclass(frozen=True)
class Checkpoint:
    """Kept weights of one run at one step."""

    run: str
    step: int
    digest: str
    bytes: int


@dataclass(frozen=True)
class StoredSample:
    """A text that a run wrote while it was trained; `number` counts those of one step."""

    run: str
    step: int
    number: int
    prompt: str
    text: str
    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...]


# ---- how values leave as JSON ----


def to_jsonable(value: Any) -> Any:
    """The same value as JSON holds it, at every depth: lists, names as text, and NaN and ±inf as strings.

    >>> jsonable({0: (1.5, float("nan")), 42: np.array([-np.inf])})
    {'0': [1.5, 'NaN'], '42': ['-Infinity']}
    """
    if isinstance(value, Mapping):
        return {str(name): to_jsonable(inner) for name, inner in value.items()}
    if isinstance(value, np.generic | np.ndarray):
        return to_jsonable(value.tolist())
    if isinstance(value, list | tuple):
        return [to_jsonable(inner) for inner in value]
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
