"""The Store contract: planned studies, the metrics and samples of their runs, and the checkpoints to resume from.

One transaction per method. This order of calls guarantees that nothing recorded is lost:

    register(plan) → claim(packs) → with lock(pack): resume → (record …, save) … → finish | stop | fail

`record` commits metrics before `save` puts the checkpoint that follows them in place; `resume` rolls back what was
recorded after the last save. The end of a run (finished, diverged) is settled by the next `save` or `finish`. stats/
interprets the metrics, training/ the arrays, interp/ the analyses. A new store is a subclass, a line in `STORES`, and a
test class that inherits the contract in tests/contracts/.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, TypeAlias

from seedbed.records import (
    Annotation,
    Annotations,
    Arrays,
    Checkpoint,
    CheckpointEvent,
    Curve,
    Pack,
    Placement,
    Plan,
    RunProgress,
    StoredEvent,
    StoredPack,
    StoredRun,
    StoredSample,
    StoredStudy,
    Vocabulary,
)
from seedbed.store.dump import FileReader, FileRow, MergeOutcome, StoreDump, WeightsChoice

ChangeStamp: TypeAlias = Hashable  # compare for equality only
WEIGHTS_ADVICE = "`seedbed export --weights last` brings weights from the machine that has them"


class PendingSave(Protocol):
    """A checkpoint that is being saved."""

    def write(self) -> None:
        """Write its files; may run in another thread."""
        ...

    def commit(self) -> None:
        """Make it the state that its pack resumes from, and delete those before the previous one."""
        ...


@dataclass(frozen=True)
class Grant:
    """Lets another process write to a pack, until its holder makes another grant or loses the pack; picklable."""

    pack_id: str
    number: int


class Store(ABC):
    """Opened by `seedbed.store.open_store`; a context manager that closes itself."""

    shares_packs = False  # several commands train one study at once: each holds only the packs that it is training

    @classmethod
    @abstractmethod
    def open(cls, location: str, read_only: bool = False) -> Self:
        """Open the store at the part of an address after its scheme.

        A writer creates a store that is missing and upgrades one with an older schema; a reader changes nothing, and
        raises MissingData or StoreError instead.
        """

    @classmethod
    @abstractmethod
    def exists(cls, location: str) -> bool:
        """Whether there is a store at this location, readable or not."""

    @classmethod
    @abstractmethod
    def upgrade(cls, location: str) -> str:
        """Bring a store to the current schema, keeping a backup; returns a sentence that says what was done."""

    @property
    @abstractmethod
    def address(self) -> str:
        """The store's name in messages, such as the path of its database."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- before training ----

    @abstractmethod
    def register(self, plan: Plan) -> None:
        """Add a study and its runs; runs that are already stored, in any study, are left unchanged."""

    @abstractmethod
    def save_vocabulary(self, dataset: str, vocabulary: Vocabulary) -> None:
        """Keep the vocabulary of the dataset with this digest, so that its runs can be used without their corpus.

        An intact one that is already stored is left unchanged. It is deleted with the last run on this dataset.
        """

    @abstractmethod
    def claim(self, planned: Sequence[Pack], placement_of: Callable[[Pack], Placement]) -> list[StoredPack]:
        """The packs to train: the stored packs of runs that have started but not ended, and new ones for the rest.

        Packs whose runs have all ended are closed, if a process that was killed has left them open.
        """

    @abstractmethod
    def settled_runs(self) -> set[str]:
        """The ids of the runs that have ended for good: no resume undoes their end."""

    @abstractmethod
    def lock(self, pack_id: str) -> AbstractContextManager[None]:
        """Hold a pack while training it; `Busy` if another process does. The lock ends with the process."""

    # ---- only where `shares_packs`: workers on other machines that write to a pack themselves ----

    @property
    def shared_address(self) -> str:
        """The whole address for a process on another machine; it may hold a password."""
        raise NotImplementedError

    @classmethod
    def join(cls, location: str) -> Self:
        """Open the store that another process has opened, to write under its grants; waits for a while.

        StoreError names this machine if the store cannot be used from it.
        """
        raise NotImplementedError

    def grant(self, pack_id: str) -> Grant:
        """Let another process write to a pack that this one holds; what is written under earlier grants is refused.

        `Busy` if the pack was taken over.
        """
        raise NotImplementedError

    def write_under(self, grant: Grant) -> AbstractContextManager[None]:
        """Write to a pack with the permission of its holder."""
        raise NotImplementedError

    # ---- while training; the caller holds the pack's lock ----

    @abstractmethod
    def resume(self, pack_id: str, environment: Mapping[str, str] | None = None) -> tuple[int, Arrays] | None:
        """The saved (step, state) to resume from, or None; deletes what was recorded after that step.

        It is the state before the last one if that is damaged, and DamagedCheckpoint if both are.
        """

    @abstractmethod
    def can_resume(self, pack_id: str) -> bool:
        """Whether an open pack has an intact state to go on from, or needs none; StoreError if its rows are damaged.

        Changes nothing.
        """

    @abstractmethod
    def record(self, pack_id: str, events: Sequence[StoredEvent]) -> None:
        """Commit events in training order; idempotent, and events of ended runs are ignored."""

    @abstractmethod
    def begin_save(self, pack_id: str, saved: CheckpointEvent) -> PendingSave:
        """The checkpoint of a step whose events are recorded, to be written and then committed.

        No later events of the pack may be recorded before it is committed.
        """

    def save(self, pack_id: str, saved: CheckpointEvent) -> None:
        """Write the checkpoint of a step whose events are recorded; of older states only the previous one is kept."""
        pending = self.begin_save(pack_id, saved)
        pending.write()
        pending.commit()

    @abstractmethod
    def stop(self, pack_id: str) -> None:
        """Mark the unended runs of a pack as stopped."""

    @abstractmethod
    def fail(self, pack_id: str, cause: str) -> None:
        """Mark the unended runs of a pack as failed; the next claim resumes them from their last save."""

    @abstractmethod
    def finish(self, pack_id: str) -> None:
        """Close a pack whose runs have all ended, and delete its state."""

    @abstractmethod
    def split(self, pack_id: str, first: Collection[str] | None = None) -> list[StoredPack]:
        """Replace a pack by two, each with some of its unended runs and their part of the saved state.

        The runs `first` and the others are separated, or else two halves. Returns an empty list, and changes nothing,
        if one part would have no runs.
        """

    # ---- resetting and removing ----

    @abstractmethod
    def reset(self, run_ids: Sequence[str]) -> None:
        """Set runs back to planned and delete their metrics and checkpoints; `Busy` if one is being trained."""

    @abstractmethod
    def restart(self, pack_id: str) -> None:
        """Reset the unsettled runs of a pack: the way out if its saved state is damaged."""

    @abstractmethod
    def remove(self, study: str, run_ids: Sequence[str]) -> list[str]:
        """Remove runs from a study; deletes and returns those that no other study has. An emptied study is deleted."""

    # ---- reading ----

    @abstractmethod
    def change_stamp(self) -> ChangeStamp:
        """A value that differs after every commit by any process; cheap enough to poll every second.

        It may change without a commit, and need not change when an analysis is saved.
        """

    @abstractmethod
    def studies(self) -> list[StoredStudy]:
        """All studies, oldest first."""

    @abstractmethod
    def study(self, name: str) -> StoredStudy:
        """The study with this name; MissingData lists those that exist."""

    @abstractmethod
    def runs(self, study: str | None = None, skip_unreadable: bool = False) -> list[StoredRun]:
        """The runs of a study in its order, or of all studies, each once.

        UnreadableRun where this version does not know a run's settings; among all studies such runs are left out.
        """

    @abstractmethod
    def progress(self) -> dict[str, list[RunProgress]]:
        """Status and step of all runs by study, in the study's order; cheap enough to poll every second."""

    @abstractmethod
    def run(self, prefix: str) -> StoredRun:
        """The run with this id or unique id prefix."""

    @abstractmethod
    def pack_members(self, pack_id: str) -> list[StoredRun]:
        """The runs of a pack by slot, including those since removed from it."""

    @abstractmethod
    def study_packs(self, study: str) -> list[StoredPack]:
        """The packs in which runs of this study have been trained or are being trained."""

    @abstractmethod
    def pack(self, pack_id: str) -> StoredPack:
        """The pack with this id."""

    @abstractmethod
    def curves(self, run_ids: Sequence[str], names: Collection[str] | None = None) -> dict[str, dict[str, Curve]]:
        """Curves by run and metric name, of all metrics or those given; empty for a run without evaluations."""

    @abstractmethod
    def samples(self, run_id: str) -> list[StoredSample]:
        """Texts that a run generated during training, by step and number."""

    @abstractmethod
    def checkpoints(self, run_id: str) -> list[Checkpoint]:
        """The checkpoints of a run, by step."""

    @abstractmethod
    def runs_with_weights(self) -> set[str]:
        """The ids of all runs that have a checkpoint."""

    @abstractmethod
    def load_weights(self, run_id: str, step: int | Literal["last", "best"] = "last") -> Arrays:
        """The weights of a run at one step, verified."""

    @abstractmethod
    def find_checkpoint(self, run_id: str, step: int | Literal["last", "best"] = "last") -> Checkpoint:
        """The checkpoint at this step; MissingData lists the steps that have one."""

    @abstractmethod
    def load_vocabulary(self, dataset: str) -> Vocabulary | None:
        """The vocabulary of the dataset with this digest; None if it was not kept, StoreError if it is damaged."""

    @abstractmethod
    def dataset_dates(self) -> dict[str, str]:
        """When the vocabulary of each dataset was stored (UTC, ISO 8601), by the dataset's digest."""

    # ---- notes and tags ----

    @abstractmethod
    def find_target(self, name: str) -> tuple[Literal["study", "run"], str]:
        """What a note or tag is attached to: the study with this name, or else the run with this id or id prefix."""

    @abstractmethod
    def set_note(self, target: str, note: str) -> Annotation:
        """Replace the note of a study or run, or delete it with an empty text; returns what it is annotated with."""

    @abstractmethod
    def add_tags(self, target: str, tags: Collection[str]) -> Annotation:
        """Add tags to a study or run; UsageError for one that is not a single word."""

    @abstractmethod
    def remove_tags(self, target: str, tags: Collection[str]) -> Annotation:
        """Remove tags from a study or run; UsageError for one that it does not have."""

    @abstractmethod
    def annotations(self) -> Annotations:
        """All notes and tags; they are deleted with their study or run, and survive a reset."""

    # ---- analyses: recomputed from the weights at will, and deleted with them ----

    @abstractmethod
    def save_analysis(self, run_id: str, step: int, document: Mapping[str, Any]) -> None:
        """Write the analysis of a run at one step, replacing any earlier one; a read-only store can do this too."""

    @abstractmethod
    def load_analyses(self, run_id: str) -> list[Any]:
        """The analyses of a run by step; an unreadable one counts as missing, since it can be recomputed."""

    # ---- parts of a store, to be merged into another one ----

    @abstractmethod
    def dump(
        self, selection: Mapping[str, Collection[str]], weights: WeightsChoice = "none", unfinished: bool = False
    ) -> StoreDump:
        """The given runs of each study with all that belongs to them; their files are read with `read_file`.

        `weights`: of no checkpoint, the last one or all. `unfinished`: also the saved states of packs in which such
        runs are unended, and the other runs of these packs; `Busy` if one is being trained.
        """

    @abstractmethod
    def read_file(self, file: FileRow) -> bytes:
        """A file of a dump; DamagedCheckpoint if it is missing or is not what the dump says."""

    @abstractmethod
    def merge(self, dump: StoreDump, read_file: FileReader) -> MergeOutcome:
        """Add what is new in a checked dump, whose files `read_file` returns; all of it or, if interrupted, nothing.

        Of a run that both have, the one that was trained further is kept; `Busy` if it is being trained here.
        """
