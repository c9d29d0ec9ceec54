"""What the page has started, one small file a study in `HOME/logs`: kept whole, read back by any later server.

    HOME/logs/ID.json     which study with which words, its process, what was asked of it, how it ended
    HOME/logs/ID.log      what the process said
    HOME/logs/ID.toml     the study, where it is not a shipped one

Ids are made here and nowhere else: a name from outside never becomes a path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from seedbed.errors import MissingData
from seedbed.store.durable_files import write_atomic
from seedbed.web.processes import ProcessIdentity

StudySource: TypeAlias = Literal["shipped", "stored"]
StopRequest: TypeAlias = Literal["", "pause", "stop"]
JOB_ID_PATTERN: Final = re.compile(r"[0-9a-f]{16}")
LOG_TAIL_BYTES: Final = 64 * 1024  # bytes of a log that are shown


@dataclass(frozen=True)
class JobOutcome:
    """How a process ended: its exit code, None where no server was there to see it, and how its runs stood then."""

    exit_code: int | None
    statuses: dict[str, int]


@dataclass(frozen=True)
class JobRecord:
    """One study that was started from the page, as often as it was."""

    id: str
    study: str
    source: StudySource
    overrides: tuple[str, ...]
    runs: tuple[str, ...]  # ids of its plan
    started_at: str  # UTC, ISO 8601: when it was last started
    process: ProcessIdentity | None = None  # its last process; None: none was begun yet
    stop_request: StopRequest = ""
    outcome: JobOutcome | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> JobRecord:
        process, outcome = kept.pop("process"), kept.pop("outcome")
        kept |= {name: tuple(kept[name]) for name in ("overrides", "runs")}
        return cls(
            **kept,
            process=ProcessIdentity(**process) if process else None,
            outcome=JobOutcome(**outcome) if outcome else None,
        )


class JobStore:
    """The files of what was started."""

    def __init__(self, home: Path) -> None:
        self.folder = home.absolute() / "logs"

    def log_path(self, id: str) -> Path:
        return self._path(id, "log")

    def study_path(self, id: str) -> Path:
        return self._path(id, "toml")

    def write(self, started: JobRecord) -> None:
        data = json.dumps(started.as_json(), indent=1, ensure_ascii=False).encode()
        write_atomic(self._path(started.id, "json"), data, "everything that was started before")

    def read(self, id: str) -> JobRecord:
        path = self._path(id, "json")
        try:
            return JobRecord.from_json(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise MissingData(f"nothing was started under {id}; reload the page for what there is") from None
        except (ValueError, TypeError, KeyError, OSError) as error:
            raise MissingData(f"{path} cannot be read ({error}); move it away to forget what it was") from None

    def all(self) -> Iterator[JobRecord]:
        """Everything that can be read, the latest first."""
        found = []
        for path in self.folder.glob("*.json") if self.folder.is_dir() else ():
            try:
                found.append(self.read(path.stem))
            except MissingData:
                continue
        yield from sorted(found, key=lambda one: (one.started_at, one.id), reverse=True)

    def delete(self, id: str) -> None:
        """Remove its files; what it computed stays in the store."""
        for ending in ("json", "log", "toml"):
            self._path(id, ending).unlink(missing_ok=True)

    def read_log_tail(self, id: str) -> str:
        """The end of what a process said; terminal control signs are left out."""
        try:
            with self.log_path(id).open("rb") as file:
                file.seek(max(0, file.seek(0, 2) - LOG_TAIL_BYTES))
                said = file.read(LOG_TAIL_BYTES).decode("utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        return "".join(sign for sign in said if sign.isprintable() or sign == "\n")

    def _path(self, id: str, ending: str) -> Path:
        if not JOB_ID_PATTERN.fullmatch(id):
            raise MissingData("that is not the id of anything that was started; reload the page for what there is")
        return self.folder / f"{id}.{ending}"
