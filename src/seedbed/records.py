"""Plain records passed between parts: plans and packs, training events, stored runs; no torch.

Training yields events; the recorder writes them to the store. Arrays are NumPy's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite, isnan
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seedbed.settings import DatasetInfo, Settings, Value

RunStatus: TypeAlias = Literal["planned", "running", "finished", "stopped", "diverged", "failed"]
ENDED_STATUSES: Final[tuple[RunStatus, ...]] = ("finished", "diverged")  # of runs that are not trained any further
LOST_STATUSES: Final[tuple[RunStatus, ...]] = ("diverged", "failed")  # of runs that count in no mean
Arrays: TypeAlias = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True)
class ParameterCounts:
    """Parameter counts of a model; `non_embedding` excludes token and position embeddings."""

    total: int
    non_embedding: int
    frozen: int = 0  # parameters of frozen embeddings, not included in `total`


@dataclass(frozen=True)
class Run:
    """One config with one seed: one model."""

    id: str
    seed: int
    config: Mapping[str, Value]  # the settings that the study varies
    settings: Settings
    parameters: ParameterCounts
    dataset_info: DatasetInfo | None = None  # of the task's data; None: it follows from the settings (arithmetic)


@dataclass(frozen=True)
class Vocabulary:
    """What encodes, decodes and names the data of a run, as plain values; kept with its weights."""

    tokenizer: str  # the kind of tokenizer
    tokens: tuple[str, ...]  # by id
    merges: tuple[tuple[str, str], ...] = ()  # of BPE
    label_names: tuple[str, ...] = ()  # by label id


@dataclass(frozen=True)
class Plan:
    """A study expanded into runs, before any training."""

    study: str
    text: str  # the resolved study as TOML; planning it again gives the same runs
    axes: tuple[str, ...]  # the settings that vary, in the study's order
    runs: tuple[Run, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pack:
    """Runs of equal shape trained together as one program, in this order."""

    id: str
    runs: tuple[Run, ...]
    bytes: int  # predicted training memory


@dataclass(frozen=True)
class Placement:
    """Where and how a pack runs; stored when it starts and reused on resume, since rounding depends on it."""

    device: str = "cpu"
    threads: int = 1
    mode: str = "plain"
    dtype: str = "float32"
    workers: int = 0  # concurrent packs when it started; affects only its speed; 0: unknown
    exclusive: bool = False  # nothing else trains on the device at the same time


@dataclass(frozen=True)
class Cost:
    """Time and memory that a pack has used so far.

    Seconds are by section: prepare (build models, load data), compile (the first update of a session, with compilation
    and graph capture), compute (all other updates), evaluate, write (samples) and save. Bytes are those of the pack
    alone: between updates (steady) and at their peak.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)  # how often each section was entered
    steady_bytes: int | None = None  # None: not measured
    peak_bytes: int | None = None

    def per_run(self, n_runs: int) -> Cost:
        """The cost divided evenly among the runs of the pack."""
        seconds = {name: spent / n_runs for name, spent in self.seconds.items()}
        steady, peak = (None if used is None else round(used / n_runs) for used in (self.steady_bytes, self.peak_bytes))
        return Cost(seconds, self.counts, steady, peak)

    def mean_seconds(self, name: str) -> float | None:
        """Mean seconds per entry of a section; None if it was never entered."""
        return self.seconds[name] / self.counts[name] if self.counts.get(name) else None


EstimateBasis: TypeAlias = Literal["measured", "similar", "model", "guess"]  # most reliable first


@dataclass(frozen=True)
class PackEstimate:
    """Predicted time and memory of a pack.

    Basis: measured (such a pack was timed here), similar (one of the same shape with another number of runs or workers
    was), model (other shapes were; their times are scaled by FLOPs and bytes), guess (nothing was timed).
    """

    seconds: float
    bytes: int
    basis: EstimateBasis


@dataclass(frozen=True)
class StudyEstimate:
    """Predicted wall-clock time of a study, and the estimates of its packs by id."""

    seconds: float
    packs: Mapping[str, PackEstimate]

    @property
    def basis(self) -> EstimateBasis:
        """The basis of the largest part of the time."""
        spent: dict[EstimateBasis, float] = {}
        for estimate in self.packs.values():
            spent[estimate.basis] = spent.get(estimate.basis, 0.0) + estimate.seconds
        return max(spent, key=lambda basis: spent[basis], default="guess")


