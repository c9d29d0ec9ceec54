"""A part of a store as plain rows, checked one by one, to be merged into another store; no database, no torch.

    dump = store.dump({"quickstart": run_ids}, weights="last")
    other.merge(dump, store.read_file)

The columns are those of schema.py. A dump may come from anywhere, so these models accept nothing that a store could not
have written: ids name files, texts are printed in terminals, and every row belongs to a run that is in the dump too. It
holds no absolute path: the last part of one is enough to recognise a text by its digest.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StringConstraints, model_validator

from seedbed.interp.analysis import Analysis
from seedbed.records import Checkpoint, ParameterCounts, Placement, RunStatus, Vocabulary
from seedbed.settings import DatasetInfo
from seedbed.store.event_rows import ENDED_STATUSES
from seedbed.study.read import sanitize_name
from seedbed.study.toml_text import parse_toml

WeightsChoice: TypeAlias = Literal["none", "last", "all"]
FileKind: TypeAlias = Literal["weights", "analysis", "state"]
MAX_STEP = 10**12
MAX_INTEGER = 2**63 - 1  # that a database column holds

# ---- texts that mean the same on any machine ----

_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_ABSOLUTE = re.compile(r"~[\w.-]*[/\\]|/[\w.~-]+(/|$)|[A-Za-z]:[/\\]|\\\\|file:/")  # where a path begins
_PATH_IN_TEXT = re.compile(r"https?://\S+|(?<![\w.~-])(?:~[\w.-]*|[A-Za-z]:)?(?:[/\\]+[^\s/\\'\"`:,;()<>\[\]|]+){2,}")


def without_paths(text: str) -> str:
    """The text with absolute paths reduced to their last part, and without control characters.

    >>> without_paths("/home/ada/notes.txt is not in /mnt/data")
    'notes.txt is not in data'
    """
    for folder, name in ((os.path.expanduser("~"), "~"), (os.getcwd(), last_part(os.getcwd()))):  # may contain spaces
        text = re.sub(rf"{re.escape(folder)}(?![\w.-])", name, text) if len(folder) > 1 else text
    found = _PATH_IN_TEXT.sub(lambda path: path[0] if path[0].startswith("http") else last_part(path[0]), text)
    return _CONTROL_CHARACTER.sub(" ", found)


def last_part(path: str) -> str:
    """The last part of a path of any system."""
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def relative_setting(value: Any) -> Any:
    """A setting's value in which texts that are absolute paths are reduced to their last part."""
    if isinstance(value, list):
        return [relative_setting(one) for one in value]
    return last_part(value) if isinstance(value, str) and _ABSOLUTE.match(value) else value


def relative_study_text(text: str) -> str:
    """A resolved study in which texts that are absolute paths are reduced to their last part."""
    return re.sub(
        r'"((?:[^"\\\n]|\\.)*)"',
        lambda found: f'"{last_part(found[1])}"' if _ABSOLUTE.match(found[1]) else found[0],
        text,
    )


def _check_settings(settings: dict[str, JsonValue]) -> dict[str, JsonValue]:
    for name, value in settings.items():
        if name != "plugins" and relative_setting(value) != value:
            raise ValueError(f"{name} is an absolute path")
    for number in _scalars(settings):
        if isinstance(number, float) and not math.isfinite(number):
            raise ValueError("a setting is not finite")
        if isinstance(number, int) and abs(number) > MAX_INTEGER:
            raise ValueError("a setting is too large")
    return settings


def _check_study_name(name: str) -> str:
    if name != sanitize_name(name):  # a report is written to a folder of this name
        raise ValueError(f"{name!r} cannot be the name of a study")
    return name


def _scalars(value: Any) -> Iterator[Any]:
    """All keys and values of nested JSON values that are neither lists nor objects."""
    if isinstance(value, dict):
        yield from value
        yield from (inner for one in value.values() for inner in _scalars(one))
    elif isinstance(value, list | tuple):
        yield from (inner for one in value for inner in _scalars(one))
    else:
        yield value


# ---- rows ----

Id = Annotated[str, StringConstraints(pattern=r"\A[0-9a-f]{1,64}\z")]
Digest = Annotated[str, StringConstraints(pattern=r"\A[0-9a-f]{64}\z")]
Step = Annotated[int, Field(ge=0, le=MAX_STEP)]
Count = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
StudyName = Annotated[str, AfterValidator(_check_study_name)]


class _Row(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, ser_json_bytes="base64", val_json_bytes="base64"
    )


class StudyRow(_Row):
    name: StudyName
    text: str
    axes: list[str]
    created: str
    runs: list[Id]  # in the order of the study