# ---- events that training yields; a slot is the index of a run in its pack ----


@dataclass(frozen=True)
class StepEvent:
    """The pack has done this many updates; for progress display only, never stored."""

    step: int


@dataclass(frozen=True)
class EvaluationEvent:
    """Metrics of some slots at one step: values[i, j] is metrics[j] of slots[i]."""

    step: int
    slots: tuple[int, ...]
    metrics: tuple[str, ...]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class CheckpointEvent:
    """The state to resume from at this step, and the weights of the slots whose checkpoint is due."""

    step: int
    state: Arrays
    weights: Mapping[int, Arrays]


@dataclass(frozen=True)
class CostEvent:
    """Cost of the pack up to this step; precedes each CheckpointEvent, and is the last event."""

    step: int
    cost: Cost


@dataclass(frozen=True)
class DivergenceEvent:
    """The loss or weights of a slot became non-finite; it is frozen while its neighbours continue."""

    slot: int
    step: int
    cause: str


@dataclass(frozen=True)
class FinishEvent:
    """A slot has completed all its steps."""

    slot: int
    step: int


@dataclass(frozen=True)
class SampleEvent:
    """A text that a slot generated at this step; `number` indexes the samples of one step."""

    slot: int
    step: int
    prompt: str
    text: str  # without the prompt
    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...]  # natural log, before any sampling filter
    number: int = 0


@dataclass(frozen=True)
class StopEvent:
    """Training was asked to stop, now or at this step; preceded by a CheckpointEvent of the same step."""

    step: int


@dataclass(frozen=True)
class EndEvent:
    """The last event of a pack whose training ended without an error."""


# Events that the store writes as they arrive
StoredEvent: TypeAlias = EvaluationEvent | SampleEvent | CostEvent | DivergenceEvent | FinishEvent
Event: TypeAlias = StepEvent | StoredEvent | CheckpointEvent | StopEvent | EndEvent


# ---- records that the store returns ----


@dataclass(frozen=True)
class Curve:
    """One metric of one run over its evaluated steps, in order."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class StoredStudy:
    """A stored study: everything ever registered under its name."""

    name: str
    text: str  # the resolved study that was registered last
    axes: tuple[str, ...]  # the settings that vary over all its runs
    created: str  # UTC, ISO 8601
    n_runs: int
    statuses: Mapping[RunStatus, int]  # runs by status; a status without runs is absent


@dataclass(frozen=True)
class StoredRun:
    """A stored run."""

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
    """Status and step of a run, without its settings."""

    run: str
    status: RunStatus
    step: int


@dataclass(frozen=True)
class StoredPack:
    """A stored pack: its members by slot, its placement, and the step it can resume from."""

    id: str
    runs: tuple[str, ...]
    placement: Placement
    step: int | None  # None: nothing saved yet
    cost: Cost = Cost()
    environment: tuple[Mapping[str, str | int], ...] = ()  # software versions; each entry is valid from its "step" on
    predicted_bytes: int | None = None  # training memory


@dataclass(frozen=True)
class Checkpoint:
    """Saved weights of one run at one step."""

    run: str
    step: int
    digest: str
    bytes: int


@dataclass(frozen=True)
class StoredSample:
    """A text that a run generated during training; `number` indexes the samples of one step."""

    run: str
    step: int
    number: int
    prompt: str
    text: str
    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...]


@dataclass(frozen=True)
class Annotation:
    """What a user has written about a study or a run."""

    note: str = ""
    tags: tuple[str, ...] = ()  # in alphabetical order


@dataclass(frozen=True)
class Annotations:
    """The annotations of a store by study name and by run id; what has none is absent."""

    studies: Mapping[str, Annotation] = field(default_factory=dict)
    runs: Mapping[str, Annotation] = field(default_factory=dict)


# ---- JSON ----


def to_jsonable(value: Any) -> Any:
    """The value with lists, string keys, and NaN and ±inf as strings at every depth, ready for json.dumps.

    >>> to_jsonable({0: (1.5, float("nan")), 42: np.array([-np.inf])})
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