class RunRow(_Row):
    id: Id
    seed: Annotated[int, Field(ge=-MAX_INTEGER, le=MAX_INTEGER)]
    settings: Annotated[dict[str, JsonValue], AfterValidator(_check_settings)]
    parameters: ParameterCounts
    status: RunStatus
    settled: bool
    step: Step
    pack: Id | None = None
    cause: str | None = None
    best: Step | None = None
    dataset: DatasetInfo | None = None
    fingerprint: str = ""

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED_STATUSES


class PackRow(_Row):
    id: Id
    members: list[Id]
    placement: Placement
    open: bool  # it comes with its state
    step: Step | None = None
    digest: Digest | None = None
    seconds: dict[str, float]
    environment: list[dict[str, str | int]]
    predicted: Count | None = None
    counts: dict[str, Count] = {}
    steady: Count | None = None
    peak: Count | None = None
    has_cost: bool = True  # whether the store has a row of costs for it


class EvaluationRow(_Row):
    """The evaluations of a run that have the same metrics: a number for each step and name, little-endian float64."""

    run: Id
    names: list[str]
    steps: list[Step]
    numbers: bytes

    @model_validator(mode="after")
    def _has_a_number_for_each_step_and_name(self) -> EvaluationRow:
        if len(self.numbers) != 8 * len(self.names) * len(self.steps) or not self.names:
            raise ValueError("evaluations and their numbers do not fit together")
        _check_unique("names", self.names)
        return self

    def by_step(self) -> Iterator[tuple[int, bytes]]:
        """Each step with its numbers."""
        size = 8 * len(self.names)
        for i, step in enumerate(self.steps):
            yield step, self.numbers[i * size : (i + 1) * size]


class SampleRow(_Row):
    run: Id
    step: Step
    number: Count
    prompt: bytes
    text: bytes
    tokens: bytes
    log_probabilities: bytes

    @model_validator(mode="after")
    def _is_readable(self) -> SampleRow:
        for data in (self.prompt, self.text):
            data.decode("utf-8", "surrogatepass")
        if len(self.tokens) % 8 or len(self.log_probabilities) % 8:
            raise ValueError("tokens or their probabilities are incomplete")
        return self


class VocabularyRow(_Row):
    dataset: Annotated[str, StringConstraints(min_length=1)]
    created: str
    content: bytes  # JSON, not compressed: a token may be a lone surrogate, which only escaped JSON can hold

    @classmethod
    def from_vocabulary(cls, dataset: str, created: str, vocabulary: Vocabulary) -> VocabularyRow:
        return cls(dataset=dataset, created=created, content=json.dumps(asdict(vocabulary)).encode())

    @model_validator(mode="after")
    def _is_readable(self) -> VocabularyRow:
        self.as_vocabulary()
        return self

    def as_vocabulary(self) -> Vocabulary:
        stored = json.loads(self.content)
        try:
            found = Vocabulary(
                stored["tokenizer"], tuple(stored["tokens"]), tuple(map(tuple, stored["merges"])),
                tuple(stored["label_names"]),
            )  # fmt: skip
        except (TypeError, KeyError):
            raise ValueError("not a vocabulary") from None
        texts = [found.tokenizer, *found.tokens, *found.label_names, *(one for pair in found.merges for one in pair)]
        if not all(isinstance(text, str) for text in texts) or any(len(pair) != 2 for pair in found.merges):
            raise ValueError("not a vocabulary")
        return found


class NoteRow(_Row):
    study: str | None = None
    run: str | None = None
    note: str = ""
    tags: list[str] = []

    @property
    def target(self) -> tuple[Literal["study", "run"], str]:
        return ("run", self.run) if self.run is not None else ("study", self.study or "")


class FileRow(_Row):
    """A file: the weights or an analysis of a run, or the state of a pack, at one step."""

    kind: FileKind
    owner: Id  # the run or pack
    step: Step
    bytes: Count
    digest: Digest

    @property
    def key(self) -> tuple[FileKind, str, int]:
        return self.kind, self.owner, self.step

    @property
    def name(self) -> str:
        """`weights/3f2a/000000100.safetensors`."""
        suffix = ".json" if self.kind == "analysis" else ".safetensors"
        return f"{self.kind}/{self.owner}/{self.step:09d}{suffix}"

    def as_checkpoint(self) -> Checkpoint:
        return Checkpoint(self.owner, self.step, self.digest, self.bytes)


class StoreDump(_Row):
    """A part of a store. Runs of an open pack may be in no study: neighbours, without which it cannot go on."""

    studies: tuple[StudyRow, ...] = ()
    runs: tuple[RunRow, ...] = ()
    packs: tuple[PackRow, ...] = ()
    evaluations: tuple[EvaluationRow, ...] = ()  # by run
    samples: tuple[SampleRow, ...] = ()
    vocabularies: tuple[VocabularyRow, ...] = ()
    notes: tuple[NoteRow, ...] = ()
    files: tuple[FileRow, ...] = ()

    @property
    def n_bytes(self) -> int:
        """Size of its files."""
        return sum(file.bytes for file in self.files)

    @model_validator(mode="after")
    def _is_consistent(self) -> StoreDump:
        run_ids, pack_ids = {run.id for run in self.runs}, {pack.id for pack in self.packs}
        open_packs = {pack.id: pack for pack in self.packs if pack.open}
        _check_unique("studies", [study.name for study in self.studies])
        _check_unique("runs", [run.id for run in self.runs])
        _check_unique("packs", [pack.id for pack in self.packs])
        _check_unique("evaluations", [(row.run, step) for row in self.evaluations for step in row.steps])
        _check_unique("samples", [(row.run, row.step, row.number) for row in self.samples])
        _check_unique("vocabularies", [row.dataset for row in self.vocabularies])
        _check_unique("notes", [row.target for row in self.notes])
        _check_unique("files", [file.key for file in self.files])
        for study in self.studies:
            _check_unique(f"runs of {study.name}", study.runs)
            _check_known("run", study.runs, run_ids)
            parse_toml(study.text, study.name)
        members = {run for study in self.studies for run in study.runs}
        members |= {run for pack in open_packs.values() for run in pack.members}
        _check_known("study of run", run_ids, members)
        _check_known("run", [row.run for row in self.evaluations], run_ids)
        _check_known("run", [row.run for row in self.samples], run_ids)
        _check_known("run", [row.run for row in self.notes if row.run is not None], run_ids)
        _check_known("study", [row.study for row in self.notes if row.run is None], {one.name for one in self.studies})
        _check_known("run", [file.owner for file in self.files if file.kind != "state"], run_ids)
        _check_known("pack", [run.pack for run in self.runs if run.pack is not None], pack_ids)
        for pack in open_packs.values():
            _check_known("run", pack.members, run_ids)
        states = {(file.owner, file.step, file.digest) for file in self.files if file.kind == "state"}
        if states != {(pack.id, pack.step, pack.digest) for pack in open_packs.values()}:
            raise ValueError("packs and their states do not fit together")
        for run in self.runs:
            if run.status == "running" or (run.settled and not run.has_ended):
                raise ValueError(f"run {run.id} has a status that it cannot have")
        plain = self.model_dump(exclude={"evaluations": {"__all__": {"numbers"}}})
        for text in (*_scalars(plain), *(one for row in self.studies for one in _scalars(parse_toml(row.text, "")))):
            if isinstance(text, str) and (bad := _CONTROL_CHARACTER.search(text)):
                raise ValueError(f"a text with the control character {bad[0]!r}")
        return self


def _check_unique(what: str, names: Sequence[Any]) -> None:
    if len({*names}) != len(names):
        raise ValueError(f"{what} are in it twice")


def _check_known(what: str, names: Iterable[Any], known: Iterable[Any]) -> None:
    if unknown := {*names} - {*known}:
        raise ValueError(f"the {what} {min(map(str, unknown))} is not in it")


def check_analysis(document: Any, run_id: str, step: int) -> None:
    """ValueError unless the JSON document is the analysis of this run at this step."""
    try:
        found = Analysis.from_json(document)
        numbers = [number for value in found.metrics.values() for number in (value.mean, value.std)]
        texts = [
            found.fingerprint,
            found.split,
            found.inputs_error,
            found.weights_error,
            *_scalars(document["attention_errors"]),
        ]
        again = json.dumps(found.as_json())
    except Exception as error:  # whatever a document that is not an analysis may raise
        raise ValueError("it is not an analysis") from error
    is_typed = all(number is None or isinstance(number, float | int) for number in numbers)
    is_typed &= all(isinstance(text, str) and not _CONTROL_CHARACTER.search(text) for text in texts)
    if (found.run, found.step) != (run_id, step) or not is_typed or "NaN" in again:
        raise ValueError("it is not the analysis of this run")


# ---- what a merge does ----


@dataclass(frozen=True)
class MergeOutcome:
    """What a merge did with each run, by id; and what else it did."""

    new: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()  # were here, and were trained further there
    same: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()  # were trained further here, and are kept
    different: tuple[str, ...] = ()  # as far here as there, with other numbers: those here are kept
    other_texts: tuple[str, ...] = ()  # studies with another text here, which is kept
    files: tuple[FileRow, ...] = ()  # added

    @property
    def taken(self) -> set[str]:
        """The runs that are taken over."""
        return {*self.new, *self.updated}


FileReader: TypeAlias = Callable[[FileRow], bytes]
